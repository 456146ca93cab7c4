//! In a container, with the rights, the read-only root and the mounts of the manifest that people copy: runc is given what a
//! kubelet would make of it.

use crate::lab::{Lab, PORT, Process, has, wait};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RUNC: &str = "/usr/sbin/runc";
const VIP: &str = "10.77.0.100";

/// Forwards to the host itself, on the port where it answers, and holds the shared address.
const FILE: &str = r#"
listeners:
- name: web
  bind: ["0.0.0.0:443"]
  deregistrationDelay: 0
  health: {kind: tcp, intervalMs: 100, timeoutMs: 1000}
  backends: [{name: c, address: "10.77.0.3:7000"}]
vips:
- name: api
  addresses: [10.77.0.100/32]
  interface: eth0
  routerId: 51
  track: [{check: {listener: web}}]
admin: {socket: /run/butler-lb/admin.sock}
"#;

/// A container in a host. Dropping it ends it.
struct Container {
    name: String,
    /// The bundle, and what runc remembers of it.
    folder: tempfile::TempDir,
    process: Process,
}

impl Container {
    /// Starts the manifest's container, without some of its rights where a test takes them away.
    fn start(lab: &Lab, host: &str, without: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("blb-{}-{host}-{}", std::process::id(), without.len());
        bundle(folder.path(), without);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = runc(folder.path());
        command.args(["run", "--bundle"]).arg(folder.path()).arg(&name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { process: lab.spawn(host, &mut command), name, folder }
    }

    /// The program in the running container, as a probe or a person starts it.
    fn exec(&self, arguments: &[&str]) -> Output {
        let mut command = runc(self.folder.path());
        command.args(["exec", &self.name, "/butler-lb"]).args(arguments).output().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn terminate(&mut self) {
        let told = runc(self.folder.path()).args(["kill", &self.name, "TERM"]).status().unwrap();
        assert!(told.success(), "{}", self.log());
        self.process.wait();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = runc(self.folder.path()).args(["delete", "--force", &self.name]).output();
    }
}

fn runc(folder: &Path) -> Command {
    let mut command = Command::new(RUNC);
    command.arg("--root").arg(folder.join("state"));
    command
}

fn manifest() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/butler-lb/static-pod.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What the manifest says, as runc reads it.
fn bundle(folder: &Path, without: &[&str]) {
    let pod = manifest();
    let container = &pod["spec"]["containers"][0];
    let root = folder.join("rootfs");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_butler-lb"), root.join("butler-lb")).unwrap();
    let rights: Vec<String> = texts(&container["securityContext"]["capabilities"]["add"])
        .into_iter()
        .filter(|right| !without.contains(&right.as_str()))
        .map(|right| format!("CAP_{right}"))
        .collect();
    let security = &container["securityContext"];
    let mut arguments = vec!["/butler-lb".to_owned()];
    arguments.extend(texts(&container["args"]));
    let spec = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": arguments,
            "cwd": "/",
            "capabilities": {"bounding": rights, "effective": rights, "permitted": rights},
            "noNewPrivileges": security["allowPrivilegeEscalation"] == false,
        },
        "root": {"path": "rootfs", "readonly": security["readOnlyRootFilesystem"]},
        "mounts": mounts(folder, container),
        // No network namespace of its own: `hostNetwork`.
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]},
    });
    assert_eq!(pod["spec"]["hostNetwork"], true);
    std::fs::write(folder.join("config.json"), spec.to_string()).unwrap();
}

fn mounts(folder: &Path, container: &Value) -> Vec<Value> {
    let bind = |from: PathBuf, to: &str, read_only: bool| {
        std::fs::create_dir_all(folder.join("rootfs").join(to.trim_start_matches('/'))).unwrap();
        let mode = if read_only { "ro" } else { "rw" };
        json!({"type": "bind", "source": from, "destination": to, "options": ["rbind", mode]})
    };
    std::fs::create_dir_all(folder.join("rootfs/proc")).unwrap();
    let mut mounts = vec![json!({"type": "proc", "source": "proc", "destination": "/proc"})];
    for mount in container["volumeMounts"].as_array().unwrap() {
        let from = folder.join(mount["name"].as_str().unwrap());
        std::fs::create_dir_all(&from).unwrap();
        if mount["name"] == "config" {
            std::fs::write(from.join("config.yaml"), FILE).unwrap();
        }
        mounts.push(bind(from, mount["mountPath"].as_str().unwrap(), mount["readOnly"] == true));
    }
    // What is tested is not the static binary, and needs the machine's libraries.
    for libraries in ["/lib", "/lib64", "/usr/lib"].map(PathBuf::from) {
        if let (true, Some(to)) = (libraries.exists(), libraries.to_str()) {
            mounts.push(bind(libraries.clone(), to, true));
        }
    }
    mounts
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_manifests_container_forwards_holds_the_address_and_hands_it_over() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    if !has(RUNC) {
        return;
    }
    lab.answer();
    let mut a = Container::start(&lab, "a", &[]);
    wait("the first container holds the address", || if lab.holds("a", VIP) { Ok(()) } else { Err(a.log()) });
    let b = Container::start(&lab, "b", &[]);
    // The manifest's own probe.
    let probe = texts(&manifest()["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]);
    let probe: Vec<&str> = probe.iter().skip(1).map(String::as_str).collect();
    wait("the second container is well", || {
        let output = b.exec(&probe);
        if output.status.success() { Ok(()) } else { Err(format!("{output:?} {}", b.log())) }
    });
    let served = |by: &str| {
        wait(&format!("the client is served by way of {by}"), || {
            let answer = lab.inside("client", || {
                let stream = std::net::TcpStream::connect((VIP, 443)).ok()?;
                stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).ok()?;
                std::io::BufRead::lines(std::io::BufReader::new(stream)).next()?.ok()
            });
            if lab.holds(by, VIP) && answer.as_deref() == Some("c") {
                Ok(())
            } else {
                Err(format!("{answer:?}"))
            }
        });
    };
    served("a");
    let reload = a.exec(&["reload"]);
    assert!(reload.status.success(), "{reload:?}");
    served("a");
    a.terminate();
    served("b");
    assert!(!lab.holds("a", VIP), "{}", a.log());
    assert_eq!(PORT, 7000, "the file above names it");
}

#[test]
fn a_container_without_a_right_says_which() {
    for right in ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"] {
        let Some(lab) = Lab::new(&["a"]) else { return };
        if !has(RUNC) {
            return;
        }
        let mut a = Container::start(&lab, "a", &[right]);
        a.process.wait();
        let log = a.log();
        assert!(log.contains(right), "without {right}: {log}");
        assert!(!lab.holds("a", VIP), "without {right}: {log}");
    }
}
