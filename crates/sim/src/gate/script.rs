//! Faults as a script, in YAML. All keys are optional except `fault` and `machine`.
//!
//! ```yaml
//! seed: 7                        # of the random faults
//! calls:
//!   - system: proxmox            # proxmox, gce, aws, talos or kubernetes
//!     operation: "POST */clone"  # a star stands for any text; others say compute.instances.insert, ec2:RunInstances,
//!                                # ApplyConfiguration
//!     object: "mgmt-cp-*"        # what the call is about, as the call log names it
//!     nth: 2                     # starts with the second call that fits (default 1)
//!     times: 3                   # and meets so many (default 1; "always" for all)
//!     fault: status 503          # status CODE, throttle, timeout, reset, lose-answer, stale-read
//!   - call: 17                   # by its number in the call log
//!     fault: lose-answer
//! random:
//!   rate: 0.02                   # of all calls that fit
//!   system: proxmox
//!   operation: "*"
//!   limit: 10                    # at most so many in all (default: no limit)
//!   faults: [status 500, throttle, reset, lose-answer]
//! machines:
//!   - machine: mgmt-cp-0         # name or address; stars as above
//!     stage: booting             # die: when it gets there ...
//!     call: 40                   # ... or just before the call with this number; without both: as soon as it has power
//!     fault: die                 # die, never-boots, never-joins, never-promoted, clock-skew SECONDS
//! ```
//!
//! Random faults are drawn from the seed and from *what* is called and how often that was called before, not from the order
//! in which calls come in: the same run meets the same faults, however its calls are interleaved.

use super::Call;
use super::fault::{Fault, MachineFault};
use crate::machine::Stage;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use std::fmt;
use std::str::FromStr;

/// All faults of a data centre. The default has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultScript {
    pub seed: u64,
    pub calls: Vec<CallRule>,
    pub random: Option<RandomFaults>,
    pub machines: Vec<MachineRule>,
}

/// Which calls are meant. What is not given fits every call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    pub system: Option<String>,
    pub operation: Option<Pattern>,
    pub object: Option<Pattern>,
    /// The number in the call log.
    pub call: Option<u64>,
}

/// A fault for certain calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRule {
    pub calls: Matcher,
    /// The first call that it meets, among those that fit; from 1.
    pub nth: u64,
    /// How many it meets; `None`: all from then on.
    pub times: Option<u64>,
    pub fault: Fault,
}

/// Faults that come by chance, with a seed.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomFaults {
    pub calls: Matcher,
    pub rate: f64,
    pub limit: Option<u64>,
    pub faults: Vec<Fault>,
}

/// A fault of certain machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRule {
    pub machine: Pattern,
    pub stage: Option<Stage>,
    pub call: Option<u64>,
    pub fault: MachineFault,
}

/// A text in which a star stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptProblem {
    pub line: u64,
    pub column: u64,
    pub message: String,
}

impl fmt::Display for ScriptProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl ScriptProblem {
    /// What the parser says.
    pub(crate) fn of(error: serde_saphyr::Error) -> Self {
        let error = error.without_snippet();
        let at = error.location().unwrap_or(Location::UNKNOWN);
        Self { line: at.line(), column: at.column(), message: error.to_string() }
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(text.to_string())
    }
}

impl Pattern {
    /// Whether a text fits.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

impl Matcher {
    /// Whether a call is meant.
    #[must_use]
    pub fn fits(&self, number: u64, call: &Call) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &str| pattern.as_ref().is_none_or(|p| p.fits(text));
        self.call.is_none_or(|wanted| wanted == number)
            && self.system.as_deref().is_none_or(|system| system == call.system)
            && fits(&self.operation, &call.operation)
            && fits(&self.object, &call.object)
    }
}

