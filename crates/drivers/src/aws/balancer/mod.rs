//! Network load balancers. Read `plan.rs` first: all decisions are there, and the dry run makes the same ones.
//!
//! ```text
//!   clients -> security group -> load balancer -> listener 6443  -> target group  -> control planes :6443
//!                                              -> listener 50000 -> target group  -> control planes :50000
//!                                              -> listener 50001 -> target group  -> workers        :50000
//! ```

pub(crate) mod desired;
pub(crate) mod facts;
mod hands;
mod kept;
mod look;
pub(crate) mod model;
pub(crate) mod mutation;
pub(crate) mod plan;
pub(crate) mod removal;
mod targets;
#[cfg(test)]
mod tests;

pub(crate) use hands::AwsLoadBalancers;
