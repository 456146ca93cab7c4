//! Calls to EC2, ELB and STS: the query protocol, signatures, roles, and the flight recorder.

use super::credentials::{Role, Source};
use super::error::{CallError, Refusal};
use super::sign::{Keys, Scope, Signable, sign};
use super::xml::Element;
use crate::connection::{Connection, Credentials};
use crate::failure::{Class, Failure};
use crate::http::{Http, Request, encode_form};
use crate::recorder::Outcome;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use std::time::Instant;
use tokio::sync::Mutex;

/// Parameters of a call.
pub(crate) type Params = Vec<(String, String)>;

/// A service and the version of its API that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    Elb,
    Sts,
    Quotas,
}

/// A call, before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) service: Service,
    pub(crate) action: &'static str,
    pub(crate) params: Params,
}

/// AWS, in one region and with one set of credentials.
pub(crate) struct Client {
    pub(crate) region: String,
    ec2: Http,
    elb: Http,
    sts: Http,
    quotas: Http,
    pub(crate) source: Source,
    /// Keys of the last role, until shortly before they end.
    taken_on: Mutex<Option<(Keys, Timestamp)>>,
}

/// Keys of a role are renewed so long before they end.
const EARLY: SignedDuration = SignedDuration::from_secs(300);

impl Service {
    fn version(self) -> &'static str {
        match self {
            Service::Ec2 => "2016-11-15",
            Service::Elb => "2015-12-01",
            Service::Sts => "2011-06-15",
            Service::Quotas => "2019-06-24",
        }
    }

    /// The name in signatures and host names.
    fn name(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb => "elasticloadbalancing",
            Service::Sts => "sts",
            Service::Quotas => "servicequotas",
        }
    }
}

/// One parameter.
pub(crate) fn param(key: impl Into<String>, value: impl Into<String>) -> (String, String) {
    (key.into(), value.into())
}

/// `Name.1`, `Name.2` ... for each value.
pub(crate) fn numbered<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Params {
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| param(format!("{name}.{}", index + 1), value))
        .collect()
}

/// Where a service of a region is reached.
pub(crate) fn endpoint(service: Service, region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://{}.{region}.{domain}", service.name())
}

impl Client {
    /// Makes no call.
    pub(crate) fn new(
        region: &str,
        credentials: &Credentials,
        connection: &Connection,
    ) -> Result<Self, Failure> {
        let http =
            |system, service: Service| Http::new(system, &endpoint(service, region), false, connection);
        Ok(Self {
            region: region.to_owned(),
            ec2: http("ec2", Service::Ec2)?,
            elb: http("elbv2", Service::Elb)?,
            sts: http("sts", Service::Sts)?,
            quotas: http("servicequotas", Service::Quotas)?,
            source: Source::read(credentials)?,
            taken_on: Mutex::new(None),
        })
    }

    /// Reads something.
    pub(crate) async fn read(
        &self,
        service: Service,
        action: &'static str,
        params: Params,
        object: &str,
    ) -> Result<Element, CallError> {
        self.call(&Wire { service, action, params }, object, false).await
    }

    /// Changes something.
    pub(crate) async fn change(&self, wire: &Wire, object: &str) -> Result<Element, CallError> {
        self.call(wire, object, true).await
    }

    async fn call(&self, wire: &Wire, object: &str, mutates: bool) -> Result<Element, CallError> {
        let keys = self.keys(false).await?;
        match self.send(wire, &keys, object, mutates).await {
            // Keys of a role can end early: one new set, then the truth.
            Err(CallError::Refused(refusal)) if refusal.expired() && !self.source.roles.is_empty() => {
                let keys = self.keys(true).await?;
                self.send(wire, &keys, object, mutates).await
            }
            other => other,
        }
    }

    /// Signs, sends, reads the answer, and tells the recorder.
    async fn send(
        &self,
        wire: &Wire,
        keys: &Keys,
        object: &str,
        mutates: bool,
    ) -> Result<Element, CallError> {
        let http = self.http(wire.service);
        let mut form = vec![param("Action", wire.action), param("Version", wire.service.version())];
        form.extend(wire.params.iter().cloned());
        let body = encode_form(&form);
        let (began, since) = (Timestamp::now(), Instant::now());
        let signable = Signable {
            method: "POST",
            path: "/",
            query: "",
            headers: vec![
                ("content-type", "application/x-www-form-urlencoded".to_owned()),
                ("host", host(http.base())),
            ],
            body: &body,
        };
        let scope = Scope { region: &self.region, service: wire.service.name(), at: began };
        let request = Request {
            method: Method::POST,
            // What is behind the mark is for messages, and is not sent.
            path: format!("/#{}", wire.action),
            object: object.to_owned(),
            mutates,
            form: Some(form),
            headers: sign(signable, keys, scope),
            ..Request::default()
        };
        let what = format!("{} for {object}", wire.action);
        let result = match http.send(&request).await {
            Ok(answer) => {
                let text = answer.body.as_str().unwrap_or_default();
                if (200..300).contains(&answer.status) {
                    understood(text, wire.action, &what)
                } else {
                    let refusal = Refusal::read(answer.status, text);
                    Err(CallError::Refused(refusal.of(wire.action, keys.token.is_some())))
                }
            }
            Err(failure) => Err(CallError::Failed(failure)),
        };
        let outcome = match &result {
            Ok(_) => Outcome::Ok("200".to_owned()),
            Err(error) => {
                let failure = error.clone().failure(&what);
                Outcome::Failed { class: failure.class, message: failure.message }
            }
        };
        http.record_as(wire.action.to_owned(), &request, began, since, outcome);
        result
    }

