//! The CRDs of the Gateway API's experimental channel.
//!
//! Names, versions, scopes, columns and the well-known fields are those of the release. What is not modelled here is kept
//! as it is written, so that a controller of that release finds its fields again.

use super::site::Site;
use butler_drivers::Failure;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The release whose kinds these are.
pub(crate) const VERSION: &str = "v1.2.1";
const GROUP: &str = "gateway.networking.k8s.io";
/// Kubernetes asks for proof of approval before it takes a CRD of one of its own groups.
const APPROVAL: &str = "https://github.com/kubernetes-sigs/gateway-api/pull/2997";

/// A kind and how it is served.
struct Kind {
    kind: &'static str,
    plural: &'static str,
    short: Option<&'static str>,
    namespaced: bool,
    /// The first is the one that is stored.
    versions: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
    spec: fn() -> Value,
    status: Option<fn() -> Value>,
}

const AGE: (&str, &str) = ("Age", ".metadata.creationTimestamp");
const HOSTNAMES: (&str, &str) = ("Hostnames", ".spec.hostnames");

const KINDS: [Kind; 10] = [
    Kind {
        kind: "GatewayClass",
        plural: "gatewayclasses",
        short: Some("gc"),
        namespaced: false,
        versions: &["v1", "v1beta1"],
        columns: &[
            ("Controller", ".spec.controllerName"),
            ("Accepted", ".status.conditions[?(@.type==\"Accepted\")].status"),
            AGE,
        ],
        spec: gateway_class,
        status: Some(conditions_only),
    },
    Kind {
        kind: "Gateway",
        plural: "gateways",
        short: Some("gtw"),
        namespaced: true,
        versions: &["v1", "v1beta1"],
        columns: &[
            ("Class", ".spec.gatewayClassName"),
            ("Address", ".status.addresses[*].value"),
            ("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status"),
            AGE,
        ],
        spec: gateway,
        status: Some(gateway_status),
    },
    Kind {
        kind: "HTTPRoute",
        plural: "httproutes",
        short: None,
        namespaced: true,
        versions: &["v1", "v1beta1"],
        columns: &[HOSTNAMES, AGE],
        spec: host_route,
        status: Some(route_status),
    },
    Kind {
        kind: "GRPCRoute",
        plural: "grpcroutes",
        short: None,
        namespaced: true,
        versions: &["v1"],
        columns: &[HOSTNAMES, AGE],
        spec: host_route,
        status: Some(route_status),
    },
    Kind {
        kind: "TLSRoute",
        plural: "tlsroutes",
        short: None,
        namespaced: true,
        versions: &["v1alpha2"],
        columns: &[AGE],
        spec: host_route,
        status: Some(route_status),
    },
    Kind {
        kind: "TCPRoute",
        plural: "tcproutes",
        short: None,
        namespaced: true,
        versions: &["v1alpha2"],
        columns: &[AGE],
        spec: plain_route,
        status: Some(route_status),
    },
    Kind {
        kind: "UDPRoute",
        plural: "udproutes",
        short: None,
        namespaced: true,
        versions: &["v1alpha2"],
        columns: &[AGE],
        spec: plain_route,
        status: Some(route_status),
    },
    Kind {
        kind: "ReferenceGrant",
        plural: "referencegrants",
        short: Some("refgrant"),
        namespaced: true,
        versions: &["v1beta1"],
        columns: &[AGE],
        spec: reference_grant,
        status: None,
    },
    Kind {
        kind: "BackendTLSPolicy",
        plural: "backendtlspolicies",
        short: Some("btlspolicy"),
        namespaced: true,
        versions: &["v1alpha3"],
        columns: &[AGE],
        spec: backend_tls_policy,
        status: Some(policy_status),
    },
    Kind {
        kind: "BackendLBPolicy",
        plural: "backendlbpolicies",
        short: Some("blbpolicy"),
        namespaced: true,
        versions: &["v1alpha2"],
        columns: &[AGE],
        spec: backend_lb_policy,
        status: Some(policy_status),
    },
];

