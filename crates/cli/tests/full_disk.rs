//! A full disk: writes are refused cleanly, nothing that was acknowledged is lost, and when there is room again the same
//! server goes on. Needs a small file system of its own, which only root can mount.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A tmpfs that is unmounted when it goes.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).expect("a mount point");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(at).output().ok()?;
        done.status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

struct Server(Child);

impl Server {
    fn start(data: &Path, kubeconfig: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_butleradm"))
            .args(["--log", "off", "apiserver", "--data-dir"])
            .arg(data)
            .arg("--write-kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .expect("butleradm starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped"))
            .read_line(&mut line)
            .expect("a line comes");
        assert!(line.starts_with("ready "), "{line:?}");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn api(kubeconfig: &Path) -> Api<ConfigMap> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a cluster");
    config.default_retry = false;
    Api::namespaced(Client::try_from(config).expect("a client"), "default")
}

fn large(n: usize) -> ConfigMap {
    let mut cm =
        ConfigMap { data: Some([("k".to_string(), "x".repeat(50_000))].into()), ..ConfigMap::default() };
    cm.metadata.name = Some(format!("large-{n}"));
    cm
}

async fn names(api: &Api<ConfigMap>) -> BTreeSet<String> {
    let list = api.list(&ListParams::default()).await.expect("reads go on");
    list.items.into_iter().filter_map(|cm| cm.metadata.name).filter(|n| n.starts_with("large-")).collect()
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_loses_none() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk")) else {
        println!("skipped a_full_disk_refuses_writes_and_loses_none: it needs root, to mount a small tmpfs");
        return;
    };
    // Something to throw away later, so that there is room again.
    std::fs::write(disk.0.join("ballast"), vec![0u8; 1 << 20]).expect("ballast");
    let (data, kubeconfig) = (disk.0.join("data"), folder.path().join("kubeconfig"));
    let server = Server::start(&data, &kubeconfig);
    let client = api(&kubeconfig).await;
    let mut stored = BTreeSet::new();
    let mut refused = None;
    for n in 0..200 {
        match client.create(&PostParams::default(), &large(n)).await {
            Ok(cm) => drop(stored.insert(cm.metadata.name.expect("a name"))),
            Err(kube::Error::Api(status)) => {
                refused = Some(status);
                break;
            }
            Err(other) => panic!("no answer at all: {other}"),
        }
    }
    let refusal = refused.expect("4 MiB are full at some time");
    assert_eq!(refusal.code, 507, "{refusal:?}");
    assert!(refusal.message.contains("the disk is full"), "{}", refusal.message);
    assert!(stored.len() > 10, "only {} writes fitted", stored.len());
    assert_eq!(names(&client).await, stored, "what was refused is not there, what was acknowledged is");

    std::fs::remove_file(disk.0.join("ballast")).expect("room is made");
    let again = client.create(&PostParams::default(), &large(1000)).await.expect("the same server goes on");
    stored.insert(again.metadata.name.expect("a name"));
    drop(server);
    let _server = Server::start(&data, &kubeconfig);
    assert_eq!(names(&api(&kubeconfig).await).await, stored, "all of it is there after a kill");
}
