//! A simulated AWS account in one region: EC2, network load balancers and STS, strict and slow like the real ones, with
//! machines of the [`World`](crate::World) behind its instances.
//!
//! ```text
//!   ec2|elasticloadbalancing|sts.REGION.amazonaws.com:443
//!        -> serve (TLS, HTTP, gate) -> sign (signature version 4, really checked)
//!        -> model (the vendor's own: parameters in, XML out) -> State::handle (pure: one call, one answer)
//!                                            |
//!                 pump: State::advance(now) -> effects -> World (power on, off, remove)
//!                 State::data_plane        -> Balancers (listeners, checks, connections)
//! ```
//!
//! Everything that the account knows is in [`State`]; a clone of it is a snapshot. Idempotency is as documented: the same
//! load balancer, target group or listener again is no error, another one of that name or port is. What is not simulated
//! (application load balancers, TLS and UDP listeners, elastic addresses, launch templates, spot, other protocols) is
//! refused by name.

mod ec2;
mod elb;
mod furnish;
mod input;
mod lag;
mod model;
mod quotas;
mod request;
mod route;
mod rules;
mod serve;
mod shell;
mod sign;
mod site;
mod state;
mod sts;

pub use request::{Answer, Call, Service};
pub use shell::{Aws, AwsHandle};
pub use site::{
    AwsNames, AwsQuotas, AwsSecret, AwsSite, SiteAmi, SiteGroup, SiteKey, SiteRole, SiteRule, SiteSubnet,
    SiteVpc,
};
pub use state::{Boot, Effect, Fate, State};

#[cfg(test)]
mod tests;
