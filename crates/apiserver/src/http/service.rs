//! From a request to an answer: who asks, what for, and which verb does it.

use super::media::{self, Accepted, DiscoveryForm, Encoding, Form};
use super::params::Params;
use super::path::{self, Route, Target};
use super::reply::{Body, Content, Reply};
use crate::apply;
use crate::auth::{self, Attributes, PeerIdentity, User};
use crate::discovery::{self, AggregatedVersion};
use crate::engine::{Call, Engine, Entry, FieldValidation, attributes};
use crate::resource::Resource;
use crate::select::FieldSelector;
use crate::status::{FieldError, FieldProblem, Status};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// The API as a service: what the TLS front serves, and what a client in the same process can be handed.
#[derive(Clone)]
pub struct ApiService {
    engine: Arc<Engine>,
    /// Set for clients in the same process, which need no credentials.
    trusted: Option<Arc<User>>,
}

/// The largest body, as in Kubernetes.
const BODY_LIMIT: usize = 3 << 20;

/// What is read of a body that is too large before the connection is given up.
const DRAIN_LIMIT: usize = 8 * BODY_LIMIT;

const PLAIN: Accepted = Accepted { form: Form::Plain, encoding: Encoding::Json, v1beta1: false };

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl ApiService {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, trusted: None }
    }

    /// The same API for a caller that is known to be `user`.
    pub fn trusting(&self, user: User) -> Self {
        Self { engine: self.engine.clone(), trusted: Some(Arc::new(user)) }
    }
}

impl ApiService {
    /// One request without a client library: the code and the JSON of the answer.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> (u16, serde_json::Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(http_body_util::Full::new(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return (400, Status::bad_request(error.to_string()).to_json()),
        };
        let response = self.clone().answer(request).await;
        let code = response.status().as_u16();
        let collected = match response.into_body().collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(never) => match never {},
        };
        (code, serde_json::from_slice(&collected).unwrap_or_default())
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

