//! Talos quotes the config when it refuses it, and a dry run answers with a diff: both may hold secrets of that config.

/// Keys whose values are secret, in lower case.
const SECRET_KEYS: &[&str] = &[
    "key",
    "token",
    "secret",
    "secretboxencryptionsecret",
    "aescbcencryptionsecret",
    "privatekey",
    "password",
    "auth",
    "identitytoken",
    "apitoken",
    "passphrase",
];

const STAND_IN: &str = "******";

/// `message` without any secret that stands in `config`, or that the message itself brings: the diff of a dry run shows the
/// config that the node has now, which nobody but the node knows.
pub(super) fn redact(message: &str, config: &str) -> String {
    // The marks of a diff stand before the key.
    let said = message.lines().map(|line| line.trim_start_matches(['+', '-', ' ']));
    let mut values: Vec<&str> = config.lines().chain(said).flat_map(secrets_of_line).collect();
    // The longest first: one secret may hold another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.dedup();
    let mut clean = message.to_owned();
    for value in values {
        if clean.contains(value) {
            clean = clean.replace(value, STAND_IN);
        }
    }
    clean
}

/// Whatever in a line of YAML (or of a one-line flow form of it) is or looks like a secret.
fn secrets_of_line(line: &str) -> impl Iterator<Item = &str> {
    let by_key = line.split_once(':').and_then(|(key, value)| {
        let key = key.trim().trim_start_matches("- ").trim_matches(['"', '\'']).to_ascii_lowercase();
        // A path such as `machine.token` counts by its last name.
        let key = key.rsplit('.').next().unwrap_or(&key).to_owned();
        let value = value.trim().trim_matches(['"', '\'']);
        // Short values are words such as "true"; replacing those would make the message unreadable.
        (SECRET_KEYS.contains(&key.as_str()) && value.len() >= 6).then_some(value)
    });
    let by_look = words(line).filter(|word| looks_secret(word));
    by_key.into_iter().chain(by_look)
}

/// `text` without the words in it that look like secrets. Paths of devices may be as long, and are none.
pub(crate) fn masked(text: String) -> String {
    let found: Vec<String> = words(&text)
        .filter(|word| looks_secret(word) && !word.starts_with("/dev/"))
        .map(str::to_owned)
        .collect();
    found.iter().fold(text, |text, word| text.replace(word.as_str(), STAND_IN))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}' | '[' | ']'))
}

/// A name for an error's path. With a slip of the pen a secret can stand where a key should be.
pub(crate) fn shown_key(key: &str) -> &str {
    if words(key).any(looks_secret) { STAND_IN } else { key }
}

/// A bootstrap token, or at least 32 bytes in base64.
fn looks_secret(word: &str) -> bool {
    let small = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if let Some((id, secret)) = word.split_once('.')
        && id.len() == 6
        && secret.len() == 16
        && small(id)
        && small(secret)
    {
        return true;
    }
    word.len() >= 40 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=-_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_config_do_not_come_back() {
        let config = "machine:\n  tokn: abcdef.0123456789abcdef\n  ca:\n    key: LS0tLS1CRUdJTi\ncluster:\n  secret: \"hunter22\"\n  x: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n";
        let message = "unknown keys found during decoding:\ntokn: abcdef.0123456789abcdef and LS0tLS1CRUdJTi, hunter22, 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(
            redact(message, config),
            "unknown keys found during decoding:\ntokn: ****** and ******, ******, ******"
        );
    }

    #[test]
    fn secrets_that_only_the_node_has_are_taken_out_of_its_diff() {
        let config = "machine:\n  token: newnew.0123456789abcdef\n";
        let diff = "Config diff:\n-    token: oldold.fedcba9876543210\n+    token: newnew.0123456789abcdef\n-machine.registries.config.x.auth.password: 'hunter2-old'\n     hostname: cp-1\n-    key: LS0tLS1CRUdJTi\n";
        let clean = redact(diff, config);
        for secret in ["oldold", "newnew", "hunter2-old", "LS0tLS1CRUdJTi"] {
            assert!(!clean.contains(secret), "{clean}");
        }
        assert!(clean.contains("     hostname: cp-1"), "{clean}");
    }

    #[test]
    fn a_secret_in_the_place_of_a_key_is_not_shown() {
        assert_eq!(shown_key("abcdef.0123456789abcdef"), STAND_IN);
        assert_eq!(shown_key("node.kubernetes.io/exclude"), "node.kubernetes.io/exclude");
        let quoted = masked("unknown machine type \"wor{ abcdef.0123456789abcdef\"".to_owned());
        assert_eq!(quoted, "unknown machine type \"wor{ ******\"");
        let path = "no disk /dev/disk/by-id/nvme-Samsung_SSD_970_EVO_Plus_1TB";
        assert_eq!(masked(path.to_owned()), path);
    }

    #[test]
    fn ordinary_words_stay() {
        let config = "machine:\n  type: controlplane\n  install:\n    disk: /dev/sda\n  key: true\n";
        let message = "machine.install.disk /dev/sda: true is wrong for controlplane";
        assert_eq!(redact(message, config), message);
    }
}
