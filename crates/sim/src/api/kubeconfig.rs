//! The administrator's kubeconfig, in the very archive that Talos sends.

use crate::config::NodeConfig;
use crate::pki;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::Status;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A gzip of a tar with one file. As in Talos the tar is never closed: the content is not padded, and the two blocks at the
/// end are missing. A reader has to stop after the first file.
pub(super) fn archive(config: &NodeConfig) -> Result<Vec<u8>, Status> {
    let text = kubeconfig(config)?;
    let internal = |e: std::io::Error| Status::internal(format!("cannot write the archive: {e}"));
    let mut header = tar::Header::new_ustar();
    header.set_path("kubeconfig").map_err(internal)?;
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_entry_type(tar::EntryType::Regular);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    header.set_mtime(now.as_secs());
    header.set_cksum();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(header.as_bytes()).map_err(internal)?;
    gzip.write_all(text.as_bytes()).map_err(internal)?;
    gzip.finish().map_err(internal)
}

fn kubeconfig(config: &NodeConfig) -> Result<String, Status> {
    let parts = &config.parts;
    let lifetime = parts.admin_lifetime.as_deref().and_then(go_duration).unwrap_or(YEAR);
    let (cert, key) = pki::kubernetes_admin(&parts.kubernetes_ca, lifetime)
        .map_err(|e| Status::unknown(format!("cannot make the kubeconfig: {e}")))?;
    let name = &parts.cluster_name;
    let (server, ca) = (&parts.endpoint, BASE64.encode(&parts.kubernetes_ca.cert));
    let (cert, key) = (BASE64.encode(cert), BASE64.encode(key));
    Ok(format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         users:\n\
         - name: admin@{name}\n  user:\n    client-certificate-data: {cert}\n    client-key-data: {key}\n\
         contexts:\n\
         - context:\n    cluster: {name}\n    namespace: default\n    user: admin@{name}\n  name: admin@{name}\n\
         current-context: admin@{name}\n"
    ))
}

/// Hours, minutes and seconds of a Go duration such as `8760h0m0s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut total = 0_u64;
    let mut number = String::new();
    for letter in text.chars() {
        let unit = match letter {
            '0'..='9' => {
                number.push(letter);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    (number.is_empty() && total > 0).then(|| Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        assert_eq!(go_duration("1h30m0s"), Some(Duration::from_secs(5400)));
        assert_eq!(go_duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(go_duration("3"), None);
        assert_eq!(go_duration("1d"), None);
    }
}
