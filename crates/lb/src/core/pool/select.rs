//! Which of the usable backends gets a connection.

use super::super::{Random, Time};
use super::Member;
use super::health::Rules;
use super::maglev::Table;
use crate::config::Balance;
use std::net::IpAddr;

/// What a choice remembers from one connection to the next.
#[derive(Debug)]
pub(super) struct Chooser {
    table: Table,
    /// Where the next search begins, so that equals take turns.
    turn: usize,
}

impl Chooser {
    pub(super) fn new(balance: Balance, members: &[Member]) -> Chooser {
        let table = match balance {
            Balance::SourceHash => {
                let known = members.iter().enumerate().filter(|(_, member)| !member.removed);
                Table::new(known.map(|(place, member)| (place, &*member.name, member.weight)))
            }
            _ => Table::default(),
        };
        Chooser { table, turn: 0 }
    }

    /// One of `usable`, which are places in `members`.
    pub(super) fn choose(
        &mut self,
        balance: Balance,
        members: &mut [Member],
        usable: &[usize],
        context: Context<'_>,
    ) -> Option<usize> {
        match balance {
            Balance::RoundRobin => in_turn(members, usable, &context),
            Balance::LeastConnections => {
                self.turn = self.turn.wrapping_add(1);
                let start = self.turn % usable.len().max(1);
                let rotated = usable[start..].iter().chain(&usable[..start]);
                lightest(members, rotated, &context)
            }
            Balance::PowerOfTwo => {
                let count = usable.len() as u64;
                let first = context.random.below(count);
                // Drawn from the others, so that the two always differ.
                let second = (first + 1 + context.random.below(count.saturating_sub(1))) % count.max(1);
                let drawn = [usable.get(first as usize), usable.get(second as usize)];
                lightest(members, drawn.into_iter().flatten(), &context)
            }
            Balance::SourceHash => self.table.pick(context.client, usable),
        }
    }
}

/// What a choice depends on beside the backends.
pub(super) struct Context<'a> {
    pub(super) rules: &'a Rules,
    pub(super) random: &'a mut Random,
    pub(super) client: IpAddr,
    pub(super) now: Time,
}

/// Smooth weighted round robin: everyone earns its weight, the richest is chosen and pays what all have earned. A heavy
/// one is so spread over the round instead of getting its turns in a row.
fn in_turn(members: &mut [Member], usable: &[usize], context: &Context<'_>) -> Option<usize> {
    let mut total = 0;
    for index in usable {
        let earned = members[*index].load_weight(context.rules, context.now) as i64;
        members[*index].credit += earned;
        total += earned;
    }
    let chosen = usable.iter().copied().rev().max_by_key(|index| members[*index].credit)?;
    members[chosen].credit -= total;
    Some(chosen)
}

/// The one with the fewest connections for its weight, the first of equals.
fn lightest<'a>(
    members: &[Member],
    among: impl Iterator<Item = &'a usize>,
    context: &Context<'_>,
) -> Option<usize> {
    let mut best: Option<(usize, u64, u64)> = None;
    for index in among {
        let member = &members[*index];
        // The connection itself is counted, so that of empty backends the heavier is chosen.
        let load = u64::from(member.connections) + 1;
        let weight = member.load_weight(context.rules, context.now);
        // load / weight < best load / best weight, without division.
        if best.is_none_or(|(_, best_load, best_weight)| load * best_weight < best_load * weight) {
            best = Some((*index, load, weight));
        }
    }
    best.map(|(index, _, _)| index)
}
