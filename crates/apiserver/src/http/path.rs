//! The path of a request, taken apart.

use std::borrow::Cow;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz`, with or without a check's name behind it.
    Health,
    Metrics,
    Version,
    /// `/`: the list of paths.
    Root,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`
    Resources {
        group: String,
        version: String,
    },
    OpenApiV2,
    OpenApiV3Index,
    /// `/openapi/v3/<path>`
    OpenApiV3(String),
    Object(Target),
    Unknown,
}

/// A collection, an object or a subresource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The old way to watch: `/api/v1/watch/...`.
    pub(crate) watch: bool,
}

/// Reads a path. Trailing slashes are ignored, as Kubernetes does.
pub(crate) fn parse(path: &str) -> Route {
    let parts: Vec<Cow<'_, str>> =
        path.trim_matches('/').split('/').filter(|p| !p.is_empty()).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.as_slice() {
        [] => Route::Root,
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiV3Index,
        ["openapi", "v3", rest @ ..] => Route::OpenApiV3(rest.join("/")),
        ["api"] => Route::CoreVersions,
        ["api", version] => Route::Resources { group: String::new(), version: (*version).into() },
        ["api", version, rest @ ..] => target("", version, rest),
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).into()),
        ["apis", group, version] => Route::Resources { group: (*group).into(), version: (*version).into() },
        ["apis", group, version, rest @ ..] => target(group, version, rest),
        _ => Route::Unknown,
    }
}

fn target(group: &str, version: &str, rest: &[&str]) -> Route {
    let mut t = Target { group: group.into(), version: version.into(), ..Target::default() };
    let rest = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => {
            t.watch = true;
            rest
        }
        _ => rest,
    };
    let rest = match rest {
        // A namespace's own subresources are told from collections inside it by their names.
        ["namespaces", ns] | ["namespaces", ns, "status" | "finalize"] if group.is_empty() => {
            t.resource = "namespaces".into();
            t.name = Some((*ns).into());
            t.subresource = rest.get(2).map(|s| (*s).into());
            return Route::Object(t);
        }
        ["namespaces", ns, rest @ ..] if !rest.is_empty() => {
            t.namespace = Some((*ns).into());
            rest
        }
        _ => rest,
    };
    match rest {
        [resource] => t.resource = (*resource).into(),
        [resource, name] => {
            t.resource = (*resource).into();
            t.name = Some((*name).into());
        }
        [resource, name, subresource @ ..] => {
            t.resource = (*resource).into();
            t.name = Some((*name).into());
            t.subresource = Some(subresource.join("/"));
        }
        [] => return Route::Unknown,
    }
    Route::Object(t)
}

/// Percent-decoding; text that does not decode stays as it is and then names nothing.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%').then(|| bytes.get(i + 1..i + 3)).flatten();
        match hex.and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str) -> Target {
        match parse(path) {
            Route::Object(t) => t,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn namespaces_and_what_is_in_them_are_told_apart() {
        let t = object("/api/v1/namespaces/a");
        assert_eq!((t.resource.as_str(), t.name.as_deref(), t.namespace), ("namespaces", Some("a"), None));
        let t = object("/api/v1/namespaces/a/finalize");
        assert_eq!((t.resource.as_str(), t.subresource.as_deref()), ("namespaces", Some("finalize")));
        let t = object("/api/v1/namespaces/a/pods");
        assert_eq!((t.resource.as_str(), t.namespace.as_deref(), t.name), ("pods", Some("a"), None));
        let t = object("/apis/g/v1/namespaces/a/things/b/status");
        assert_eq!((t.name.as_deref(), t.subresource.as_deref()), (Some("b"), Some("status")));
        assert_eq!(object("/apis/g/v1/things/b%3Ac").name.as_deref(), Some("b:c"));
    }

    #[test]
    fn everything_else_has_its_route() {
        assert_eq!(parse("/"), Route::Root);
        assert_eq!(parse("/readyz/ping"), Route::Health);
        assert_eq!(parse("/apis/"), Route::Groups);
        assert_eq!(parse("/openapi/v3/apis/g/v1"), Route::OpenApiV3("apis/g/v1".into()));
        assert_eq!(parse("/nope"), Route::Unknown);
    }
}