/// A script as it is written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawScript {
    seed: u64,
    calls: Vec<RawCall>,
    random: Option<RawRandom>,
    machines: Vec<RawMachine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    system: Option<Spanned<String>>,
    operation: Option<String>,
    object: Option<String>,
    call: Option<u64>,
    nth: Option<Spanned<u64>>,
    times: Option<Spanned<String>>,
    fault: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRandom {
    rate: Spanned<f64>,
    system: Option<Spanned<String>>,
    operation: Option<String>,
    object: Option<String>,
    limit: Option<u64>,
    faults: Spanned<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    machine: String,
    stage: Option<Spanned<String>>,
    call: Option<u64>,
    fault: Spanned<String>,
}

/// The problems that were found so far.
#[derive(Default)]
struct Problems(Vec<ScriptProblem>);

impl Problems {
    fn add(&mut self, at: Location, message: impl Into<String>) {
        self.0.push(ScriptProblem { line: at.line(), column: at.column(), message: message.into() });
    }

    /// Reads a word; one that can't be read is noted.
    fn read<T: FromStr<Err = String>>(&mut self, text: &Spanned<String>) -> Option<T> {
        text.value.trim().parse().map_err(|why: String| self.add(text.referenced, why)).ok()
    }

    fn system(&mut self, system: Option<Spanned<String>>) -> Option<String> {
        let system = system?;
        if !super::SYSTEMS.contains(&system.value.as_str()) {
            let known = super::SYSTEMS.join(", ");
            self.add(system.referenced, format!("unknown system {:?}: use one of {known}", system.value));
        }
        Some(system.value)
    }

    fn call(&mut self, raw: RawCall) -> Option<CallRule> {
        let system = self.system(raw.system);
        let nth = match raw.nth {
            Some(nth) if nth.value == 0 => {
                self.add(nth.referenced, "calls are counted from 1");
                1
            }
            nth => nth.map_or(1, |nth| nth.value),
        };
        let times = match raw.times {
            None => Some(1),
            Some(times) if times.value == "always" => None,
            Some(times) => match times.value.parse() {
                Ok(count) => Some(count),
                Err(_) => {
                    self.add(
                        times.referenced,
                        format!("times is a number or \"always\", not {:?}", times.value),
                    );
                    None
                }
            },
        };
        let pattern = |text: Option<String>| text.as_deref().map(Pattern::from);
        let calls = Matcher {
            system,
            operation: pattern(raw.operation),
            object: pattern(raw.object),
            call: raw.call,
        };
        Some(CallRule { calls, nth, times, fault: self.read(&raw.fault)? })
    }

    fn random(&mut self, raw: RawRandom) -> RandomFaults {
        if !(0.0..=1.0).contains(&raw.rate.value) {
            self.add(raw.rate.referenced, "the rate is a share, between 0 and 1");
        }
        if raw.faults.value.is_empty() {
            self.add(raw.faults.referenced, "at least one fault is needed");
        }
        let faults = raw.faults.value.iter().filter_map(|fault| self.read(fault)).collect();
        let pattern = |text: Option<String>| text.as_deref().map(Pattern::from);
        let calls = Matcher {
            system: self.system(raw.system),
            operation: pattern(raw.operation),
            object: pattern(raw.object),
            call: None,
        };
        RandomFaults { calls, rate: raw.rate.value, limit: raw.limit, faults }
    }

    fn machine(&mut self, raw: RawMachine) -> Option<MachineRule> {
        let stage = raw.stage.as_ref().and_then(|stage| match Stage::from_name(&stage.value) {
            Some(found) => Some(found),
            None => {
                let known: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
                let known = known.join(", ");
                self.add(stage.referenced, format!("unknown stage {:?}: use one of {known}", stage.value));
                None
            }
        });
        let fault: MachineFault = self.read(&raw.fault)?;
        if fault != MachineFault::Die && (raw.stage.is_some() || raw.call.is_some()) {
            self.add(
                raw.fault.referenced,
                format!("{fault} holds from the start: stage and call go with die"),
            );
        }
        Some(MachineRule { machine: raw.machine.as_str().into(), stage, call: raw.call, fault })
    }
}