impl ApiService {
    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let accept = parts.headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).map(str::to_string);
        let outcome = self.route(&parts, body, accept.as_deref()).await;
        match outcome {
            Ok((reply, accepted)) => reply.into_response(accepted),
            Err(status) => {
                let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
                let mut response = Reply::from(status).into_response(PLAIN);
                if retry > 0 {
                    response.headers_mut().insert(header::RETRY_AFTER, retry.into());
                }
                response
            }
        }
    }

    async fn route<B>(
        &self,
        parts: &http::request::Parts,
        body: B,
        accept: Option<&str>,
    ) -> Result<(Reply, Accepted), Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = parts.uri.path();
        let route = path::parse(path);
        let peer = parts.extensions.get::<PeerIdentity>();
        let user = self.engine.user(peer, self.trusted.as_ref(), &parts.headers, path)?;
        if let Route::Object(target) = route {
            return self.objects(parts, body, accept, target, user).await;
        }
        if !auth::is_public_path(path) {
            let verb = parts.method.as_str().to_ascii_lowercase();
            self.engine.authorize(user, &parts.headers, &Attributes::path(&verb, path))?;
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let reply = match self.document(&route, accept) {
            Err(status) if status.code == 404 && !self.knows_group(&route) => Reply::no_such_page(),
            Ok(_)
                if route == Route::Health && parts.uri.query().is_some_and(|q| q.starts_with("verbose")) =>
            {
                let name = path.trim_matches('/').split('/').next().unwrap_or_default();
                Reply::text(format!("[+]ping ok\n[+]log ok\n[+]store ok\n{name} check passed\n"))
            }
            other => self.conditional(&route, parts, other?),
        };
        Ok((reply, PLAIN))
    }

    /// A version that is not served, of a group that is built in.
    fn knows_group(&self, route: &Route) -> bool {
        let Route::Resources { group, .. } = route else { return false };
        self.engine.registry().resources.iter().any(|r| r.group == *group && !r.is_custom())
    }

    /// Documents that a client has already, by their ETag; and those whose address holds their hash, which never change.
    fn conditional(&self, route: &Route, parts: &http::request::Parts, mut reply: Reply) -> Reply {
        let Some(etag) = reply.etag.clone() else { return reply };
        let known = parts.headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
        if known.is_some_and(|list| list.split(',').any(|tag| tag.trim() == etag)) {
            reply = Reply::ok(Content::Json(Bytes::new())).with_code(304);
            reply.etag = Some(etag);
        } else if let Route::OpenApiV3(path) = route {
            let params = Params::parse(parts.uri.query().unwrap_or_default());
            let current = discovery::openapi_v3_hash(&self.engine.registry().resources, path);
            match (params.get("hash"), current) {
                (Some(asked), Some(current)) if asked == current => reply.forever = true,
                (Some(_), Some(current)) => {
                    reply = Reply::moved(format!("/openapi/v3/{path}?hash={current}"));
                }
                _ => {}
            }
        }
        reply
    }

    /// Everything that is not an object.
    fn document(&self, route: &Route, accept: Option<&str>) -> Result<Reply, Status> {
        let registry = self.engine.registry();
        let aggregated = |core: bool| -> Result<Option<Reply>, Status> {
            let form = match media::negotiate_discovery(accept)? {
                DiscoveryForm::Plain => return Ok(None),
                DiscoveryForm::AggregatedV2 => AggregatedVersion::V2,
                DiscoveryForm::AggregatedV2Beta1 => AggregatedVersion::V2Beta1,
            };
            let key = format!("{}/{core}", form.api_version());
            let found = registry.document(&key, |r| Some(discovery::aggregated(r, core, form)));
            Ok(found.map(|bytes| {
                let mut reply = Reply::document(bytes);
                reply.content_type = Some(form.content_type());
                reply
            }))
        };
        let found = match route {
            Route::Health => return Ok(Reply::text("ok".into())),
            Route::Metrics => return Ok(Reply::text(self.engine.metrics())),
            Route::Root => registry.document("/", |r| Some(root_paths(r))),
            Route::Version => registry.document("/version", |_| Some(discovery::version())),
            Route::CoreVersions => match aggregated(true)? {
                Some(reply) => return Ok(reply),
                None => registry.document("/api", |_| Some(discovery::api_versions(""))),
            },
            Route::Groups => match aggregated(false)? {
                Some(reply) => return Ok(reply),
                None => registry.document("/apis", |r| Some(discovery::group_list(r))),
            },
            Route::Group(group) => {
                registry.document(&format!("/apis/{group}"), |r| discovery::group(r, group))
            }
            Route::Resources { group, version } => registry
                .document(&format!("/r/{group}/{version}"), |r| discovery::resource_list(r, group, version)),
            Route::OpenApiV2 => {
                if accept.is_some_and(|a| a.contains("protobuf") && !a.contains("json")) {
                    return Err(Status::new(
                        406,
                        "NotAcceptable",
                        "the OpenAPI v2 document is served as JSON only",
                    ));
                }
                registry.document("/openapi/v2", |r| Some(discovery::openapi_v2(r)))
            }
            Route::OpenApiV3Index => {
                registry.document("/openapi/v3", |r| Some(discovery::openapi_v3_index(r)))
            }
            Route::OpenApiV3(path) => {
                registry.document(&format!("/openapi/v3/{path}"), |r| discovery::openapi_v3(r, path))
            }
            Route::Object(_) | Route::Unknown => None,
        };
        let document = found.ok_or_else(Status::no_such_path)?;
        Ok(Reply::document(document))
    }

    async fn objects<B>(
        &self,
        parts: &http::request::Parts,
        body: B,
        accept: Option<&str>,
        target: Target,
        user: Arc<User>,
    ) -> Result<(Reply, Accepted), Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let params = Params::parse(parts.uri.query().unwrap_or_default());
        let verb = verb_of(&parts.method, &target, &params);
        let named = named_by_selector(verb, &params);
        let user =
            self.engine.authorize(user, &parts.headers, &attributes(verb, &target, named.as_deref()))?;
        let registry = self.engine.registry();
        let Some(entry) = registry.find(&target.group, &target.version, &target.resource).cloned() else {
            // A group of CRDs alone has no answer of its own for what it does not know.
            let known = registry.is_builtin_group(&target.group, &target.version);
            return if known { Err(Status::no_such_path()) } else { Ok((Reply::no_such_page(), PLAIN)) };
        };
        let accepted = media::negotiate(accept)?;
        let call = make_call(parts, target, entry, user, params, accepted)?;
        if verb.is_empty() {
            return Err(Status::method_not_allowed());
        }
        if verb == "watch" {
            // The old watch paths can name a subresource; what was authorised is then not what would be shown.
            if call.subresource.is_some() {
                return Err(Status::no_such_path());
            }
            if !call.entry.resource.verbs.contains(&"watch") {
                return Err(Status::method_not_allowed());
            }
            return Ok((self.engine.watch(call)?, accepted));
        }
        let bytes = if matches!(parts.method, Method::GET | Method::HEAD) {
            Bytes::new()
        } else {
            read_body(body).await?
        };
        let mut reply = self.engine.dispatch(&call, verb, &bytes).await?;
        if matches!(verb, "create" | "update" | "patch") {
            reply.warnings.extend(never_called(&call.entry.resource));
        }
        if let Some(warning) = &call.entry.resource.deprecation_warning {
            reply.warnings.push(warning.clone());
        }
        let reply = self.engine.transform(&call, reply);
        Ok((reply, accepted))
    }
}

