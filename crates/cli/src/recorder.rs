//! The flight recorder: one line of JSON for every call to the outside world and every turn of a bootstrap.
//!
//! Lines are written as they come, by a thread of their own, so that a killed process leaves everything that had happened.
//! Those who write entries keep secrets out of them; the recorder also blots out every credential that it knows.

use anyhow::{Context as _, Result};
use butler_drivers::{Call, Credentials, Outcome, Recorder};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Writes a journal. Dropping it waits until everything is written.
pub(crate) struct Journal {
    sender: Option<mpsc::Sender<Value>>,
    writer: Option<JoinHandle<()>>,
    redactor: Redactor,
}

/// Blots out texts that must not be seen.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    secrets: Vec<String>,
}

/// Shorter secrets would blot out half of every sentence.
const SHORTEST: usize = 6;

/// Entries of credentials that are names, not secrets. Whatever is not known is taken for a secret.
const PUBLIC: [&str; 11] = [
    "token",
    "username",
    "accessKeyID",
    "profile",
    "roleARN",
    "roleSessionName",
    "clientID",
    "tenantID",
    "subscriptionID",
    "securityGroupName",
    "ca.crt",
];

/// The password in `http://user:password@host:port`.
fn proxy_password(proxy: &str) -> Option<&str> {
    let (_, rest) = proxy.split_once("://")?;
    let (user, _) = rest.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// Secret settings within credentials that are whole files.
const WITHIN: [&str; 5] =
    ["private_key", "client_secret", "refresh_token", "aws_secret_access_key", "aws_session_token"];

/// A secret as it may be quoted: whole, and where it is a file, the secret settings in it.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    let is_secret = |key: &str| WITHIN.iter().any(|known| key.trim().eq_ignore_ascii_case(known));
    if let Ok(Value::Object(file)) = serde_json::from_str(value) {
        let settings = file.iter().filter(|(key, _)| is_secret(key)).filter_map(|(_, value)| value.as_str());
        for text in settings {
            forms.push(text.to_owned());
            // A key in PEM may be quoted with its line ends in any form.
            let lines = text.lines().filter(|line| !line.starts_with("-----"));
            forms.extend(lines.map(ToOwned::to_owned));
        }
    } else {
        let settings = value.lines().filter_map(|line| line.split_once('='));
        forms.extend(settings.filter(|(key, _)| is_secret(key)).map(|(_, value)| value.trim().to_owned()));
    }
    forms
}

impl Redactor {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Redactor {
        let mut secrets: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SHORTEST).collect();
        // The longest first: one may hold another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Redactor { secrets }
    }

    /// For the secret parts of credentials, and the password in a proxy's URL. Names stay readable: a token's id is in the id of
    /// every task that it starts.
    pub(crate) fn of(credentials: &Credentials, proxy: Option<&str>) -> Redactor {
        // The word that stands for the credentials of the machine itself is none.
        let secrets = credentials
            .0
            .iter()
            .filter(|(key, value)| !PUBLIC.contains(&key.as_str()) && *value != "metadata");
        let password = proxy.and_then(proxy_password).map(ToOwned::to_owned);
        Redactor::new(secrets.flat_map(|(_, value)| forms(value)).chain(password))
    }

    /// Blots out what either does.
    pub(crate) fn and(self, other: Redactor) -> Redactor {
        Redactor::new(self.secrets.into_iter().chain(other.secrets))
    }

    pub(crate) fn text(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.secrets.iter().any(|secret| text.contains(secret.as_str())) => {
                *text = self.text(text);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.value(field)),
            _ => {}
        }
    }
}

impl Journal {
    /// Goes on writing at the end of a file that only its owner can read.
    pub(crate) fn open(path: &Path, redactor: Redactor) -> Result<Journal> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot open the journal {}", path.display()))?;
        let (sender, receiver) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write_lines(file, receiver))
            .context("cannot start the journal's thread")?;
        Ok(Journal { sender: Some(sender), writer: Some(writer), redactor })
    }

    /// Writes an entry down, with the time.
    pub(crate) fn write(&self, mut entry: Value) {
        self.redactor.value(&mut entry);
        if let Value::Object(fields) = &mut entry {
            fields.entry("time").or_insert_with(|| Timestamp::now().to_string().into());
        }
        if let Some(sender) = &self.sender {
            // Fails when the disk is full and the writer gave up; the bootstrap goes on without a journal.
            let _ = sender.send(entry);
        }
    }
}

