//! The wire: paths, queries, media types, bodies in, answers out.

pub(crate) mod decode;
mod gojson;
pub(crate) mod media;
pub(crate) mod params;
pub(crate) mod path;
pub(crate) mod reply;
mod service;

pub use reply::Body;
pub use service::ApiService;
