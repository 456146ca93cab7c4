//! Bad input and faults, one by one: each is told by name with a remedy, has a deadline, ends by itself once its cause is gone,
//! makes no second machine and no second etcd, and leaves nothing behind when the cluster is deleted.
//!
//! Weaknesses that tools of this kind have been found to have, and the test that says that this one has not:
//!
//! | weakness | test |
//! |---|---|
//! | a failure, a timeout or Ctrl-C throws the state away, and machines stay | `changes::a_full_disk` (a second life goes on), `deletion::of_a_cluster_that_has_failed` |
//! | a second run can't go on | `bootstrap.rs`: `a_second_life_goes_on_and_makes_nothing_twice`; the fault matrix |
//! | machines are made twice: lost answers, lists that are behind, create before lookup | `calls::every_answer_to_a_change_of_machines_is_lost`, `calls::lists_are_behind` |
//! | deletion is reported before machines are gone | `deletion::*`: the picture of the data centre is compared when the object is gone |
//! | failed is final; throttling and quota end a bootstrap | `calls::throttling_*`, `calls::errors_*`, `infrastructure::full_storage`, and each `comes_up` after a `fails` |
//! | an addon that fails says nothing | `addons::the_image_of_an_addon_can_not_be_pulled` |
//! | nodes and etcd are not waited for | `machines::a_control_plane_that_never_joins`, `machines::*_when_etcd_is_made*` |
//! | loops for ever without an image factory | `infrastructure::without_a_factory_*`, `infrastructure::an_image_that_the_factory_does_not_have` |
//! | only the first control plane is ever used | `machines::the_first_control_plane_dies_while_addons_are_installed`, `machines::a_control_plane_dies_after_all_is_ready` |
//! | lost status writes repeat steps | `changes::a_full_disk`: etcd is asked for on one machine only |
//! | pause and deletion wait for long calls | `changes::a_pause_in_every_phase`, `deletion::*` with a call that is held |
//! | nothing is looked at before: credentials, rights, template, VIP | `infrastructure::*`, `network::the_virtual_address_is_somebody_elses` |
//! | secrets in messages | `infrastructure::wrong_credentials` |
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod addons;
mod calls;
mod changes;
mod deletion;
mod disk;
mod infrastructure;
mod machines;
mod network;
mod site;
#[path = "../support/mod.rs"]
mod support;
