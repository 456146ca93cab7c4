//! What is fuzzed, and what must hold for any input. A target is a function of bytes that panics when something does not hold;
//! `targets/` hands them to libFuzzer.
//!
//! The first byte of an input chooses what is done with the rest, so that checksums and signatures can be made right by the
//! harness: what lies behind them is what is looked at.
#![forbid(unsafe_code)]

mod bfd;
mod config;
mod election;
mod feed;
mod http;
mod neighbour;
mod proxy;
mod signed;
mod vrrp;

pub use bfd::bfd;
pub use config::config;
pub use election::election;
pub use http::http;
pub use neighbour::neighbour;
pub use proxy::proxy;
pub use signed::signed;
pub use vrrp::vrrp;
