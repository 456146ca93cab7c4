//! The TLS settings of checks. Certificates and keys are renewed while the balancer runs, so their files are looked at before
//! each handshake and read again when they have changed: three looks at local files at most, no more than a token costs.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::target::TargetError;
use crate::{config::HealthCheck, trust::AnyCertificate};

#[derive(Debug)]
pub(super) struct Tls {
    check: HealthCheck,
    in_use: Mutex<InUse>,
}

#[derive(Debug)]
struct InUse {
    config: Arc<ClientConfig>,
    /// How the files were when they were last read, with or without success.
    seen: Vec<Option<Stamp>>,
}

/// What changes with a file: inode, size, times of content and of everything.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(u64, u64, [i64; 4]);

// === impl Tls ===

impl Tls {
    pub(super) fn new(check: &HealthCheck) -> Result<Self, TargetError> {
        // Looked at before they are read: what changes in between is read again.
        let seen = stamps(check);
        let config = Arc::new(client(check)?);
        Ok(Self { check: check.clone(), in_use: Mutex::new(InUse { config, seen }) })
    }

    /// What is to be used now. Files that are of no use, as those that are half written, change nothing, and are told of once.
    pub(super) fn config(&self) -> Arc<ClientConfig> {
        let mut in_use = self.in_use.lock();
        let seen = stamps(&self.check);
        if seen != in_use.seen {
            in_use.seen = seen;
            match client(&self.check) {
                Ok(config) => {
                    in_use.config = Arc::new(config);
                    tracing::info!("the certificates of health checks were renewed");
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                    let cause = cause.unwrap_or_default();
                    tracing::warn!("the certificates of health checks stay as they were: {error}{cause}");
                }
            }
        }
        Arc::clone(&in_use.config)
    }
}

fn stamps(check: &HealthCheck) -> Vec<Option<Stamp>> {
    let files = [&check.ca_file, &check.cert_file, &check.key_file];
    files.into_iter().flatten().map(|file| stamp(file)).collect()
}

fn stamp(file: &str) -> Option<Stamp> {
    let about = fs::metadata(file).ok()?;
    let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
    Some(Stamp(about.ino(), about.size(), times))
}

fn client(check: &HealthCheck) -> Result<ClientConfig, TargetError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &check.ca_file {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots)
        }
        // Without an authority to ask, a check is about life, not about identity.
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
    };
    match (&check.cert_file, &check.key_file) {
        (Some(cert), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(Path::new(key))
                .map_err(|source| TargetError::File { file: key.clone(), source })?;
            Ok(builder.with_client_auth_cert(certificates(cert)?, secret)?)
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(TargetError::Half),
    }
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, TargetError> {
    let unreadable = |source| TargetError::File { file: file.to_owned(), source };
    let found = CertificateDer::pem_file_iter(Path::new(file)).map_err(unreadable)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if found.is_empty() { Err(TargetError::Empty(file.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> String {
        rcgen::generate_simple_self_signed(vec!["api".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn files_are_read_again_only_when_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        fs::write(&file, certificate()).unwrap();
        let ca_file = Some(file.to_str().unwrap().to_owned());
        let tls = Tls::new(&HealthCheck { ca_file, ..HealthCheck::default() }).unwrap();
        let first = tls.config();
        assert!(Arc::ptr_eq(&first, &tls.config()));
        // In another file with its name, as those write who don't want it to be seen by halves.
        fs::write(folder.path().join("new"), certificate()).unwrap();
        fs::rename(folder.path().join("new"), &file).unwrap();
        let second = tls.config();
        assert!(!Arc::ptr_eq(&first, &second));
        fs::write(&file, "").unwrap();
        assert!(Arc::ptr_eq(&second, &tls.config()));
        fs::remove_file(&file).unwrap();
        assert!(Arc::ptr_eq(&second, &tls.config()));
        fs::write(&file, certificate()).unwrap();
        assert!(!Arc::ptr_eq(&second, &tls.config()));
    }
}