fn write_lines(mut file: File, entries: mpsc::Receiver<Value>) {
    for entry in entries {
        let mut line = entry.to_string();
        line.push('\n');
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the journal cannot be written; it ends here");
            return;
        }
    }
}

/// A call as an entry.
pub(crate) fn entry(call: &Call) -> Value {
    let mut entry = json!({
        "event": "call", "time": call.began.to_string(), "system": call.system, "operation": call.operation,
        "object": call.object, "mutates": call.mutates, "milliseconds": call.took.as_millis() as u64,
    });
    match &call.outcome {
        Outcome::Ok(answer) => entry["ok"] = answer.clone().into(),
        Outcome::Failed { class, message } => {
            entry["class"] = class.as_str().into();
            entry["error"] = message.clone().into();
        }
    }
    entry
}

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.write(entry(&call));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_drivers::Class;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    #[test]
    fn calls_are_written_in_order_without_secrets_and_for_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        for life in 0..2 {
            let redactor = Redactor::new(["hunter22".to_owned(), "abc".to_owned()]);
            let journal = Journal::open(&path, redactor).unwrap();
            journal.record(Call {
                system: "proxmox",
                operation: format!("POST /nodes/pve{life}/qemu"),
                object: "machine a".to_owned(),
                mutates: true,
                began: Timestamp::UNIX_EPOCH,
                took: Duration::from_millis(12),
                outcome: Outcome::Failed { class: Class::Auth, message: "no hunter22 abc".to_owned() },
            });
            journal.write(json!({"event": "phase", "phase": "Ready"}));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["error"], "no *** abc");
        assert_eq!(
            (lines[2]["operation"].as_str(), lines[2]["milliseconds"].as_u64()),
            (Some("POST /nodes/pve1/qemu"), Some(12))
        );
        assert_eq!(
            (lines[0]["time"].as_str(), lines[0]["class"].as_str()),
            (Some("1970-01-01T00:00:00Z"), Some("auth"))
        );
        assert!(lines[3]["time"].is_string());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn names_stay_and_secrets_go() {
        let credentials =
            [("token", "butler@pve!bootstrap"), ("tokenSecret", "0000-1111"), ("unheard", "of-secret")];
        let credentials = Credentials(credentials.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let redactor = Redactor::of(&credentials, Some("http://me:pass-word@proxy:3128"));
        let upid = "UPID:pve:0001:0002:6:qmclone:9000:butler@pve!bootstrap:";
        assert_eq!(redactor.text(upid), upid);
        assert_eq!(
            redactor.text("0000-1111 of-secret http://me:pass-word@proxy"),
            "*** *** http://me:***@proxy"
        );
        assert!(proxy_password("http://proxy:3128").is_none());
    }

    #[test]
    fn secrets_within_files_go_too() {
        let key = r#"{"type": "service_account", "client_email": "a@b.c", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEabc\n-----END PRIVATE KEY-----\n"}"#;
        let profile = "[prod]\naws_access_key_id = AKIA123\naws_secret_access_key = hunter22/x\n";
        let credentials = [("serviceAccountKey", key), ("credentials", profile), ("profile", "prod-profile")];
        let credentials = Credentials(credentials.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let redactor = Redactor::of(&credentials, None);
        assert_eq!(
            redactor.text("a@b.c MIIEabc AKIA123 hunter22/x prod-profile"),
            "a@b.c *** AKIA123 *** prod-profile"
        );
        let metadata = Credentials([("serviceAccountKey".to_owned(), "metadata".to_owned())].into());
        assert_eq!(Redactor::of(&metadata, None).text("metadata"), "metadata");
    }
}