pub(crate) fn objects(_: &Site<'_>) -> Result<Vec<Value>, Failure> {
    static CRDS: OnceLock<Vec<Value>> = OnceLock::new();
    Ok(CRDS.get_or_init(|| KINDS.iter().map(crd).collect()).clone())
}

fn crd(kind: &Kind) -> Value {
    let versions: Vec<Value> =
        kind.versions.iter().enumerate().map(|(n, name)| version(kind, name, n == 0)).collect();
    let mut names = json!({
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": kind.kind.to_lowercase(),
        "categories": ["gateway-api"],
    });
    if let Some(short) = kind.short {
        names["shortNames"] = json!([short]);
    }
    let mut labels = json!({});
    if kind.kind.ends_with("Policy") {
        labels["gateway.networking.k8s.io/policy"] = json!("Direct");
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{GROUP}", kind.plural),
            "annotations": {
                "api-approved.kubernetes.io": APPROVAL,
                "gateway.networking.k8s.io/bundle-version": VERSION,
                "gateway.networking.k8s.io/channel": "experimental",
            },
            "labels": labels,
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    })
}

fn version(kind: &Kind, name: &str, stored: bool) -> Value {
    let mut properties = json!({
        "apiVersion": { "type": "string" },
        "kind": { "type": "string" },
        "metadata": { "type": "object" },
        "spec": (kind.spec)(),
    });
    if let Some(status) = kind.status {
        properties["status"] = status();
    }
    let columns: Vec<Value> = kind
        .columns
        .iter()
        .map(|(name, path)| {
            let type_ = if *name == "Age" { "date" } else { "string" };
            json!({ "name": name, "type": type_, "jsonPath": path })
        })
        .collect();
    let mut version = json!({
        "name": name,
        "served": true,
        "storage": stored,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": { "type": "object", "required": ["spec"], "properties": properties } },
    });
    if kind.status.is_some() {
        version["subresources"] = json!({ "status": {} });
    }
    version
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number(min: i64, max: i64) -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": min, "maximum": max })
}

fn one_of(values: &[&str]) -> Value {
    json!({ "type": "string", "enum": values })
}

/// An object of which some fields are known.
fn object(required: &[&str], properties: Value) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// An object of which nothing is known.
fn free() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn list(items: Value, most: u64) -> Value {
    json!({ "type": "array", "items": items, "maxItems": most })
}

/// A list whose entries have names of their own.
fn keyed(items: Value, key: &str, most: u64) -> Value {
    json!({
        "type": "array",
        "items": items,
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    })
}

fn texts(most: u64) -> Value {
    list(text(), most)
}

fn conditions() -> Value {
    let condition = object(
        &["type", "status", "lastTransitionTime", "reason", "message"],
        json!({
            "type": text(),
            "status": one_of(&["True", "False", "Unknown"]),
            "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "reason": text(),
            "message": text(),
        }),
    );
    keyed(condition, "type", 8)
}

fn conditions_only() -> Value {
    object(&[], json!({ "conditions": conditions() }))
}

/// A reference to an object; the fields that it may leave out are filled in by whoever reads it.
fn reference(required: &[&str]) -> Value {
    object(
        required,
        json!({
            "group": text(), "kind": text(), "namespace": text(), "name": text(), "sectionName": text(),
            "port": number(1, 65535),
        }),
    )
}

fn gateway_class() -> Value {
    object(
        &["controllerName"],
        json!({
            "controllerName": text(),
            "description": { "type": "string", "maxLength": 64 },
            "parametersRef": reference(&["group", "kind", "name"]),
        }),
    )
}

