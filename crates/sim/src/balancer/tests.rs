use super::*;
use crate::fabric::{Fabric, Network};
use crate::world::{World, WorldOptions};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A server that says its name, and then what it hears.
struct Echo {
    fabric: Fabric,
    address: IpAddr,
    task: JoinHandle<()>,
}

impl Echo {
    fn start(fabric: &Fabric, address: &str) -> Self {
        let address = at(address);
        let mut listener = fabric.listen(address).unwrap();
        fabric.host_up(address.ip());
        let task = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            while let Ok(mut stream) = listener.accept().await {
                all.spawn(async move {
                    let name = address.ip().to_string();
                    let _ = stream.write_all(format!("{name}\n").as_bytes()).await;
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                });
            }
        });
        Self { fabric: fabric.clone(), address: address.ip(), task }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
        self.fabric.host_down(self.address);
    }
}

struct Site {
    fabric: Fabric,
    balancers: Balancers,
    _world: World,
}

fn site() -> Site {
    let fabric = Fabric::default();
    let world = World::on(Network::Fabric(fabric.clone()), WorldOptions::default());
    let balancers = Balancers::new(fabric.clone(), &world, 0.0);
    Site { fabric, balancers, _world: world }
}

fn pool(targets: &[&str]) -> Pool {
    let targets = targets.iter().map(|text| Target::new(at(text).ip(), at(text).port())).collect();
    Pool { targets, check: Check::default(), cut_unhealthy: true, cut_removed: true }
}

fn balancer(pool: Pool) -> Balancer {
    let frontend = Frontend {
        address: "198.51.100.7".parse().unwrap(),
        port: 6443,
        pool: "api".to_string(),
        zone: None,
        open: true,
        open_inside: true,
    };
    Balancer {
        mode: Mode::Proxy,
        frontends: vec![frontend],
        pools: BTreeMap::from([("api".to_string(), pool)]),
        names: vec!["api-1.elb.example".to_string()],
    }
}

impl Site {
    fn apply(&self, balancer: Balancer) {
        self.balancers.apply("lb/", BTreeMap::from([("lb/1".to_string(), balancer)]));
    }

    async fn until(&self, verdicts: &[(&str, bool)]) {
        let mut watch = self.balancers.watch();
        let so = || {
            verdicts
                .iter()
                .all(|(target, well)| self.balancers.health("lb/1", "api", at(target)).is_healthy() == *well)
        };
        let wait = async {
            while !so() {
                watch.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("targets turn as expected");
    }

    /// Connects by the balancer's name, and gives the connection and who answered; `None` when it was cut.
    async fn connect(&self) -> Option<(crate::fabric::Stream, String)> {
        let address = self.fabric.resolve("API-1.elb.example")?;
        let mut stream = self.fabric.dial(SocketAddr::new(address, 6443)).ok()?;
        let mut name = Vec::new();
        while name.last() != Some(&b'\n') {
            name.push(stream.read_u8().await.ok()?);
        }
        let name = String::from_utf8(name).ok()?;
        Some((stream, name.trim().to_string()))
    }

    async fn answers(&self, times: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..times {
            names.extend(self.connect().await.map(|(_, name)| name));
        }
        names.sort();
        names.dedup();
        names
    }
}

#[tokio::test]
async fn connections_go_to_healthy_targets_and_leave_those_that_die() {
    let site = site();
    let (one, _two) =
        (Echo::start(&site.fabric, "10.0.1.11:6443"), Echo::start(&site.fabric, "10.0.2.11:6443"));
    site.apply(balancer(pool(&["10.0.1.11:6443", "10.0.2.11:6443", "10.0.3.11:6443"])));
    site.until(&[("10.0.1.11:6443", true), ("10.0.2.11:6443", true)]).await;
    assert_eq!(site.answers(6).await, ["10.0.1.11", "10.0.2.11"]);
    drop(one);
    site.until(&[("10.0.1.11:6443", false)]).await;
    assert_eq!(site.answers(6).await, ["10.0.2.11"]);
    let told = site.balancers.health("lb/1", "api", at("10.0.1.11:6443")).verdict;
    assert_eq!(told, Verdict::Unhealthy(Trouble::Timeout), "nobody has the address any more");
    // The port of a load balancer that is gone is nobody's.
    site.balancers.apply("lb/", BTreeMap::new());
    assert!(site.fabric.resolve("api-1.elb.example").is_none());
    assert!(
        site.fabric
            .dial(at("198.51.100.7:6443"))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::HostUnreachable)
    );
}

#[tokio::test]
async fn a_draining_target_keeps_its_connections_and_loses_them_when_it_leaves() {
    let site = site();
    let _all = ["10.0.1.11:6443", "10.0.2.11:6443"].map(|address| Echo::start(&site.fabric, address));
    site.apply(balancer(pool(&["10.0.1.11:6443"])));
    site.until(&[("10.0.1.11:6443", true)]).await;
    let (mut kept, name) = site.connect().await.unwrap();
    assert_eq!(name, "10.0.1.11");
    let mut both = pool(&["10.0.1.11:6443", "10.0.2.11:6443"]);
    both.targets[0].draining = true;
    site.apply(balancer(both));
    site.until(&[("10.0.2.11:6443", true)]).await;
    assert_eq!(site.answers(4).await, ["10.0.2.11"]);
    kept.write_all(b"still").await.unwrap();
    let mut heard = [0; 5];
    kept.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"still");
    assert_eq!(site.balancers.connections(at("10.0.1.11:6443")), 1);
    site.apply(balancer(pool(&["10.0.2.11:6443"])));
    let cut = tokio::time::timeout(PATIENCE, kept.read(&mut heard)).await.unwrap();
    assert!(matches!(cut, Ok(0) | Err(_)), "{cut:?}");
}

