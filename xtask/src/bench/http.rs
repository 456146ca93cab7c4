//! The load's own HTTP client: one HTTP/1.1 connection over TLS per simulated client, kept open. It is thinner than a
//! Kubernetes client library on purpose: on a machine where load and server share the cores, every microsecond of the
//! load is one that the server does not get.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT},
};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::stream::Lines;

pub(super) const JSON: &str = "application/json";
/// What kubectl asks for when it prints columns.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// A server and who we are there, as a kubeconfig says.
#[derive(Clone)]
pub(super) struct Target {
    address: Arc<str>,
    name: ServerName<'static>,
    tls: TlsConnector,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
}

/// One open connection.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    target: Target,
}

/// A request without what is the same in all of them.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) accept: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

// === impl Ask ===

impl<'a> Ask<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, accept: JSON, content_type: JSON, body: Bytes::new() }
    }

    pub(super) fn send(method: Method, path: &'a str, body: impl Into<Bytes>) -> Self {
        Self { method, path, accept: JSON, content_type: JSON, body: body.into() }
    }
}

// === impl Target ===

impl Target {
    pub(super) async fn from_kubeconfig(path: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("understand {}", path.display()))?;
        let mut tls = config.rustls_client_config().context("read the certificates of the kubeconfig")?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = config.cluster_url.host().context("find the server's host in the kubeconfig")?;
        let port = config.cluster_url.port_u16().context("find the server's port in the kubeconfig")?;
        // A client that has both a certificate and a token sends both, as kubectl does.
        let auth = serde_json::to_value(&config.auth_info).context("read the user of the kubeconfig")?;
        let authorization = auth["token"].as_str().map(|token| format!("Bearer {token}").parse()).transpose();
        Ok(Self {
            address: format!("{host}:{port}").into(),
            name: ServerName::try_from(host.to_owned()).context("name the server for TLS")?,
            tls: TlsConnector::from(Arc::new(tls)),
            host: format!("{host}:{port}").parse().context("name the server for HTTP")?,
            authorization: authorization.context("use the token of the kubeconfig")?,
        })
    }

    pub(super) async fn connect(&self) -> Result<Connection> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.dial().await?))
            .await
            .with_context(|| format!("speak HTTP with {}", self.address))?;
        // It ends with the sender; an error reaches whoever waits for an answer.
        tokio::spawn(connection);
        Ok(Connection { sender, target: self.clone() })
    }

    /// Opens a watch on a connection of its own.
    pub(super) async fn watch(&self, path: &str) -> Result<Lines> {
        let host = self.host.to_str().context("name the server for HTTP")?;
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: {JSON}\r\n");
        if let Some(value) = &self.authorization {
            let value = value.to_str().context("use the token of the kubeconfig")?;
            request.push_str(&format!("authorization: {value}\r\n"));
        }
        request.push_str("\r\n");
        Lines::open(self.dial().await?, request.as_bytes()).await
    }

    async fn dial(&self) -> Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(&*self.address)
            .await
            .with_context(|| format!("connect to {}", self.address))?;
        tcp.set_nodelay(true).context("set TCP_NODELAY")?;
        self.tls
            .connect(self.name.clone(), tcp)
            .await
            .with_context(|| format!("speak TLS with {}", self.address))
    }
}

// === impl Connection ===

impl Connection {
    /// Asks, and hands back the answer with its body still to be read.
    pub(super) async fn open(&mut self, ask: Ask<'_>) -> Result<http::Response<Incoming>> {
        let what = format_args!("{} {}", ask.method, ask.path).to_string();
        let uri: Uri = ask.path.parse().with_context(|| format!("make the path of {what}"))?;
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static("butler-bench"));
        headers.insert(ACCEPT, HeaderValue::from_static(ask.accept));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ask.content_type));
        if let Some(authorization) = &self.target.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.sender.ready().await.with_context(|| format!("{what}: the connection is closed"))?;
        self.sender.send_request(request).await.with_context(|| what)
    }

    /// Asks, and reads the whole answer, whatever its status.
    pub(super) async fn exchange(&mut self, ask: Ask<'_>) -> Result<(StatusCode, Bytes)> {
        let response = self.open(ask).await?;
        let status = response.status();
        let body = response.into_body().collect().await.context("read an answer")?.to_bytes();
        Ok((status, body))
    }

    /// Asks; anything but success is an error with the server's own words.
    pub(super) async fn call(&mut self, ask: Ask<'_>) -> Result<Bytes> {
        let (method, path) = (ask.method.clone(), ask.path.to_owned());
        let (status, body) = self.exchange(ask).await?;
        if !status.is_success() {
            bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Asks and counts the bytes of the answer without keeping them.
    pub(super) async fn drain(&mut self, ask: Ask<'_>) -> Result<usize> {
        let path = ask.path.to_owned();
        let response = self.open(ask).await?;
        ensure!(response.status().is_success(), "GET {path}: {}", response.status());
        let mut body = response.into_body();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| format!("read the answer to GET {path}"))?;
            size += frame.data_ref().map_or(0, Bytes::len);
        }
        Ok(size)
    }
}
