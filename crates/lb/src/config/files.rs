//! Files that a configuration names: found from its folder, and read as they will be read, so that `check` says what `run` would.

use super::finding::has_errors;
use super::model::{Config, HealthCheck};
use super::rules::Report;
use crate::core::auth::Keys;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// What is in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Authorities,
    Certificate,
    PrivateKey,
    Token,
    SigningKeys,
}

/// Makes paths whole: those in the file are relative to its folder.
pub(super) fn resolve(config: &mut Config, folder: &Path) {
    for (_, path, _) in named(config) {
        if folder != Path::new(".") {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
    }
}

/// Looks at every file.
pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let mut copy = config.clone();
    for (field, path, content) in named(&mut copy) {
        match std::fs::read(&*path) {
            Err(why) => report.error(&field, format!("{path:?}: cannot read it: {why}"), ""),
            Ok(bytes) => {
                if let Err(why) = judge(content, &bytes) {
                    report.error(&field, format!("{path:?}: {why}"), "");
                }
                if is_secret(content) {
                    permissions(&field, path, report);
                }
            }
        }
    }
    if has_errors(&report.findings) {
        return;
    }
    // Each is good by itself; a certificate and its key must also go together.
    for (index, listener) in config.listeners.iter().enumerate() {
        if let Err(why) = together(&listener.health) {
            report.error(&format!("listeners[{index}].health.keyFile"), why, "");
        }
    }
}

fn is_secret(content: Content) -> bool {
    matches!(content, Content::PrivateKey | Content::Token | Content::SigningKeys)
}

fn permissions(field: &str, path: &str, report: &mut Report<'_>) {
    let Ok(about) = std::fs::metadata(path) else { return };
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let text = format!("{path:?}: others on this machine may use it (mode {mode:04o})");
        report.warn(field, text, format!("chmod 600 {path}"));
    }
}

/// What is wrong with a file's content; never what is in it.
fn judge(content: Content, bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    match content {
        Content::Authorities => authorities(bytes),
        Content::Certificate => certificates(bytes).map(drop),
        Content::PrivateKey => {
            PrivateKeyDer::from_pem_slice(bytes).map(drop).map_err(|_| "no private key in PEM".to_owned())
        }
        Content::Token => match std::str::from_utf8(bytes).map(str::trim) {
            Ok(token) if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
            _ => Err("not a token: one word is expected".to_owned()),
        },
        Content::SigningKeys => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| "not a file of keys: one `id base64` per line".to_owned())?;
            Keys::parse(text).map(drop).map_err(|error| error.to_string())
        }
    }
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("no certificate in PEM".to_owned()),
        Err(why) => Err(format!("not PEM: {why}")),
    }
}

fn authorities(bytes: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(bytes)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|why| format!("certificate {} in it: {why}", index + 1))?;
    }
    Ok(())
}

fn together(health: &HealthCheck) -> Result<(), String> {
    let (Some(certificate), Some(key)) = (&health.cert_file, &health.key_file) else { return Ok(()) };
    let chain = certificates(&std::fs::read(certificate).map_err(|why| why.to_string())?)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|_| "no private key in PEM".to_owned())?;
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, key)
        .map(drop)
        .map_err(|why| format!("does not go with certFile: {why}"))
}

/// All files that are named: field, path, and what is in them.
fn named(config: &mut Config) -> Vec<(String, &mut String, Content)> {
    let mut found = Vec::new();
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        let health = &mut listener.health;
        let fields = [
            ("caFile", &mut health.ca_file, Content::Authorities),
            ("certFile", &mut health.cert_file, Content::Certificate),
            ("keyFile", &mut health.key_file, Content::PrivateKey),
            ("tokenFile", &mut health.token_file, Content::Token),
        ];
        for (name, path, content) in fields {
            if let Some(path) = path {
                found.push((format!("listeners[{index}].health.{name}"), path, content));
            }
        }
    }
    for (index, vip) in config.vips.iter_mut().enumerate() {
        if let Some(sign) = &mut vip.sign {
            found.push((format!("vips[{index}].sign.keyFile"), &mut sign.key_file, Content::SigningKeys));
        }
    }
    found
}
