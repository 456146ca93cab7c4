//! How obstacles and milestones are put into words: conditions, failure texts, events. Pure.

use crate::{Class, Failure};
use butler_api::{Condition, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::borrow::Cow;

/// An event that is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) text: String,
}

/// What stands between a message and its remedy where a status has only one field for both.
const REMEDY: &str = "; what to do: ";
/// Longest text that we write into a status.
const LONGEST: usize = 4096;

/// Message and remedy in one text that fits into a status: of a long one the message is cut, since the remedy stands last and
/// says what to do.
pub(crate) fn with_remedy(failure: &Failure) -> String {
    if failure.remedy.is_empty() {
        return bounded(&failure.message);
    }
    let remedy = cut(&failure.remedy, LONGEST / 2);
    let message = cut(&failure.message, LONGEST - REMEDY.len() - remedy.len());
    format!("{message}{REMEDY}{remedy}")
}

/// A text as long as a status may hold.
pub(crate) fn bounded(text: &str) -> String {
    cut(text, LONGEST).into_owned()
}

/// Says that something is missing.
const MORE: &str = " ...";

fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let end = (0..=longest - MORE.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}{MORE}", text.get(..end).unwrap_or_default()))
}

/// Reason and message of a failure that a status is to name: one that mends itself only if nothing goes on (`stopped`).
pub(crate) fn told(failure: Option<&Failure>, stopped: bool) -> (Option<String>, Option<String>) {
    let named = failure.filter(|failure| stopped || failure.class != Class::Retryable);
    named.map(|failure| (failure.reason.clone(), with_remedy(failure))).unzip()
}

/// The two parts of such a text.
pub(crate) fn split_remedy(text: &str) -> (&str, &str) {
    text.split_once(REMEDY).unwrap_or((text, ""))
}

/// A condition; the list keeps its old transition time where the status stays.
pub(crate) fn condition(
    type_: &str,
    holds: bool,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
    generation: Option<i64>,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        observed_generation: generation,
        // Kubernetes keeps times to the second; what is written has to be what is read back.
        last_transition_time: Time(whole_second(now)),
        reason: word(reason),
        message: bounded(&message.into()),
    }
}

/// A reason that the API takes: letters and digits, beginning with a letter.
fn word(reason: &str) -> String {
    let kept: String = reason.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    match kept.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => kept,
        _ => format!("Reason{kept}"),
    }
}

/// Without the fraction.
pub(crate) fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// What changed between two lists of conditions and is worth an event: a milestone reached, or a new failure.
pub(crate) fn notes(
    old: &[Condition],
    new: &[Condition],
    milestones: &[&str],
    troubles: &[&str],
) -> Vec<Note> {
    let before = |type_: &str| butler_api::find_condition(old, type_);
    let mut notes = Vec::new();
    for condition in new {
        let type_ = condition.type_.as_str();
        let changed =
            before(type_).is_none_or(|was| was.status != condition.status || was.reason != condition.reason);
        if !changed || !condition.is_true() {
            continue;
        }
        let warning = troubles.contains(&type_);
        if !warning && !milestones.contains(&type_) {
            continue;
        }
        let reason = if warning { condition.reason.clone() } else { condition.type_.clone() };
        notes.push(Note { warning, reason, text: condition.message.clone() });
    }
    notes
}

/// A warning for a condition that is false, and says something new.
pub(crate) fn warning(old: &[Condition], new: &[Condition], type_: &str) -> Option<Note> {
    let told = butler_api::find_condition(new, type_).filter(|condition| !condition.is_true())?;
    let known = butler_api::find_condition(old, type_).is_some_and(|was| was.message == told.message);
    (!known).then(|| Note { warning: true, reason: told.reason.clone(), text: told.message.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_remedy_survives_the_way_through_one_field() {
        let failure = Failure::new(Class::Quota, "Full", "there is no room", "make some");
        assert_eq!(split_remedy(&with_remedy(&failure)), ("there is no room", "make some"));
        let bare = Failure::new(Class::Quota, "Full", "there is no room", "");
        assert_eq!(split_remedy(&with_remedy(&bare)), ("there is no room", ""));
    }

    #[test]
    fn a_long_message_is_cut_and_its_remedy_stays() {
        let long = Failure::new(Class::Quota, "Full", "nö ".repeat(5000), "make some");
        let text = with_remedy(&long);
        assert!(text.len() <= LONGEST && text.len() > LONGEST - 8, "{}", text.len());
        let (message, remedy) = split_remedy(&text);
        assert!(message.starts_with("nö nö") && message.ends_with(MORE));
        assert_eq!(remedy, "make some");
        assert_eq!(condition("Failed", true, "Full", text.clone(), at(1), None).message, text);
        let endless = Failure::new(Class::Quota, "Full", "ö".repeat(9000), "r".repeat(9000));
        assert!(with_remedy(&endless).len() <= LONGEST);
        assert!(bounded(&"ö".repeat(9000)).len() <= LONGEST && bounded("short") == "short");
    }

    #[test]
    fn reasons_are_made_to_fit() {
        let reason = |text: &str| condition("Ready", true, text, "", at(1), None).reason;
        assert_eq!(reason("VMDeleted"), "VMDeleted");
        assert_eq!(reason("storage full!"), "storagefull");
        assert_eq!(reason("403"), "Reason403");
        assert_eq!(reason(""), "Reason");
    }

    #[test]
    fn events_are_told_once_per_change() {
        let ready = |holds, second| condition("Ready", holds, "Word", "text", at(second), None);
        let failed = |reason: &str| condition("Failed", true, reason, "text", at(1), None);
        let told = |old: &[Condition], new: &[Condition]| {
            notes(old, new, &["Ready"], &["Failed"])
                .into_iter()
                .map(|n| (n.warning, n.reason))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&[], &[ready(true, 1)]), [(false, "Ready".to_owned())]);
        assert_eq!(told(&[ready(true, 1)], &[ready(true, 2)]), []);
        assert_eq!(told(&[ready(true, 1)], &[ready(false, 2)]), []);
        assert_eq!(told(&[], &[failed("A")]), [(true, "A".to_owned())]);
        assert_eq!(told(&[failed("A")], &[failed("B")]), [(true, "B".to_owned())]);
        assert_eq!(told(&[], &[condition("Other", true, "X", "", at(1), None)]), []);
    }
}
