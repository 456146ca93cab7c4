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

/// `message` without any secret that stands in `config`.
pub(super) fn redact(message: &str, config: &str) -> String {
    let mut values: Vec<&str> = config.lines().flat_map(secrets_of_line).collect();
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
        let value = value.trim().trim_matches(['"', '\'']);
        // Short values are words such as "true"; replacing those would make the message unreadable.
        (SECRET_KEYS.contains(&key.as_str()) && value.len() >= 6).then_some(value)
    });
    let by_look = line
        .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}' | '[' | ']'))
        .filter(|word| looks_secret(word));
    by_key.into_iter().chain(by_look)
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
    fn ordinary_words_stay() {
        let config = "machine:\n  type: controlplane\n  install:\n    disk: /dev/sda\n  key: true\n";
        let message = "machine.install.disk /dev/sda: true is wrong for controlplane";
        assert_eq!(redact(message, config), message);
    }
}
