//! Certificates, keys, tokens and kubeconfigs of a real control plane, made new for every start.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// Names by which the API server may be called: from here, and from inside the cluster.
const SERVER_NAMES: &[&str] = &[
    "127.0.0.1",
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// A user that the API server knows by a bearer token.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) user: &'static str,
    pub(crate) groups: &'static [&'static str],
    pub(crate) token: String,
    /// Logs in as this user.
    pub(crate) kubeconfig: PathBuf,
}

/// Who gets a token: somebody who may do everything, and two who may do nothing until a role is bound to them.
const USERS: &[(&str, &[&str])] = &[
    ("token-admin", &["system:masters"]),
    ("alice", &["developers"]),
    ("bob", &["developers", "operators"]),
];

/// Paths of everything that was made, all in one folder.
#[derive(Debug)]
pub(super) struct Pki {
    pub(super) ca: PathBuf,
    pub(super) server: CertificateFiles,
    pub(super) tokens: PathBuf,
    pub(super) service_account_key: PathBuf,
    pub(super) service_account_public_key: PathBuf,
    /// Client certificate in group system:masters.
    pub(super) admin_kubeconfig: PathBuf,
    pub(super) controller_manager_kubeconfig: PathBuf,
    pub(super) identities: Vec<Identity>,
}

#[derive(Debug)]
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Makes it all in `dir`, for a server that will answer at `url`.
pub(super) fn create(dir: &Path, url: &str) -> Result<Pki> {
    let files = Files { dir, url, ca: dir.join("ca.crt") };
    let key = KeyPair::generate().context("make the CA's key")?;
    let mut params = named("real-cluster-ca", &[])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    write(&files.ca, &params.self_signed(&key).context("sign the CA's certificate")?.pem())?;
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(SERVER_NAMES.iter().map(ToString::to_string).collect::<Vec<_>>())
        .context("name the server")?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = files.certificate("apiserver", params, &issuer)?;

    let admin = files.client("admin", named("admin", &["system:masters"])?, &issuer)?;
    let controller_manager =
        files.client("controller-manager", named("system:kube-controller-manager", &[])?, &issuer)?;

    let key = KeyPair::generate().context("make the service-account key")?;
    let service_account_key = dir.join("service-account.key");
    let service_account_public_key = dir.join("service-account.pub");
    write(&service_account_key, &key.serialize_pem())?;
    write(&service_account_public_key, &key.public_key_pem())?;

    let identities =
        USERS.iter().map(|(user, groups)| files.identity(user, groups)).collect::<Result<Vec<_>>>()?;
    let tokens = dir.join("tokens.csv");
    write(&tokens, &identities.iter().map(token_line).collect::<String>())?;
    Ok(Pki {
        ca: files.ca,
        server,
        tokens,
        service_account_key,
        service_account_public_key,
        admin_kubeconfig: admin,
        controller_manager_kubeconfig: controller_manager,
        identities,
    })
}

/// Where things are written, and what every kubeconfig has in common.
struct Files<'a> {
    dir: &'a Path,
    url: &'a str,
    ca: PathBuf,
}

impl Files<'_> {
    fn certificate(
        &self,
        name: &str,
        params: CertificateParams,
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<CertificateFiles> {
        let key = KeyPair::generate().with_context(|| format!("make the key of {name}"))?;
        let signed =
            params.signed_by(&key, issuer).with_context(|| format!("sign the certificate of {name}"))?;
        let files = CertificateFiles {
            certificate: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        };
        write(&files.certificate, &signed.pem())?;
        write(&files.key, &key.serialize_pem())?;
        Ok(files)
    }

    /// A client certificate, and the kubeconfig that uses it.
    fn client(
        &self,
        name: &str,
        mut params: CertificateParams,
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<PathBuf> {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let files = self.certificate(name, params, issuer)?;
        self.kubeconfig(name, json!({ "client-certificate": files.certificate, "client-key": files.key }))
    }

    fn identity(&self, user: &'static str, groups: &'static [&'static str]) -> Result<Identity> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).with_context(|| format!("make a token for {user}"))?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let kubeconfig = self.kubeconfig(user, json!({ "token": token }))?;
        Ok(Identity { user, groups, token, kubeconfig })
    }

    /// Written as JSON, which is YAML as well.
    fn kubeconfig(&self, name: &str, user: serde_json::Value) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{ "name": "real", "cluster": { "server": self.url, "certificate-authority": self.ca } }],
            "contexts": [{ "name": "real", "context": { "cluster": "real", "user": name } }],
            "users": [{ "name": name, "user": user }],
        });
        write(&path, &format!("{config:#}\n"))?;
        Ok(path)
    }
}

/// Kubernetes reads the user from the common name and the groups from the organisations.
fn named(user: &str, groups: &[&str]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).with_context(|| format!("name {user}"))?;
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    Ok(params)
}

/// One line of kube-apiserver's token file: token, user, uid, quoted list of groups.
fn token_line(identity: &Identity) -> String {
    let Identity { user, groups, token, .. } = identity;
    format!("{token},{user},uid-{user},\"{}\"\n", groups.join(","))
}

/// The folder is the owner's alone (0700), so the files need no mode of their own.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_point_to_files_that_are_there_and_tokens_match() {
        let dir = tempfile::tempdir().unwrap();
        let pki = create(dir.path(), "https://127.0.0.1:1234").unwrap();
        let read =
            |path: &Path| -> serde_json::Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };

        let admin = read(&pki.admin_kubeconfig);
        assert_eq!(admin["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1234");
        for file in ["client-certificate", "client-key"] {
            let pem = fs::read_to_string(admin["users"][0]["user"][file].as_str().unwrap()).unwrap();
            assert!(pem.starts_with("-----BEGIN "), "{pem}");
        }

        let tokens = fs::read_to_string(&pki.tokens).unwrap();
        assert_eq!(tokens.lines().count(), USERS.len());
        for identity in &pki.identities {
            assert_eq!(read(&identity.kubeconfig)["users"][0]["user"]["token"], identity.token.as_str());
            assert!(tokens.contains(&format!("{},{},", identity.token, identity.user)), "{tokens}");
        }
        assert!(tokens.contains("\"developers,operators\""), "{tokens}");
    }

    #[test]
    fn every_cluster_has_its_own_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let first = create(dir.path(), "https://127.0.0.1:1").unwrap();
        let second = create(dir.path(), "https://127.0.0.1:1").unwrap();
        assert_ne!(first.identities[0].token, second.identities[0].token);
    }
}
