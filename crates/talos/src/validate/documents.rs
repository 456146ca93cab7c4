//! Talos' checks of the documents beside the v1alpha1 one, and of what they say twice.

use super::talos::{encryption_keys, is_filter, is_wireguard_key};
use super::{Checker, Source};
use crate::config::{Document, MAIN};
use crate::contract::Contract;
use crate::intent::Cidr;
use serde_json::Value;
use std::net::IpAddr;

/// Kinds of which one link can have only one.
const LINKS: [&str; 7] = [
    "BondConfig",
    "BridgeConfig",
    "DummyLinkConfig",
    "LinkConfig",
    "VLANConfig",
    "VRFConfig",
    "WireguardConfig",
];

pub(super) fn check(c: &mut Checker<'_>) {
    let documents = c.config.documents.clone();
    for document in documents.iter().filter(|document| document.kind != MAIN) {
        let mut d = Checked { document, contract: c.contract, found: Vec::new() };
        d.name();
        d.check();
        for (path, text) in d.found {
            c.about(Source::Talos, document.id(), &path, text);
        }
    }
    conflicts(c, &documents);
    twice(c, &documents);
}

/// Two documents about the same thing.
fn conflicts(c: &mut Checker<'_>, documents: &[Document]) {
    let groups: [&[&str]; 3] =
        [&LINKS, &["Layer2VIPConfig", "HCloudVIPConfig"], &["UserVolumeConfig", "ExistingVolumeConfig"]];
    for group in groups {
        for (index, document) in documents.iter().enumerate().filter(|(_, d)| group.contains(&d.kind)) {
            let other = documents[..index].iter().find(|other| {
                group.contains(&other.kind) && other.kind != document.kind && other.name() == document.name()
            });
            if let Some(other) = other {
                let text = format!("conflicting documents: {} and {}", other.id(), document.id());
                c.about(Source::Talos, document.id(), "name", text);
            }
        }
    }
}

/// What is in a document and in the v1alpha1 document too.
fn twice(c: &mut Checker<'_>, documents: &[Document]) {
    if c.config.main().is_none() {
        return;
    }
    let has = |kind: &str| documents.iter().any(|document| document.kind == kind);
    if has("HostnameConfig") {
        if !c.text("machine.network.hostname").is_empty() {
            c.error("machine.network.hostname", "static hostname is already set in v1alpha1 config");
        }
        if c.flag("machine.features.stableHostname") {
            c.error("machine.features.stableHostname", "stable hostname is already set in v1alpha1 config");
        }
    }
    if has("ResolverConfig") {
        for name in ["searchDomains", "nameservers", "disableSearchDomain"] {
            let path = format!("machine.network.{name}");
            if !c.list(&path).is_empty() || c.flag(&path) {
                c.error(&path, format!(".{path} is already set in v1alpha1 config"));
            }
        }
    }
    if has("TimeSyncConfig") {
        if c.flag("machine.time.disabled") {
            c.error(
                "machine.time.disabled",
                "time sync cannot be disabled in both v1alpha1 and new-style configuration",
            );
        }
        if !c.list("machine.time.servers").is_empty() {
            c.error(
                "machine.time.servers",
                "time servers cannot be specified in both v1alpha1 and new-style configuration",
            );
        }
        if !matches!(c.text("machine.time.bootTimeout"), "" | "0" | "0s") {
            c.error(
                "machine.time.bootTimeout",
                "boot timeout cannot be specified in both v1alpha1 and new-style configuration",
            );
        }
    }
    if has("KubeSpanConfig") && c.is_set("machine.network.kubespan") {
        c.error(
            "machine.network.kubespan",
            "kubespan is already configured in v1alpha1 machine.network.kubespan",
        );
    }
    for document in documents.iter().filter(|d| d.kind == "VolumeConfig" && !d.value["encryption"].is_null())
    {
        let name = document.name().to_ascii_lowercase();
        let path = format!("machine.systemDiskEncryption.{name}");
        if c.is_set(&path) {
            let text = format!(
                "system disk encryption for {:?} is configured in both v1alpha1.Config and VolumeConfig",
                document.name()
            );
            c.error(&path, text);
        }
    }
}

/// One document, and what was found in it.
struct Checked<'a> {
    document: &'a Document,
    contract: Option<Contract>,
    found: Vec<(String, String)>,
}

