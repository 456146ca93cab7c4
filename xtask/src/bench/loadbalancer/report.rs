//! The page: what was measured, what was worked out from the delay table, and what was modelled, each named so.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::super::stats::{Spread, figure};
use super::{Bootstrap, Calls, Count, Idle, Measured, Place, path, upstream};

pub(super) fn report(machine: &str, measured: &Measured) -> Result<String> {
    let mut text = format!(
        "# Benchmarks: load balancers\n\n\
         Written by `cargo xtask bench loadbalancer --write`; not to be edited by hand.\n\n\
         - Date: {}\n\
         - Machine: {machine}\n\
         - Rounds: {}; median [least..most]\n\
         - What runs: embedded API, controllers with their usual pauses, drivers, and a simulated cloud with Talos and\n  \
         Kubernetes, in one process per cloud; 3 + 3 nodes; delay table at speed {}; the stand-ins of the addons\n\n",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        measured.rounds.len(),
        measured.speed,
    );
    verdict(&mut text, measured)?;
    times(&mut text, measured)?;
    bootstraps(&mut text, measured)?;
    idle_hours(&mut text, measured)?;
    bounds(&mut text, measured)?;
    models(&mut text, measured)?;
    methods(&mut text, measured);
    // One newline ends the file.
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

// === figures of all rounds ===

impl Measured {
    fn bootstraps(&self, place: Place) -> impl Iterator<Item = &Bootstrap> + Clone {
        self.rounds.iter().map(move |round| &round.bootstrap[place as usize])
    }

    fn idles(&self, place: Place) -> impl Iterator<Item = &Idle> + Clone {
        self.rounds.iter().map(move |round| &round.idle[place as usize])
    }

    /// How long a bootstrap took.
    fn took(&self, place: Place) -> Result<f64> {
        let took = Spread::of(self.bootstraps(place).map(|one| one.seconds)).context("there was no round")?;
        Ok(took.median)
    }

    /// From the last address to a complete load balancer: what it took, and what it had to take.
    fn after_address(&self, place: Place) -> Result<Vec<(f64, f64)>> {
        self.bootstraps(place)
            .map(|one| {
                let bound = path::complete(place, &self.table, one.last_address)? - one.last_address;
                Ok((one.complete - one.last_address, bound))
            })
            .collect()
    }
}

fn show(values: impl IntoIterator<Item = f64>) -> String {
    Spread::of(values).map_or_else(|| "–".to_owned(), |spread| spread.show())
}

/// A factor between two figures; nothing when there is nothing to compare with.
fn factor(ours: f64, theirs: f64) -> Option<f64> {
    (theirs > 0.0).then(|| ours / theirs)
}

/// A line of a table, with one cell for each cloud.
fn line(text: &mut String, name: &str, cell: impl Fn(Place) -> Result<String>) -> Result<()> {
    let [first, second] = Place::ALL;
    let _ = writeln!(text, "| {name} | {} | {} |", cell(first)?, cell(second)?);
    Ok(())
}

fn head(text: &mut String, title: &str, unit: &str) {
    let [first, second] = Place::ALL.map(Place::title);
    let _ = write!(text, "## {title}\n\n| {unit} | {first} | {second} |\n|---|---|---|\n");
}

fn count(calls: Count) -> String {
    format!("{} + {} = {}", figure(calls.reads), figure(calls.writes), figure(calls.total()))
}

/// Counts of all rounds: reads, writes, and both.
fn counts(values: impl Iterator<Item = Count> + Clone) -> String {
    let each = |part: fn(Count) -> f64| show(values.clone().map(part));
    format!("{} + {} = {}", each(|c| c.reads), each(|c| c.writes), each(Count::total))
}

// === sections ===

/// One sentence for each cloud, from the medians.
fn verdict(text: &mut String, measured: &Measured) -> Result<()> {
    text.push_str("## Verdict\n\n");
    let median = |values: Vec<f64>| Spread::of(values).map_or(0.0, |spread| spread.median);
    for place in Place::ALL {
        let ours = median(measured.bootstraps(place).map(|one| one.calls.all.total()).collect());
        let model =
            upstream::sum(&upstream::bootstrap(place, &measured.table, measured.took(place)?)?).total();
        let idle =
            median(measured.idles(place).map(|one| one.calls.all.times(one.to_hour()).total()).collect());
        let idle_model = upstream::sum(&upstream::idle_hour(place)).total();
        let late = median(measured.after_address(place)?.iter().map(|(took, bound)| took - bound).collect());
        let _ = writeln!(
            text,
            "- {}: {} for a bootstrap; {} for an idle hour; the load balancer is complete {} s after the least that the delays allow",
            place.title(),
            compared(ours, model),
            compared(idle, idle_model),
            figure(late),
        );
    }
    text.push('\n');
    Ok(())
}

/// A number of calls beside the model's.
fn compared(ours: f64, model: f64) -> String {
    let word = if ours <= model { "no more than" } else { "**more than**" };
    format!("{} calls, {word} the {} of fixed polling", figure(ours), figure(model))
}

fn times(text: &mut String, measured: &Measured) -> Result<()> {
    head(text, "From the last control plane's address to an endpoint with all of them behind it", "seconds");
    line(text, "measured", |place| Ok(show(measured.after_address(place)?.iter().map(|(took, _)| *took))))?;
    line(text, "lower bound by the delay table, from that moment on", |place| {
        Ok(show(measured.after_address(place)?.iter().map(|(_, bound)| *bound)))
    })?;
    line(text, "**measured over lower bound**", |place| {
        let all = measured.after_address(place)?;
        Ok(show(all.iter().filter_map(|(took, bound)| factor(*took, *bound))))
    })?;
    line(text, "from the ClusterBootstrap to the last address", |place| {
        Ok(show(measured.bootstraps(place).map(|one| one.last_address)))
    })?;
    line(text, "from the ClusterBootstrap to the endpoint (LoadBalancerRequest Ready)", |place| {
        Ok(show(measured.bootstraps(place).map(|one| one.endpoint)))
    })?;
    line(text, "from the ClusterBootstrap to a complete load balancer", |place| {
        Ok(show(measured.bootstraps(place).map(|one| one.complete)))
    })?;
    line(text, "lower bound of that", |place| {
        let machine = path::total(&path::machine(place, &measured.table)?);
        Ok(figure(path::complete(place, &measured.table, machine)?))
    })?;
    line(text, "over it", |place| {
        let machine = path::total(&path::machine(place, &measured.table)?);
        let bound = path::complete(place, &measured.table, machine)?;
        Ok(show(measured.bootstraps(place).filter_map(|one| factor(one.complete, bound))))
    })?;
    line(text, "from the ClusterBootstrap to Ready", |place| {
        Ok(show(measured.bootstraps(place).map(|one| one.seconds)))
    })?;
    text.push_str(
        "\nComplete is: the LoadBalancerRequest is Ready, and TargetsSynced for the spec with all three control planes. The\n\
         load balancer is made beside the machines, so that what it still takes when the last machine has its address\n\
         depends on when that is: the bound is worked out for the moment of each round. The first Butler calls its load\n\
         balancer Ready while the cloud is still making it, so that it has no time that could be compared.\n\n",
    );
    Ok(())
}

fn bootstraps(text: &mut String, measured: &Measured) -> Result<()> {
    head(text, "Calls of the cloud's API: one bootstrap", "reads + writes = all");
    let of = |part: fn(&Calls) -> Count| {
        move |place| Ok(counts(measured.bootstraps(place).map(move |one| part(&one.calls))))
    };
    line(text, "machines", of(|calls| calls.machines))?;
    line(text, "load balancer", of(|calls| calls.balancer))?;
    line(text, "logins", of(|calls| calls.login))?;
    line(text, "**all, as the cloud counted them**", of(|calls| calls.all))?;
    let theirs = |place| -> Result<Count> {
        Ok(upstream::sum(&upstream::bootstrap(place, &measured.table, measured.took(place)?)?))
    };
    line(text, "the first Butler's fixed polling in the same time: **modelled**, not run", |place| {
        Ok(count(theirs(place)?))
    })?;
    line(text, "**ours over the model's**", |place| {
        let model = theirs(place)?.total();
        Ok(show(measured.bootstraps(place).filter_map(|one| factor(one.calls.all.total(), model))))
    })?;
    text.push_str(
        "\nFrom the ClusterBootstrap to Ready. Every call counts, those too that were refused. Calls to the machines and to\n\
         Kubernetes are not in it.\n\n",
    );
    Ok(())
}

fn idle_hours(text: &mut String, measured: &Measured) -> Result<()> {
    head(text, "Calls of the cloud's API: one idle hour of a Ready cluster", "reads + writes = all");
    let of = |part: fn(&Calls) -> Count| {
        move |place| Ok(counts(measured.idles(place).map(move |one| part(&one.calls).times(one.to_hour()))))
    };
    line(text, "machines", of(|calls| calls.machines))?;
    line(text, "load balancer", of(|calls| calls.balancer))?;
    line(text, "**all**: measured, an hour in a minute", of(|calls| calls.all))?;
    if let Some(slow) = &measured.slow {
        let seconds = figure(slow[0].seconds);
        let name =
            format!("all: {seconds} s without haste, **extrapolated** × {}", figure(slow[0].to_hour()));
        line(text, &name, |place| {
            let one = &slow[place as usize];
            Ok(count(one.calls.all.times(one.to_hour())))
        })?;
    }
    for row in 0..upstream::idle_hour(Place::Gcp).len() {
        let name = format!("the first Butler, {}: **modelled**", upstream::idle_hour(Place::Gcp)[row].what);
        line(text, &name, |place| Ok(count(upstream::idle_hour(place)[row].calls)))?;
    }
    let over = |part: fn(&Calls) -> Count, theirs: fn(Place) -> f64| {
        move |place| {
            let ours = measured.idles(place).map(move |one| part(&one.calls).times(one.to_hour()).total());
            Ok(show(ours.filter_map(|ours| factor(ours, theirs(place)))))
        }
    };
    line(
        text,
        "**load balancer: ours over the model's**",
        over(|calls| calls.balancer, |place| upstream::idle_hour(place)[0].calls.total()),
    )?;
    line(
        text,
        "**all: ours over all of the model's**",
        over(|calls| calls.all, |place| upstream::sum(&upstream::idle_hour(place)).total()),
    )?;
    text.push_str(
        "\nThe hour goes 60 times as fast: the one pause that everything idle hangs on (two minutes for what is as it should\n\
         be) is two seconds, and calls are counted for a minute. A pass' own work\n\
         lengthens its pause, which shows when pauses are so short: the fast hour has some calls too few. Without haste the\n\
         pauses are the usual ones. A login once an hour, where the cloud wants one, comes on top. The model's passes\n\
         repair nothing but targets; ours look at every part of the load balancer.\n\n",
    );
    Ok(())
}

fn bounds(text: &mut String, measured: &Measured) -> Result<()> {
    let _ = write!(
        text,
        "## The lower bound, at speed {}\n\n| | part | seconds |\n|---|---|---|\n",
        measured.speed
    );
    for place in Place::ALL {
        let groups = [
            ("until a machine has an address", path::machine(place, &measured.table)?),
            ("the load balancer itself, beside that", path::balancer(place, &measured.table)?),
            ("from the last address on", path::target(place, &measured.table)?),
        ];
        for (title, rows) in groups {
            let title = format!("{}: {title}", place.title());
            if rows.is_empty() {
                let _ = writeln!(text, "| {title} | – | 0 |");
            }
            for (name, seconds) in rows {
                let _ = writeln!(text, "| {title} | {name} | {} |", figure(seconds));
            }
        }
    }
    text.push_str(
        "\nA backend service can be told of machines when it is there; what comes later bounds. What another order of calls\n\
         could avoid is not in the bound, and so counts as ours: Google's group of a zone, which is made when the zone has its\n\
         first machine, and the lag of its lists.\n\n",
    );
    Ok(())
}

fn models(text: &mut String, measured: &Measured) -> Result<()> {
    text.push_str("## The modelled calls\n\n| | reads + writes = all | how |\n|---|---|---|\n");
    for place in Place::ALL {
        let bootstrap = upstream::bootstrap(place, &measured.table, measured.took(place)?)?;
        for (when, rows) in [("bootstrap", bootstrap), ("idle hour", upstream::idle_hour(place))] {
            for row in rows {
                let _ = writeln!(
                    text,
                    "| {}, {when}: {} | {} | {} |",
                    place.title(),
                    row.what,
                    count(row.calls),
                    row.how
                );
            }
        }
    }
    text.push_str(
        "\nThe intervals are the first Butler's. What a pass costs is known of its AWS provider and assumed of its Google\n\
         provider, in its favour. Operations are not followed in the model, nothing fails, and its bootstrap takes no longer\n\
         than ours.\n\n",
    );
    Ok(())
}

/// What was called how often; the median of all rounds.
fn methods(text: &mut String, measured: &Measured) {
    for place in Place::ALL {
        let rounds = measured.rounds.len();
        let mut all: BTreeMap<(bool, &str), [Vec<f64>; 2]> = BTreeMap::new();
        for (number, round) in measured.rounds.iter().enumerate() {
            let idle = &round.idle[place as usize];
            let sides = [(&round.bootstrap[place as usize].calls, 1.0), (&idle.calls, idle.to_hour())];
            for (side, (calls, scale)) in sides.into_iter().enumerate() {
                for one in &calls.methods {
                    let entry = all.entry((one.writes, &one.method)).or_insert_with(|| {
                        // A round without a call of it counts as zero.
                        [vec![0.0; rounds], vec![0.0; rounds]]
                    });
                    entry[side][number] = one.times * scale;
                }
            }
        }
        let _ = write!(
            text,
            "## Calls by method: {}\n\n| | bootstrap | idle hour |\n|---|---|---|\n",
            place.title()
        );
        for ((writes, method), [bootstrap, idle]) in all {
            let kind = if writes { "writes" } else { "reads" };
            let _ = writeln!(text, "| {kind}: {method} | {} | {} |", show(bootstrap), show(idle));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::tests::table;
    use super::super::{Method, Round};
    use super::*;

    fn calls(reads: f64, writes: f64) -> Calls {
        let balancer = Count { reads, writes };
        let machines = Count { reads: 10.0, writes: 6.0 };
        Calls {
            all: balancer.plus(machines),
            machines,
            balancer,
            methods: vec![Method { method: "thing.list".to_owned(), writes: false, times: reads }],
            ..Calls::default()
        }
    }

    fn round(complete: f64) -> Round {
        let one = Bootstrap {
            seconds: 110.0,
            last_address: 10.0,
            endpoint: complete,
            complete,
            calls: calls(20.0, 18.0),
        };
        let idle = Idle { factor: 60.0, seconds: 60.0, calls: calls(300.0, 0.0) };
        Round { bootstrap: [one.clone(), one], idle: [idle.clone(), idle] }
    }

    fn page(slow: Option<[Idle; 2]>) -> String {
        let measured =
            Measured { speed: 1.0, table: table(), rounds: vec![round(131.0), round(120.0)], slow };
        report("a machine", &measured).unwrap()
    }

    #[test]
    fn times_stand_beside_their_bound() {
        let text = page(None);
        // Google: members and service after 10 s, so that 12 s are the least; AWS: 120 s less 10 s.
        for line in [
            "| measured | 116 [110..121] | 116 [110..121] |",
            "| lower bound by the delay table, from that moment on | 12.0 | 110 |",
            "| **measured over lower bound** | 9.62 [9.17..10.1] | 1.05 [1.00..1.10] |",
            "| lower bound of that | 24.0 | 120 |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn calls_stand_beside_the_model() {
        let text = page(None);
        for line in [
            "| load balancer | 20.0 + 18.0 = 38.0 | 20.0 + 18.0 = 38.0 |",
            "| **all, as the cloud counted them** | 30.0 + 24.0 = 54.0 | 30.0 + 24.0 = 54.0 |",
            // 54 of the model for AWS in 110 s.
            "| **ours over the model's** | 1.42 | 1.00 |",
            "| **load balancer: ours over the model's** | 2.50 | 0.417 |",
            "| reads: thing.list | 20.0 | 300 |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("without haste, **extrapolated**"));
        assert!(text.ends_with("|\n") && !text.ends_with("\n\n"));
    }

    #[test]
    fn a_verdict_is_given_for_each_cloud() {
        let text = page(None);
        // 38 of the load balancer and 16 of machines, beside 54 of the model for AWS.
        let line = "- AWS: 54.0 calls, no more than the 54.0 of fixed polling for a bootstrap; 316 calls, no more than the 1440 of fixed polling for an idle hour";
        assert!(text.contains(line), "{line} is not in {text}");
        assert!(text.contains("- Google Cloud: 54.0 calls, **more than** the 38.0"), "{text}");
    }

    #[test]
    fn a_short_window_is_said_to_be_extrapolated() {
        let short = Idle { factor: 1.0, seconds: 240.0, calls: calls(20.0, 0.0) };
        let text = page(Some([short.clone(), short]));
        let line =
            "| all: 240 s without haste, **extrapolated** × 15.0 | 450 + 90.0 = 540 | 450 + 90.0 = 540 |";
        assert!(text.contains(line), "{line} is not in {text}");
    }
}
