//! What would still take this long if all our own work and all our calls took no time.
//!
//! ```text
//! Google   check -> service -> rule           address: beside them         the endpoint is there
//!                       \----------------\
//!          machine with an address -> members -> service sends to them     and all machines are behind it
//! AWS      load balancer starts                                            the endpoint is there
//!          machine with an address -> registered, at once                  and all machines are behind it
//! ```
//!
//! Only what no order of calls can avoid is in it: Google's group of instances of a zone, and the lag of Google's lists, are
//! not, since a group can be made ahead and a part can be asked for by its name.

use anyhow::{Context, Result};

use super::{Place, Table};

/// A row with its seconds.
pub(super) type Row = (String, f64);

/// Reads seconds of the table.
pub(super) fn seconds(table: &Table, name: &str) -> Result<f64> {
    table.get(name).copied().with_context(|| format!("the delay table has no {name}"))
}

/// Until a machine has an address.
pub(super) fn machine(place: Place, table: &Table) -> Result<Vec<Row>> {
    named(
        table,
        match place {
            Place::Gcp => &["gce/instance"],
            Place::Aws => &["aws/instance-starts"],
        },
    )
}

/// What the load balancer itself takes, whatever machines do; what goes on beside it for a shorter time is left out.
pub(super) fn balancer(place: Place, table: &Table) -> Result<Vec<Row>> {
    match place {
        Place::Gcp => {
            let checked = named(table, &["gce/health-check", "gce/backend-service"])?;
            let address = named(table, &["gce/address"])?;
            let mut rows = if total(&checked) >= total(&address) { checked } else { address };
            rows.extend(named(table, &["gce/forwarding-rule"])?);
            Ok(rows)
        }
        Place::Aws => named(table, &["aws/load-balancer-starts"]),
    }
}

/// What every machine takes from its address on.
pub(super) fn target(place: Place, table: &Table) -> Result<Vec<Row>> {
    match place {
        Place::Gcp => named(table, &["gce/members", "gce/backend-service"]),
        // Registered at once; that checks pass is not waited for, since nothing listens on a machine without a config.
        Place::Aws => Ok(Vec::new()),
    }
}

/// When the load balancer can have all its targets at the earliest, if the last of them has its address at this moment.
pub(super) fn complete(place: Place, table: &Table, last_address: f64) -> Result<f64> {
    let itself = total(&balancer(place, table)?);
    Ok(match place {
        Place::Gcp => {
            // A service that is not there yet can't be told to send to anybody.
            let service = seconds(table, "gce/health-check")? + seconds(table, "gce/backend-service")?;
            let members = last_address + seconds(table, "gce/members")?;
            itself.max(members.max(service) + seconds(table, "gce/backend-service")?)
        }
        Place::Aws => itself.max(last_address),
    })
}

pub(super) fn total(rows: &[Row]) -> f64 {
    rows.iter().map(|(_, seconds)| seconds).sum()
}

fn named(table: &Table, names: &[&str]) -> Result<Vec<Row>> {
    names.iter().map(|name| Ok(((*name).to_owned(), seconds(table, name)?))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A table of round figures.
    pub(in super::super) fn table() -> Table {
        let rows = [
            ("gce/instance", 12.0),
            ("gce/address", 2.0),
            ("gce/health-check", 3.0),
            ("gce/backend-service", 8.0),
            ("gce/forwarding-rule", 8.0),
            ("gce/members", 4.0),
            ("aws/instance-starts", 8.0),
            ("aws/load-balancer-starts", 120.0),
        ];
        rows.into_iter().map(|(name, seconds)| (name.to_owned(), seconds)).collect()
    }

    #[test]
    fn the_load_balancer_and_the_last_machine_bound_each_other() {
        let table = table();
        assert_eq!(complete(Place::Aws, &table, 8.0).unwrap(), 120.0, "the load balancer is the last");
        assert_eq!(complete(Place::Aws, &table, 130.0).unwrap(), 130.0, "the machine is");
        assert_eq!(complete(Place::Gcp, &table, 12.0).unwrap(), 24.0, "members, and the service again");
        assert_eq!(complete(Place::Gcp, &table, 1.0).unwrap(), 19.0, "the service has to be there first");
        assert_eq!(complete(Place::Gcp, &table, 0.0).unwrap(), total(&balancer(Place::Gcp, &table).unwrap()));
    }

    #[test]
    fn what_goes_on_beside_counts_when_it_is_longer() {
        let mut table = table();
        assert_eq!(total(&balancer(Place::Gcp, &table).unwrap()), 19.0);
        table.insert("gce/address".to_owned(), 20.0);
        assert_eq!(total(&balancer(Place::Gcp, &table).unwrap()), 28.0);
    }

    #[test]
    fn a_name_that_is_not_in_the_table_is_told() {
        let error = machine(Place::Gcp, &Table::new()).unwrap_err();
        assert_eq!(error.to_string(), "the delay table has no gce/instance");
    }
}
