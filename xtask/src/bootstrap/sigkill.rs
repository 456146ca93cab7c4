//! butleradm is killed without warning, again and again, and typed again until it is done.
//!
//! ```text
//!   world = data centre (one process)  <--  bootstrap  K  bootstrap  K  bootstrap ... Ready   then   destroy  K  destroy ... gone
//! ```
//!
//! A moment is given by how many calls have reached the data centre, and a little time on top, so that deaths also fall between
//! calls, while something is written to the disk. Both come from a seed. In the end the data centre holds the wanted machines,
//! each made once, etcd was made once, and after the destroy there is nothing.

use super::centre::DataCentre;
use super::looks::nothing_left;
use super::real::wanted_machines;
use super::user::User;
use super::{CLUSTER, MACHINES, example, say};
use crate::conformance::build_butleradm;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How much is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deaths {
    /// So many, at least.
    pub(crate) points: usize,
    /// Where the moments come from.
    pub(crate) seed: u64,
    /// How many worlds at once.
    pub(crate) parallel: usize,
}

/// Deaths that are part of the gate.
const GATE: usize = 50;
/// Deaths in one world: of the bootstrap, and of the destroy.
const BOOTSTRAP_DEATHS: usize = 4;
const DESTROY_DEATHS: usize = 2;
/// Between two looks at the data centre's calls.
const LOOK: Duration = Duration::from_millis(1);
/// A death may come so much later than its call, in microseconds.
const LATER: u64 = 12_000;
/// One life may take so long on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many calls an undisturbed bootstrap and an undisturbed destroy make.
#[derive(Debug, Clone, Copy)]
struct Length {
    bootstrap: usize,
    destroy: usize,
}

/// A world that is ruled by a seed.
struct World {
    number: u64,
    dice: Dice,
    user: User,
    centre: DataCentre,
    config: PathBuf,
}

/// What became of a world.
#[derive(Debug, Default)]
struct Story {
    /// The calls that had been made at each death of the bootstrap.
    deaths: Vec<usize>,
    /// And of the destroy.
    destroy_deaths: Vec<usize>,
    length: Option<Length>,
}

/// How one life ended.
enum Life {
    Killed { calls: usize },
    Ended { code: Option<i32> },
}

/// When to kill: after so many calls of the data centre, and so long after that.
#[derive(Debug, Clone, Copy)]
struct Moment {
    calls: usize,
    later: Duration,
}

/// Counts lines of a file that grows.
struct Counter {
    path: PathBuf,
    file: Option<File>,
    count: usize,
}

/// A small generator (splitmix64): the same moments for the same seed.
struct Dice(u64);

impl Deaths {
    /// As the gate runs it.
    pub(super) fn gate() -> Deaths {
        Deaths { points: GATE, seed: 1, parallel: 2 }
    }
}

/// `cargo xtask faults --sigkill`.
pub(crate) async fn run_command(deaths: Deaths) -> Result<()> {
    run(&build_butleradm().await?, &deaths).await
}

/// Worlds until there were enough deaths.
pub(super) async fn run(program: &Path, args: &Deaths) -> Result<()> {
    let began = Instant::now();
    let calm = World::new(program, args.seed, 0).await?.live(None).await.context("a world without deaths")?;
    let length = calm.length.context("the calm world has a length")?;
    say(&format!("sigkill: {} calls to Ready, {} until gone", length.bootstrap, length.destroy))?;
    let (mut deaths, mut in_destroy): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut worlds = JoinSet::new();
    let mut number = 0;
    // Some moments are missed, since a life may be shorter than expected; but not most.
    let most = u64::try_from(args.points)?.max(8);
    while deaths.len() + in_destroy < args.points || !worlds.is_empty() {
        let coming = worlds.len() * (BOOTSTRAP_DEATHS + DESTROY_DEATHS) / 2;
        let enough = deaths.len() + in_destroy + coming >= args.points;
        if worlds.len() < args.parallel.max(1) && !enough && number < most {
            number += 1;
            let (program, seed) = (program.to_owned(), args.seed);
            worlds.spawn(async move {
                let world = World::new(&program, seed, number).await?;
                world.live(Some(length)).await.with_context(|| format!("seed {seed}, world {number}"))
            });
            continue;
        }
        match worlds.join_next().await {
            Some(story) => {
                let story = story.context("a world has panicked")??;
                let Story { deaths: up, destroy_deaths: down, .. } = story;
                say(&format!(
                    "sigkill: all is well after deaths at calls {up:?}, and {down:?} of the destroy"
                ))?;
                deaths.extend(up);
                in_destroy += down.len();
            }
            None => bail!("only {} deaths in {number} worlds", deaths.len() + in_destroy),
        }
    }
    say(&format!(
        "sigkill: {} deaths in {number} worlds, {in_destroy} of them in the destroy, the others spread {}, {:.0} s",
        deaths.len() + in_destroy,
        spread(&deaths, length.bootstrap),
        began.elapsed().as_secs_f64()
    ))
}

