//! What a driver has to bring along to be put through the suite: a world that can be looked at and made to fail.

use crate::ground::{Ground, owner};
use butler_api::ProviderConfigSpec;
use butler_drivers::{
    ImageWanted, Infrastructure, LoadBalancerWanted, MachineWanted, PlannedChange, Progress, dry_run,
};
use serde_json::{Value, json};

/// How a world is to begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Names of machines that are somebody else's.
    pub(crate) foreign: Vec<String>,
    /// Somebody else has something of the name that the load balancer needs.
    pub(crate) foreign_balancer: bool,
    /// What takes time takes some, where the world has a clock for it.
    pub(crate) slow: bool,
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
    /// What the infrastructure answers when it can't be reached for a while.
    const UNAVAILABLE: u16 = 503;

    /// A new world.
    async fn start(setup: Setup) -> Self;

    /// A new driver for it, as a new process would make one.
    fn infrastructure(&self) -> Infrastructure;

    /// What the driver is told of it.
    fn config() -> ProviderConfigSpec;

    /// What it stands on.
    fn ground(&self) -> &Ground;

    /// The dry run's list for a machine.
    async fn dry_run(&self, wanted: &MachineWanted) -> Vec<PlannedChange> {
        let recording = dry_run::Recording::new(&Self::config()).unwrap();
        recording.infrastructure().machines.ensure(wanted, None).await.unwrap();
        recording.changes()
    }

    /// A machine that can be made there, with a fixed address and one further disk. `number` tells machines apart.
    fn wanted(&self, name: &str, number: u8) -> MachineWanted;

    /// An image that can be brought.
    fn image(&self) -> Option<ImageWanted> {
        None
    }

    /// Calls so far; the next one has the next number.
    fn calls(&self) -> u64 {
        self.ground().gate.count()
    }

    /// Changes that were asked for so far, carried out or not.
    fn changes(&self) -> u64 {
        self.ground().gate.calls().iter().filter(|logged| logged.call.mutates).count() as u64
    }

    /// Whether the call with this number, which was made already, could change something.
    fn is_change(&self, call: u64) -> bool {
        self.ground().gate.calls().iter().any(|logged| logged.number == call && logged.call.mutates)
    }

    /// Lets the call with this number go wrong.
    fn fail(&self, call: u64, fault: Fault) {
        let fault = match fault {
            Fault::Unavailable => butler_sim::Fault::Status(Self::UNAVAILABLE),
            Fault::Throttle => butler_sim::Fault::Throttle,
            Fault::Denied => butler_sim::Fault::Status(403),
            Fault::Cut => butler_sim::Fault::Reset,
            Fault::Lose => butler_sim::Fault::LoseAnswer,
            Fault::Stale => butler_sim::Fault::StaleRead,
        };
        self.ground().gate.on_call(call, fault);
    }

    /// What the flight recorder was told of changes that worked.
    fn recorded(&self) -> Vec<PlannedChange> {
        self.ground().journal.0.lock().unwrap().iter().filter_map(PlannedChange::from_call).collect()
    }

    /// Everything that was ever recorded, as text: looked through for secrets.
    fn journal(&self) -> String {
        format!("{:?}", self.ground().journal.0.lock().unwrap())
    }

    /// A secret that is sent with every call.
    fn secret(&self) -> &'static str;

    /// Names of all machines, of others too, templates not.
    fn machines(&self) -> Vec<String>;

    /// How many disks and files there are.
    fn volumes(&self) -> usize;

    /// Whether something that was begun is still under way.
    fn busy(&self) -> bool {
        false
    }

    /// Ends the world.
    async fn stop(self);
}

/// A world whose infrastructure has load balancers.
pub(crate) trait Balancing: Harness {
    /// Whether parts that need nothing of each other are made at once, so that their order is nobody's.
    const SIDE_BY_SIDE: bool = false;

    /// A load balancer that can be made there, without targets and with a port beside the first one.
    fn balancer(&self) -> LoadBalancerWanted {
        let mut spec = json!({"clusterName": "butler", "providerConfigRef": {"name": "x"}, "listeners": [{"port": 50000}]});
        spec.as_object_mut().unwrap().extend(Self::settings().as_object().unwrap().clone());
        LoadBalancerWanted {
            owner: owner("99999999-aaaa-4bbb-8ccc-ddddeeeeffff"),
            name: "butler-lb".to_owned(),
            spec: serde_json::from_value(spec).unwrap(),
        }
    }

    /// What its spec has besides.
    fn settings() -> Value {
        json!({})
    }

    /// Everything that a load balancer is made of, of others too, as text.
    fn parts(&self) -> Vec<String>;

    /// Somebody takes a port away by hand.
    fn remove_listener(&self);

    /// Somebody puts a target of their own behind it by hand, and may have to make it first. Gives what it is called in
    /// `foreign_targets`.
    fn add_stranger(&self) -> String;

    /// The dry run's list for machines and then a load balancer.
    async fn dry_run_of(
        &self,
        machines: &[MachineWanted],
        balancer: &LoadBalancerWanted,
    ) -> Vec<PlannedChange> {
        let recording = dry_run::Recording::new(&Self::config()).unwrap();
        let hands = recording.infrastructure();
        for machine in machines {
            hands.machines.ensure(machine, None).await.unwrap();
        }
        let ready = hands.load_balancers.unwrap().ensure(balancer, None).await.unwrap();
        assert!(matches!(ready, Progress::Ready(_)));
        recording.changes()
    }
}
