//! Which nodes, by which road, as whom: the options that all commands to nodes share.

use crate::engine::Home;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use butler_talos::client::{
    Client, ClientError, Credentials, ErrorClass, Fingerprint, Node, NodeAddress, NodeState, Proxy, Settings,
    Wait, WaitError,
};
use butler_talos::{Secret, TalosContext, Talosconfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    /// The talosconfig with our client certificate. Without it: ~/.talos/config, else that of the only cluster in ~/.butler.
    #[arg(long, value_name = "FILE", env = "TALOSCONFIG")]
    talosconfig: Option<PathBuf>,
    /// The context of the talosconfig, if not the chosen one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Addresses of the nodes. Without it: the nodes, else the endpoints, of the talosconfig.
    #[arg(long, short, value_name = "ADDRESS", value_delimiter = ',')]
    nodes: Vec<NodeAddress>,
    /// Control planes that pass the call on to the nodes. Without it every node is spoken to directly.
    #[arg(long, short, value_name = "ADDRESS", value_delimiter = ',')]
    endpoints: Vec<NodeAddress>,
    /// An HTTP proxy (CONNECT) to the nodes. Without it: the proxy-url of the talosconfig.
    #[arg(long, value_name = "URL", value_parser = secret)]
    proxy: Option<Secret>,
    /// Dial ADDRESS:PORT for HOST. May be repeated.
    #[arg(long, value_name = "HOST=ADDRESS:PORT", value_parser = parse_override)]
    resolve: Vec<(String, SocketAddr)>,
}

/// It may hold a password, which a parser's error would repeat: it is looked into later.
pub(super) fn secret(text: &str) -> Result<Secret, String> {
    Ok(Secret::new(text))
}

fn parse_override(text: &str) -> Result<(String, SocketAddr), String> {
    let (host, address) = text.split_once('=').ok_or("expected HOST=ADDRESS:PORT")?;
    Ok((host.to_owned(), address.parse().map_err(|_| format!("{address:?} is not ADDRESS:PORT"))?))
}

/// `90s`, `10m`, `1h30m`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration such as 90s, 10m or 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let unit = after.chars().next().ok_or_else(bad)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return Err(bad()),
        };
        total += Duration::from_secs(number.checked_mul(seconds).ok_or_else(bad)?);
        rest = &after[1..];
    }
    if total.is_zero() { Err(bad()) } else { Ok(total) }
}

/// [`Reach`], read: files opened, defaults filled in.
pub(super) struct Road {
    pub(super) nodes: Vec<NodeAddress>,
    endpoints: Vec<NodeAddress>,
    /// The control planes, as far as the talosconfig tells.
    pub(super) known: Vec<NodeAddress>,
    credentials: Option<Credentials>,
    settings: Arc<Settings>,
}

impl Reach {
    /// For what can't be undone: nodes by their names only.
    pub(super) fn explicit(self) -> Result<Self> {
        if self.nodes.is_empty() {
            bail!("no node is named: say --nodes");
        }
        Ok(self)
    }

    pub(super) fn road(self) -> Result<Road> {
        let context = self.read_context()?;
        let listed = |list: fn(&TalosContext) -> &Vec<String>| -> Result<Vec<NodeAddress>> {
            let Some(context) = &context else { return Ok(Vec::new()) };
            list(context)
                .iter()
                .map(|text| text.parse::<NodeAddress>().context("in the talosconfig"))
                .collect()
        };
        let known = listed(|context| &context.endpoints)?;
        let nodes = [self.nodes, listed(|context| &context.nodes)?, known.clone()]
            .into_iter()
            .find(|list| !list.is_empty())
            .context("no node is named: say --nodes, or put nodes or endpoints into the talosconfig")?;
        let given = self.proxy.as_ref().map(|proxy| (proxy.expose(), "--proxy"));
        let listed = context.as_ref().and_then(|context| context.proxy_url.as_deref());
        let proxy = given
            .or(listed.map(|url| (url, "proxy-url of the talosconfig")))
            .map(|(url, source)| url.parse::<Proxy>().context(source))
            .transpose()?;
        let credentials = context
            .as_ref()
            .map(|context| Credentials::from_context(context).context("the talosconfig can't be used"))
            .transpose()?;
        let settings =
            Settings { proxy, overrides: self.resolve.into_iter().collect(), ..Settings::default() };
        Ok(Road { nodes, endpoints: self.endpoints, known, credentials, settings: Arc::new(settings) })
    }

