//! The vendor's own model of the API: what a request may say, and what an answer looks like. `cargo xtask models` makes it.

use super::request::{Refusal, Service};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("model.json");

/// A table that can't be read leaves a cloud without operations, and the tests of this file fail.
static MODEL: LazyLock<Model> = LazyLock::new(|| serde_json::from_str(TABLE).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
struct Model {
    services: BTreeMap<String, About>,
    operations: BTreeMap<String, Operation>,
    shapes: BTreeMap<String, Shape>,
}

#[derive(Debug, Default, Deserialize)]
struct About {
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "n")]
    namespace: String,
}

/// One operation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Operation {
    #[serde(rename = "i")]
    input: Option<String>,
    #[serde(rename = "o")]
    output: Option<String>,
    #[serde(rename = "w")]
    wrapper: Option<String>,
    /// The codes of its errors, where the model has them.
    #[serde(rename = "e")]
    pub(super) errors: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shape {
    #[serde(rename = "k")]
    kind: String,
    #[serde(rename = "m")]
    members: BTreeMap<String, Member>,
    #[serde(rename = "r")]
    required: Vec<String>,
    #[serde(rename = "e")]
    element: Member,
    #[serde(rename = "f")]
    flattened: bool,
    #[serde(rename = "v")]
    values: Vec<String>,
    #[serde(rename = "n")]
    min: Option<f64>,
    #[serde(rename = "x")]
    max: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    #[serde(rename = "s")]
    shape: String,
    #[serde(rename = "l")]
    location: Option<String>,
    #[serde(rename = "q")]
    query: Option<String>,
}

/// The operation of this name, if it is served.
pub(super) fn operation(service: Service, action: &str) -> Option<&'static Operation> {
    MODEL.operations.get(&format!("{}:{action}", service.model()))
}

/// The version of the API that a request has to name.
pub(super) fn version(service: Service) -> &'static str {
    MODEL.services.get(service.model()).map_or("", |about| &about.version)
}

fn shape(service: Service, name: &str) -> Option<&'static Shape> {
    MODEL.shapes.get(&format!("{}:{name}", service.model()))
}

/// Reads the flat parameters of a request into a tree with the names and types of the model.
///
/// # Errors
/// Says which parameter is missing, unknown, or not what it should be.
pub(super) fn read(
    service: Service,
    operation: &Operation,
    params: &BTreeMap<String, String>,
) -> Result<Value, Refusal> {
    let mut reader = Reader { service, params, read: Vec::new() };
    let input = operation.input.as_deref().and_then(|name| shape(service, name));
    let value = match input {
        Some(input) => reader.structure(input, "", true)?.unwrap_or_else(|| Value::Object(Map::new())),
        None => Value::Object(Map::new()),
    };
    let known = |key: &String| matches!(key.as_str(), "Action" | "Version") || reader.read.contains(key);
    match params.keys().find(|key| !known(key)) {
        Some(unknown) => Err(service.unknown_parameter(unknown)),
        None => Ok(value),
    }
}

struct Reader<'a> {
    service: Service,
    params: &'a BTreeMap<String, String>,
    read: Vec<String>,
}

