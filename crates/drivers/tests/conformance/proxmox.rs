//! The suite's world for Proxmox: the simulated one, reached over TLS through a port of this computer.

use crate::harness::{Fault, Harness, Setup};
use butler_api::{DiskSpec, MachineRole, ProviderConfigSpec};
use butler_drivers::{
    Call, Connection, Credentials, ImageWanted, Infrastructure, MachineWanted, Outcome, Owner, PlannedChange,
    Recorder, StaticAddress, connect, dry_run,
};
use butler_sim::proxmox::{Proxmox, ProxmoxHandle, ProxmoxOptions, ProxmoxSite, SiteVm};
use butler_sim::{Fabric, Gate, Network, SimCa, World, WorldOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11";
const HOST: &str = "pve.example.internal";

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Journal(pub(crate) Mutex<Vec<Call>>);

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

/// With a range of ids, as most sites have it.
pub(crate) type ProxmoxWorld = SimulatedProxmox<true>;

/// Without one: Proxmox proposes the ids.
pub(crate) type ProxmoxWithoutRange = SimulatedProxmox<false>;

pub(crate) struct SimulatedProxmox<const RANGE: bool> {
    world: World,
    pub(crate) gate: Gate,
    pub(crate) proxmox: ProxmoxHandle,
    pub(crate) ca: String,
    pub(crate) door: SocketAddr,
    forwarding: JoinHandle<()>,
    pub(crate) journal: Arc<Journal>,
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
    fn config() -> ProviderConfigSpec {
        let mut config = config();
        config.proxmox.as_mut().unwrap().vmid_range.take_if(|_| !RANGE);
        config
    }

    pub(crate) async fn with(site: ProxmoxSite) -> Self {
        let fabric = Fabric::default();
        let world = World::on(Network::Fabric(fabric.clone()), WorldOptions { speed: 0.0, seed: 7 });
        let (gate, ca) = (Gate::default(), SimCa::generate().unwrap());
        let options = ProxmoxOptions {
            world: world.clone(),
            fabric: fabric.clone(),
            gate: gate.clone(),
            ca: ca.clone(),
            speed: 0.0,
            seed: 7,
        };
        let image = &site.images[0];
        let image = (image.url.clone(), image.sha256.clone());
        let proxmox = Proxmox::serve(&site, options).await.unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let door = listener.local_addr().unwrap();
        let forwarding = tokio::spawn(forward(listener, fabric, proxmox.address()));
        let journal = Arc::default();
        Self { world, gate, proxmox, ca: ca.pem().to_owned(), door, forwarding, journal, image }
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            base_url: Some(format!("https://{HOST}:{}", self.door.port())),
            ca_pem: Some(self.ca.clone()),
            host_aliases: BTreeMap::from([(HOST.to_owned(), self.door.ip())]),
            recorder: self.journal.clone(),
            ..Connection::default()
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
    async fn start(setup: Setup) -> Self {
        let mut site = ProxmoxSite::example();
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
        Self::with(site).await
    }

    fn infrastructure(&self) -> Infrastructure {
        connect(&Self::config(), &token(), &self.connection()).unwrap()
    }

    async fn dry_run(&self, wanted: &MachineWanted) -> Vec<PlannedChange> {
        let recording = dry_run::Recording::new(&Self::config()).unwrap();
        recording.infrastructure().machines.ensure(wanted, None).await.unwrap();
        recording.changes()
    }

    fn wanted(&self, name: &str, number: u8) -> MachineWanted {
        MachineWanted {
            owner: Owner {
                cluster: "butler".to_owned(),
                cluster_uid: "c0ffee00-1111-4222-8333-444455556666".to_owned(),
                object_uid: format!("{number:08x}-aaaa-4bbb-8ccc-ddddeeeeffff"),
            },
            name: name.to_owned(),
            role: MachineRole::ControlPlane,
            cpu: 4,
            memory_mb: 4096,
            disk_gb: 40,
            extra_disks: vec![DiskSpec { size_gb: 20, storage_class: None }],
            image: None,
            user_data: None,
            static_address: Some(StaticAddress {
                address: Ipv4Addr::new(10, 40, 0, 30 + number).into(),
                bits: 24,
                gateway: Some(Ipv4Addr::new(10, 40, 0, 1).into()),
                nameservers: vec![Ipv4Addr::new(10, 40, 0, 1).into()],
            }),
            labels: BTreeMap::new(),
        }
    }

    fn image(&self) -> Option<ImageWanted> {
        Some(ImageWanted {
            owner: Owner { object_uid: "image-uid".to_owned(), ..self.wanted("x", 0).owner },
            name: "nocloud-v1-9-2-amd64".to_owned(),
            url: self.image.0.clone(),
            sha256: Some(self.image.1.clone()),
            format: "qcow2".to_owned(),
        })
    }

    fn calls(&self) -> u64 {
        self.gate.count()
    }

    fn changes(&self) -> u64 {
        self.gate.calls().iter().filter(|logged| logged.call.mutates).count() as u64
    }

    fn fail(&self, call: u64, fault: Fault) {
        let fault = match fault {
            Fault::Unavailable => butler_sim::Fault::Status(596),
            Fault::Throttle => butler_sim::Fault::Throttle,
            Fault::Denied => butler_sim::Fault::Status(403),
            Fault::Cut => butler_sim::Fault::Reset,
            Fault::Lose => butler_sim::Fault::LoseAnswer,
            Fault::Stale => butler_sim::Fault::StaleRead,
        };
        self.gate.on_call(call, fault);
    }

    fn recorded(&self) -> Vec<PlannedChange> {
        self.journal.0.lock().unwrap().iter().filter_map(PlannedChange::from_call).collect()
    }

    fn journal(&self) -> String {
        format!("{:?}", self.journal.0.lock().unwrap())
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

    async fn stop(self) {
        self.forwarding.abort();
        let _ = self.forwarding.await;
        self.proxmox.stop().await;
        self.world.stop().await;
    }
}

/// What the journal says of calls that failed.
pub(crate) fn failures(journal: &Journal) -> Vec<String> {
    let calls = journal.0.lock().unwrap();
    calls
        .iter()
        .filter_map(|call| match &call.outcome {
            Outcome::Failed { message, .. } => Some(message.clone()),
            Outcome::Ok(_) => None,
        })
        .collect()
}
