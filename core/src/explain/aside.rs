//! A task with which something cannot be done.

use super::words::moment;
use super::{Explanation, Facts, Gate};
use crate::model::Status;
use crate::task::SetAside;

/// The name of the gate.
const NAME: &str = "aside";

/// Whether it still matters that the task was set aside: it may have run since, and one that has ended tells why by itself if it has
/// room for that.
pub(super) fn counts(facts: &Facts, aside: &SetAside) -> bool {
    let changed = facts.task.mtime.as_ref().and_then(crate::model::Moment::get);
    let is_newer = changed.is_none_or(|changed| changed <= aside.at);
    (is_newer && !facts.task.status.has_ended()) || !facts.task.rest.contains_key("history")
}

pub(super) fn gate(status: Status, aside: &SetAside) -> Gate {
    let (at, reason) = (moment(aside.at), &aside.reason);
    if status.has_ended() {
        return Gate::new(
            NAME,
            true,
            format!("It was ended at {at}, as nothing else could be done with it: {reason}."),
        );
    }
    let text = format!(
        "It is set aside since {at}, as the database refuses what is to be done with it: {reason}. It is tried again from time to time, \
         and holds up no other task; it can be cancelled."
    );
    Gate::new(NAME, false, text)
}

/// Of a task that cannot be read: with what is known of its status, and why it cannot.
pub fn unreadable(status: Status, why: &str, aside: Option<&SetAside>) -> Explanation {
    let text = format!("The task cannot be read: {why}.");
    let mut gates = vec![Gate::new("document", false, text.clone())];
    gates.extend(aside.map(|aside| gate(status, aside)));
    Explanation { status, summary: text, gates, unable: Vec::new() }
}
