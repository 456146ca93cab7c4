//! What botocore's models say of the operations of AWS that a driver may call: their parameters and their answers.
//!
//! The table is JSON with one operation or shape per line, under short keys: of a service its API `v`ersion, `p`rotocol and
//! XML `n`amespace; of an operation its `i`nput and `o`utput shape, the `w`rapper of its result and the codes of its
//! `e`rrors; of a shape its `k`ind, and then `m`embers (each with its `s`hape, `l`ocation name and `q`uery name), the
//! `r`equired ones, the `e`lement of a list and whether it is `f`lattened, `v`alues of an enumeration, a `p`attern, and the
//! smallest (`n`) and largest (`x`) value or length.

use super::{Package, Table, Wheel, lines};
use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Read;

pub(super) const PACKAGE: Package = Package {
    name: "botocore",
    version: "1.44.0",
    sha256: "9055745fc16400377ac7e825ac63b8f77af17305e1c77c9a5519a648d7b2e87c",
};

const TABLE: &str = "crates/sim/src/aws/model.json";

/// The operations that are served. Others are refused by name.
const SERVED: &[(&str, &str, &[&str])] = &[
    (
        "ec2",
        "2016-11-15",
        &[
            "AuthorizeSecurityGroupIngress",
            "CreateSecurityGroup",
            "CreateTags",
            "DeleteSecurityGroup",
            "DeleteTags",
            "DeleteVolume",
            "DescribeAccountAttributes",
            "DescribeAvailabilityZones",
            "DescribeImages",
            "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes",
            "DescribeInstances",
            "DescribeNetworkInterfaces",
            "DescribeRegions",
            "DescribeSecurityGroupRules",
            "DescribeSecurityGroups",
            "DescribeSubnets",
            "DescribeTags",
            "DescribeVolumes",
            "DescribeVpcs",
            "ModifyInstanceAttribute",
            "RebootInstances",
            "RevokeSecurityGroupIngress",
            "RunInstances",
            "StartInstances",
            "StopInstances",
            "TerminateInstances",
        ],
    ),
    (
        "elbv2",
        "2015-12-01",
        &[
            "AddTags",
            "CreateListener",
            "CreateLoadBalancer",
            "CreateTargetGroup",
            "DeleteListener",
            "DeleteLoadBalancer",
            "DeleteTargetGroup",
            "DeregisterTargets",
            "DescribeAccountLimits",
            "DescribeListenerAttributes",
            "DescribeListeners",
            "DescribeLoadBalancerAttributes",
            "DescribeLoadBalancers",
            "DescribeTags",
            "DescribeTargetGroupAttributes",
            "DescribeTargetGroups",
            "DescribeTargetHealth",
            "ModifyListener",
            "ModifyListenerAttributes",
            "ModifyLoadBalancerAttributes",
            "ModifyTargetGroup",
            "ModifyTargetGroupAttributes",
            "RegisterTargets",
            "RemoveTags",
            "SetSecurityGroups",
            "SetSubnets",
        ],
    ),
    ("sts", "2011-06-15", &["AssumeRole", "GetCallerIdentity"]),
];

pub(super) fn tables(wheel: &Wheel) -> Result<Vec<Table>> {
    let mut out = Facts::default();
    for (service, version, operations) in SERVED {
        let file = format!("botocore/data/{service}/{version}/service-2.json.gz");
        let mut text = String::new();
        GzDecoder::new(wheel.file(&file)?.as_slice())
            .read_to_string(&mut text)
            .with_context(|| format!("unpack {file}"))?;
        let model: Value = serde_json::from_str(&text).with_context(|| format!("read {file}"))?;
        out.take(service, &model, operations)?;
    }
    Ok(vec![Table { path: TABLE, text: out.print()? }])
}

#[derive(Default)]
struct Facts {
    services: BTreeMap<String, Value>,
    operations: BTreeMap<String, Value>,
    shapes: BTreeMap<String, Value>,
}

impl Facts {
    fn take(&mut self, service: &str, model: &Value, served: &[&str]) -> Result<()> {
        let metadata = &model["metadata"];
        let mut about = Map::new();
        about.insert("v".into(), metadata["apiVersion"].clone());
        about.insert("p".into(), metadata["protocol"].clone());
        about.insert("n".into(), metadata["xmlNamespace"].clone());
        self.services.insert(service.to_owned(), Value::Object(about));
        let mut wanted = Vec::new();
        for name in served {
            let operation = &model["operations"][name];
            operation["name"].as_str().with_context(|| format!("{service} has no {name}"))?;
            let shortened = shorten_operation(operation, &model["shapes"], &mut wanted);
            self.operations.insert(format!("{service}:{name}"), shortened);
        }
        while let Some(name) = wanted.pop() {
            let key = format!("{service}:{name}");
            if self.shapes.contains_key(&key) {
                continue;
            }
            let shape = &model["shapes"][&name];
            shape["type"].as_str().with_context(|| format!("{service} has no shape {name}"))?;
            self.shapes.insert(key, shorten_shape(shape, &mut wanted));
        }
        Ok(())
    }

    fn print(&self) -> Result<String> {
        Ok(format!(
            "{{\"services\":{{\n{}\n}},\n\"operations\":{{\n{}\n}},\n\"shapes\":{{\n{}\n}}}}\n",
            lines(&self.services)?,
            lines(&self.operations)?,
            lines(&self.shapes)?
        ))
    }
}

fn shorten_operation(operation: &Value, shapes: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    for (key, from) in [("i", "input"), ("o", "output")] {
        if let Some(shape) = operation[from]["shape"].as_str() {
            out.insert(key.into(), shape.into());
            wanted.push(shape.to_owned());
        }
    }
    if let Some(wrapper) = operation["output"].get("resultWrapper") {
        out.insert("w".into(), wrapper.clone());
    }
    let errors = operation["errors"].as_array().into_iter().flatten();
    let codes = errors.filter_map(|error| {
        let name = error["shape"].as_str()?;
        Some(shapes[name]["error"]["code"].as_str().unwrap_or(name).into())
    });
    let codes: Vec<Value> = codes.collect();
    if !codes.is_empty() {
        out.insert("e".into(), Value::Array(codes));
    }
    Value::Object(out)
}

fn shorten_shape(shape: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    out.insert("k".into(), shape["type"].clone());
    for (key, from) in [("r", "required"), ("v", "enum"), ("p", "pattern"), ("n", "min"), ("x", "max")] {
        if let Some(fact) = shape.get(from) {
            out.insert(key.into(), fact.clone());
        }
    }
    if shape["flattened"] == true {
        out.insert("f".into(), true.into());
    }
    let members: Map<String, Value> = shape["members"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, member)| (name.clone(), shorten_member(member, wanted)))
        .collect();
    if !members.is_empty() {
        out.insert("m".into(), Value::Object(members));
    }
    if let Some(element) = shape.get("member") {
        out.insert("e".into(), shorten_member(element, wanted));
    }
    Value::Object(out)
}

fn shorten_member(member: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    for (key, from) in [("s", "shape"), ("l", "locationName"), ("q", "queryName")] {
        if let Some(fact) = member.get(from) {
            out.insert(key.into(), fact.clone());
        }
    }
    wanted.extend(member["shape"].as_str().map(ToOwned::to_owned));
    Value::Object(out)
}
