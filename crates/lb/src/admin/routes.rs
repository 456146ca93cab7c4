//! From a request to what is done and answered.

use super::http::{Request, Response};
use super::metrics::metrics;
use super::status::Status;
use serde_json::json;

/// What the runtime API steers.
pub trait Control: Send + Sync {
    /// How everything is.
    fn status(&self) -> Status;
    /// Reads the file again; what was said about it.
    fn reload(&self) -> Result<Vec<String>, Refusal>;
    /// Drains a backend, or takes it back; what was done.
    fn drain(&self, drain: &Drain) -> Result<String, Refusal>;
}

/// What is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// One listener, or all that have the backend.
    pub listener: Option<String>,
    /// Which.
    pub backend: String,
    /// Takes it back.
    pub undo: bool,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing.
    NotFound(String),
    /// The file can't be used; its problems.
    Wrong(Vec<String>),
    /// It could be done at another time.
    NotNow(String),
}

/// Which requests a socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Everything,
    /// Those that change nothing and tell numbers only.
    Metrics,
}

/// Answers a request.
pub(super) fn answer(request: &Request, scope: Scope, control: &dyn Control) -> Response {
    let everything = scope == Scope::Everything;
    match (&*request.method, &*request.path) {
        ("GET", "/healthz") => Response::text(200, "ok\n"),
        ("GET", "/readyz") => readyz(&control.status()),
        ("GET", "/metrics") => Response::text(200, &metrics(&control.status())),
        ("GET", "/v1/status") if everything => Response::json(200, &control.status()),
        ("POST", "/v1/reload") if everything => match control.reload() {
            Ok(said) => Response::json(200, &json!({"messages": said})),
            Err(refusal) => refused(refusal),
        },
        ("POST", "/v1/drain") if everything => drain(request, control),
        (_, "/healthz" | "/readyz" | "/metrics") => error(405, "GET only"),
        (_, "/v1/status") if everything => error(405, "GET only"),
        (_, "/v1/reload" | "/v1/drain") if everything => error(405, "POST only"),
        _ => error(404, "no such path"),
    }
}

fn readyz(status: &Status) -> Response {
    let lines: Vec<String> =
        status.listeners.iter().map(|l| format!("{}: {}\n", l.name, l.summary)).collect();
    Response::text(if status.is_ready() { 200 } else { 503 }, &lines.concat())
}

fn drain(request: &Request, control: &dyn Control) -> Response {
    let Some(backend) = request.value("backend").filter(|name| !name.is_empty()) else {
        return error(400, "backend is missing in the query");
    };
    let undo = match request.value("undo") {
        None | Some("false") => false,
        Some("true" | "") => true,
        Some(_) => return error(400, "undo is true or false"),
    };
    let listener = request.value("listener").map(str::to_owned);
    match control.drain(&Drain { listener, backend: backend.to_owned(), undo }) {
        Ok(said) => Response::json(200, &json!({"messages": [said]})),
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::NotFound(why) => error(404, &why),
        Refusal::NotNow(why) => error(409, &why),
        Refusal::Wrong(lines) => Response::json(422, &json!({"error": lines.join("\n")})),
    }
}

fn error(status: u16, why: &str) -> Response {
    Response::json(status, &json!({"error": why}))
}