#[tokio::test]
async fn rules_keep_out_clients_checks_and_connections_each_by_itself() {
    let site = site();
    let _one = Echo::start(&site.fabric, "10.0.1.11:6443");
    let mut closed = balancer(pool(&["10.0.1.11:6443"]));
    closed.frontends[0].open = false;
    site.apply(closed);
    site.until(&[("10.0.1.11:6443", true)]).await;
    assert!(site.connect().await.is_none(), "clients are kept out");
    let mut unchecked = pool(&["10.0.1.11:6443"]);
    unchecked.targets[0].checkable = false;
    site.apply(balancer(unchecked));
    site.until(&[("10.0.1.11:6443", false)]).await;
    assert_eq!(site.answers(2).await, ["10.0.1.11"], "when none is healthy, all get connections");
    let mut shut = pool(&["10.0.1.11:6443"]);
    shut.targets[0].open = false;
    site.apply(balancer(shut));
    assert!(site.connect().await.is_none());
}

#[tokio::test]
async fn a_passthrough_target_without_the_address_on_its_loopback_hears_nothing() {
    let site = site();
    let _one = Echo::start(&site.fabric, "10.0.1.11:6443");
    let mut passing = balancer(pool(&["10.0.1.11:6443"]));
    passing.mode = Mode::Passthrough;
    passing.pools.get_mut("api").unwrap().check.fall = 1;
    site.apply(passing);
    let mut watch = site.balancers.watch();
    let verdict = || site.balancers.health("lb/1", "api", at("10.0.1.11:6443")).verdict;
    let wait = async {
        while verdict() == Verdict::Initial {
            watch.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
    assert_eq!(verdict(), Verdict::Unhealthy(Trouble::Timeout));
    assert!(site.connect().await.is_none());
}

#[tokio::test]
async fn zones_keep_to_themselves_and_names_lead_where_somebody_is() {
    let site = site();
    let _one = Echo::start(&site.fabric, "10.0.2.11:6443");
    let mut zoned = balancer(pool(&["10.0.2.11:6443"]));
    zoned.frontends[0].zone = Some("a".to_string());
    let second = Frontend {
        address: "198.51.100.8".parse().unwrap(),
        zone: Some("b".to_string()),
        ..zoned.frontends[0].clone()
    };
    zoned.frontends.push(second);
    zoned.pools.get_mut("api").unwrap().targets[0].zone = "b".to_string();
    site.apply(zoned);
    assert_eq!(site.fabric.resolve("api-1.elb.example"), Some("198.51.100.8".parse().unwrap()));
    assert_eq!(site.answers(2).await, ["10.0.2.11"]);
    let (front, target) = (at("198.51.100.8:6443"), at("10.0.2.11:6443"));
    assert!(site.fabric.is_behind(front, target));
    assert!(!site.fabric.is_behind(at("198.51.100.7:6443"), target));
}

const SECOND: u64 = butler_lb::core::SECOND;

#[test]
fn health_needs_a_row_of_checks_and_a_new_target_fewer() {
    let wanted = Pool { check: Check { rise: 2, fall: 3, ..Check::default() }, ..pool(&["10.0.1.11:6443"]) };
    let pace = kept::Pace { interval: Duration::from_secs(1), timeout: Duration::from_secs(1) };
    let target = at("10.0.1.11:6443");
    let bad = Err(Trouble::Refused);
    let run = |outcomes: &[Result<(), Trouble>]| {
        let mut kept = kept::Kept::new(&wanted, pace, 0);
        kept.set(&wanted, pace, |_| None, 0);
        for (second, outcome) in (0..).zip(outcomes) {
            assert_eq!(kept.due(second * SECOND), [target], "checks come at exact intervals");
            kept.checked(target, *outcome, second * SECOND);
        }
        kept.health(target)
    };
    assert_eq!(run(&[bad, bad]).verdict, Verdict::Initial);
    assert_eq!(run(&[bad, bad, bad]).verdict, Verdict::Unhealthy(Trouble::Refused));
    assert!(run(&[Ok(())]).is_healthy());
    assert!(run(&[Ok(()), bad, bad, Ok(()), bad, bad]).is_healthy(), "never three in a row");
    let ill = [Ok(()), bad, bad, Err(Trouble::Status(500))];
    assert_eq!(run(&ill).verdict, Verdict::Unhealthy(Trouble::Status(500)));
    assert!(!run(&[&ill[..], &[Ok(()), bad, Ok(())]].concat()).is_healthy());
    assert!(run(&[&ill[..], &[Ok(()), Ok(())]].concat()).is_healthy());
}

#[test]
fn a_target_that_is_listed_twice_drains_when_both_say_so() {
    let mut wanted = pool(&["10.0.1.11:6443", "10.0.1.11:6443"]);
    let pace = kept::Pace { interval: Duration::from_secs(1), timeout: Duration::from_secs(1) };
    let mut kept = kept::Kept::new(&wanted, pace, 0);
    for (drains, left) in [([true, false], 1), ([false, true], 1), ([true, true], 0), ([false, false], 1)] {
        wanted.targets.iter_mut().zip(drains).for_each(|(target, draining)| target.draining = draining);
        kept.set(&wanted, pace, |_| None, 0);
        assert_eq!(kept.candidates(None).len(), left, "{drains:?}");
    }
}

#[tokio::test]
async fn a_place_is_given_back_when_a_connection_ends_and_when_a_target_cannot_be_reached() {
    let site = site();
    let _one = Echo::start(&site.fabric, "10.0.1.11:6443");
    site.apply(balancer(pool(&["10.0.1.11:6443", "10.0.2.11:6443"])));
    site.until(&[("10.0.1.11:6443", true)]).await;
    let (kept, _) = site.connect().await.unwrap();
    assert_eq!(site.balancers.connections(at("10.0.1.11:6443")), 1);
    drop(kept);
    // The only one that is listed is not there: it gets a connection all the same, and loses it.
    site.apply(balancer(pool(&["10.0.2.11:6443"])));
    assert!(site.connect().await.is_none());
    let none = async {
        let taken = |target: &str| site.balancers.connections(at(target));
        while taken("10.0.1.11:6443") + taken("10.0.2.11:6443") > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, none).await.expect("places are given back");
}

#[tokio::test]
async fn health_is_remembered_by_a_branch() {
    let site = site();
    let _one = Echo::start(&site.fabric, "10.0.1.11:6443");
    site.apply(balancer(pool(&["10.0.1.11:6443"])));
    site.until(&[("10.0.1.11:6443", true)]).await;
    let fabric = Fabric::default();
    let branch = Balancers::import(fabric.clone(), &site._world, 0.0, site.balancers.export());
    branch.apply("lb/", BTreeMap::from([("lb/1".to_string(), balancer(pool(&["10.0.1.11:6443"])))]));
    assert!(branch.health("lb/1", "api", at("10.0.1.11:6443")).is_healthy());
}
