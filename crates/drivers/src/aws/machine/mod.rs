//! Machines: EC2 instances. Read `plan.rs` first.

mod hands;
pub(crate) mod model;
pub(crate) mod mutation;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

pub(crate) use hands::{AwsMachines, instance_id};