impl Reader<'_> {
    /// Whether any parameter is, or is below, this one.
    fn has(&self, prefix: &str) -> bool {
        let below = format!("{prefix}.");
        self.params.contains_key(prefix)
            || self.params.range(below.clone()..).next().is_some_and(|(key, _)| key.starts_with(&below))
    }

    fn any(&mut self, name: &str, prefix: &str) -> Result<Option<Value>, Refusal> {
        let Some(shape) = shape(self.service, name) else { return Ok(None) };
        match shape.kind.as_str() {
            "structure" => self.structure(shape, prefix, false),
            "list" => self.list(shape, prefix),
            _ => self.scalar(shape, prefix),
        }
    }

    fn structure(&mut self, shape: &Shape, prefix: &str, top: bool) -> Result<Option<Value>, Refusal> {
        if !top && !self.has(prefix) {
            return Ok(None);
        }
        let mut out = Map::new();
        for (name, member) in &shape.members {
            let wire = self.service.wire_name(name, member.location.as_deref(), member.query.as_deref());
            let path = if prefix.is_empty() { wire } else { format!("{prefix}.{wire}") };
            match self.any(&member.shape, &path)? {
                Some(value) => {
                    out.insert(name.clone(), value);
                }
                None if shape.required.contains(name) => return Err(self.service.missing_parameter(&path)),
                None => {}
            }
        }
        Ok(Some(Value::Object(out)))
    }

    fn list(&mut self, shape: &Shape, prefix: &str) -> Result<Option<Value>, Refusal> {
        let flat = self.service == Service::Ec2 || shape.flattened;
        let base = match flat {
            true => prefix.to_string(),
            false => format!("{prefix}.{}", shape.element.location.as_deref().unwrap_or("member")),
        };
        let mut out = Vec::new();
        // An empty list is written as the bare name with nothing behind it.
        if self.params.get(prefix).is_some_and(String::is_empty) {
            self.read.push(prefix.to_string());
            return Ok(Some(Value::Array(out)));
        }
        loop {
            let path = format!("{base}.{}", out.len() + 1);
            if !self.has(&path) {
                break;
            }
            out.extend(self.any(&shape.element.shape, &path)?);
        }
        Ok((!out.is_empty()).then_some(Value::Array(out)))
    }

    fn scalar(&mut self, shape: &Shape, path: &str) -> Result<Option<Value>, Refusal> {
        let Some(text) = self.params.get(path) else { return Ok(None) };
        self.read.push(path.to_string());
        let wrong = |why: &str| Err(self.service.invalid_parameter(path, text, why));
        let within = |number: f64| {
            shape.min.is_none_or(|min| number >= min) && shape.max.is_none_or(|max| number <= max)
        };
        Ok(Some(match shape.kind.as_str() {
            "integer" | "long" => match text.parse::<i64>() {
                #[allow(clippy::cast_precision_loss, reason = "bounds of the model are small")]
                Ok(number) if within(number as f64) => number.into(),
                Ok(_) => return wrong("it is out of bounds"),
                Err(_) => return wrong("it is not a number"),
            },
            "boolean" => match text.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                _ => return wrong("it is neither true nor false"),
            },
            _ => {
                #[allow(clippy::cast_precision_loss, reason = "no text is that long")]
                if !within(text.chars().count() as f64) {
                    return wrong("its length is out of bounds");
                }
                if !shape.values.is_empty() && !shape.values.contains(text) {
                    return wrong("it is none of the possible values");
                }
                text.as_str().into()
            }
        }))
    }
}

/// Writes an answer as XML.
///
/// # Errors
/// Names a field that the model does not have: a mistake of this simulation.
pub(super) fn write(
    service: Service,
    action: &str,
    operation: &Operation,
    value: &Value,
    request_id: &str,
) -> Result<String, String> {
    let namespace = MODEL.services.get(service.model()).map_or("", |about| &about.namespace);
    let mut body = String::new();
    if let Some(output) = operation.output.as_deref().and_then(|name| shape(service, name)) {
        write_members(service, output, value, &mut body)?;
    }
    Ok(match service {
        Service::Ec2 => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"{namespace}/\"><requestId>{request_id}</requestId>{body}</{action}Response>"
        ),
        _ => {
            let wrapper = operation.wrapper.clone().unwrap_or_else(|| format!("{action}Result"));
            format!(
                "<{action}Response xmlns=\"{namespace}\"><{wrapper}>{body}</{wrapper}><ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
            )
        }
    })
}

fn write_members(service: Service, shape: &Shape, value: &Value, out: &mut String) -> Result<(), String> {
    let Some(object) = value.as_object() else { return Err(format!("{value} is no structure")) };
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let member = shape.members.get(name).ok_or_else(|| format!("the model has no field {name}"))?;
        let element = member.location.as_deref().unwrap_or(name);
        write_value(service, &member.shape, element, value, out)?;
    }
    Ok(())
}

