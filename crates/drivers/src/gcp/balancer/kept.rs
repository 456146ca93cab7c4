//! What was seen a moment ago. A load balancer has a dozen parts that are made side by side, so that looking at all of them after
//! each change would cost far more calls than the changes; and lists lag behind. So lists are read once in a while, and a part
//! that was changed in between is asked for by its name, which is never behind.

use super::plan::Observed;
use crate::gcp::part::{Kind, Part, Thing};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// So long lists count as the present, but for what was changed.
const MOMENT: Duration = Duration::from_secs(15);
/// So long lists may lag behind a change.
const LAG: Duration = Duration::from_secs(5);

/// What is kept between two calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    seen: Option<(Instant, Observed)>,
    /// Parts that were changed here, and when that was over.
    changed: BTreeMap<Part, Instant>,
    /// Those of them that were not looked at since.
    unread: BTreeSet<Part>,
}

impl Kept {
    /// A change is over, or was refused since it was made before.
    pub(super) fn change(&mut self, part: Part) {
        self.changed.retain(|_, at| at.elapsed() < LAG);
        self.changed.insert(part.clone(), Instant::now());
        self.unread.insert(part);
    }

    /// What was seen, as long as that is not long ago, and the parts that have to be asked for first.
    pub(super) fn take(&mut self) -> Option<(Instant, Observed, BTreeSet<Part>)> {
        let (since, seen) = self.seen.take().filter(|(since, _)| since.elapsed() < MOMENT)?;
        Some((since, seen, std::mem::take(&mut self.unread)))
    }

    /// Keeps what was seen first at that moment.
    pub(super) fn put(&mut self, since: Instant, seen: Observed) {
        self.seen = Some((since, seen));
    }

    /// Parts of a kind that a list may show as they were.
    pub(super) fn lagging(&self, kind: Kind) -> Vec<Part> {
        let recent = self.changed.iter().filter(|(part, at)| part.kind == kind && at.elapsed() < LAG);
        recent.map(|(part, _)| part.clone()).collect()
    }
}

/// Puts what was read by name in the place of what a list said.
pub(super) fn refresh(seen: &mut Observed, part: &Part, thing: Option<Thing>) {
    if let Some(list) = seen.lists.get_mut(&part.kind) {
        list.retain(|other| other.part != *part);
        list.extend(thing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gcp::part::Scope;
    use serde_json::json;

    fn part(name: &str) -> Part {
        Part::new(Kind::Firewall, Scope::Global, name)
    }

    #[test]
    fn what_was_changed_is_asked_for_by_name() {
        let mut kept = Kept::default();
        assert!(kept.take().is_none());
        kept.put(Instant::now(), Observed::default());
        kept.change(part("a"));
        let (_, _, unread) = kept.take().unwrap();
        assert_eq!(unread, BTreeSet::from([part("a")]));
        assert_eq!(kept.lagging(Kind::Firewall), [part("a")], "lists lag behind it for a while");
        assert!(kept.lagging(Kind::Address).is_empty());
        assert!(kept.take().is_none(), "what is not put back is looked at anew");
    }

    #[test]
    fn a_name_is_believed_more_than_a_list() {
        let thing = |name: &str| {
            let link = format!("https://x/projects/p/global/firewalls/{name}");
            Thing::read(Kind::Firewall, &json!({"name": name, "selfLink": link})).unwrap()
        };
        let mut seen = Observed::default();
        refresh(&mut seen, &part("a"), Some(thing("a")));
        assert!(seen.lists.is_empty(), "a list that was not read is still to be read");
        seen.lists.insert(Kind::Firewall, vec![thing("b")]);
        refresh(&mut seen, &part("a"), Some(thing("a")));
        refresh(&mut seen, &part("b"), None);
        assert_eq!(seen.lists[&Kind::Firewall], [thing("a")]);
    }
}