impl FaultScript {
    /// Reads a script; all problems at once, as far as the text is readable at all.
    ///
    /// # Errors
    /// What is wrong, and on which lines.
    pub fn parse(text: &str) -> Result<Self, Vec<ScriptProblem>> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let raw: RawScript = serde_saphyr::from_str(text).map_err(|error| vec![ScriptProblem::of(error)])?;
        Self::check(raw)
    }

    pub(crate) fn check(raw: RawScript) -> Result<Self, Vec<ScriptProblem>> {
        let mut problems = Problems::default();
        let calls = raw.calls.into_iter().filter_map(|raw| problems.call(raw)).collect();
        let random = raw.random.map(|raw| problems.random(raw));
        let machines = raw.machines.into_iter().filter_map(|raw| problems.machine(raw)).collect();
        if problems.0.is_empty() {
            Ok(Self { seed: raw.seed, calls, random, machines })
        } else {
            Err(problems.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars() {
        let fits = |pattern: &str, text: &str| Pattern::from(pattern).fits(text);
        assert!(fits("*", "") && fits("*", "anything") && fits("a", "a"));
        assert!(fits("POST */clone", "POST /nodes/pve1/qemu/9000/clone"));
        assert!(!fits("POST */clone", "POST /nodes/pve1/qemu/9000/clone/more"));
        assert!(fits("a*b*c", "a-b-b-c") && !fits("a*b*c", "a-c-b"));
        assert!(!fits("aa*aa", "aaa"), "the parts don't overlap");
        assert!(!fits("a", "ab") && !fits("", "a") && fits("", ""));
    }

    #[test]
    fn a_whole_script_is_read() {
        let text = "
seed: 7
calls:
  - {system: proxmox, operation: 'POST */clone', object: 'mgmt-cp-*', nth: 2, times: 3, fault: status 503}
  - {call: 17, fault: lose-answer, times: always}
random: {rate: 0.02, limit: 10, faults: [throttle, reset]}
machines:
  - {machine: mgmt-cp-0, stage: booting, fault: die}
  - {machine: 10.40.0.12, fault: clock-skew 3600}
";
        let script = FaultScript::parse(text).unwrap();
        assert_eq!((script.seed, script.calls.len(), script.machines.len()), (7, 2, 2));
        assert_eq!(
            (script.calls[0].nth, script.calls[0].times, script.calls[0].fault),
            (2, Some(3), Fault::Status(503))
        );
        assert_eq!((script.calls[1].calls.call, script.calls[1].times), (Some(17), None));
        assert_eq!(script.random.unwrap().faults, [Fault::Throttle, Fault::Reset]);
        assert_eq!(script.machines[0].stage, Some(Stage::Booting));
        assert_eq!(script.machines[1].fault, MachineFault::ClockSkew(3600));
        assert_eq!(FaultScript::parse("# nothing\n\n"), Ok(FaultScript::default()));
    }

    #[test]
    fn all_problems_come_with_their_lines() {
        let text = "calls:\n  - fault: explode\n  - system: vsphere\n    nth: 0\n    fault: reset\nrandom:\n  rate: 2\n  faults: []\nmachines:\n  - machine: a\n    stage: flying\n    fault: never-boots\n";
        let problems = FaultScript::parse(text).unwrap_err();
        let lines: Vec<u64> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 3, 4, 7, 8, 11, 12], "{problems:?}");
        assert!(problems[0].to_string().starts_with("line 2, column 12: unknown fault \"explode\""));
        let unknown = FaultScript::parse("calls:\n  - falt: reset\n").unwrap_err();
        assert_eq!((unknown.len(), unknown[0].line), (1, 2));
        assert!(unknown[0].message.contains("falt"), "{}", unknown[0].message);
    }
}
