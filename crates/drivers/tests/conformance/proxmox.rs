//! The suite's world for Proxmox: the simulated one, reached over TLS through a port of this computer.

use crate::ground::{Ground, machine, owner};
use crate::harness::{Harness, Setup};
use butler_api::ProviderConfigSpec;
use butler_drivers::{
    Connection, Credentials, ImageWanted, Infrastructure, MachineWanted, StaticAddress, connect,
};
use butler_sim::proxmox::{Proxmox, ProxmoxHandle, ProxmoxSite, SiteVm};
use butler_sim::{Fabric, Place};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11";
/// A small part of what things really take: long enough to come in between.
pub(crate) const SLOW: f64 = 0.03;
const HOST: &str = "pve.example.internal";

/// With a range of ids, as most sites have it.
pub(crate) type ProxmoxWorld = SimulatedProxmox<true>;

/// Without one: Proxmox proposes the ids.
pub(crate) type ProxmoxWithoutRange = SimulatedProxmox<false>;

pub(crate) struct SimulatedProxmox<const RANGE: bool> {
    pub(crate) ground: Ground,
    pub(crate) proxmox: ProxmoxHandle,
    pub(crate) door: SocketAddr,
    forwarding: JoinHandle<()>,
    image: (String, String),
}

pub(crate) fn config() -> ProviderConfigSpec {
    serde_json::from_value(json!({
        "provider": "proxmox", "credentialsRef": {"name": "x"},
        "proxmox": {"endpoint": format!("https://{HOST}:8006"), "nodes": ["pve1", "pve2", "pve3"], "storage": "ceph-vm",
            "templateID": 9000, "vmidRange": {"start": 200, "end": 299}}
    }))
    .unwrap()
}

pub(crate) fn token() -> Credentials {
    let pairs = [("token", "root@pam!butler"), ("tokenSecret", SECRET)];
    Credentials(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

impl<const RANGE: bool> SimulatedProxmox<RANGE> {
    pub(crate) async fn with(site: ProxmoxSite) -> Self {
        Self::at_speed(site, 0.0).await
    }

    pub(crate) async fn at_speed(site: ProxmoxSite, speed: f64) -> Self {
        let ground = Ground::new();
        let image = &site.images[0];
        let image = (image.url.clone(), image.sha256.clone());
        let proxmox = Proxmox::serve(&site, Place { speed, ..ground.place() }, Ground::SEED).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let door = listener.local_addr().unwrap();
        let forwarding = tokio::spawn(forward(listener, ground.fabric.clone(), proxmox.address()));
        Self { ground, proxmox, door, forwarding, image }
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            base_url: Some(format!("https://{HOST}:{}", self.door.port())),
            host_aliases: BTreeMap::from([(HOST.to_owned(), self.door.ip())]),
            ..self.ground.connection()
        }
    }
}

/// Lets clients of this computer into the simulated network.
async fn forward(listener: TcpListener, fabric: Fabric, to: SocketAddr) {
    let mut tunnels = tokio::task::JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        if let Ok(mut far) = fabric.dial(to) {
            tunnels.spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    }
}

impl<const RANGE: bool> Harness for SimulatedProxmox<RANGE> {
    const UNAVAILABLE: u16 = 596;

    async fn start(setup: Setup) -> Self {
        let mut site = ProxmoxSite::example();
        // Each host has its own files here, and all the same ones where there is no range.
        for storage in site.storages.iter_mut().filter(|storage| RANGE && storage.name == "local") {
            (storage.shared, storage.kind) = (false, "dir".to_owned());
        }
        for (index, name) in setup.foreign.iter().enumerate() {
            site.foreign.push(SiteVm {
                vmid: 150 + u32::try_from(index).unwrap(),
                name: name.clone(),
                node: "pve2".to_owned(),
                running: true,
                tags: "production".to_owned(),
                address: None,
                disk: Some(("local-lvm".to_owned(), 1 << 30)),
            });
        }
        Self::at_speed(site, if setup.slow { SLOW } else { 0.0 }).await
    }

    fn config() -> ProviderConfigSpec {
        let mut config = config();
        config.proxmox.as_mut().unwrap().vmid_range.take_if(|_| !RANGE);
        config
    }

    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn infrastructure(&self) -> Infrastructure {
        connect(&Self::config(), &token(), &self.connection()).unwrap()
    }

    fn wanted(&self, name: &str, number: u8) -> MachineWanted {
        let router = Ipv4Addr::new(10, 40, 0, 1).into();
        let address = Ipv4Addr::new(10, 40, 0, 30 + number).into();
        machine(
            name,
            number,
            StaticAddress { address, bits: 24, gateway: Some(router), nameservers: vec![router] },
        )
    }

    fn image(&self) -> Option<ImageWanted> {
        Some(ImageWanted {
            owner: owner("image-uid"),
            name: "nocloud-v1-9-2-amd64".to_owned(),
            url: self.image.0.clone(),
            sha256: Some(self.image.1.clone()),
            format: "qcow2".to_owned(),
        })
    }

    fn secret(&self) -> &'static str {
        SECRET
    }

    fn machines(&self) -> Vec<String> {
        let state = self.proxmox.state();
        let ids = state.vmids().into_iter().filter(|id| *id != 9000);
        ids.map(|id| state.name_of(id).unwrap_or("?").to_owned()).collect()
    }

    fn volumes(&self) -> usize {
        self.proxmox.state().volumes().len()
    }

    fn busy(&self) -> bool {
        self.proxmox.state().next_due().is_some()
    }

    async fn stop(self) {
        self.forwarding.abort();
        let _ = self.forwarding.await;
        self.proxmox.stop().await;
        self.ground.world.stop().await;
    }
}