fn write_value(
    service: Service,
    shape_name: &str,
    element: &str,
    value: &Value,
    out: &mut String,
) -> Result<(), String> {
    let shape = shape(service, shape_name).ok_or_else(|| format!("the model has no shape {shape_name}"))?;
    match (shape.kind.as_str(), value) {
        ("structure", _) => {
            out.push_str(&format!("<{element}>"));
            write_members(service, shape, value, out)?;
            out.push_str(&format!("</{element}>"));
        }
        ("list", Value::Array(items)) => {
            let each = shape.element.location.as_deref().unwrap_or("member");
            if shape.flattened {
                for item in items {
                    write_value(service, &shape.element.shape, element, item, out)?;
                }
                return Ok(());
            }
            out.push_str(&format!("<{element}>"));
            for item in items {
                write_value(service, &shape.element.shape, each, item, out)?;
            }
            out.push_str(&format!("</{element}>"));
        }
        ("string" | "timestamp" | "blob" | "datetime", Value::String(text)) => {
            out.push_str(&format!("<{element}>{}</{element}>", escape(text)));
        }
        ("boolean", Value::Bool(flag)) => out.push_str(&format!("<{element}>{flag}</{element}>")),
        ("integer" | "long" | "double" | "float", Value::Number(number)) => {
            out.push_str(&format!("<{element}>{number}</{element}>"));
        }
        (kind, _) => return Err(format!("{element} is {value} and should be a {kind}")),
    }
    Ok(())
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
    }

    fn read_of(service: Service, action: &str, pairs: &[(&str, &str)]) -> Result<Value, String> {
        let operation = operation(service, action).unwrap();
        read(service, operation, &params(pairs)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn requests_are_read_by_the_rules_of_each_protocol() {
        let run = read_of(
            Service::Ec2,
            "RunInstances",
            &[
                ("Action", "RunInstances"),
                ("MinCount", "1"),
                ("MaxCount", "1"),
                ("SecurityGroupId.1", "sg-1"),
                ("TagSpecification.1.ResourceType", "instance"),
                ("TagSpecification.1.Tag.1.Key", "Name"),
                ("TagSpecification.1.Tag.1.Value", "cp-0"),
                ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
            ],
        );
        let run = run.unwrap();
        assert_eq!(run["MinCount"], 1);
        assert_eq!(run["SecurityGroupIds"], json!(["sg-1"]));
        assert_eq!(run["TagSpecifications"][0]["Tags"][0], json!({"Key": "Name", "Value": "cp-0"}));
        assert_eq!(run["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"], true);
        let create = read_of(
            Service::Elb,
            "CreateLoadBalancer",
            &[("Name", "a"), ("Subnets.member.1", "subnet-1"), ("Subnets.member.2", "subnet-2")],
        );
        assert_eq!(create.unwrap()["Subnets"], json!(["subnet-1", "subnet-2"]));
    }

    #[test]
    fn what_the_model_does_not_have_is_refused() {
        let run = |pairs: &[(&str, &str)]| read_of(Service::Ec2, "RunInstances", pairs).unwrap_err();
        assert_eq!(run(&[("MinCount", "1")]), "MissingParameter");
        assert_eq!(run(&[("MinCount", "one"), ("MaxCount", "1")]), "InvalidParameterValue");
        assert_eq!(run(&[("MinCount", "1"), ("MaxCount", "1"), ("Colour", "red")]), "UnknownParameter");
        assert_eq!(
            run(&[("MinCount", "1"), ("MaxCount", "1"), ("InstanceType", "m5.huge")]),
            "InvalidParameterValue"
        );
        let create = |pairs: &[(&str, &str)]| read_of(Service::Elb, "CreateTargetGroup", pairs).unwrap_err();
        assert_eq!(create(&[]), "ValidationError");
        assert_eq!(create(&[("Name", "a"), ("Port", "70000")]), "ValidationError");
        assert_eq!(create(&[("Name", "a"), ("Protocol", "SCTP")]), "ValidationError");
        // EC2 writes lists without `member`, ELB with it.
        let elb = read_of(Service::Elb, "DescribeLoadBalancers", &[("Names.1", "a")]);
        assert_eq!(elb.unwrap_err(), "ValidationError");
    }

    #[test]
    fn answers_have_the_elements_of_the_model_and_no_others() {
        let told = operation(Service::Ec2, "DescribeInstances").unwrap();
        let value = json!({"Reservations": [{"Instances": [{"InstanceId": "i-1", "State": {"Code": 16, "Name": "running"}}]}]});
        let xml = write(Service::Ec2, "DescribeInstances", told, &value, "r").unwrap();
        assert!(xml.contains("<reservationSet><item><instancesSet><item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState></item>"), "{xml}");
        assert!(write(Service::Ec2, "DescribeInstances", told, &json!({"Colour": 1}), "r").is_err());
        let told = operation(Service::Elb, "DescribeTargetHealth").unwrap();
        let value = json!({"TargetHealthDescriptions": [{"Target": {"Id": "10.0.0.1 & <x>", "Port": 6443}}]});
        let xml = write(Service::Elb, "DescribeTargetHealth", told, &value, "r").unwrap();
        assert!(xml.contains("<DescribeTargetHealthResult><TargetHealthDescriptions><member><Target><Id>10.0.0.1 &amp; &lt;x&gt;</Id>"), "{xml}");
    }
}
