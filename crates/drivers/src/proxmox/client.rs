//! Calls to the Proxmox API: login, the envelope around answers, and the flight recorder.

use super::error::{CallError, Refusal};
use crate::connection::Credentials;
use crate::failure::{Class, Failure};
use crate::http::{Http, Request};
use crate::recorder::Outcome;
use reqwest::Method;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A ticket lives for two hours; it is renewed well before.
const TICKET_LIFE: Duration = Duration::from_secs(100 * 60);

/// Where the API is below the endpoint.
const ROOT: &str = "/api2/json";

/// The Proxmox API, logged in.
pub(crate) struct Client {
    http: Http,
    login: Login,
}

enum Login {
    /// `PVEAPIToken=id=secret`
    Token(String),
    Password {
        username: String,
        password: String,
        ticket: Mutex<Option<Ticket>>,
    },
}

#[derive(Clone)]
struct Ticket {
    cookie: String,
    csrf: String,
    since: Instant,
}

impl Client {
    /// Makes no call.
    pub(crate) fn new(http: Http, credentials: &Credentials) -> Result<Self, Failure> {
        Ok(Self { http, login: Login::from(credentials)? })
    }

    /// Where it talks to.
    pub(crate) fn endpoint(&self) -> &str {
        self.http.base()
    }

    /// Whether a task's user is the one that is logged in.
    pub(crate) fn is_user(&self, user: &str) -> bool {
        match &self.login {
            Login::Token(token) => token
                .strip_prefix("PVEAPIToken=")
                .is_some_and(|rest| rest.strip_prefix(user).is_some_and(|rest| rest.starts_with(['=', '!']))),
            Login::Password { username, .. } => username == user,
        }
    }

    /// Reads something.
    pub(crate) async fn get(&self, path: &str, object: &str) -> Result<Value, CallError> {
        self.call(Method::GET, path, None, object).await
    }

    /// Changes something. The answer is a task's id, or nothing.
    pub(crate) async fn change(
        &self,
        method: Method,
        path: &str,
        form: Vec<(String, String)>,
        object: &str,
    ) -> Result<Value, CallError> {
        self.call(method, path, Some(form), object).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        form: Option<Vec<(String, String)>>,
        object: &str,
    ) -> Result<Value, CallError> {
        let mutates = method != Method::GET;
        let mut renewed = false;
        loop {
            let ticket = self.ticket(renewed).await?;
            let mut request = Request {
                method: method.clone(),
                path: format!("{ROOT}{path}"),
                object: object.to_owned(),
                mutates,
                form: form.clone(),
                headers: self.headers(ticket.as_ref(), mutates),
                ..Request::default()
            };
            // Proxmox takes no body with DELETE: parameters are in the query there.
            if method == Method::DELETE
                && let Some(form) = request.form.take().filter(|form| !form.is_empty())
            {
                request.path = format!("{}?{}", request.path, crate::http::encode_form(&form));
            }
            let answer = self.send(&request).await;
            match answer {
                // A ticket can end early (server restarted, key rotated): one new login, then the truth.
                Err(CallError::Refused(refusal)) if refusal.status == 401 && ticket.is_some() && !renewed => {
                    renewed = true;
                }
                other => return other,
            }
        }
    }

    /// Sends, reads the envelope, and tells the recorder.
    async fn send(&self, request: &Request) -> Result<Value, CallError> {
        let (began, since) = (jiff::Timestamp::now(), Instant::now());
        let what = format!("{} {} for {}", request.method, request.path, request.object);
        let result = match self.http.send(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => match answer.body.get("data") {
                Some(data) => Ok((answer.status, data.clone())),
                None => Err(CallError::Failed(Failure::new(
                    Class::InvalidConfig,
                    "NotProxmox",
                    format!("{what}: the answer is not Proxmox'"),
                    "check that the endpoint is the API of Proxmox VE, such as https://pve.example.com:8006",
                ))),
            },
            Ok(answer) => Err(CallError::Refused(Refusal::read(&answer))),
            Err(failure) => Err(CallError::Failed(failure)),
        };
        let outcome = match &result {
            Ok((_, Value::String(upid))) if upid.starts_with("UPID:") => Outcome::Ok(upid.clone()),
            Ok((status, _)) => Outcome::Ok(status.to_string()),
            Err(error) => {
                let failure = error.clone().failure(&what);
                Outcome::Failed { class: failure.class, message: failure.message }
            }
        };
        self.http.record(request, began, since, outcome);
        result.map(|(_, data)| data)
    }

    fn headers(&self, ticket: Option<&Ticket>, mutates: bool) -> Vec<(&'static str, String)> {
        match (&self.login, ticket) {
            (Login::Token(token), _) => vec![("authorization", token.clone())],
            (Login::Password { .. }, Some(ticket)) => {
                let mut headers = vec![("cookie", format!("PVEAuthCookie={}", ticket.cookie))];
                if mutates {
                    headers.push(("csrfpreventiontoken", ticket.csrf.clone()));
                }
                headers
            }
            (Login::Password { .. }, None) => Vec::new(),
        }
    }

    /// The ticket to use; a new one when there is none, when it is old, or when `renew` says so.
    async fn ticket(&self, renew: bool) -> Result<Option<Ticket>, CallError> {
        let Login::Password { username, password, ticket } = &self.login else { return Ok(None) };
        // Held over the login, so that many calls at once log in once.
        let mut kept = ticket.lock().await;
        if let Some(ticket) = kept.as_ref().filter(|ticket| !renew && ticket.since.elapsed() < TICKET_LIFE) {
            return Ok(Some(ticket.clone()));
        }
        let request = Request {
            method: Method::POST,
            path: format!("{ROOT}/access/ticket"),
            object: format!("login of {username}"),
            // Nothing in the data centre changes by it.
            mutates: false,
            form: Some(vec![
                ("username".to_owned(), username.clone()),
                ("password".to_owned(), password.clone()),
            ]),
            ..Request::default()
        };
        let data = self.send(&request).await?;
        let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
        let (Some(cookie), Some(csrf)) = (text("ticket"), text("CSRFPreventionToken")) else {
            return Err(CallError::Failed(Failure::new(
                Class::Auth,
                "LoginFailed",
                format!("{} gave {username} no ticket", self.endpoint()),
                "a second factor can't be used here: make an API token and use token and tokenSecret",
            )));
        };
        let fresh = Ticket { cookie, csrf, since: Instant::now() };
        *kept = Some(fresh.clone());
        Ok(Some(fresh))
    }
}

impl Login {
    fn from(credentials: &Credentials) -> Result<Self, Failure> {
        if let (Some(id), Some(secret)) = (credentials.get("token"), credentials.get("tokenSecret")) {
            return Ok(Login::Token(format!("PVEAPIToken={}={}", id.trim(), secret.trim())));
        }
        if let (Some(username), Some(password)) = (credentials.get("username"), credentials.get("password")) {
            let username = username.trim();
            // Without a realm Proxmox refuses with nothing but "authentication failure".
            let realm = if username.contains('@') { "" } else { "@pam" };
            return Ok(Login::Password {
                username: format!("{username}{realm}"),
                password: password.trim_end_matches(['\r', '\n']).to_owned(),
                ticket: Mutex::new(None),
            });
        }
        Err(Failure::new(
            Class::Auth,
            "CredentialsMissing",
            "the credentials have neither token and tokenSecret nor username and password",
            "put token (user@realm!name) and tokenSecret into the credentials Secret",
        ))
    }
}
