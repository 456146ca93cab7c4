//! What the gate knows, and what it decides from that. Pure; the gate locks it.

use super::checkpoint::{Hold, Moment};
use super::{Call, Fault, FaultScript, LoggedCall, MachineFault, Pattern, Progress};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};

/// What a gate needs to go on where another one was: plain data.
#[derive(Debug, Clone, Default)]
pub struct GateState {
    /// The number of the last call.
    pub count: u64,
    pub log: Vec<LoggedCall>,
    seen: HashMap<u64, u64>,
    /// Machines that have died as a rule says, by rule and address: they don't die again.
    died: BTreeSet<(usize, String)>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) count: u64,
    pub(super) log: Vec<LoggedCall>,
    /// How often a call was made, by what it is.
    seen: HashMap<u64, u64>,
    /// How many calls have fitted each rule.
    fitted: Vec<u64>,
    random_fired: u64,
    pub(super) at: BTreeMap<u64, Fault>,
    pub(super) holds: Vec<Hold>,
    pub(super) under_way: u32,
    pub(super) frozen: u32,
    pub(super) closed: bool,
    pub(super) died: BTreeSet<(usize, String)>,
}

/// A call that was given its number.
pub(super) struct Begun {
    pub(super) number: u64,
    pub(super) fault: Option<Fault>,
    pub(super) hold: Option<Hold>,
    /// Machines that die just before it.
    pub(super) kills: Vec<Pattern>,
}

impl State {
    pub(super) fn resume(script: &FaultScript, from: GateState) -> Self {
        let GateState { count, log, seen, died } = from;
        let fitted = vec![0; script.calls.len()];
        Self { count, log, seen, died, fitted, ..Self::default() }
    }

    /// Another script begins to count anew.
    pub(super) fn follow_script(&mut self, script: &FaultScript) {
        self.fitted = vec![0; script.calls.len()];
        self.died.clear();
    }

    pub(super) fn export(&self) -> GateState {
        GateState {
            count: self.count,
            log: self.log.clone(),
            seen: self.seen.clone(),
            died: self.died.clone(),
        }
    }

    /// Numbers a call and decides what becomes of it.
    pub(super) fn begin(&mut self, script: &FaultScript, call: Call) -> Begun {
        self.count += 1;
        let number = self.count;
        let fault = if self.closed { None } else { self.fault(script, number, &call) };
        self.log.push(LoggedCall { number, call, fault, progress: Progress::Waiting });
        let dies = |rule: &&super::MachineRule| rule.fault == MachineFault::Die && rule.call == Some(number);
        let kills = script.machines.iter().filter(dies).map(|rule| rule.machine.clone()).collect();
        Begun { number, fault, hold: self.take_hold(number, Moment::Before), kills }
    }

    fn fault(&mut self, script: &FaultScript, number: u64, call: &Call) -> Option<Fault> {
        let key = key(call);
        let before = self.seen.entry(key).or_default();
        *before += 1;
        let times_before = *before;
        let applies = |fault: Fault| fault != Fault::StaleRead || !call.mutates;
        let mut found = self.at.remove(&number);
        for (rule, fitted) in script.calls.iter().zip(&mut self.fitted) {
            if !rule.calls.fits(number, call) || !applies(rule.fault) {
                continue;
            }
            *fitted += 1;
            let meets = *fitted >= rule.nth && rule.times.is_none_or(|times| *fitted - rule.nth < times);
            if meets && found.is_none() {
                found = Some(rule.fault);
            }
        }
        if found.is_some() {
            return found;
        }
        let random = script.random.as_ref()?;
        let spent = random.limit.is_some_and(|limit| self.random_fired >= limit);
        if spent || !random.calls.fits(number, call) {
            return None;
        }
        let mut dice =
            Random::new(script.seed ^ key.rotate_left(17) ^ times_before.wrapping_mul(0x9e37_79b9));
        if dice.fraction() >= random.rate {
            return None;
        }
        let choices: Vec<Fault> = random.faults.iter().copied().filter(|fault| applies(*fault)).collect();
        let count = u64::try_from(choices.len()).unwrap_or(1).max(1);
        let fault = choices.get(usize::try_from(dice.next() % count).unwrap_or_default()).copied()?;
        self.random_fired += 1;
        Some(fault)
    }

    pub(super) fn take_hold(&mut self, number: u64, moment: Moment) -> Option<Hold> {
        let call = self.logged(number).call;
        // Those whose test has let go of them would hide those of others.
        self.holds.retain(|hold| !hold.is_abandoned());
        let at =
            self.holds.iter().position(|hold| hold.moment == moment && hold.calls.fits(number, &call))?;
        Some(self.holds.remove(at))
    }

    /// The place of a call in the log: numbers are given without gaps, and the log may start anywhere.
    fn place(&self, number: u64) -> Option<usize> {
        let first = self.log.first()?.number;
        usize::try_from(number.checked_sub(first)?).ok().filter(|at| *at < self.log.len())
    }

    pub(super) fn logged(&self, number: u64) -> LoggedCall {
        match self.place(number) {
            Some(at) => self.log[at].clone(),
            None => LoggedCall {
                number,
                call: Call { system: "", operation: String::new(), object: String::new(), mutates: false },
                fault: None,
                progress: Progress::Dropped,
            },
        }
    }

    pub(super) fn note(&mut self, number: u64, progress: Progress, fault: Option<Fault>) {
        if let Some(at) = self.place(number) {
            let logged = &mut self.log[at];
            logged.progress = progress;
            logged.fault = fault.or(logged.fault);
        }
    }
}

/// What a call is, as a number that is the same in every run.
fn key(call: &Call) -> u64 {
    let mut hasher = std::hash::BuildHasherDefault::<Fnv>::default().build_hasher();
    for part in [call.system, &call.operation, &call.object] {
        hasher.write(part.as_bytes());
        hasher.write_u8(0);
    }
    hasher.finish()
}

/// FNV-1a: the standard library's hasher may change with its version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
