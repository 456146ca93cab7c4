//! Everything that is wrong with a bootstrap file, at once.

use super::credentials::{self, Found};
use super::schema::Schemas;
use super::{Checked, Need, Settings, Surroundings, environment, objects, own_rules, places};
use crate::validate::document::{self, Data, Mark, Node};
use crate::validate::{Finding, explain, has_errors, place, repair};
use butler_api::{Problem, Provider, Severity, validate_object};
use butler_apiserver::schema;
use butler_apiserver::status::{FieldError, FieldProblem};
use butler_drivers::Credentials;
use serde_json::Value;

/// The first place of a file.
const TOP: Mark = Mark { line: 1, column: 1 };

/// Checks a bootstrap file. `wanted` is the provider that the command line names.
pub(crate) fn check(
    schemas: &Schemas,
    text: &str,
    wanted: Option<Provider>,
    need: Need,
    around: &Surroundings,
) -> Checked {
    let mut findings = Vec::new();
    let Some(root) = only_document(text, &mut findings) else { return Checked { settings: None, findings } };
    let mut report = Report { root: &root, variables: Vec::new(), findings };
    report.repeated_keys();
    if report.is_object_of_kubernetes() {
        return Checked { settings: None, findings: report.findings };
    }
    let mut file = root.to_value();
    report.variables = environment::apply(&schemas.file, &around.variables, &mut file);
    own_rules::normalise(&mut file);
    report.shape(schemas, &mut file);
    let provider = report.provider(&file, wanted);
    let settings = provider.and_then(|provider| report.contents(schemas, &file, provider, need, around));
    let findings = report.findings;
    Checked { settings: settings.filter(|_| !has_errors(&findings)), findings }
}

/// The one document of the file.
fn only_document(text: &str, findings: &mut Vec<Finding>) -> Option<Node> {
    let mut error = |at, text: String, help: &str| {
        findings.push(Finding { at, severity: Severity::Error, text, help: help.to_owned() });
    };
    let mut documents = document::parse(text).into_iter();
    let first = match documents.next() {
        None => {
            error(TOP, "the file is empty".to_owned(), "examples/bootstrap-proxmox.yaml is a whole one");
            return None;
        }
        Some(Err(wrong)) => {
            error(wrong.at, format!("not YAML: {}", wrong.why), "");
            return None;
        }
        Some(Ok(node)) => node,
    };
    if !matches!(first.data, Data::Map(_)) {
        error(first.at, "not a bootstrap file: a mapping is expected".to_owned(), "it begins with provider:");
        return None;
    }
    if let Some(second) = documents.next() {
        let at = second.map_or_else(|wrong| wrong.at, |node| node.at);
        error(at, "a second document".to_owned(), "a bootstrap file is one document: one cluster");
    }
    Some(first)
}

/// Collects what is found. Also used by [`own_rules`].
pub(super) struct Report<'a> {
    root: &'a Node,
    /// Paths that came from the environment, and from which variable.
    variables: Vec<(String, String)>,
    findings: Vec<Finding>,
}

