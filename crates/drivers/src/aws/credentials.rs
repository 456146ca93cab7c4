//! Where keys come from: the Secret itself, or a profile in the files that the Secret carries; then the roles on the way.
//!
//! Pure. Files are read by whoever fills the Secret, and roles are taken on by the client.

use super::sign::Keys;
use crate::connection::Credentials;
use crate::failure::{Class, Failure};
use std::collections::BTreeMap;

/// Keys to begin with, and roles to take on with them one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) keys: Keys,
    pub(crate) roles: Vec<Role>,
}

/// A role to take on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) session: String,
    pub(crate) external_id: Option<String>,
}

type Section = BTreeMap<String, String>;

fn auth(reason: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(Class::Auth, reason, message, remedy)
}

impl Source {
    pub(crate) fn read(credentials: &Credentials) -> Result<Self, Failure> {
        let get = |key: &str| credentials.get(key).map(|value| value.trim().to_owned());
        let mut source = if let Some(profile) = get("profile") {
            let files = Files::read(credentials)?;
            files.resolve(&profile, &mut Vec::new())?
        } else if let (Some(id), Some(secret)) = (get("accessKeyID"), get("secretAccessKey")) {
            Source { keys: Keys { id, secret, token: get("sessionToken") }, roles: Vec::new() }
        } else {
            return Err(auth(
                "CredentialsMissing",
                "the credentials have neither accessKeyID and secretAccessKey nor a profile",
                "put accessKeyID and secretAccessKey, or profile and credentials, into the credentials Secret",
            ));
        };
        if let Some(arn) = get("roleARN") {
            let session = get("roleSessionName").unwrap_or_else(session_name);
            source.roles.push(Role { arn, session, external_id: get("externalID") });
        }
        Ok(source)
    }
}

fn session_name() -> String {
    "butler".to_owned()
}

/// The two files of the AWS tools, by profile.
struct Files {
    credentials: BTreeMap<String, Section>,
    config: BTreeMap<String, Section>,
}

impl Files {
    fn read(credentials: &Credentials) -> Result<Self, Failure> {
        let file = |key: &str| credentials.get(key).unwrap_or_default();
        let (keys, config) = (file("credentials"), file("config"));
        if keys.is_empty() && config.is_empty() {
            return Err(auth(
                "ProfileFilesMissing",
                "the credentials name a profile and carry neither of the files it could be in",
                "put the contents of ~/.aws/credentials and ~/.aws/config under the keys credentials and config",
            ));
        }
        Ok(Self {
            credentials: sections(keys),
            // In this file, all profiles but `default` have a word before their name.
            config: sections(config)
                .into_iter()
                .map(|(name, section)| {
                    let plain = name.strip_prefix("profile ").map(|name| name.trim().to_owned());
                    (plain.unwrap_or(name), section)
                })
                .collect(),
        })
    }

    fn resolve(&self, name: &str, seen: &mut Vec<String>) -> Result<Source, Failure> {
        if seen.iter().any(|other| other == name) {
            let path = format!("{} -> {name}", seen.join(" -> "));
            return Err(auth(
                "ProfileLoop",
                format!("profiles name each other as source: {path}"),
                "break the circle",
            ));
        }
        seen.push(name.to_owned());
        let mut section = self.config.get(name).cloned().unwrap_or_default();
        let own = self.credentials.get(name).cloned();
        if section.is_empty() && own.is_none() {
            return Err(auth(
                "NoSuchProfile",
                format!("there is no profile {name} in the files of the AWS tools"),
                "name one that is there",
            ));
        }
        section.extend(own.unwrap_or_default());
        self.of_section(name, &section, seen)
    }

