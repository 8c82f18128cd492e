//! What must hold, in every state.

use super::Linked;
use super::state::{Run, State, Status};
use stateright::Property;

/// A plugin works only while the database says that its runner has the task.
pub const OWNED: &str = "a plugin works only while its runner has the task";
/// No two plugins for one claim.
pub const ONCE: &str = "one plugin for each claim";
/// No more plugins than `threads`.
pub const PLUGINS: &str = "never more plugins than threads";
/// A write changes nothing but what it is about.
pub const APART: &str = "a write for one assignment changes no other";
/// What a runner has said, or takes for stored, is stored.
pub const STORED: &str = "a result that was said is stored";
/// Nobody loses a task through no fault of a process that had it: its runner, or its DEN until that has told the runner of it.
pub const GROUNDS: &str = "a task is orphaned only if a process that had it was killed or stood still";
pub const CONFIRMED: &str = "only a confirmed claim is started";
/// No plugin is begun twice for a task that nobody has lost.
pub const AGAIN: &str = "what was begun is not given back";
/// Some path ends with all tasks stored by their runners.
pub const FINISHED: &str = "all tasks finish";

/// Those that hold in every state.
pub const ALL: [&str; 8] = [OWNED, ONCE, PLUGINS, APART, STORED, GROUNDS, CONFIRMED, AGAIN];

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Linked>> {
    vec![
        Property::always(OWNED, |_, state: &State| plugins(state).all(|run| has(state, run))),
        Property::always(ONCE, |_, state: &State| !state.seen.twice),
        Property::always(PLUGINS, |linked: &Linked, state: &State| plugins(state).count() <= linked.limit),
        Property::always(APART, |_, state: &State| !state.seen.mixed),
        Property::always(STORED, |_, state: &State| !state.seen.lost),
        Property::always(GROUNDS, |_, state: &State| !state.seen.groundless),
        Property::always(CONFIRMED, |_, state: &State| !state.seen.unconfirmed),
        Property::always(AGAIN, |_, state: &State| !state.seen.again),
        Property::sometimes(FINISHED, |_, state: &State| {
            state.tasks.iter().all(|task| task.status == Status::Finished)
        }),
    ]
}

fn plugins(state: &State) -> impl Iterator<Item = &Run> {
    state.runners.iter().filter_map(|runner| runner.plugin.as_ref())
}

fn has(state: &State, run: &Run) -> bool {
    let task = &state.tasks[run.claim.task];
    task.status == Status::Running && task.holder == Some(run.at)
}
