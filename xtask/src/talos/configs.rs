//! Machine configurations of ours in Talos' own loader and validation, in metal and cloud modes: a grid of command lines
//! for each release, and every configuration that the property test of `butler-talos` makes.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use super::{Count, generated::Generated, machinery::Pipe, say};
use crate::{conformance::cargo, peers::Machinery};

const MODES: [&str; 2] = ["metal", "cloud"];

/// The property test writes its configurations to `<this>/<minor>/` when it is set.
const CORPUS: &str = "BUTLER_TALOS_CORPUS";

const ENDPOINTS: [&str; 3] =
    ["https://192.168.50.10:6443", "https://api.example.com:443", "https://[fd00:50::10]:6443"];

/// Control planes and workers.
const SHAPES: [(u8, u8); 4] = [(1, 0), (1, 2), (3, 0), (3, 3)];

/// Oldest and newest Kubernetes that a minor release of Talos supports.
const KUBERNETES: [(&str, [&str; 2]); 5] = [
    ("1.9", ["1.27.0", "1.32.3"]),
    ("1.10", ["1.28.0", "1.33.3"]),
    ("1.11", ["1.29.0", "1.34.1"]),
    ("1.12", ["1.30.0", "1.35.0"]),
    ("1.13", ["1.31.0", "1.36.0"]),
];

/// Patches as users write them: a strategic merge, and a list of operations.
const STRATEGIC: &str = r#"machine:
  sysctls:
    net.core.somaxconn: "65535"
  kubelet:
    extraArgs:
      rotate-server-certificates: "true"
cluster:
  network:
    cni:
      name: none
  proxy:
    disabled: true
"#;
const OPERATIONS: &str = r#"[
  {"op": "add", "path": "/machine/env", "value": {"GRPC_GO_LOG_SEVERITY_LEVEL": "error"}},
  {"op": "replace", "path": "/cluster/network/dnsDomain", "value": "cluster.example"}
]
"#;
const PATCHES: [&[&str]; 2] = [&[], &["strategic.yaml", "operations.json"]];

/// Every setting that changes a configuration, beside those of the other axes; `{net}` is the nodes' network.
const SETTINGS: [&[&str]; 2] = [
    &[],
    &[
        "--vip",
        "{net}9",
        "--vip-link",
        "eth0",
        "--extra-name",
        "lb.example.com",
        "--time-server",
        "{net}8",
        "--schematic",
        "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
        "--flannel",
        "--no-discovery",
        "--install-disk",
        "/dev/nvme0n1",
        "--proxy-url",
        "http://proxy.example.com:3128",
    ],
];

// === the grid ===

pub(super) async fn grid(butleradm: &Path, machinery: &Machinery) -> Result<Count> {
    let mut count = Count::default();
    let folder = tempfile::tempdir().context("make a folder for the patches")?;
    for (name, text) in [("strategic.yaml", STRATEGIC), ("operations.json", OPERATIONS)] {
        fs::write(folder.path().join(name), text).with_context(|| format!("write {name}"))?;
    }
    // One bundle for all: making its RSA key takes longer than the whole grid.
    let first =
        ["grid", ENDPOINTS[0], "--control-plane", "192.168.50.11", "--talos-version", machinery.version];
    let bundle = match Generated::run(butleradm, first).await {
        Ok(generated) => generated,
        Err(error) => {
            count.check(&format!("{}: the first configuration", machinery.minor), &[format!("{error:#}")])?;
            return Ok(count);
        }
    };
    let secrets = bundle.path("secrets.yaml");
    let mut pipe = Pipe::open(machinery).await?;
    teeth(&mut count, &mut pipe, machinery, &bundle).await?;
    for case in cases(machinery)? {
        let args = case.args(&secrets, folder.path());
        match Generated::run(butleradm, args).await {
            Ok(generated) => check(&mut count, &mut pipe, &generated, &case.label).await?,
            Err(error) => count.check(&case.label, &[format!("{error:#}")])?,
        }
    }
    Ok(count)
}

/// A judge that lets everything pass proves nothing: configurations that are known to be wrong must not get through.
async fn teeth(count: &mut Count, pipe: &mut Pipe, machinery: &Machinery, bundle: &Generated) -> Result<()> {
    let name = bundle.nodes()?.into_iter().next().context("no machine configuration was written")?;
    let good = bundle.read(&name)?;
    let wrong = [
        ("an unknown key", good.replacen("\nmachine:", "\nunknownKey: true\nmachine:", 1)),
        ("no machine type", good.replacen("type: controlplane", "type: nonsense", 1)),
        ("no endpoint", good.replacen("https://192.168.50.10:6443", "", 1)),
    ];
    for (what, config) in wrong {
        let passes = config == good || pipe.validate(&config, "metal").await?.is_empty();
        let problems = if passes { vec!["it was not refused".to_owned()] } else { Vec::new() };
        count.check(&format!("{}: a configuration with {what} is refused", machinery.minor), &problems)?;
    }
    Ok(())
}

/// One command line of the grid.
struct Case {
    label: String,
    args: Vec<String>,
    patches: &'static [&'static str],
}

// === impl Case ===

impl Case {
    fn args(&self, secrets: &Path, patches: &Path) -> Vec<OsString> {
        let mut args: Vec<OsString> = self.args.iter().map(OsString::from).collect();
        args.extend(["--with-secrets".into(), secrets.into()]);
        for patch in self.patches {
            let mut value = OsString::from("@");
            value.push(patches.join(patch));
            args.extend(["--patch".into(), value]);
        }
        args
    }
}