    fn of_section(&self, name: &str, section: &Section, seen: &mut Vec<String>) -> Result<Source, Failure> {
        let get = |key: &str| section.get(key).filter(|value| !value.is_empty()).cloned();
        let keys = || {
            let (id, secret) = (get("aws_access_key_id")?, get("aws_secret_access_key")?);
            Some(Keys { id, secret, token: get("aws_session_token") })
        };
        for (key, what) in [
            ("mfa_serial", "a second factor"),
            ("credential_process", "a program that makes credentials"),
            ("sso_session", "single sign-on"),
            ("sso_start_url", "single sign-on"),
            ("web_identity_token_file", "a web identity"),
        ] {
            if get(key).is_some() && keys().is_none() {
                return Err(auth(
                    "ProfileUnsupported",
                    format!("the profile {name} needs {what} ({key}), which is not supported"),
                    "make keys with: aws configure export-credentials, and put them into the credentials",
                ));
            }
        }
        if let Some(arn) = get("role_arn") {
            let mut source = match (get("source_profile"), keys()) {
                // A profile may be its own source, with keys of its own.
                (Some(from), Some(keys)) if from == name => Source { keys, roles: Vec::new() },
                (Some(from), _) => self.resolve(&from, seen)?,
                (None, Some(keys)) => Source { keys, roles: Vec::new() },
                (None, None) => {
                    return Err(auth(
                        "ProfileUnsupported",
                        format!("the profile {name} has a role and no source_profile"),
                        "add source_profile with the name of a profile that has keys",
                    ));
                }
            };
            source.roles.push(Role {
                arn,
                session: get("role_session_name").unwrap_or_else(session_name),
                external_id: get("external_id"),
            });
            return Ok(source);
        }
        let keys = keys().ok_or_else(|| {
            auth(
                "ProfileEmpty",
                format!("the profile {name} has neither keys nor a role"),
                "add aws_access_key_id and aws_secret_access_key",
            )
        })?;
        Ok(Source { keys, roles: Vec::new() })
    }
}

/// Sections of a file: `[name]`, and `key = value` below it. Indented lines are settings of a setting, and not ours.
fn sections(text: &str) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let mut here: Option<String> = None;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) || line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let name = name.0.trim().to_owned();
            all.entry(name.clone()).or_default();
            here = Some(name);
        } else if let (Some(section), Some((key, value))) = (&here, line.split_once('=')) {
            let value = value.split(" #").next().unwrap_or_default().trim().to_owned();
            all.entry(section.clone()).or_default().insert(key.trim().to_lowercase(), value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "[default]\naws_access_key_id = AKID1\naws_secret_access_key=s3cr3t\n# x\n[ci]\naws_access_key_id=AKID2\n\
                        aws_secret_access_key=other\naws_session_token=tok\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  max_queue_size = 10\n[profile deploy]\nrole_arn = arn:aws:iam::1:role/d\n\
                          source_profile = hop\nexternal_id = ext\n[profile hop]\nrole_arn = arn:aws:iam::1:role/h\nsource_profile = default\n\
                          [profile sso]\nsso_session = x\n[profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\nrole_arn=r\nsource_profile=a\n";

    fn read(pairs: &[(&str, &str)]) -> Result<Source, Failure> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Source::read(&Credentials(pairs.collect()))
    }

    fn profile(name: &str) -> Result<Source, Failure> {
        read(&[("profile", name), ("credentials", KEYS), ("config", CONFIG)])
    }

    #[test]
    fn keys_tokens_and_roles_of_the_secret() {
        let source = read(&[
            ("accessKeyID", "A"),
            ("secretAccessKey", "B\n"),
            ("sessionToken", "T"),
            ("roleARN", "R"),
            ("externalID", "E"),
        ])
        .unwrap();
        assert_eq!((source.keys.secret.as_str(), source.keys.token.as_deref()), ("B", Some("T")));
        assert_eq!((source.roles[0].arn.as_str(), source.roles[0].external_id.as_deref()), ("R", Some("E")));
        assert_eq!(read(&[("accessKeyID", "A")]).unwrap_err().reason, "CredentialsMissing");
    }

    #[test]
    fn profiles_lead_to_keys_and_roles() {
        assert_eq!(profile("default").unwrap().keys.id, "AKID1");
        assert_eq!(profile("ci").unwrap().keys.token.as_deref(), Some("tok"));
        let deploy = profile("deploy").unwrap();
        assert_eq!(deploy.keys.id, "AKID1");
        let roles: Vec<&str> = deploy.roles.iter().map(|role| role.arn.as_str()).collect();
        assert_eq!(
            roles,
            ["arn:aws:iam::1:role/h", "arn:aws:iam::1:role/d"],
            "the source's role comes first"
        );
    }

    #[test]
    fn profiles_that_do_not_work_are_refused_by_name() {
        assert_eq!(profile("nobody").unwrap_err().reason, "NoSuchProfile");
        assert_eq!(profile("sso").unwrap_err().reason, "ProfileUnsupported");
        let failure = profile("a").unwrap_err();
        assert_eq!((failure.reason.as_str(), failure.class), ("ProfileLoop", Class::Auth));
        assert!(failure.message.contains("a -> b -> a"), "{failure}");
        assert_eq!(read(&[("profile", "x")]).unwrap_err().reason, "ProfileFilesMissing");
    }
}
