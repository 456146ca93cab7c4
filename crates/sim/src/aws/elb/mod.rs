//! Network load balancers: the balancers themselves, target groups, listeners, targets, tags.

mod attributes;
mod balancers;
mod data_plane;
mod listeners;
mod tags;
mod target_groups;
mod targets;
