//! Calls to Google's APIs: tokens, pages, and the flight recorder.

use super::auth::Login;
use super::error::{CallError, Refusal};
use crate::connection::{Connection, Credentials};
use crate::failure::{Class, Failure};
use crate::http::{Http, NO_ANSWER, Request, escape};
use crate::recorder::Outcome;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Instant;

pub(super) const COMPUTE: &str = "https://compute.googleapis.com";
pub(super) const RESOURCE_MANAGER: &str = "https://cloudresourcemanager.googleapis.com";

/// Most entries of a page that Google gives.
const PAGE: u32 = 500;

/// Google holds the answer to a wait back for two minutes: so many times the time that a call usually has.
const HELD: u32 = 5;

/// Google's APIs, logged in, for one project.
pub(crate) struct Client {
    compute: Http,
    manager: Http,
    login: Login,
    project: String,
}

/// Who is asked.
#[derive(Clone, Copy)]
enum Host {
    Compute,
    Manager,
}

/// A change, before it is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wire {
    pub(crate) method: Method,
    /// Below the project.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Client {
    /// Makes no call.
    pub(crate) fn new(
        project: &str,
        credentials: &Credentials,
        connection: &Connection,
    ) -> Result<Self, Failure> {
        Ok(Self {
            compute: Http::new("gcp", COMPUTE, false, connection)?,
            manager: Http::new("gcp", RESOURCE_MANAGER, false, connection)?,
            login: Login::new(credentials, connection)?,
            project: project.to_owned(),
        })
    }

    /// Who asks.
    pub(crate) fn who(&self) -> String {
        self.login.who()
    }

    /// Reads something below the project; the project itself by an empty path.
    pub(crate) async fn get(&self, path: &str, object: &str) -> Result<Value, CallError> {
        self.call(Host::Compute, self.request(Method::GET, path, None, object, false)).await
    }

    /// The state of an operation, told when it is over, or when Google does not want to hold the answer back any longer. `None` when
    /// nothing was said in the time that a call has.
    pub(crate) async fn wait(&self, path: &str, object: &str) -> Result<Option<Value>, CallError> {
        let mut request = self.request(Method::POST, &format!("{path}/wait"), None, object, false);
        request.patience = Some(self.compute.call_timeout * HELD);
        match self.call(Host::Compute, request).await {
            Err(CallError::Failed(failure)) if failure.reason == NO_ANSWER => Ok(None),
            other => other.map(Some),
        }
    }

    /// Reads something below another project: an image, a shared network. `tail` begins with that project.
    pub(crate) async fn get_tail(&self, tail: &str, object: &str) -> Result<Value, CallError> {
        let request = Request {
            method: Method::GET,
            path: format!("/compute/v1/projects/{tail}"),
            object: object.to_owned(),
            ..Request::default()
        };
        self.call(Host::Compute, request).await
    }

    /// Asks a question that needs a body. Changes nothing.
    pub(crate) async fn ask(&self, path: &str, body: Value, object: &str) -> Result<Value, CallError> {
        self.call(Host::Compute, self.request(Method::POST, path, Some(body), object, false)).await
    }

    /// All entries of a collection. Those of an aggregated one come from all its scopes.
    pub(crate) async fn list(&self, path: &str, filter: &str, object: &str) -> Result<Vec<Value>, CallError> {
        let mut all = Vec::new();
        let mut page = String::new();
        loop {
            let mut query = format!("{path}?maxResults={PAGE}");
            if !filter.is_empty() {
                query.push_str(&format!("&filter={}", escape(filter)));
            }
            if !page.is_empty() {
                query.push_str(&format!("&pageToken={}", escape(&page)));
            }
            let answer = self.get(&query, object).await?;
            entries(&answer, path, object, &mut all)?;
            match answer.get("nextPageToken").and_then(Value::as_str).filter(|next| !next.is_empty()) {
                Some(next) if next != page => page = next.to_owned(),
                _ => return Ok(all),
            }
        }
    }

    /// Changes something. The answer is an operation.
    pub(crate) async fn change(&self, wire: &Wire, id: &str, object: &str) -> Result<Value, CallError> {
        let path = format!("{}?requestId={id}", wire.path);
        self.call(Host::Compute, self.request(wire.method.clone(), &path, wire.body.clone(), object, true))
            .await
    }

    /// Those of some permissions in the project that we have.
    pub(crate) async fn permissions(&self, wanted: &[&str], object: &str) -> Result<Vec<String>, CallError> {
        let request = Request {
            method: Method::POST,
            path: format!("/v1/projects/{}:testIamPermissions", escape(&self.project)),
            object: object.to_owned(),
            json: Some(json!({"permissions": wanted})),
            ..Request::default()
        };
        let answer = self.call(Host::Manager, request).await?;
        let held = answer.get("permissions").and_then(Value::as_array);
        Ok(held.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        json: Option<Value>,
        object: &str,
        mutates: bool,
    ) -> Request {
        let slash = if path.is_empty() { "" } else { "/" };
        Request {
            method,
            path: format!("/compute/v1/projects/{}{slash}{path}", escape(&self.project)),
            object: object.to_owned(),
            mutates,
            json,
            ..Request::default()
        }
    }

    async fn call(&self, host: Host, mut request: Request) -> Result<Value, CallError> {
        let mut renewed = false;
        loop {
            let token = self.login.token(renewed).await.map_err(CallError::Failed)?;
            request.headers = vec![("authorization", format!("Bearer {token}"))];
            match self.send(host, &request).await {
                // A token can end early (key rotated, session cut): one new login, then the truth.
                Err(CallError::Refused(refusal)) if refusal.status == 401 && !renewed => renewed = true,
                other => return other,
            }
        }
    }

    /// Sends, and tells the recorder.
    async fn send(&self, host: Host, request: &Request) -> Result<Value, CallError> {
        let http = match host {
            Host::Compute => &self.compute,
            Host::Manager => &self.manager,
        };
        let (began, since) = (jiff::Timestamp::now(), Instant::now());
        let what = format!("{} {} for {}", request.method, request.path, request.object);
        let result = match http.send(request).await {
            Ok(answer) if (200..300).contains(&answer.status) && answer.body.is_object() => {
                Ok((answer.status, answer.body))
            }
            Ok(answer) if (200..300).contains(&answer.status) => Err(CallError::Failed(Failure::new(
                Class::Retryable,
                "NotGoogle",
                format!("{what}: the answer is not Google's"),
                "check the proxy, and what answers for googleapis.com here",
            ))),
            Ok(answer) => Err(CallError::Refused(Refusal::read(&answer))),
            Err(failure) => Err(CallError::Failed(failure)),
        };
        let outcome = match &result {
            Ok((status, body)) => {
                let operation = body.get("name").and_then(Value::as_str).filter(|_| request.mutates);
                Outcome::Ok(operation.map_or_else(|| status.to_string(), str::to_owned))
            }
            Err(error) => {
                let failure = error.clone().failure(&what);
                Outcome::Failed { class: failure.class, message: failure.message }
            }
        };
        http.record(request, began, since, outcome);
        result.map(|(_, body)| body)
    }
}

/// The entries of one page. An aggregated page says of every zone what it has, or that it could not be asked: that is an error,
/// since what is there would look gone.
fn entries(answer: &Value, path: &str, object: &str, all: &mut Vec<Value>) -> Result<(), CallError> {
    let collection = path.rsplit('/').next().unwrap_or(path);
    match answer.get("items") {
        Some(Value::Array(items)) => all.extend(items.iter().cloned()),
        Some(Value::Object(scopes)) => {
            for (scope, found) in scopes {
                let code = found.get("warning").and_then(|warning| warning.get("code"));
                if let Some(code) = code.and_then(Value::as_str).filter(|code| *code != "NO_RESULTS_ON_PAGE")
                {
                    return Err(CallError::Failed(Failure::new(
                        Class::Retryable,
                        "ZoneUnreachable",
                        format!("listing {collection} for {object}: {scope} could not be asked: {code}"),
                        "it is tried again; when it lasts, look at https://status.cloud.google.com",
                    )));
                }
                let items = found.get(collection).and_then(Value::as_array);
                all.extend(items.into_iter().flatten().cloned());
            }
        }
        _ => {}
    }
    Ok(())
}
