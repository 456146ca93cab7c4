//! The compute cloud: machines, images, networks, security groups, volumes, tags.

mod groups;
mod images;
mod instances;
mod networks;
mod power;
mod tags;
mod types;
mod volumes;