    fn read_context(&self) -> Result<Option<TalosContext>> {
        let path = match &self.talosconfig {
            Some(path) => path.clone(),
            None => match usual_talosconfig()? {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the talosconfig {}", path.display()))?;
        let config = Talosconfig::from_yaml(&text).with_context(|| format!("{}", path.display()))?;
        let name = self.context.as_deref();
        if config.contexts.is_empty() {
            bail!("{} is not a talosconfig: there are no contexts in it", path.display());
        }
        match config.get(name) {
            Some(context) => Ok(Some(context.clone())),
            None => bail!(
                "{} has no context {:?}; it has: {}",
                path.display(),
                name.unwrap_or(&config.context),
                config.contexts.keys().cloned().collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// Where a talosconfig is when nobody says.
fn usual_talosconfig() -> Result<Option<PathBuf>> {
    let own = std::env::home_dir().map(|home| home.join(".talos/config")).filter(|path| path.exists());
    if own.is_some() {
        return Ok(own);
    }
    match Home::usual().talosconfigs().as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => {
            let list: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            bail!("there are several talosconfigs; name one with --talosconfig: {}", list.join(", "))
        }
    }
}

impl Road {
    pub(super) fn node(&self, address: &NodeAddress, pin: Option<&Fingerprint>) -> Node {
        let mut node = Node::new(address.clone(), self.settings.clone());
        if let Some(credentials) = &self.credentials {
            node = node.with_credentials(credentials.clone());
        }
        match pin {
            Some(pin) => node.with_pin(pin.clone()),
            None => node,
        }
    }

    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    pub(super) fn require_credentials(&self) -> Result<()> {
        if self.has_credentials() {
            return Ok(());
        }
        bail!("a talosconfig is needed: say --talosconfig FILE")
    }

    /// For what waits: a node that reboots can only be watched directly.
    pub(super) fn require_direct(&self, what: &str) -> Result<()> {
        if self.endpoints.is_empty() {
            return Ok(());
        }
        bail!("{what} speaks to every node itself: leave --endpoints out")
    }

    /// With our certificate, directly or through the first endpoint that answers.
    pub(super) async fn client(&self, address: &NodeAddress) -> Result<Client> {
        self.require_credentials()?;
        if self.endpoints.is_empty() {
            return self.direct(address).await;
        }
        let mut last = None;
        for endpoint in &self.endpoints {
            match self.node(endpoint, None).connect().await {
                Ok(client) if endpoint == address => return Ok(client),
                Ok(client) => return Ok(client.targeting(address.host())),
                Err(error) => {
                    output::note(&format!("{endpoint}: {}", error.message()));
                    last = Some(error);
                }
            }
        }
        Err(last.map_or_else(|| anyhow!("no endpoint was given"), explain))
    }
}

impl Road {
    /// A certificate of another CA has two reasons, and only one of them is a foreign node.
    async fn direct(&self, address: &NodeAddress) -> Result<Client> {
        let node = self.node(address, None);
        let error = match node.connect().await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if *error.class() == ErrorClass::WrongCertificate
            && let NodeState::Maintenance { .. } = node.probe().await
        {
            bail!(
                "node {address} is in maintenance mode: it has no config yet\n  what to do: butleradm talos apply"
            );
        }
        Err(explain(error))
    }
}

/// The error with what a person can do about it.
pub(super) fn explain(error: ClientError) -> anyhow::Error {
    let remedy = error.remedy();
    anyhow!("{error}\n  what to do: {remedy}")
}

pub(super) fn explain_wait(error: WaitError) -> anyhow::Error {
    let cause = error.cause().map(|cause| format!(": {cause}")).unwrap_or_default();
    anyhow!("{error}{cause}\n  what to do: {}", error.remedy())
}

/// A wait that tells each new state on standard error.
pub(super) fn wait(node: &NodeAddress, what: &str, deadline: Instant) -> Wait {
    let label = node.to_string();
    Wait::new(format!("{what} on {node}"), deadline)
        .telling(move |state| output::note(&format!("{label}: {state}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h1m1s", 3661)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "5d", "0s", "-1s", "1.5h", "5 m", "99999999999999999999h", "5µ"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn overrides_are_read() {
        let (host, address) = parse_override("node-1=127.0.0.1:5").unwrap();
        assert_eq!((host.as_str(), address.to_string().as_str()), ("node-1", "127.0.0.1:5"));
        assert!(parse_override("node-1").is_err() && parse_override("node-1=127.0.0.1").is_err());
    }
}