    fn http(&self, service: Service) -> &Http {
        match service {
            Service::Ec2 => &self.ec2,
            Service::Elb => &self.elb,
            Service::Sts => &self.sts,
            Service::Quotas => &self.quotas,
        }
    }

    /// A quota of EC2 by its code. Service Quotas speaks JSON, unlike all others.
    pub(crate) async fn quota(&self, code: &str, object: &str) -> Result<f64, CallError> {
        const TARGET: &str = "ServiceQuotasV20190624.GetServiceQuota";
        let keys = self.keys(false).await?;
        let http = self.http(Service::Quotas);
        let json = serde_json::json!({"ServiceCode": "ec2", "QuotaCode": code});
        let given = vec![
            ("content-type", "application/x-amz-json-1.1".to_owned()),
            ("x-amz-target", TARGET.to_owned()),
        ];
        let (began, since) = (Timestamp::now(), Instant::now());
        let mut headers = given.clone();
        headers.push(("host", host(http.base())));
        let signable = Signable { method: "POST", path: "/", query: "", headers, body: &json.to_string() };
        let scope = Scope { region: &self.region, service: Service::Quotas.name(), at: began };
        let request = Request {
            method: Method::POST,
            path: "/#GetServiceQuota".to_owned(),
            object: object.to_owned(),
            headers: given.into_iter().chain(sign(signable, &keys, scope)).collect(),
            json: Some(json),
            ..Request::default()
        };
        let result = match http.send(&request).await {
            Ok(answer) => match answer.body.pointer("/Quota/Value").and_then(serde_json::Value::as_f64) {
                Some(value) => Ok(value),
                None => Err(CallError::Refused(Refusal::of_json(answer.status, &answer.body))),
            },
            Err(failure) => Err(CallError::Failed(failure)),
        };
        let outcome = match &result {
            Ok(_) => Outcome::Ok("200".to_owned()),
            Err(error) => {
                let failure = error.clone().failure(&format!("GetServiceQuota for {object}"));
                Outcome::Failed { class: failure.class, message: failure.message }
            }
        };
        http.record_as("GetServiceQuota".to_owned(), &request, began, since, outcome);
        result
    }

    /// The keys to sign with: the given ones, or those of the last role.
    async fn keys(&self, renew: bool) -> Result<Keys, CallError> {
        if self.source.roles.is_empty() {
            return Ok(self.source.keys.clone());
        }
        // Held over the calls, so that many calls at once take the role on once.
        let mut kept = self.taken_on.lock().await;
        let good = |until: &Timestamp| Timestamp::now().duration_until(*until) > EARLY;
        if let Some((keys, _)) = kept.as_ref().filter(|(_, until)| !renew && good(until)) {
            return Ok(keys.clone());
        }
        let mut keys = self.source.keys.clone();
        let mut until = Timestamp::now();
        for role in &self.source.roles {
            (keys, until) = self.take_on(role, &keys).await?;
        }
        *kept = Some((keys.clone(), until));
        Ok(keys)
    }

    async fn take_on(&self, role: &Role, keys: &Keys) -> Result<(Keys, Timestamp), CallError> {
        let mut params = vec![param("RoleArn", &role.arn), param("RoleSessionName", &role.session)];
        params.extend(role.external_id.iter().map(|id| param("ExternalId", id)));
        let wire = Wire { service: Service::Sts, action: "AssumeRole", params };
        let object = format!("role {}", role.arn);
        // Nothing in the cloud changes by it.
        let answer = self.send(&wire, keys, &object, false).await?;
        let got = answer.at("AssumeRoleResult/Credentials");
        let text = |name: &str| got.and_then(|got| got.text(name)).map(str::to_owned);
        let (Some(id), Some(secret), Some(token)) =
            (text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken"))
        else {
            return Err(CallError::Failed(Failure::new(
                Class::Auth,
                "LoginFailed",
                format!("AssumeRole for {object}: the answer has no keys"),
                "check the role",
            )));
        };
        let hour = SignedDuration::from_secs(3600);
        let until = text("Expiration").and_then(|text| text.parse().ok());
        Ok((Keys { id, secret, token: Some(token) }, until.unwrap_or_else(|| Timestamp::now() + hour)))
    }
}

/// An answer has to be the one to what was asked.
fn understood(text: &str, action: &str, what: &str) -> Result<Element, CallError> {
    let cause = match Element::parse(text) {
        Ok(root) if root.name == format!("{action}Response") => return Ok(root),
        Ok(_) => "it is the answer to something else",
        Err(cause) => cause,
    };
    Err(CallError::Failed(Failure::new(
        Class::Retryable,
        "NotAws",
        format!("{what}: the answer can't be understood: {cause}"),
        "it is tried again; when it lasts, look for a proxy that answers in place of AWS",
    )))
}

/// The host that is signed: with its port only when it is not the usual one.
fn host(base: &str) -> String {
    let url = reqwest::Url::parse(base).ok();
    let name = url.as_ref().and_then(reqwest::Url::host_str).unwrap_or_default().to_owned();
    match url.and_then(|url| url.port()) {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_host_is_the_one_that_is_sent() {
        assert_eq!(host("https://ec2.eu-west-1.amazonaws.com"), "ec2.eu-west-1.amazonaws.com");
        assert_eq!(host("http://127.0.0.1:5000"), "127.0.0.1:5000");
        assert_eq!(host("https://ec2.eu-west-1.amazonaws.com:443"), "ec2.eu-west-1.amazonaws.com");
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let wrong = "<DescribeVpcsResponse/>";
        let Err(CallError::Failed(failure)) = understood(wrong, "DescribeSubnets", "x") else {
            panic!("taken")
        };
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "NotAws"));
        assert!(understood("<DescribeSubnetsResponse/>", "DescribeSubnets", "x").is_ok());
    }
}