impl Report<'_> {
    pub(super) fn error(&mut self, path: &str, text: impl AsRef<str>, help: impl Into<String>) {
        self.at(Severity::Error, path, text.as_ref(), help.into());
    }

    pub(super) fn warn(&mut self, path: &str, text: impl AsRef<str>, help: impl Into<String>) {
        self.at(Severity::Warning, path, text.as_ref(), help.into());
    }

    /// At the value of a path, or at what is nearest to it.
    fn at(&mut self, severity: Severity, path: &str, text: &str, help: String) {
        let place = place::find(self.root, path);
        let variable = self.variables.iter().find(|(set, _)| set == path);
        let at = match (place.whole, variable) {
            (_, Some(_)) => TOP,
            (true, None) => place.value,
            (false, None) => place.key,
        };
        let source = variable.map(|(_, name)| format!(" (from {name})")).unwrap_or_default();
        self.findings.push(Finding { at, severity, text: format!("{path}{source}: {text}"), help });
    }

    fn repeated_keys(&mut self) {
        let mut repeated = Vec::new();
        self.root.duplicates("", &mut |path, first, second| repeated.push((path, first, second)));
        for (path, first, second) in repeated {
            let text = format!("{path}: the key is there already, at {}:{}", first.line, first.column);
            let help = "keep one of the two".to_owned();
            self.findings.push(Finding { at: second, severity: Severity::Error, text, help });
        }
    }

    /// People have files of our kinds too; those go elsewhere.
    fn is_object_of_kubernetes(&mut self) -> bool {
        let (Some(version), Some(kind)) = (self.root.get("apiVersion"), self.root.get("kind")) else {
            return false;
        };
        let _ = version;
        let kind = match &kind.data {
            Data::Scalar(Value::String(kind)) => kind.clone(),
            _ => "an object".to_owned(),
        };
        self.findings.push(Finding {
            at: TOP,
            severity: Severity::Error,
            text: format!("this is a Kubernetes object ({kind}), not a bootstrap file"),
            help: "send it to an API with `kubectl apply -f`, or check it with `butleradm validate`; a bootstrap file \
                   has no apiVersion and kind, it begins with provider: (see examples/bootstrap-proxmox.yaml)"
                .to_owned(),
        });
        true
    }

    /// Keys, types and limits. Afterwards the file has its defaults, and what could be guessed of what is wrong.
    fn shape(&mut self, schemas: &Schemas, file: &mut Value) {
        let root = &schemas.file;
        for path in schema::unknown_fields(root, file) {
            let at = place::find(self.root, &path).key;
            let help = explain::unknown(root, &path);
            self.findings.push(Finding {
                at,
                severity: Severity::Error,
                text: format!("{path}: unknown field"),
                help,
            });
        }
        schema::apply_defaults(root, file);
        let mut errors = schema::validate(root, file);
        if errors.is_empty() {
            errors = schema::validate_rules(root, file, None);
        }
        for error in &errors {
            let about = explain::field(root, &error.field);
            let there = repair::lookup(file, &error.field);
            let (text, help) = wording(error, there, &about);
            self.error(&error.field, text, help);
        }
        repair::repair(root, file, &errors);
    }

    fn provider(&mut self, file: &Value, wanted: Option<Provider>) -> Option<Provider> {
        let written = file.get("provider").and_then(Value::as_str)?;
        let provider = Provider::ALL.into_iter().find(|provider| provider.as_str() == written)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != provider) {
            let text = format!("{written:?}: the command says {wanted}");
            let help = format!(
                "run `butleradm bootstrap {written}`, or set provider to {wanted} and give it a block in providerConfig"
            );
            self.error("provider", text, help);
        }
        if file.pointer(&format!("/providerConfig/{provider}")).is_none_or(Value::is_null) {
            let text = format!("the block {provider} is missing, and provider is {provider}");
            let help = format!("examples/bootstrap-{provider}.yaml shows one");
            self.error("providerConfig", text, help);
        }
        let blocks = file.get("providerConfig").and_then(Value::as_object);
        for other in blocks.into_iter().flat_map(|blocks| blocks.keys()) {
            let known = Provider::ALL.iter().any(|provider| provider.as_str() == other);
            if known && other != provider.as_str() {
                let path = format!("providerConfig.{other}");
                self.warn(&path, format!("not used, since provider is {provider}"), "remove the block");
            }
        }
        Some(provider)
    }

    /// Objects and credentials, and what is wrong with them.
    fn contents(
        &mut self,
        schemas: &Schemas,
        file: &Value,
        provider: Provider,
        need: Need,
        around: &Surroundings,
    ) -> Option<Settings> {
        let cluster = file.pointer("/cluster/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let shaped = !has_errors(&self.findings);
        let bootstrap = objects::bootstrap(schemas, file, &cluster);
        let provider_config = objects::provider_config(schemas, file, &cluster, provider);
        let butler_config = objects::butler_config(file, &cluster);
        self.problems(&bootstrap, shaped, places::of_bootstrap, places::words_of_bootstrap);
        let of_provider = |path: &str| places::of_provider(path, file);
        self.problems(&provider_config, shaped, of_provider, places::words_of_provider);
        own_rules::check(self, file, provider);
        let credentials = self.credentials(file, provider, need, around);
        let proxy = file.get("proxy").and_then(Value::as_str).filter(|proxy| !proxy.is_empty());
        let aliases = own_rules::host_aliases(self, file, provider);
        if !shaped {
            return None;
        }
        Some(Settings {
            provider,
            bootstrap: self.decode(bootstrap)?,
            provider_config: self.decode(provider_config)?,
            butler_config: butler_config.and_then(|object| self.decode(object)),
            credentials,
            proxy: proxy.map(ToOwned::to_owned),
            host_aliases: aliases,
        })
    }

    /// The schema of the file holds that of the kinds, so this can only fail where the two have come apart.
    fn decode<T: serde::de::DeserializeOwned>(&mut self, object: Value) -> Option<T> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        match serde_json::from_value(object) {
            Ok(object) => Some(object),
            Err(error) => {
                let text = format!("cannot be made into a {kind}: {error}");
                self.findings.push(Finding { at: TOP, severity: Severity::Error, text, help: String::new() });
                None
            }
        }
    }

    /// The checks across fields, led back to the file. On a repaired file only what is certain is said.
    fn problems(
        &mut self,
        object: &Value,
        shaped: bool,
        path: impl Fn(&str) -> String,
        words: impl Fn(&str) -> String,
    ) {
        let Some(Ok(problems)) = validate_object(object) else { return };
        let said: Vec<String> = self.findings.iter().map(|finding| finding.text.clone()).collect();
        for Problem { severity, path: field, value, rule, remedy } in problems {
            let field = path(&field);
            let again = said.iter().any(|text| text.starts_with(&format!("{field}:")));
            if again || (!shaped && severity == Severity::Warning) {
                continue;
            }
            let whole = place::find(self.root, &field).whole;
            let value = value.filter(|_| whole && !credentials::is_secret(&field));
            let value = value.map(|value| format!("{value:?}: ")).unwrap_or_default();
            self.at(severity, &field, &format!("{value}{}", words(&rule)), words(&remedy));
        }
    }

    fn credentials(
        &mut self,
        file: &Value,
        provider: Provider,
        need: Need,
        around: &Surroundings,
    ) -> Credentials {
        let place = format!("providerConfig.{provider}");
        let block = file.pointer(&format!("/providerConfig/{provider}")).cloned().unwrap_or(Value::Null);
        // A rehearsal takes what is named, and does not go and look for real keys.
        let implicit = need != Need::AnyCredentials;
        let Found { values, errors, warnings } = credentials::collect(provider, &block, around, implicit);
        for (field, text, help) in errors {
            match need {
                Need::Credentials => self.error(&format!("{place}.{field}"), text, help),
                Need::NoCredentials => self.warn(&format!("{place}.{field}"), text, help),
                Need::AnyCredentials => {}
            }
        }
        if need != Need::AnyCredentials {
            for (field, text, help) in warnings {
                self.warn(&format!("{place}.{field}"), text, help);
            }
        }
        Credentials(values)
    }
}

/// A complaint of the schema in words for people, without values that are secret.
fn wording(error: &FieldError, there: Option<&Value>, about: &str) -> (String, String) {
    let secret = credentials::is_secret(&error.field);
    if error.problem == FieldProblem::TypeInvalid {
        let detail = error.detail.replace(&format!("{} in body ", error.field), "");
        let rule = detail.rsplit_once(':').map_or(detail.as_str(), |(rule, _)| rule).to_owned();
        let help = match there {
            Some(Value::String(_)) => "is it in quotes that should not be there? ",
            Some(Value::Number(_) | Value::Bool(_)) if rule.ends_with("string") => "put it in quotes. ",
            _ => "",
        };
        let value = there.filter(|_| !secret).map(|value| format!("{value}: ")).unwrap_or_default();
        return (format!("{value}{rule}"), format!("{help}{about}"));
    }
    let text = match secret {
        true => "is not as it should be".to_owned(),
        false => error.body().replace(&format!("{} in body ", error.field), ""),
    };
    (text, about.to_owned())
}