/// Kinds that are kept for the cluster they are meant for, but do nothing here.
fn never_called(resource: &Resource) -> Option<String> {
    let what = match (resource.group.as_str(), resource.kind.as_str()) {
        ("admissionregistration.k8s.io", _) => "admission webhooks and policies are",
        ("apiregistration.k8s.io", "APIService") => "aggregated APIs are",
        _ => return None,
    };
    Some(format!("{what} stored, but never called by this server"))
}

/// `/`: every path that is worth a look.
fn root_paths(resources: &[Arc<Resource>]) -> Bytes {
    let mut paths = vec!["/api".to_string(), "/api/v1".into(), "/apis".into()];
    for r in resources.iter().filter(|r| !r.group.is_empty()) {
        paths.push(format!("/apis/{}", r.group));
        paths.push(format!("/apis/{}/{}", r.group, r.version));
    }
    paths.extend(
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(String::from),
    );
    paths.sort();
    paths.dedup();
    Bytes::from(serde_json::json!({"paths": paths}).to_string())
}

fn verb_of(method: &Method, target: &Target, params: &Params) -> &'static str {
    if target.watch && *method == Method::GET {
        return "watch";
    }
    match (method, &target.name) {
        (&Method::GET | &Method::HEAD, Some(_)) => "get",
        (&Method::GET | &Method::HEAD, None) if params.flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, None) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "",
    }
}

/// A list or watch of one name is a question about that name.
fn named_by_selector(verb: &str, params: &Params) -> Option<String> {
    if !matches!(verb, "list" | "watch" | "deletecollection") {
        return None;
    }
    FieldSelector::parse(params.get("fieldSelector")?).ok()?.name().map(str::to_string)
}

fn make_call(
    parts: &http::request::Parts,
    target: Target,
    entry: Arc<Entry>,
    user: Arc<User>,
    params: Params,
    accepted: Accepted,
) -> Result<Call, Status> {
    if entry.resource.namespaced && target.namespace.is_none() && target.name.is_some()
        || !entry.resource.namespaced && target.namespace.is_some()
    {
        return Err(Status::no_such_path());
    }
    let header =
        |name| parts.headers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok()).unwrap_or_default();
    let refuse = |error: FieldError| Err(Status::invalid_options(options_kind(&parts.method), &[error]));
    let manager = match params.get("fieldManager") {
        Some(manager) if manager.len() > 128 => {
            let detail = "may not be more than 128 bytes";
            return refuse(FieldError::new(FieldProblem::TooLong, "fieldManager", manager.into(), detail));
        }
        Some(manager) if manager.chars().any(char::is_control) => {
            let detail = "should only contain printable characters";
            return refuse(FieldError::invalid("fieldManager", manager.into(), detail));
        }
        Some(manager) => manager.to_string(),
        None => apply::manager_from_user_agent(header(header::USER_AGENT)),
    };
    let field_validation = match params.get("fieldValidation") {
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some("Warn") | None => FieldValidation::Warn,
        Some(other) => {
            let known = ["", "Ignore", "Strict", "Warn"];
            return refuse(FieldError::not_supported("fieldValidation", other.into(), &known));
        }
    };
    let asked: Vec<&str> = params.all("dryRun").collect();
    let dry_run = !asked.is_empty();
    if asked.iter().any(|value| *value != "All") {
        return refuse(FieldError::not_supported("dryRun", asked.into(), &["All"]));
    }
    let content_type = header(header::CONTENT_TYPE).to_string();
    let Target { namespace, name, subresource, .. } = target;
    Ok(Call {
        entry,
        namespace,
        name,
        subresource,
        user,
        params,
        accepted,
        manager,
        dry_run,
        field_validation,
        content_type,
    })
}

fn options_kind(method: &Method) -> &'static str {
    match *method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        _ => "DeleteOptions",
    }
}

async fn read_body<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {BODY_LIMIT}"))
    };
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|e| Status::bad_request(format!("the request body broke off: {}", e.into())))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > DRAIN_LIMIT {
            return Err(too_large());
        }
        if length > BODY_LIMIT {
            // Read on and forget: a client that is still sending would not see the answer.
            continue;
        }
        if first.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&first);
        }
        rest.extend_from_slice(&data);
    }
    if length > BODY_LIMIT {
        return Err(too_large());
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
