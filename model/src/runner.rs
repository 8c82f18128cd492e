//! The steps of a runner, its guard and its plugin.

use crate::den::write;
use crate::model::Action;
use crate::protocol::{Guard, Protocol};
use crate::state::{Claim, Lease, Phase, Plugin, Runner, State, Status, Task};

/// Makes the step if it is one of a runner and possible now. None: it is not one of a runner.
pub fn step(protocol: &Protocol, state: &mut State, action: &Action) -> Option<bool> {
    Some(match *action {
        Action::Start(runner) => start(protocol, state, runner),
        Action::Begin(runner) => begin(state, runner),
        Action::PluginEnds(runner) => end_plugin(state, runner),
        Action::GuardEnds(runner) => {
            guards(protocol, &state.runners[usize::from(runner)]) && end_plugin(state, runner)
        }
        Action::Renew(runner) => renew(protocol, state, runner),
        Action::Finish(runner) => finish(protocol, state, runner),
        Action::CrashRunner(runner) => crash(protocol, state, runner),
        _ => return None,
    })
}

/// The task, if a write of this runner finds it in this status. One of Perl filters by node and status only.
fn write_for<'a>(
    protocol: &Protocol,
    state: &'a mut State,
    runner: &Runner,
    status: Status,
) -> Option<&'a mut Task> {
    let Runner { claim, ours, .. } = runner;
    if *ours {
        return write(protocol, state, claim, status);
    }
    let task = state.task(claim);
    let same = Claim { attempt: task.attempt, instance: task.instance, ..claim.clone() };
    write(protocol, state, &same, status)
}

/// From -1 to 0. A runner that does not find its claim leaves.
fn start(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let mut runner = state.runners.remove(usize::from(number));
    let Some(task) = write_for(protocol, state, &runner, Status::Claimed) else { return true };
    task.status = Status::Running;
    task.confirmed = runner.confirmed;
    if runner.ours {
        task.lease = Lease::Valid;
        task.starts += 1;
    }
    runner.phase = Phase::Started;
    state.runners.push(runner);
    true
}

fn begin(state: &mut State, number: u8) -> bool {
    state.runners[usize::from(number)].plugin = Plugin::Runs;
    true
}

fn end_plugin(state: &mut State, number: u8) -> bool {
    let runner = &mut state.runners[usize::from(number)];
    runner.plugin = Plugin::Gone;
    if runner.phase == Phase::Dead {
        state.runners.remove(usize::from(number));
    }
    true
}

/// A runner that finds its task taken away ends its plugin and leaves.
fn renew(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let runner = state.runners[usize::from(number)].clone();
    if !runner.ours {
        return false;
    }
    match write(protocol, state, &runner.claim, Status::Running) {
        Some(task) => task.lease = Lease::Valid,
        None => {
            state.runners.remove(usize::from(number));
        }
    }
    true
}

/// The runner leaves, whether its result was wanted or not.
fn finish(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let runner = state.runners.remove(usize::from(number));
    if let Some(task) = write_for(protocol, state, &runner, Status::Running) {
        task.leave(Status::Finished);
    }
    true
}

/// Only runners of ours are killed: a Perl runner that dies is what Perl Disbatch has no answer to either.
fn crash(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let runner = &mut state.runners[usize::from(number)];
    let possible = protocol.setting.crashes && runner.ours;
    runner.phase = Phase::Dead;
    if runner.plugin != Plugin::Runs {
        state.runners.remove(usize::from(number));
    }
    possible
}

/// Whether there is a guard that must act before the lease of this runner's task may end: it ends the plugin, or
/// decides that it will not begin.
pub fn guards(protocol: &Protocol, runner: &Runner) -> bool {
    let watches = match protocol.rules.guard {
        Guard::Absent => false,
        Guard::FromPlugin => runner.plugin == Plugin::Runs,
        Guard::FromStart => runner.plugin != Plugin::Gone,
    };
    watches && runner.ours
}
