//! Credentials of Google Cloud: the file that is named, else the application-default credentials of the Google tools.

use super::super::Surroundings;
use super::{Found, read};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Key of the Secret.
const KEY: &str = "serviceAccountKey";
/// Field of the block that names a file.
const FIELD: &str = "serviceAccountKeyPath";
/// In place of a file: the account of the machine that this runs on.
const METADATA: &str = "metadata";

/// The contents of the first file that is named; without `implicit`, the Google tools' own is not looked for.
pub(super) fn collect(
    block: &Value,
    kept: Option<&String>,
    around: &Surroundings,
    implicit: bool,
    found: &mut Found,
) {
    let field = block.get(FIELD).and_then(Value::as_str).map(ToOwned::to_owned);
    let named = around.variable("GOOGLE_APPLICATION_CREDENTIALS").or(field.filter(|path| !path.is_empty()));
    let text = match (named, kept) {
        (Some(word), _) if word == METADATA => Some(word),
        (Some(path), _) => read(FIELD, Path::new(&path), around, found),
        (None, Some(kept)) => Some(kept.clone()),
        (None, None) if implicit => usual(around, found),
        (None, None) => None,
    };
    let Some(text) = text else { return };
    if let Err((why, help)) = check(&text) {
        found.errors.push((FIELD.to_owned(), why, help));
        return;
    }
    found.values.insert(KEY.to_owned(), text);
}

/// What `gcloud auth application-default login` has written.
fn usual(around: &Surroundings, found: &mut Found) -> Option<String> {
    const NAME: &str = "application_default_credentials.json";
    let folder =
        around.variable("CLOUDSDK_CONFIG").map_or_else(|| PathBuf::from("~/.config/gcloud"), PathBuf::from);
    let path = folder.join(NAME);
    around.is_there(&path).then(|| read(FIELD, &path, around, found)).flatten()
}

/// What is wrong with a key file, and what to do. Never holds any of its contents but the type.
fn check(text: &str) -> Result<(), (String, String)> {
    let help = || {
        "name the JSON file of a service account's key, or of `gcloud auth application-default login`"
            .to_owned()
    };
    if text.trim() == METADATA {
        return Ok(());
    }
    // The parser's own words may quote the key.
    let file: Value =
        serde_json::from_str(text).map_err(|_| ("the key file is not JSON".to_owned(), help()))?;
    let needed: &[&str] = match file.get("type").and_then(Value::as_str) {
        Some("service_account") => &["client_email", "private_key"],
        Some("authorized_user") => &["client_id", "client_secret", "refresh_token"],
        Some(other) => {
            let why =
                format!("a key file of type {other} can't be used, only service_account and authorized_user");
            return Err((why, help()));
        }
        None => return Err(("the key file has no type".to_owned(), help())),
    };
    let missing: Vec<&str> = needed
        .iter()
        .filter(|key| file.get(**key).and_then(Value::as_str).is_none_or(str::is_empty))
        .copied()
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err((format!("the key file has no {}", missing.join(", ")), help())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_looked_at_and_never_quoted() {
        assert_eq!(check(METADATA), Ok(()));
        assert_eq!(
            check(r#"{"type": "service_account", "client_email": "a@b", "private_key": "k"}"#),
            Ok(())
        );
        let said = |text: &str| check(text).unwrap_err().0;
        assert_eq!(said("s3cret"), "the key file is not JSON");
        assert_eq!(
            said(r#"{"type": "service_account", "private_key": "s3cret"}"#),
            "the key file has no client_email"
        );
        assert!(
            said(r#"{"type": "external_account"}"#).starts_with("a key file of type external_account can't")
        );
        assert_eq!(said(r#"{"s3cret": 1}"#), "the key file has no type");
    }

    #[test]
    fn the_google_tools_own_file_is_the_last_resort() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/gcloud");
        std::fs::create_dir_all(&folder).unwrap();
        let user =
            r#"{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}"#;
        std::fs::write(folder.join("application_default_credentials.json"), user).unwrap();
        let around = |variables: &[(&str, &str)]| Surroundings {
            variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            home: home.path().to_owned(),
            folder: home.path().to_owned(),
        };
        let look = |around: &Surroundings, block: &Value, implicit| {
            let mut found = Found::default();
            collect(block, None, around, implicit, &mut found);
            found
        };
        assert_eq!(look(&around(&[]), &Value::Null, true).values[KEY], user);
        assert!(look(&around(&[]), &Value::Null, false).values.is_empty());
        let metadata = serde_json::json!({FIELD: METADATA});
        assert_eq!(look(&around(&[]), &metadata, true).values[KEY], METADATA);
        let named = look(&around(&[("GOOGLE_APPLICATION_CREDENTIALS", "none.json")]), &metadata, true);
        assert!(named.values.is_empty() && named.errors[0].1.contains("cannot read it"));
    }
}
