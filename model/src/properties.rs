//! What must hold, in every state.

use crate::protocol::Protocol;
use crate::state::{Plugin, Runner, State, Status};
use stateright::Property;

/// No more tasks in status -1 and 0 than `threads`, if the operator never lowers it and no Perl DEN claims.
pub const SLOTS: &str = "never more claims than threads";
/// If the last claim among the running tasks is one of ours: no more running than its confirmation allowed.
pub const LIMIT: &str = "a claim starts within the limit that its confirmation found";
/// No more plugins than `threads`, if the operator never lowers it and no Perl DEN claims.
pub const PLUGINS: &str = "never more plugins than threads";
/// No more running tasks than `threads`, whoever claims them, if the operator never lowers it.
pub const EVERYBODY: &str = "never more running than threads, Perl's included";
/// Nobody takes a task from a runner whose plugin is still at work.
pub const OWNED: &str = "a plugin works only while its task is its own";
/// No two plugins for one task.
pub const ALONE: &str = "one plugin per task";
/// A runner, or a DEN that gives back, is not taken for the one of a later claim.
pub const START_FENCED: &str = "a stale start or give-back changes nothing";
/// A runner whose task was taken away neither renews nor ends what came after it.
pub const END_FENCED: &str = "a late runner changes nothing";
/// A task is started no more often than allowed.
pub const ATTEMPTS: &str = "no more starts than max_attempts";
/// A sweep takes no task from a runner that was only cut off from the database.
pub const NOT_ROBBED: &str = "an outage takes no task from a runner that is well";
/// Some path ends with all tasks ended.
pub const DONE: &str = "all tasks end";
/// Some path has all tasks ended by their runners.
pub const FINISHED: &str = "all tasks finish";

/// What holds where Perl overshoots too: all but [`EVERYBODY`].
pub const ALL: [&str; 9] =
    [SLOTS, LIMIT, PLUGINS, OWNED, ALONE, START_FENCED, END_FENCED, ATTEMPTS, NOT_ROBBED];

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(SLOTS, |protocol, state: &State| {
            !(is_ours_alone(protocol) && protocol.setting.never_lowers())
                || state.counted() <= usize::from(state.limit)
        }),
        Property::always(LIMIT, |_, state: &State| within_confirmed(state)),
        Property::always(PLUGINS, |protocol, state: &State| {
            !(is_ours_alone(protocol) && protocol.setting.never_lowers())
                || plugins(state).count() <= usize::from(state.limit)
        }),
        Property::always(EVERYBODY, |protocol, state: &State| {
            !protocol.setting.never_lowers() || state.running() <= usize::from(state.limit)
        }),
        Property::always(OWNED, |_, state: &State| plugins(state).all(|runner| is_owned(state, runner))),
        Property::always(ALONE, |_, state: &State| {
            plugins(state).all(|one| plugins(state).filter(|r| r.claim.task == one.claim.task).count() == 1)
        }),
        Property::always(START_FENCED, |_, state: &State| !state.stale_start),
        Property::always(END_FENCED, |_, state: &State| !state.stale_write),
        Property::always(ATTEMPTS, |protocol, state: &State| {
            state.tasks.iter().all(|task| task.starts <= protocol.setting.max_starts())
        }),
        Property::always(NOT_ROBBED, |protocol, state: &State| protocol.setting.partitions || !state.robbed),
        Property::sometimes(DONE, |_, state: &State| state.all_ended()),
        Property::sometimes(FINISHED, |_, state: &State| {
            state.tasks.iter().all(|task| task.status == Status::Finished)
        }),
    ]
}

fn is_ours_alone(protocol: &Protocol) -> bool {
    protocol.setting.perl_dens.is_empty()
}

fn plugins(state: &State) -> impl Iterator<Item = &Runner> {
    state.runners.iter().filter(|runner| runner.plugin == Plugin::Runs)
}

fn is_owned(state: &State, runner: &Runner) -> bool {
    state.is_current(&runner.claim) && state.task(&runner.claim).status == Status::Running
}

fn within_confirmed(state: &State) -> bool {
    let is_running = |number: &&u8| state.tasks[usize::from(**number)].status == Status::Running;
    let last = state.order.iter().rev().find(is_running);
    let confirmed = last.and_then(|&number| state.tasks[usize::from(number)].confirmed);
    confirmed.is_none_or(|limit| state.running() <= usize::from(limit))
}
