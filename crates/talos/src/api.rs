//! The Talos API as Rust types: messages, clients and servers, generated from `proto/` by `build.rs`.
//!
//! The module tree is the tree of proto packages, because the generated code refers to itself by it. Messages that carry
//! secrets have a hand-written `Debug` here, which tells sizes and never contents.

use std::fmt;

pub mod common {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("common");
}

pub mod machine {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("machine");
}

pub mod storage {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("storage");
}

pub mod time {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("time");
}

pub mod cluster {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("cluster");
}

/// trustd, on port 50001 of a control plane.
pub mod securityapi {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
    tonic::include_proto!("securityapi");
}

pub mod cosi {
    pub mod resource {
        #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
        tonic::include_proto!("cosi.resource");
    }
}

pub mod google {
    pub mod rpc {
        #![allow(clippy::all, clippy::pedantic, unreachable_pub)] // generated
        tonic::include_proto!("google.rpc");
    }
}

/// The type URL of an event's payload is this followed by the message's name.
pub const EVENT_TYPE_PREFIX: &str = "talos/runtime/machine.";

impl fmt::Debug for common::Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data")
            .field("metadata", &self.metadata)
            .field("bytes", &Size(self.bytes.len()))
            .finish()
    }
}

impl fmt::Debug for cosi::resource::Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("proto_spec", &Size(self.proto_spec.len()))
            .field("yaml_spec", &Size(self.yaml_spec.len()))
            .finish()
    }
}

impl fmt::Debug for machine::ApplyConfigurationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyConfigurationRequest")
            .field("data", &Size(self.data.len()))
            .field("mode", &self.mode())
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

// `build.rs` silences a message together with the enum inside it.
impl fmt::Debug for machine::apply_configuration_request::Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}

impl fmt::Debug for machine::ApplyConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The details of a dry run hold a diff of the config.
        f.debug_struct("ApplyConfiguration")
            .field("metadata", &self.metadata)
            .field("warnings", &self.warnings)
            .field("mode", &self.mode())
            .field("mode_details", &Size(self.mode_details.len()))
            .finish()
    }
}

impl fmt::Debug for machine::GenerateClientConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateClientConfiguration")
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for machine::MetaWriteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaWriteRequest")
            .field("key", &self.key)
            .field("value", &Size(self.value.len()))
            .finish()
    }
}

/// Stands in `Debug` where the content may be secret.
struct Size(usize);

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0)
    }
}
