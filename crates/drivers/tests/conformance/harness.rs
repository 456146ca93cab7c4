//! What a driver has to bring along to be put through the suite: a world that can be looked at and made to fail.

use butler_drivers::{ImageWanted, Infrastructure, MachineWanted, PlannedChange};

/// How a world is to begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Names of machines that are somebody else's.
    pub(crate) foreign: Vec<String>,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused for a while: 503 and the like.
    Unavailable,
    /// Too many calls.
    Throttle,
    /// The rights are missing for a while.
    Denied,
    /// The connection is cut before the call is carried out.
    Cut,
    /// Carried out, and the answer is lost.
    Lose,
    /// A read is answered from before the last change.
    Stale,
}

impl Fault {
    pub(crate) const ALL: [Fault; 6] =
        [Fault::Unavailable, Fault::Throttle, Fault::Denied, Fault::Cut, Fault::Lose, Fault::Stale];
}

/// A world with one infrastructure in it.
pub(crate) trait Harness: Sized + Send {
    /// A new world.
    async fn start(setup: Setup) -> Self;

    /// A new driver for it, as a new process would make one.
    fn infrastructure(&self) -> Infrastructure;

    /// The dry run's list for a machine.
    async fn dry_run(&self, wanted: &MachineWanted) -> Vec<PlannedChange>;

    /// A machine that can be made there, with a fixed address and one further disk. `number` tells machines apart.
    fn wanted(&self, name: &str, number: u8) -> MachineWanted;

    /// An image that can be brought.
    fn image(&self) -> Option<ImageWanted>;

    /// Calls so far; the next one has the next number.
    fn calls(&self) -> u64;

    /// Changes that were asked for so far, carried out or not.
    fn changes(&self) -> u64;

    /// Lets the call with this number go wrong.
    fn fail(&self, call: u64, fault: Fault);

    /// What the flight recorder was told of changes that worked.
    fn recorded(&self) -> Vec<PlannedChange>;

    /// Everything that was ever recorded, as text: looked through for secrets.
    fn journal(&self) -> String;

    /// A secret that is sent with every call.
    fn secret(&self) -> &'static str;

    /// Names of all machines, of others too, templates not.
    fn machines(&self) -> Vec<String>;

    /// How many disks and files there are.
    fn volumes(&self) -> usize;

    /// Ends the world.
    async fn stop(self);
}