fn gateway() -> Value {
    let tls = object(
        &[],
        json!({
            "mode": { "type": "string", "enum": ["Terminate", "Passthrough"], "default": "Terminate" },
            "certificateRefs": list(reference(&["name"]), 64),
            "frontendValidation": free(),
            "options": { "type": "object", "additionalProperties": text(), "maxProperties": 16 },
        }),
    );
    let allowed = object(
        &[],
        json!({
            "kinds": list(object(&["kind"], json!({ "group": text(), "kind": text() })), 8),
            "namespaces": object(&[], json!({
                "from": { "type": "string", "enum": ["All", "Selector", "Same"], "default": "Same" },
                "selector": free(),
            })),
        }),
    );
    let listener = object(
        &["name", "port", "protocol"],
        json!({
            "name": text(), "hostname": text(), "port": number(1, 65535), "protocol": text(),
            "tls": tls, "allowedRoutes": allowed,
        }),
    );
    object(
        &["gatewayClassName", "listeners"],
        json!({
            "gatewayClassName": { "type": "string", "minLength": 1 },
            "listeners": keyed(listener, "name", 64),
            "addresses": list(object(&["value"], json!({ "type": text(), "value": text() })), 16),
            "infrastructure": free(),
            "backendTLS": free(),
        }),
    )
}

fn gateway_status() -> Value {
    let listener = object(
        &["name"],
        json!({
            "name": text(),
            "attachedRoutes": { "type": "integer", "format": "int32" },
            "supportedKinds": list(object(&["kind"], json!({ "group": text(), "kind": text() })), 8),
            "conditions": conditions(),
        }),
    );
    object(
        &[],
        json!({
            "addresses": list(object(&["value"], json!({ "type": text(), "value": text() })), 16),
            "conditions": conditions(),
            "listeners": keyed(listener, "name", 64),
        }),
    )
}

fn backend() -> Value {
    object(
        &["name"],
        json!({
            "group": text(), "kind": text(), "namespace": text(), "name": text(),
            "port": number(1, 65535), "weight": number(0, 1_000_000), "filters": list(free(), 16),
        }),
    )
}

fn rules() -> Value {
    let rule = object(
        &[],
        json!({
            "name": text(),
            "matches": list(free(), 64),
            "filters": list(free(), 16),
            "backendRefs": list(backend(), 16),
            "timeouts": free(),
            "retry": free(),
            "sessionPersistence": free(),
        }),
    );
    list(rule, 16)
}

fn host_route() -> Value {
    object(
        &[],
        json!({ "parentRefs": list(reference(&["name"]), 32), "hostnames": texts(16), "rules": rules() }),
    )
}

fn plain_route() -> Value {
    object(&["rules"], json!({ "parentRefs": list(reference(&["name"]), 32), "rules": rules() }))
}

fn route_status() -> Value {
    let parent = object(
        &["controllerName", "parentRef"],
        json!({ "controllerName": text(), "parentRef": reference(&["name"]), "conditions": conditions() }),
    );
    object(&["parents"], json!({ "parents": list(parent, 32) }))
}

fn reference_grant() -> Value {
    let from = object(
        &["group", "kind", "namespace"],
        json!({ "group": text(), "kind": text(), "namespace": text() }),
    );
    let to = object(&["group", "kind"], json!({ "group": text(), "kind": text(), "name": text() }));
    object(&["from", "to"], json!({ "from": list(from, 16), "to": list(to, 16) }))
}

fn backend_tls_policy() -> Value {
    let validation = object(
        &["hostname"],
        json!({
            "caCertificateRefs": list(reference(&["group", "kind", "name"]), 8),
            "hostname": text(),
            "subjectAltNames": list(free(), 5),
            "wellKnownCACertificates": text(),
        }),
    );
    object(
        &["targetRefs", "validation"],
        json!({
            "targetRefs": list(reference(&["group", "kind", "name"]), 16),
            "validation": validation,
            "options": { "type": "object", "additionalProperties": text(), "maxProperties": 16 },
        }),
    )
}

fn backend_lb_policy() -> Value {
    object(
        &["targetRefs"],
        json!({ "targetRefs": list(reference(&["group", "kind", "name"]), 16), "sessionPersistence": free() }),
    )
}

fn policy_status() -> Value {
    let ancestor = object(
        &["ancestorRef", "controllerName"],
        json!({ "ancestorRef": reference(&["name"]), "controllerName": text(), "conditions": conditions() }),
    );
    object(&["ancestors"], json!({ "ancestors": list(ancestor, 16) }))
}
