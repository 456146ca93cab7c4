//! The one run that all points branch from. Every call is stopped on both sides, and there everything that would outlive a
//! death is copied: the data centre, and the folder on disk.

use crate::lives::Image;
use butler_sim::{Checkpoint, DataCentre, LoggedCall, Moment, Progress, Snapshot};
use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::pin;

/// How far ahead calls are waited for: more than can ever come in at once.
const AHEAD: u64 = 64;

/// All that outlives a death at one moment.
#[derive(Clone)]
pub(crate) struct Cut {
    pub(crate) data_centre: Snapshot,
    pub(crate) folder: Image,
}

/// A call of the run, and what was there on both sides of it.
pub(crate) struct Point {
    pub(crate) call: LoggedCall,
    /// How many calls of the same kind came before it.
    pub(crate) before_it: u64,
    pub(crate) before: Cut,
    /// None when its caller hung up before it was carried out.
    pub(crate) after: Option<Cut>,
}

/// Follows a run until `finished`, call by call. What is `asked` is on disk in every copy: a controller that looks around by
/// itself at that moment is held at its call until then.
pub(crate) async fn record(
    data_centre: &DataCentre,
    folder: &Path,
    asked: impl Future<Output = ()>,
    finished: impl Future<Output = ()>,
) -> Vec<Point> {
    let mut finished = pin!(finished);
    let mut recording = Recording::new(data_centre, folder);
    asked.await;
    let mut points: Vec<Point> = Vec::new();
    loop {
        let (mut before, mut after) = recording.next();
        let call = tokio::select! {
            reached = before.reached() => reached.unwrap(),
            () = &mut finished => return points,
        };
        let cut = recording.cut().await;
        before.go_on();
        let over = ended(data_centre, call.number);
        let done = tokio::select! {
            biased;
            reached = after.reached() => reached.is_some(),
            () = over => false,
        };
        let after = if done { Some((after, recording.cut().await)) } else { None };
        let after = after.map(|(checkpoint, cut)| {
            checkpoint.go_on();
            cut
        });
        let before_it = points.iter().filter(|point| point.call.call == call.call).count() as u64;
        points.push(Point { call, before_it, before: cut, after });
    }
}

struct Recording<'a> {
    data_centre: &'a DataCentre,
    folder: &'a Path,
    /// Both sides of the calls to come.
    ahead: VecDeque<(Checkpoint, Checkpoint)>,
    next: u64,
    last: Image,
}

impl<'a> Recording<'a> {
    fn new(data_centre: &'a DataCentre, folder: &'a Path) -> Self {
        let next = data_centre.gate().count() + 1;
        let mut new = Self { data_centre, folder, ahead: VecDeque::new(), next, last: Image::default() };
        (0..AHEAD).for_each(|_| new.expect());
        new
    }

    fn expect(&mut self) {
        let gate = self.data_centre.gate();
        self.ahead
            .push_back((gate.hold_at(self.next, Moment::Before), gate.hold_at(self.next, Moment::After)));
        self.next += 1;
    }

    fn next(&mut self) -> (Checkpoint, Checkpoint) {
        self.expect();
        self.ahead.pop_front().unwrap()
    }

    /// The gate stays shut over both copies: nothing on disk may speak of a call that the data centre has not seen.
    async fn cut(&mut self) -> Cut {
        let _frozen = self.data_centre.gate().freeze().await;
        self.last = Image::take(self.folder, &self.last);
        Cut { data_centre: self.data_centre.snapshot().await, folder: self.last.clone() }
    }
}

/// Ends when a call has ended without having been stopped on its way out.
async fn ended(data_centre: &DataCentre, number: u64) {
    let gate = data_centre.gate();
    let mut changes = gate.watch();
    loop {
        let calls = gate.calls();
        let progress = calls.iter().find(|call| call.number == number).map(|call| call.progress);
        if !matches!(progress, Some(Progress::Waiting | Progress::UnderWay))
            || changes.changed().await.is_err()
        {
            return;
        }
    }
}