impl Checked<'_> {
    fn error(&mut self, path: &str, text: impl Into<String>) {
        self.found.push((path.to_owned(), text.into()));
    }

    fn value(&self) -> &Value {
        &self.document.value
    }

    fn text(&self, key: &str) -> &str {
        self.value()[key].as_str().unwrap_or_default()
    }

    fn list(&self, key: &str) -> Vec<Value> {
        self.value()[key].as_array().cloned().unwrap_or_default()
    }

    /// Documents that have a name must have one.
    fn name(&mut self) {
        let named = crate::fields::fields(self.document.kind).iter().any(|field| field.name == "name");
        if named && self.document.name().is_empty() {
            self.error("name", "name must be specified");
        }
    }

    fn check(&mut self) {
        match self.document.kind {
            "HostnameConfig" => self.hostname(),
            "Layer2VIPConfig" | "HCloudVIPConfig" => self.vip(),
            "TimeSyncConfig" => {
                if !self.value()["ntp"].is_null() && !self.value()["ptp"].is_null() {
                    self.error("", "only one of ntp or ptp configuration can be specified");
                }
                if self.text("bootTimeout").starts_with('-') {
                    self.error("bootTimeout", "bootTimeout cannot be negative");
                }
            }
            "RegistryMirrorConfig" => self.mirror(),
            "DHCPv4Config" | "DHCPv6Config" => self.dhcp(),
            "VolumeConfig"
            | "UserVolumeConfig"
            | "RawVolumeConfig"
            | "SwapVolumeConfig"
            | "ExistingVolumeConfig"
            | "ExternalVolumeConfig" => self.volume(),
            "LinkAliasConfig" => {
                if self.value()["selector"]["match"].as_str().unwrap_or_default().is_empty() {
                    self.error("selector.match", "link selector is required");
                }
            }
            "KubeSpanConfig" => self.kubespan(),
            "StaticHostConfig" => {
                if self.text("name").parse::<IpAddr>().is_err() {
                    self.error("name", "name must be a valid IP address");
                }
                if self.list("hostnames").is_empty() {
                    self.error("hostnames", "at least one hostname is required");
                }
            }
            "BlackholeRouteConfig" => {
                if Cidr::parse(self.text("name")).is_err() {
                    self.error("name", "name must be a valid address prefix");
                }
            }
            "ExtensionServiceConfig" => self.extension(),
            kind if LINKS.contains(&kind) => self.link(),
            _ => self.other(),
        }
    }

    fn hostname(&mut self) {
        let (auto, hostname) = (self.text("auto").to_owned(), self.text("hostname").to_owned());
        let has_auto = !self.value()["auto"].is_null();
        if !has_auto && hostname.is_empty() {
            self.error("", "either 'auto' or 'hostname' must be set");
        }
        if has_auto && auto != "off" && !hostname.is_empty() {
            self.error("auto", "'auto' and 'hostname' cannot be set at the same time");
        }
        if has_auto && !matches!(auto.as_str(), "off" | "stable") {
            self.error("auto", format!("invalid value for 'auto': {auto}"));
        }
        let short = hostname.split('.').next().unwrap_or_default();
        if hostname.len() > 253 {
            self.error("hostname", format!("fqdn is too long: {}", hostname.len()));
        } else if !hostname.is_empty() && (short.is_empty() || short.len() > 63) {
            self.error("hostname", format!("invalid hostname {short:?}"));
        }
    }

    fn vip(&mut self) {
        if !self.text("name").is_empty() && self.text("name").parse::<IpAddr>().is_err() {
            self.error("name", "name must be a valid IP address");
        }
        if self.text("link").is_empty() {
            self.error("link", "link must be specified");
        }
        if self.document.kind == "HCloudVIPConfig" && self.text("apiToken").is_empty() {
            self.error("apiToken", "apiToken must be specified");
        }
    }

    fn mirror(&mut self) {
        for (index, endpoint) in self.list("endpoints").iter().enumerate().filter(|(_, item)| !item.is_null())
        {
            let url = endpoint["url"].as_str().unwrap_or_default();
            let path = format!("endpoints[{index}].url");
            match url.split_once("://") {
                Some(("http" | "https", _)) => {}
                Some((scheme, _)) => self.error(&path, format!("{path} has unsupported scheme: {scheme:?}")),
                None if url.is_empty() => self.error(&path, format!("{path} must be specified")),
                None => self.error(&path, format!("{path} has unsupported scheme: \"\"")),
            }
        }
    }

    fn dhcp(&mut self) {
        let (raw, by_duid) = (!self.text("duidRaw").is_empty(), self.text("clientIdentifier") == "duid");
        if raw && !by_duid {
            self.error("duidRaw", "duidRaw can only be set if clientIdentifier is 'duid'");
        }
        if by_duid && !raw {
            self.error("duidRaw", "duidRaw must be set if clientIdentifier is 'duid'");
        }
    }

    fn volume(&mut self) {
        let (kind, name) = (self.document.kind, self.document.name().to_owned());
        if kind == "VolumeConfig" {
            if !matches!(name.as_str(), "STATE" | "EPHEMERAL" | "IMAGECACHE") {
                self.error("name", "only [\"STATE\" \"EPHEMERAL\" \"IMAGECACHE\"] volumes are supported");
            }
            self.disk_selector();
        } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            self.error(
                "name",
                "name can only contain lowercase and uppercase ASCII letters, digits, and hyphens",
            );
        }
        if name.len() > 34 {
            self.error("name", "name must be between 1 and 34 characters long");
        }
        if matches!(kind, "UserVolumeConfig" | "RawVolumeConfig" | "SwapVolumeConfig") {
            self.provisioning();
        }
        if kind == "ExistingVolumeConfig"
            && self.value()["discovery"]["volumeSelector"]["match"].as_str().unwrap_or_default().is_empty()
        {
            self.error("discovery", "volume selector is required");
        }
        let filesystem = self.value()["filesystem"]["type"].as_str().unwrap_or_default().to_owned();
        if kind == "UserVolumeConfig" && !matches!(filesystem.as_str(), "" | "xfs" | "ext4") {
            self.error("filesystem.type", format!("unsupported filesystem type: {filesystem}"));
        }
        let keys = self.value()["encryption"]["keys"].as_array().cloned().unwrap_or_default();
        if self.value()["encryption"].as_object().is_some_and(|map| !map.is_empty()) {
            for (at, text) in encryption_keys(&keys) {
                self.error(&format!("encryption.keys{at}"), text);
            }
        }
    }

    fn disk_selector(&mut self) {
        let text =
            self.value()["provisioning"]["diskSelector"]["match"].as_str().unwrap_or_default().to_owned();
        if !text.is_empty()
            && let Some(why) = super::selector::problem(&text, self.contract)
        {
            self.error("provisioning.diskSelector.match", why);
        }
    }

    fn provisioning(&mut self) {
        let partition = matches!(self.text("volumeType"), "" | "partition");
        if self.text("volumeType") == "directory" {
            if self.value()["provisioning"].as_object().is_some_and(|map| !map.is_empty()) {
                self.error("provisioning", "provisioning spec is invalid for volumeType directory");
            }
            return;
        }
        let provisioning = self.value()["provisioning"].clone();
        if provisioning["diskSelector"]["match"].as_str().unwrap_or_default().is_empty() {
            self.error("provisioning.diskSelector", "disk selector is required");
        }
        self.disk_selector();
        let sized = ["minSize", "maxSize"].iter().any(|key| !provisioning[*key].is_null());
        if partition && !sized {
            self.error("provisioning", "min size or max size is required");
        }
        if !partition && (sized || !provisioning["grow"].is_null()) {
            self.error("provisioning", "min size, max size and grow are not supported");
        }
    }

    fn kubespan(&mut self) {
        if self.value()["mtu"].as_i64().is_some_and(|mtu| mtu < 1280) {
            self.error("mtu", "kubespan link MTU must be at least 1280");
        }
        let filters = self.value()["filters"]["endpoints"].as_array().cloned().unwrap_or_default();
        for filter in filters.iter().filter_map(Value::as_str).filter(|filter| !is_filter(filter)) {
            self.error("filters.endpoints", format!("KubeSpan endpoint filter is not valid: {filter:?}"));
        }
    }

    fn link(&mut self) {
        match self.document.kind {
            "BondConfig" => {
                if self.list("links").is_empty() {
                    self.error("links", "at least one link must be specified");
                }
                if self.text("bondMode").is_empty() {
                    self.error("bondMode", "bond mode must be specified");
                }
            }
            "VLANConfig" => {
                if !matches!(self.value()["vlanID"].as_i64(), Some(1..=4094)) {
                    self.error("vlanID", "vlanID must be specified and between 1 and 4094");
                }
                if self.text("parent").is_empty() {
                    self.error("parent", "parent must be specified");
                }
            }
            "WireguardConfig" => self.wireguard(),
            _ => {}
        }
        for (index, address) in self.list("addresses").iter().enumerate().filter(|(_, item)| !item.is_null())
        {
            let path = format!("addresses[{index}].address");
            match address["address"].as_str().filter(|text| !text.is_empty()).map(Cidr::parse) {
                None => self.error(&path, format!("address {index} must be specified")),
                Some(Ok(found)) if found.address().is_unspecified() => {
                    self.error(&path, format!("address {index} must be a valid IP address"));
                }
                Some(_) => {}
            }
        }
        for (index, route) in self.list("routes").iter().enumerate() {
            let destination = route["destination"].as_str().and_then(|text| Cidr::parse(text).ok());
            if destination.is_some_and(|found| found.address().is_unspecified()) {
                let path = format!("routes[{index}].destination");
                self.error(&path, format!("route {index} destination must be a valid IP prefix"));
            }
            for key in ["gateway", "source"] {
                let address = route[key].as_str().and_then(|text| text.parse::<IpAddr>().ok());
                if address.is_some_and(|address| address.is_unspecified()) {
                    let path = format!("routes[{index}].{key}");
                    self.error(&path, format!("route {index} {key} must be a valid IP address"));
                }
            }
        }
    }

    fn wireguard(&mut self) {
        match self.text("privateKey") {
            "" => self.error("privateKey", "wireguard private key must be specified"),
            key if !is_wireguard_key(key) => self.error("privateKey", "wireguard private key is invalid"),
            _ => {}
        }
        for (index, peer) in self.list("peers").iter().enumerate() {
            let path = format!("peers[{index}].publicKey");
            match peer["publicKey"].as_str().unwrap_or_default() {
                "" => self.error(
                    &path,
                    format!("wireguard peer public key must be specified (peer index {index})"),
                ),
                key if !is_wireguard_key(key) => {
                    self.error(&path, format!("wireguard peer public key is invalid (peer index {index})"));
                }
                _ => {}
            }
        }
    }

    fn extension(&mut self) {
        let files = self.list("configFiles");
        let name = self.document.name().to_owned();
        if files.is_empty() && self.list("environment").is_empty() {
            self.error("", format!("no config files found for extension {name:?}"));
        }
        for (index, file) in files.iter().enumerate() {
            for (key, shown) in [("content", "content"), ("mountPath", "mount path")] {
                if file[key].as_str().unwrap_or_default().is_empty() {
                    let path = format!("configFiles[{index}].{key}");
                    self.error(&path, format!("extension {shown} is required for extension {name:?}"));
                }
            }
        }
    }

    /// Kinds with one or two rules.
    fn other(&mut self) {
        let url = |value: &str, schemes: &[&str]| match value.split_once("://") {
            None => Err("is required".to_owned()),
            Some((scheme, _)) if !schemes.contains(&scheme) => Err(format!(
                "scheme must be {}",
                schemes.iter().map(|s| format!("{s}://")).collect::<Vec<_>>().join(" or ")
            )),
            Some((_, rest)) if super::talos::has_path(rest) => Err("path must be empty".to_owned()),
            Some(_) => Ok(()),
        };
        match self.document.kind {
            "SideroLinkConfig" => {
                if let Err(why) = url(self.text("apiUrl"), &["https", "grpc"]) {
                    self.error("apiUrl", format!("apiUrl {why}"));
                }
            }
            "KmsgLogConfig" => {
                if let Err(why) = url(self.text("url"), &["tcp", "udp"]) {
                    self.error("url", format!("url {why}"));
                }
            }
            "WatchdogTimerConfig" if self.text("device").is_empty() => {
                self.error("device", "watchdog device: empty value");
            }
            "NetworkRuleConfig"
                if self.value()["portSelector"]["ports"].as_array().is_none_or(Vec::is_empty) =>
            {
                self.error("portSelector.ports", "portSelector.ports is required");
            }
            "ZswapConfig" if !matches!(self.value()["maxPoolPercent"].as_i64(), None | Some(0..=100)) => {
                self.error("maxPoolPercent", "maxPoolPercent must be between 0 and 100");
            }
            _ => {}
        }
    }
}
