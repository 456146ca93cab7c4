//! The simulated data centre as a process of its own, and its Proxmox API as an operator would ask it.

use super::user::{User, signal};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The token of a data centre whose user has none.
pub(crate) const USER: &str = "root@pam!rehearsal";
pub(crate) const SECRET: &str = "00000000-5ee0-4c0f-9a1b-4e4ea45a1000";

/// How long a start or an end may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A data centre. Killed when it is dropped.
pub(crate) struct DataCentre {
    process: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) proxy: String,
    ca: PathBuf,
    /// What it tells its users to export.
    pub(crate) exports: Vec<(String, String)>,
    /// Stand-ins for the addons.
    pub(crate) bundle: PathBuf,
    calls: PathBuf,
    /// Of the Proxmox API, where there is one.
    endpoint: String,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Vm {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) node: String,
    pub(crate) running: bool,
}

/// Variables in lines such as `export A=1 B='2'`.
fn exports(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("export "));
    let pairs = lines.flat_map(str::split_whitespace).filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned())).collect()
}

impl DataCentre {
    /// Starts one for a bootstrap file, in a user's folder.
    pub(crate) async fn start(user: &User, config: &Path, more: &[&str]) -> Result<DataCentre> {
        let folder = user.folder();
        let (ca, bundle, calls) =
            (folder.join("ca.crt"), folder.join("bundle.yaml"), folder.join("calls.jsonl"));
        let mut command = user.command(&["sim", "datacentre"]);
        command.arg("--config").arg(config).arg("--ca").arg(&ca).arg("--bundle").arg(&bundle);
        let said = folder.join("datacentre.txt");
        let file = std::fs::File::create(&said).context("keep what the data centre says")?;
        command.arg("--calls").arg(&calls).args(more).stdout(Stdio::piped()).stderr(file);
        let mut process = command.spawn().context("start the data centre")?;
        let stdout = process.stdout.take().context("read what the data centre prints")?;
        let mut line = String::new();
        let read = timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line)).await;
        read.context("the data centre is not ready in time")?.context("read what the data centre prints")?;
        let proxy = line.strip_prefix("ready ").and_then(|rest| rest.split(' ').next());
        let proxy = proxy.with_context(|| format!("the data centre is not ready: {line:?}"))?.to_owned();
        let text = std::fs::read_to_string(config).context("read the bootstrap file")?;
        let file: Value = serde_saphyr::from_str(&text).context("understand the bootstrap file")?;
        let endpoint = file.pointer("/providerConfig/proxmox/endpoint").and_then(Value::as_str);
        let endpoint = endpoint.and_then(|url| url.strip_prefix("https://")).unwrap_or_default().to_owned();
        let exports = exports(&std::fs::read_to_string(&said).context("read what the data centre says")?);
        Ok(DataCentre { process, proxy, ca, exports, bundle, calls, endpoint })
    }

    /// Asks it to end, and waits.
    pub(crate) async fn end(mut self) -> Result<()> {
        signal(&self.process, rustix::process::Signal::INT)?;
        let status = timeout(PATIENCE, self.process.wait()).await.context("the data centre does not end")?;
        let status = status.context("wait for the data centre")?;
        ensure!(status.success(), "the data centre ended with {status}");
        Ok(())
    }

    /// Has it read its script of faults again.
    pub(crate) fn read_faults(&self) -> Result<()> {
        signal(&self.process, rustix::process::Signal::USR1)
    }

    /// All calls that are over.
    pub(crate) fn calls(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(&self.calls).context("read the log of calls")?;
        // The last line may be under way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).context("understand the log of calls")).collect()
    }

    /// Where the calls are written.
    pub(crate) fn calls_path(&self) -> &Path {
        &self.calls
    }

    /// How many calls are over.
    pub(crate) fn count(&self) -> usize {
        std::fs::read(&self.calls).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    }

    /// All virtual machines that are no templates, by name.
    pub(crate) async fn vms(&self) -> Result<Vec<Vm>> {
        let found = self.ask(Method::GET, "/cluster/resources?type=vm").await?;
        let vm = |value: &Value| {
            Some(Vm {
                name: value["name"].as_str()?.to_owned(),
                id: value["vmid"].as_u64()?,
                node: value["node"].as_str()?.to_owned(),
                running: value["status"] == "running",
            })
        };
        let list = found.as_array().context("a list of machines")?;
        let mut vms: Vec<Vm> = list.iter().filter(|value| value["template"] != 1).filter_map(vm).collect();
        vms.sort();
        Ok(vms)
    }

    /// Volumes that belong to no machine or template that is there.
    pub(crate) async fn stray_volumes(&self) -> Result<Vec<String>> {
        let machines = self.ask(Method::GET, "/cluster/resources?type=vm").await?;
        let known: Vec<u64> =
            machines.as_array().into_iter().flatten().filter_map(|vm| vm["vmid"].as_u64()).collect();
        let storages = self.ask(Method::GET, "/cluster/resources?type=storage").await?;
        let mut stray = Vec::new();
        for storage in storages.as_array().into_iter().flatten() {
            let (Some(node), Some(name)) = (storage["node"].as_str(), storage["storage"].as_str()) else {
                continue;
            };
            let content = self.ask(Method::GET, &format!("/nodes/{node}/storage/{name}/content")).await?;
            for volume in content.as_array().into_iter().flatten() {
                if volume["vmid"].as_u64().is_some_and(|id| !known.contains(&id)) {
                    stray.push(volume["volid"].as_str().unwrap_or("?").to_owned());
                }
            }
        }
        stray.sort();
        stray.dedup();
        Ok(stray)
    }

    /// Pulls the plug of a machine.
    pub(crate) async fn pull_plug(&self, vm: &Vm) -> Result<()> {
        self.ask(Method::POST, &format!("/nodes/{}/qemu/{}/status/stop", vm.node, vm.id)).await.map(|_| ())
    }

    /// One request to the Proxmox API, through the proxy.
    async fn ask(&self, method: Method, path: &str) -> Result<Value> {
        let asked = self.request(&method, path);
        timeout(PATIENCE, asked).await.context("no answer")?.with_context(|| format!("{method} {path}"))
    }

    async fn request(&self, method: &Method, path: &str) -> Result<Value> {
        let stream = self.dial().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.context("speak HTTP")?;
        // It ends with the sender; an error reaches whoever waits for the answer.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("/api2/json{path}"))
            .header(header::HOST, &self.endpoint)
            .header(header::AUTHORIZATION, format!("PVEAPIToken={USER}={SECRET}"))
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await.context("ask")?;
        let status = response.status();
        let body = response.into_body().collect().await.context("read the answer")?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).context("understand the answer")?;
        Ok(answer["data"].take())
    }

    /// A TLS connection to the endpoint.
    async fn dial(&self) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let proxy = self.proxy.strip_prefix("http://").context("a proxy without http://")?;
        let mut tcp = TcpStream::connect(proxy).await.context("reach the proxy")?;
        let hello = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", self.endpoint);
        tcp.write_all(hello.as_bytes()).await.context("speak to the proxy")?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match tcp.read_u8().await {
                Ok(byte) if answer.len() < 4096 => answer.push(byte),
                _ => bail!("the proxy answers {:?}", String::from_utf8_lossy(&answer)),
            }
        }
        ensure!(
            answer.starts_with(b"HTTP/1.1 200"),
            "the proxy answers {:?}",
            String::from_utf8_lossy(&answer)
        );
        let ca = CertificateDer::from_pem_file(&self.ca).context("read the data centre's CA")?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca).context("trust the data centre's CA")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = self.endpoint.rsplit_once(':').map_or(self.endpoint.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_owned()).context("name the endpoint for TLS")?;
        TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.context("TLS with the endpoint")
    }
}
