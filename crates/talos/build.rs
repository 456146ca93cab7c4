//! Compiles our `.proto` files to Rust: messages, clients and servers. protox does it without a protoc binary.

use std::{error::Error, path::Path};

/// Messages that carry secrets (configs, kubeconfigs, keys, sensitive resources): `api.rs` writes their `Debug`.
const SECRET: &[&str] = &[
    ".common.Data",
    ".cosi.resource.Spec",
    ".machine.ApplyConfiguration",
    ".machine.ApplyConfigurationRequest",
    ".machine.GenerateClientConfiguration",
    ".machine.MetaWriteRequest",
];

const FILES: &[&str] = &[
    "cluster/cluster.proto",
    "cosi/state.proto",
    "machine/machine.proto",
    "security/security.proto",
    "storage/storage.proto",
    "time/time.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(FILES.iter().map(|file| root.join(file)), [root])?;
    tonic_prost_build::configure()
        .build_transport(false)
        // A server says "unimplemented" by itself for what it does not do; its streams are boxed.
        .generate_default_stubs(true)
        .bytes(".common.Data")
        .skip_debug(SECRET)
        .compile_fds(files)?;
    Ok(())
}