/// How many deaths were in each tenth of a bootstrap.
fn spread(deaths: &[usize], length: usize) -> String {
    let mut tenths = [0; 10];
    for calls in deaths {
        tenths[(calls * 10 / length.max(1)).min(9)] += 1;
    }
    tenths.map(|count: usize| count.to_string()).join(" ")
}

impl World {
    async fn new(program: &Path, seed: u64, number: u64) -> Result<World> {
        let mut user = User::new(program)?;
        let config = example("bootstrap-proxmox.yaml")?;
        let centre = DataCentre::start(&user, &config, &["--seed", &(seed + number).to_string()]).await?;
        user.use_centre(&centre);
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number));
        Ok(World { number, dice, user, centre, config })
    }

    /// Up and down again, with deaths when the lengths of both are known.
    async fn live(mut self, length: Option<Length>) -> Result<Story> {
        let mut story = Story::default();
        let (config, bundle) =
            (self.config.to_string_lossy().into_owned(), self.centre.bundle.to_string_lossy().into_owned());
        let bootstrap = ["bootstrap", "proxmox", "--config", &config, "--bundle", &bundle];
        let moments = self.moments(length.map(|length| length.bootstrap), BOOTSTRAP_DEATHS, 0);
        self.until_done(&bootstrap, moments, &[0], &mut story).await.with_context(|| self.last_words())?;
        let length_of_bootstrap = self.centre.count();
        self.is_ready(&story).await.with_context(|| self.last_words())?;
        let calls_until_ready = self.centre.count();
        let moments = self.moments(length.map(|length| length.destroy), DESTROY_DEATHS, calls_until_ready);
        let mut end = Story::default();
        // Killed after its last step, there is nothing left to be found.
        let codes = if length.is_some() { &[0, 3][..] } else { &[0] };
        self.until_done(&["destroy", "--yes"], moments, codes, &mut end).await?;
        let destroy = self.centre.count() - calls_until_ready;
        self.forgotten(&end).await?;
        story.length = Some(Length { bootstrap: length_of_bootstrap, destroy });
        story.destroy_deaths = end.deaths;
        self.centre.end().await?;
        Ok(story)
    }

    /// Moments in the order of time. The worlds together go through all parts of a run: each world has its own share.
    fn moments(&mut self, length: Option<usize>, deaths: usize, from: usize) -> Vec<Moment> {
        let Some(length) = length else { return Vec::new() };
        (0..deaths)
            .map(|index| {
                let begin = length * index / deaths;
                let within = self.dice.below(length / deaths);
                let later = Duration::from_micros(self.dice.below_u64(LATER));
                Moment { calls: from + begin + within, later }
            })
            .collect()
    }

    /// One life after another.
    async fn until_done(
        &self,
        args: &[&str],
        moments: Vec<Moment>,
        codes: &[i32],
        story: &mut Story,
    ) -> Result<()> {
        for moment in moments.into_iter().map(Some).chain(std::iter::once(None)) {
            match self.life(args, moment).await? {
                Life::Killed { calls } => story.deaths.push(calls),
                Life::Ended { code } => {
                    let fine = code.is_some_and(|code| codes.contains(&code));
                    ensure!(
                        fine,
                        "butleradm {} ended with {code:?} after deaths at {:?}",
                        args[0],
                        story.deaths
                    );
                    return Ok(());
                }
            }
        }
        bail!("the last life was not the last")
    }

    async fn life(&self, args: &[&str], moment: Option<Moment>) -> Result<Life> {
        let path = self.user.folder().join("said.txt");
        let said = File::create(&path).context("make a file for what butleradm says")?;
        let errors = said.try_clone().context("open it twice")?;
        let mut command = self.user.command(args);
        command.stdout(Stdio::from(said)).stderr(Stdio::from(errors));
        let mut child = command.spawn().context("start butleradm")?;
        let life = async {
            match moment {
                Some(moment) => self.killed(&mut child, moment).await,
                None => Ok(Life::Ended { code: child.wait().await.context("wait for butleradm")?.code() }),
            }
        };
        let life = timeout(PATIENCE, life).await;
        life.with_context(|| format!("a life without end; deaths at {moment:?}"))?
    }

    /// Waits for the moment, unless the program ends before.
    async fn killed(&self, child: &mut Child, moment: Moment) -> Result<Life> {
        let mut calls = Counter::new(self.centre.calls_path());
        while calls.count() < moment.calls {
            if let Some(status) = child.try_wait().context("look after butleradm")? {
                return Ok(Life::Ended { code: status.code() });
            }
            sleep(LOOK).await;
        }
        sleep(moment.later).await;
        if let Some(status) = child.try_wait().context("look after butleradm")? {
            return Ok(Life::Ended { code: status.code() });
        }
        child.kill().await.context("kill butleradm")?;
        Ok(Life::Killed { calls: calls.count() })
    }

    /// The wanted machines, each made once; one etcd; the ways in.
    async fn is_ready(&self, story: &Story) -> Result<()> {
        wanted_machines(&self.centre).await?;
        let calls = self.centre.calls()?;
        let count = |operation: &str, outcome: &str| {
            let fits = |call: &&serde_json::Value| {
                let name = call["operation"].as_str().unwrap_or_default();
                call["outcome"] == outcome && name.ends_with(operation)
            };
            calls.iter().filter(fits).count()
        };
        for (operation, wanted) in [("Bootstrap", 1), ("/clone", MACHINES.len())] {
            // A call that was cut off by the death of its caller may have been carried out or not.
            let (answered, cut) = (count(operation, "answered"), count(operation, "dropped"));
            ensure!(
                answered <= wanted && answered + cut >= wanted,
                "{operation}: {answered} answered and {cut} cut off, {wanted} wanted; deaths at {:?}",
                story.deaths
            );
        }
        self.has_one_etcd().await.with_context(|| format!("deaths at {:?}", story.deaths))?;
        for file in ["kubeconfig", "talosconfig"] {
            let path = self.user.home().join(format!("{CLUSTER}-{file}"));
            ensure!(path.exists(), "there is no {}", path.display());
        }
        Ok(())
    }

    /// Whether a call that was cut off was carried out is not in the log, but etcd tells: made twice, it is two clusters, and
    /// no control plane has all others in its own.
    async fn has_one_etcd(&self) -> Result<()> {
        let talosconfig = self.user.home().join(format!("{CLUSTER}-talosconfig"));
        let talosconfig = talosconfig.to_string_lossy();
        let args = ["talos", "health", "--talosconfig", &*talosconfig, "--proxy", &self.centre.proxy];
        let answer = self.user.run(&args).await?;
        answer.expect(0, "talos health")?;
        let planes = MACHINES.iter().filter(|name| name.contains("-cp-")).count();
        let whole = answer.stdout.matches(&format!("etcd of {planes},")).count();
        ensure!(whole == planes, "{whole} of {planes} control planes have the one etcd: {}", answer.stdout);
        Ok(())
    }

    /// Nothing in the data centre. At home only what a death in the very last step leaves.
    async fn forgotten(&self, story: &Story) -> Result<()> {
        if story.deaths.is_empty() {
            return nothing_left(&self.user, &self.centre).await;
        }
        let (vms, volumes) = (self.centre.vms().await?, self.centre.stray_volumes().await?);
        ensure!(
            vms.is_empty() && volumes.is_empty(),
            "left after deaths at {:?}: {vms:?} {volumes:?}",
            story.deaths
        );
        let answer = self.user.run(&["status"]).await?;
        answer.expect(3, "status of what is gone").map(|_| ())
    }

    fn last_words(&self) -> String {
        let said = std::fs::read_to_string(self.user.folder().join("said.txt")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("world {}; the last life said:\n{last}\n", self.number)
    }
}

impl Counter {
    fn new(path: &Path) -> Counter {
        Counter { path: path.to_owned(), file: None, count: 0 }
    }

    /// The lines so far.
    fn count(&mut self) -> usize {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut fresh = Vec::new();
        if let Some(file) = &mut self.file
            && file.read_to_end(&mut fresh).is_ok()
        {
            self.count += fresh.iter().filter(|byte| **byte == b'\n').count();
        }
        self.count
    }
}

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below_u64(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.below_u64(limit as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_same_seed_has_the_same_moments() {
        let draw = |seed| {
            let mut dice = Dice(seed);
            (0..100).map(|_| dice.below(40)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|number| *number < 40));
    }

    #[test]
    fn lines_are_counted_as_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls");
        let mut counter = Counter::new(&path);
        assert_eq!(counter.count(), 0);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"a\nb\nc").unwrap();
        assert_eq!(counter.count(), 2);
        file.write_all(b"\n").unwrap();
        assert_eq!((counter.count(), counter.count()), (3, 3));
    }

    #[test]
    fn deaths_are_spread_over_tenths() {
        assert_eq!(spread(&[0, 5, 10, 99, 300], 100), "2 1 0 0 0 0 0 0 0 2");
    }
}
