//! Load balancers of the simulated clouds: they really pass TCP, and really check their targets.
//!
//! ```text
//!   owner (a cloud's API) -- apply(what is wanted) --> Balancers
//!                                                        |  a listener for each address and port
//!   client -> fabric -> listener -> Kept: choose  -> relay -> target
//!                                     |  health, drain  <- a check for each target, when it is due
//!                                     v
//!                              butler_lb::core::Pool (pure): the one that `butler-lb` itself has
//! ```
//!
//! In [`Mode::Proxy`] a balancer answers at addresses of its own and opens connections to its targets, at any port. In
//! [`Mode::Passthrough`] the packets keep the balancer's address as their destination: a target takes them, and answers
//! checks, only if the configuration in force has that address on its loopback interface.
//!
//! Which targets there are, when draining ends, and whether a security group lets anything through is the owner's business.
//! A connection for which there is no target is accepted and cut at once; a real one would wait for its client's patience.

mod check;
mod kept;
mod pool;
mod shell;
mod table;

pub use pool::{Balancer, Check, Frontend, Health, Mode, Pool, Probe, Target, Trouble, Verdict};
pub use shell::{Balancers, BalancersState};

#[cfg(test)]
mod tests;
