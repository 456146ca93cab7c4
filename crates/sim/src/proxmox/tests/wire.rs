//! Over the wire: TLS, status lines, the gate, and machines that really boot.

use super::*;
use crate::gate::{Fault, Gate, Progress};
use crate::infrastructure::calling;
use crate::{Fabric, Network, Place, SimCa, World, WorldOptions};
use hyper::ext::ReasonPhrase;
use std::time::Duration;

struct Lab {
    fabric: Fabric,
    world: World,
    gate: Gate,
    ca: SimCa,
    proxmox: ProxmoxHandle,
}

impl Lab {
    async fn new() -> Self {
        let (fabric, gate, ca) = (Fabric::default(), Gate::default(), SimCa::generate().unwrap());
        let world = World::on(Network::Fabric(fabric.clone()), WorldOptions { speed: 0.0, seed: 1 });
        let place = Place {
            world: world.clone(),
            fabric: fabric.clone(),
            gate: gate.clone(),
            ca: ca.clone(),
            speed: 0.0,
        };
        let proxmox = Proxmox::serve(&site(), place, 1).unwrap();
        Self { fabric, world, gate, ca, proxmox }
    }

    /// One call on a connection of its own: status, reason, body. `None` when the connection was cut.
    async fn call(&self, method: &str, target: &str, form: &str) -> Option<(u16, String, Value)> {
        const HOST: &str = "pve.example.internal";
        let address = self.fabric.resolve(HOST).unwrap();
        let stream = self.fabric.dial((address, 8006).into()).unwrap();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api2/json{target}"))
            .header("host", "pve.example.internal:8006")
            .header("authorization", "PVEAPIToken=root@pam!butler=7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.to_string())
            .unwrap();
        let response = calling::send(stream, self.ca.pem(), HOST, request).await?;
        let reason = response.extensions().get::<ReasonPhrase>();
        let reason = reason.map(|r| String::from_utf8_lossy(r.as_bytes()).into_owned()).unwrap_or_default();
        Some((response.status().as_u16(), reason, serde_json::from_slice(response.body()).unwrap()))
    }

    async fn ok(&self, method: &str, target: &str, form: &str) -> Value {
        let (status, reason, body) = self.call(method, target, form).await.unwrap();
        assert_eq!(status, 200, "{method} {target}: {reason}");
        body["data"].clone()
    }

    async fn task(&self, method: &str, target: &str, form: &str) -> String {
        let upid = self.ok(method, target, form).await;
        let path = format!("/nodes/pve1/tasks/{}/status", upid.as_str().unwrap());
        let status = self.ok("GET", &path, "").await;
        status["exitstatus"].as_str().unwrap_or("running").to_string()
    }
}

#[tokio::test]
async fn a_clone_boots_a_machine_of_the_world_and_goes_with_it() {
    let lab = Lab::new().await;
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/9000/clone", "newid=200&name=cp-0&full=1").await, "OK");
    let config = "cores=2&memory=4096&ipconfig0=ip%3D10.40.0.11%2F24%2Cgw%3D10.40.0.1";
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/200/config", config).await, "OK");
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/200/status/start", "").await, "OK");
    let machine = lab.world.node("10.40.0.11".parse().unwrap()).unwrap();
    assert!(machine.reaches(crate::Stage::Maintenance, Duration::from_secs(10)).await);
    let interfaces = lab.ok("GET", "/nodes/pve1/qemu/200/agent/network-get-interfaces", "").await;
    assert_eq!(interfaces["result"][1]["ip-addresses"][0]["ip-address"], "10.40.0.11");
    // A second machine at the same address stays off, and says why.
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/9000/clone", "newid=201&name=cp-1&full=1").await, "OK");
    lab.ok("PUT", "/nodes/pve1/qemu/201/config", "ipconfig0=ip%3D10.40.0.11%2F24").await;
    let exit = lab.task("POST", "/nodes/pve1/qemu/201/status/start", "").await;
    assert_eq!(exit, "start failed: there is a machine at 10.40.0.11 already");
    // The plug is pulled behind Proxmox' back, and the button pressed again.
    machine.power_off().await;
    let current = lab.ok("GET", "/nodes/pve1/qemu/200/status/current", "").await;
    assert_eq!(current["status"], "stopped");
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/200/status/start", "").await, "OK");
    assert!(machine.reaches(crate::Stage::Maintenance, Duration::from_secs(10)).await);
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/200/status/stop", "").await, "OK");
    assert_eq!(lab.task("DELETE", "/nodes/pve1/qemu/200?purge=1", "").await, "OK");
    assert!(lab.world.node("10.40.0.11".parse().unwrap()).is_none());
    assert_eq!(lab.proxmox.snapshot().await.vmids(), [100, 101, 201, 9000]);
    lab.proxmox.stop().await;
    assert!(lab.fabric.dial(lab.proxmox.address()).is_err());
    lab.world.stop().await;
}

#[tokio::test]
async fn refusals_are_in_the_status_line_and_faults_come_from_the_gate() {
    let lab = Lab::new().await;
    let (status, reason, body) = lab.call("GET", "/nodes/pve1/qemu/777/config", "").await.unwrap();
    let words = "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist";
    assert_eq!((status, reason.as_str()), (500, words));
    assert_eq!(body["message"], format!("{words}\n"));
    lab.gate.on_call(2, Fault::LoseAnswer);
    lab.gate.on_call(3, Fault::StaleRead);
    lab.gate.on_call(5, Fault::Reset);
    lab.gate.on_call(6, Fault::Throttle);
    // Carried out, and not answered.
    assert!(lab.call("PUT", "/nodes/pve1/qemu/100/config", "cores=7").await.is_none());
    assert_eq!(lab.ok("GET", "/nodes/pve1/qemu/100/config", "").await["cores"], 2);
    assert_eq!(lab.ok("GET", "/nodes/pve1/qemu/100/config", "").await["cores"], 7);
    assert!(lab.call("PUT", "/nodes/pve1/qemu/100/config", "cores=8").await.is_none());
    assert_eq!(lab.call("GET", "/version", "").await.unwrap().0, 429);
    assert_eq!(lab.ok("GET", "/nodes/pve1/qemu/100/config", "").await["cores"], 7);
    let log = lab.gate.calls();
    assert_eq!(log[1].call.object, "machine fileserver");
    assert_eq!(log[1].call.operation, "PUT /nodes/pve1/qemu/100/config");
    assert!(log[1].call.mutates && !log[2].call.mutates);
    assert_eq!((log[1].progress, log[4].progress), (Progress::Lost, Progress::Refused));
    lab.proxmox.stop().await;
}

#[tokio::test]
async fn a_snapshot_goes_on_somewhere_else() {
    let lab = Lab::new().await;
    assert_eq!(lab.task("POST", "/nodes/pve1/qemu/9000/clone", "newid=200&name=cp-0").await, "OK");
    let snapshot = lab.proxmox.snapshot().await;
    lab.ok("DELETE", "/nodes/pve1/qemu/200", "").await;
    lab.proxmox.stop().await;
    let other = Fabric::default();
    let place = Place {
        world: World::on(Network::Fabric(other.clone()), WorldOptions { speed: 0.0, seed: 1 }),
        fabric: other.clone(),
        gate: lab.gate.clone(),
        ca: lab.ca.clone(),
        speed: 0.0,
    };
    let proxmox = Proxmox::resume(&site(), snapshot, place).unwrap();
    let branch = Lab { fabric: other, proxmox, ..lab };
    assert_eq!(branch.ok("GET", "/nodes/pve1/qemu/200/config", "").await["name"], "cp-0");
    branch.proxmox.stop().await;
}

#[test]
fn a_site_follows_from_a_users_names() {
    let names = SiteNames {
        endpoint: "https://10.127.0.2:8006".to_string(),
        nodes: vec!["alpha".to_string()],
        storage: "local-zfs".to_string(),
        template_id: Some(9001),
        user: "butler@pve".to_string(),
        secret: "pw".to_string(),
        within: Some("10.127.14.40".parse().unwrap()),
        reserved: vec!["10.127.14.40".parse().unwrap(), "10.127.14.200".parse().unwrap()],
        ..SiteNames::default()
    };
    let site = ProxmoxSite::for_config(&names);
    assert_eq!(site.address.to_string(), "10.127.0.2");
    assert_eq!(site.network.gateway.to_string(), "10.127.14.1");
    let (first, last) = site.network.dhcp.unwrap();
    assert_eq!((first.to_string().as_str(), last.to_string().as_str()), ("10.127.14.50", "10.127.14.199"));
    assert_eq!((site.templates[0].vmid, site.templates[0].node.as_str()), (9001, "alpha"));
    assert_eq!(site.storages.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["local", "local-zfs"]);
    let mut bench = Bench::with(&site, 0.0);
    let login = Bench::request("POST", "/access/ticket", "username=butler%40pve&password=pw");
    assert_eq!(bench.state.handle(&login, bench.now).status, 200);
}
