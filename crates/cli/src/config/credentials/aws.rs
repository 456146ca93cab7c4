//! Credentials of AWS: keys of the environment, of a file or of fields, else a profile of the AWS tools' own files.
//!
//! Keys are taken from one place whole: a token of one place beside a key of another fits nothing. Of the files of the AWS tools
//! only the profile that is meant is taken over, and those that it builds on: the others are nobody's business.

use super::super::Surroundings;
use super::{Found, read};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Key of the Secret, and the variable of the AWS tools.
const KEYS: [(&str, &str); 3] = [
    ("accessKeyID", "AWS_ACCESS_KEY_ID"),
    ("secretAccessKey", "AWS_SECRET_ACCESS_KEY"),
    ("sessionToken", "AWS_SESSION_TOKEN"),
];
/// What goes with keys and profiles alike.
const ROLE: [&str; 3] = ["roleARN", "externalID", "roleSessionName"];
/// The profile when nobody names one.
const DEFAULT: &str = "default";

/// Reads a key of the Secret from one of the places that keys may be in.
type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Looks everywhere; `kept` is what the credentials file says. Without `implicit`, only at what is named.
pub(super) fn collect(
    block: &Value,
    kept: &BTreeMap<String, String>,
    around: &Surroundings,
    implicit: bool,
    found: &mut Found,
) {
    let field = |key: &str| block.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    let variable =
        |key: &str| KEYS.iter().find(|(name, _)| *name == key).and_then(|(_, name)| around.variable(name));
    for key in ROLE {
        put(found, key, kept.get(key).cloned().or_else(|| field(key)));
    }
    let places: [(&str, Get<'_>); 3] = [
        ("the environment", &variable),
        ("credentialsFile", &|key| kept.get(key).cloned()),
        ("the file", &field),
    ];
    let keys =
        places.iter().find(|(_, get)| is_there(get("accessKeyID")) || is_there(get("secretAccessKey")));
    let named = kept.get("profile").cloned().or_else(|| field("profile")).filter(|name| !name.is_empty());
    if let Some((place, get)) = keys {
        for (key, _) in KEYS {
            put(found, key, get(key));
        }
        if named.is_some() {
            let why = format!("not used, since there is an access key in {place}");
            let help = "unset AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or remove the profile";
            found.warnings.push(("profile".to_owned(), why, help.to_owned()));
        }
        return;
    }
    match named.or_else(|| around.variable("AWS_PROFILE")) {
        Some(name) => profile(&name, true, around, found),
        None if implicit => profile(DEFAULT, false, around, found),
        None => {}
    }
}

fn is_there(value: Option<String>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

fn put(found: &mut Found, key: &str, value: Option<String>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        found.values.insert(key.to_owned(), value);
    }
}

/// A profile of the AWS tools' own files. One that nobody has named may be missing.
fn profile(name: &str, named: bool, around: &Surroundings, found: &mut Found) {
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials", around, found);
    let config = file("AWS_CONFIG_FILE", "config", around, found);
    let files = [credentials.as_deref().unwrap_or_default(), config.as_deref().unwrap_or_default()];
    let wanted = chain(name, &files);
    if !files.iter().any(|text| names(text).contains(name)) {
        if named && found.errors.is_empty() {
            let known: BTreeSet<String> = files.iter().flat_map(|text| names(text)).collect();
            let help = match known.is_empty() {
                true => {
                    "there is none at all: make one with `aws configure --profile`, or give keys".to_owned()
                }
                false => {
                    format!("those that are there: {}", known.into_iter().collect::<Vec<_>>().join(", "))
                }
            };
            let why = format!("{name:?}: there is no such profile in the files of the AWS tools");
            found.errors.push(("profile".to_owned(), why, help));
        }
        return;
    }
    found.values.insert("profile".to_owned(), name.to_owned());
    for (key, text) in ["credentials", "config"].into_iter().zip(files) {
        put(found, key, Some(only(text, &wanted)));
    }
}

/// One of the two files: where the variable says, else where the AWS tools have it. That one may be missing.
fn file(variable: &str, usual: &str, around: &Surroundings, found: &mut Found) -> Option<String> {
    if let Some(path) = around.variable(variable) {
        return read("profile", Path::new(&path), around, found);
    }
    let path = PathBuf::from("~/.aws").join(usual);
    around.is_there(&path).then(|| read("profile", &path, around, found)).flatten()
}

/// The name in `[name]` or `[profile name]`.
fn heading(line: &str) -> Option<&str> {
    let (name, _) = line.trim().strip_prefix('[')?.split_once(']')?;
    let name = name.trim();
    Some(name.strip_prefix("profile ").map_or(name, str::trim))
}

fn names(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(heading).map(ToOwned::to_owned).collect()
}

/// A profile and all that it builds on.
fn chain(name: &str, files: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut next = vec![name.to_owned()];
    while let Some(name) = next.pop() {
        for text in files {
            let section = only(text, &BTreeSet::from([name.clone()]));
            let settings = section.lines().filter_map(|line| line.split_once('='));
            let sources = settings.filter(|(key, _)| key.trim().eq_ignore_ascii_case("source_profile"));
            next.extend(
                sources
                    .map(|(_, source)| source.trim().to_owned())
                    .filter(|source| !all.contains(source) && *source != name),
            );
        }
        all.insert(name);
    }
    all
}

/// The sections of these profiles, as they are written.
fn only(text: &str, profiles: &BTreeSet<String>) -> String {
    let mut wanted = false;
    let mut kept = String::new();
    for line in text.lines() {
        if let Some(name) = heading(line) {
            wanted = profiles.contains(name);
        }
        if wanted {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const CREDENTIALS: &str = "[default]\naws_access_key_id=A1\naws_secret_access_key=s1\n[other]\naws_access_key_id=A2\n\
        aws_secret_access_key=s2\n[base]\naws_access_key_id=A3\naws_secret_access_key=s3\n";
    const CONFIG: &str = "[default]\nregion=us-east-1\n[profile prod]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile = base\n";

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        for (name, text) in [("credentials", CREDENTIALS), ("config", CONFIG)] {
            let path = home.path().join(".aws").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        home
    }

    fn look(home: &Path, variables: &[(&str, &str)], block: &Value, implicit: bool) -> Found {
        let around = Surroundings {
            variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            home: home.to_owned(),
            folder: home.to_owned(),
        };
        let mut found = Found::default();
        collect(block, &BTreeMap::new(), &around, implicit, &mut found);
        found
    }

    #[test]
    fn keys_are_taken_from_one_place_whole() {
        let home = home();
        let block = serde_json::json!({"accessKeyID": "F", "secretAccessKey": "f", "roleARN": "arn:r", "profile": "prod"});
        let found = look(home.path(), &[("AWS_SESSION_TOKEN", "of-another-key")], &block, true);
        let keys: Vec<&str> = found.values.keys().map(String::as_str).collect();
        assert_eq!(keys, ["accessKeyID", "roleARN", "secretAccessKey"]);
        assert!(found.warnings[0].1.contains("not used, since there is an access key in the file"));
        let variables =
            [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "e"), ("AWS_SESSION_TOKEN", "t")];
        let found = look(home.path(), &variables, &block, true);
        assert_eq!((found.values["accessKeyID"].as_str(), found.values["sessionToken"].as_str()), ("E", "t"));
    }

    #[test]
    fn a_profile_brings_what_it_builds_on_and_nothing_else() {
        let home = home();
        let found = look(home.path(), &[("AWS_PROFILE", "prod")], &Value::Null, true);
        assert_eq!(found.values["profile"], "prod");
        assert_eq!(found.values["credentials"], "[base]\naws_access_key_id=A3\naws_secret_access_key=s3\n");
        assert!(
            found.values["config"].starts_with("[profile prod]\n")
                && !found.values["config"].contains("default")
        );
        let found = look(home.path(), &[("AWS_PROFILE", "prodd")], &Value::Null, true);
        assert_eq!(found.errors[0].1, "\"prodd\": there is no such profile in the files of the AWS tools");
        assert_eq!(found.errors[0].2, "those that are there: base, default, other, prod");
    }

    #[test]
    fn the_default_profile_is_looked_for_unless_a_rehearsal_asks() {
        let home = home();
        assert_eq!(look(home.path(), &[], &Value::Null, true).values["profile"], DEFAULT);
        assert!(look(home.path(), &[], &Value::Null, false).values.is_empty());
        let nobody = tempfile::tempdir().unwrap();
        let found = look(nobody.path(), &[], &Value::Null, true);
        assert!(found.values.is_empty() && found.errors.is_empty(), "what nobody named may be missing");
        let found =
            look(nobody.path(), &[("AWS_CONFIG_FILE", "none"), ("AWS_PROFILE", "p")], &Value::Null, true);
        assert!(found.errors[0].1.contains("cannot read it"), "{}", found.errors[0].1);
    }
}