fn cases(machinery: &Machinery) -> Result<Vec<Case>> {
    let (_, kubernetes) = KUBERNETES
        .iter()
        .find(|(minor, _)| *minor == machinery.minor)
        .with_context(|| format!("no Kubernetes releases are known for Talos {}", machinery.minor))?;
    let mut cases = Vec::new();
    for endpoint in ENDPOINTS {
        for shape in SHAPES {
            for kubernetes in [None, Some(kubernetes[0]), Some(kubernetes[1])] {
                for patches in PATCHES {
                    for settings in SETTINGS {
                        cases.push(case(machinery, endpoint, shape, kubernetes, patches, settings));
                    }
                }
            }
        }
    }
    Ok(cases)
}

fn case(
    machinery: &Machinery,
    endpoint: &str,
    (control_planes, workers): (u8, u8),
    kubernetes: Option<&str>,
    patches: &'static [&'static str],
    settings: &[&str],
) -> Case {
    let mut args = vec!["grid".to_owned(), endpoint.to_owned()];
    let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
    option("--talos-version", machinery.version.to_owned());
    let net = if endpoint.contains('[') { "fd00:50::" } else { "192.168.50." };
    for number in 1..=control_planes {
        option("--control-plane", format!("{net}1{number}"));
    }
    for number in 1..=workers {
        option("--worker", format!("{net}1{}", number + 5));
    }
    if let Some(version) = kubernetes {
        option("--kubernetes-version", version.to_owned());
    }
    args.extend(settings.iter().map(|word| word.replace("{net}", net)));
    let label = format!(
        "{}: {control_planes} + {workers} nodes at {endpoint}, Kubernetes {}, {} patches, {} words of settings",
        machinery.minor,
        kubernetes.unwrap_or("default"),
        patches.len(),
        settings.len()
    );
    Case { label, args, patches }
}

async fn check(count: &mut Count, pipe: &mut Pipe, generated: &Generated, label: &str) -> Result<()> {
    for name in generated.nodes()? {
        let config = generated.read(&name)?;
        for mode in MODES {
            let problems = pipe.validate(&config, mode).await?;
            count.check(&format!("{label}: {name} in {mode} mode"), &problems)?;
        }
    }
    let problems = pipe.talosconfig(&generated.read("talosconfig")?).await?;
    count.check(&format!("{label}: talosconfig"), &problems)
}

// === the corpus ===

/// Lets the property test write down what it makes, and hands all of it to Talos.
pub(super) async fn corpus(machineries: &[Machinery]) -> Result<Count> {
    let mut count = Count::default();
    let folder = tempfile::tempdir().context("make a folder for the corpus")?;
    let run = Command::new(cargo())
        .args(["test", "--quiet", "--workspace", "--test", "property"])
        .env(CORPUS, folder.path())
        // Talos is asked about each of them, so more than a test run makes.
        .env("PROPTEST_CASES", "2000")
        .env("RUST_BACKTRACE", "0")
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .context("start the property test of butler-talos")?;
    // What it found can't be had again: the cases are drawn anew each time.
    let told = String::from_utf8_lossy(&run.stdout);
    ensure!(run.status.success(), "the property test of butler-talos: {}\n{told}", run.status);
    for machinery in machineries {
        let files = yaml_files(&folder.path().join(machinery.minor))?;
        if files.is_empty() {
            bail!("the property test wrote no configuration for Talos {}", machinery.minor);
        }
        say(&format!("{} generated configurations for Talos {}", files.len(), machinery.minor))?;
        let mut pipe = Pipe::open(machinery).await?;
        for file in files {
            let config = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            for mode in MODES {
                let problems = pipe.validate(&config, mode).await?;
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                count.check(&format!("{}: generated {name} in {mode} mode", machinery.minor), &problems)?;
            }
        }
    }
    Ok(count)
}

/// Sorted; a folder that is not there holds none.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("look into {}", folder.display()))? {
        let path = entry.context("look at a file")?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machinery(minor: &'static str) -> Machinery {
        Machinery { minor, version: "v1.9.5", path: PathBuf::new() }
    }

    #[test]
    fn the_grid_is_the_product_of_its_axes() {
        let cases = cases(&machinery("1.9")).unwrap();
        assert_eq!(cases.len(), ENDPOINTS.len() * SHAPES.len() * 3 * PATCHES.len() * SETTINGS.len());
        let last = cases.last().unwrap();
        assert_eq!(last.args.iter().filter(|arg| *arg == "--control-plane").count(), 3);
        assert_eq!(last.args.iter().filter(|arg| *arg == "--worker").count(), 3);
        let args = last.args(Path::new("/s"), Path::new("/p"));
        assert!(args.contains(&OsString::from("@/p/operations.json")), "{args:?}");
        assert!(args.contains(&OsString::from("fd00:50::9")), "{args:?}");
    }

    #[test]
    fn a_release_without_kubernetes_is_an_error() {
        assert!(cases(&machinery("1.8")).is_err());
    }

    #[test]
    fn only_yaml_files_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yaml", "c.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<PathBuf> = yaml_files(folder.path()).unwrap();
        assert_eq!(names, [folder.path().join("a.yaml"), folder.path().join("b.yaml")]);
        assert!(yaml_files(&folder.path().join("missing")).unwrap().is_empty());
    }
}
