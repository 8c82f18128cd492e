//! The steps of a DEN: its round from reading to launching, and its sweeps.
//!
//! A round takes several steps with anything in between. A sweep is one conditional update and needs no memory,
//! so it does not matter which DEN makes it and where in its round it is.

use crate::model::Action;
use crate::protocol::{OnLostLease, OnOrphan, Protocol, RunnerKind};
use crate::state::{Claim, Database, Den, Lease, Phase, Plugin, Runner, State, Status, Step, Task};

/// Makes the step if it is one of a DEN and possible now. None: it is not one of a DEN.
pub fn step(protocol: &Protocol, state: &mut State, action: &Action) -> Option<bool> {
    Some(match *action {
        Action::ReadQueue(den) => {
            go(state, den, Step::Queue { limit: state.limit });
            true
        }
        Action::ReadRunning(den) => read_running(protocol, state, den),
        Action::Claim(den, task) => claim(protocol, state, den, task),
        Action::EndRound(den) => {
            go(state, den, Step::Idle);
            true
        }
        Action::Reread(den) => reread(protocol, state, den),
        Action::Count(den) => count(state, den),
        Action::GiveBack(den) => give_back(protocol, state, den),
        Action::Launch(den) => launch(protocol, state, den),
        Action::CrashDen(den) => {
            go(state, den, Step::Down);
            protocol.setting.crashes
        }
        Action::RestartDen(den) => {
            state.dens[usize::from(den)].instance = unused_instance(state, den);
            go(state, den, Step::Idle);
            true
        }
        Action::SweepClaimed(task) => sweep_claimed(state, task),
        Action::Kill(runner) => kill(protocol, state, runner),
        Action::OrphanOwn(task) => orphan_own(protocol, state, task),
        Action::OrphanOther(task) => orphan_other(protocol, state, task),
        _ => return None,
    })
}

fn go(state: &mut State, den: u8, step: Step) {
    state.dens[usize::from(den)].step = step;
}

fn unused_instance(state: &State, den: u8) -> u8 {
    let of_tasks = state.tasks.iter().filter_map(|task| task.instance);
    let of_runners = state.runners.iter().filter_map(|runner| runner.claim.instance);
    let own = state.dens[usize::from(den)].instance;
    of_tasks.chain(of_runners).fold(own, u8::max) + 1
}

/// Second reading of a round: how much room there is, and which slots are free.
fn read_running(protocol: &Protocol, state: &mut State, den: u8) -> bool {
    let Step::Queue { limit } = state.dens[usize::from(den)].step else { return false };
    let lapsed = state.tasks.iter().filter(|task| task.status.counts() && task.lease == Lease::Over).count();
    let freed = if protocol.rules.slots_until_left { 0 } else { lapsed };
    let room = usize::from(limit).saturating_sub(state.counted() - freed);
    let is_free =
        |slot: &u8| !protocol.rules.slots || !state.tasks.iter().any(|task| has_slot(protocol, task, *slot));
    let slots: Vec<u8> = (0..limit).filter(is_free).take(room).collect();
    go(state, den, if slots.is_empty() { Step::Idle } else { Step::Claiming { slots, claims: Vec::new() } });
    true
}

fn has_slot(protocol: &Protocol, task: &Task, slot: u8) -> bool {
    let is_lapsed = !protocol.rules.slots_until_left && task.lease == Lease::Over;
    task.status.counts() && task.slot == Some(slot) && !is_lapsed
}

/// One `findOneAndUpdate`. A slot that is taken makes it fail by the unique index, and the DEN tries the next.
fn claim(protocol: &Protocol, state: &mut State, den: u8, number: u8) -> bool {
    let Den { instance, step: Step::Claiming { slots, claims } } = &mut state.dens[usize::from(den)] else {
        return false;
    };
    let slot = slots.remove(0);
    if protocol.rules.slots && state.tasks.iter().any(|task| has_slot(protocol, task, slot)) {
        return true;
    }
    let leaseless = protocol.setting.runner == RunnerKind::Perl && protocol.rules.lease_for_ours_only;
    let task = &mut state.tasks[usize::from(number)];
    *task = Task {
        status: Status::Claimed,
        node: Some(den),
        attempt: task.attempt + 1,
        instance: Some(*instance),
        slot: Some(slot),
        lease: if leaseless { Lease::None } else { Lease::Claim },
        claim: task.claim + 1,
        ..task.clone()
    };
    claims.push(Claim {
        task: number,
        node: den,
        attempt: task.attempt,
        instance: task.instance,
        id: task.claim,
    });
    state.order.push(number);
    true
}

/// First half of the confirmation. Where that rule is left out, the DEN launches what it has.
fn reread(protocol: &Protocol, state: &mut State, den: u8) -> bool {
    let limit = state.limit;
    let Step::Claiming { claims, .. } = &mut state.dens[usize::from(den)].step else { return false };
    let claims = std::mem::take(claims);
    let next = if protocol.rules.confirmation {
        Step::Confirming { limit, claims }
    } else {
        Step::Confirmed { limit, back: Vec::new(), launch: claims }
    };
    go(state, den, next);
    true
}

/// Second half of the confirmation: what is too much is given back, the newest first.
fn count(state: &mut State, den: u8) -> bool {
    let counted = state.counted();
    let Step::Confirming { limit, claims } = &mut state.dens[usize::from(den)].step else { return false };
    let (limit, mut launch) = (*limit, std::mem::take(claims));
    let too_many = counted.saturating_sub(usize::from(limit));
    let back = launch.split_off(launch.len().saturating_sub(too_many));
    go(state, den, Step::Confirmed { limit, back, launch });
    true
}

fn give_back(protocol: &Protocol, state: &mut State, den: u8) -> bool {
    let Step::Confirmed { back, launch, .. } = &mut state.dens[usize::from(den)].step else { return false };
    let Some(claim) = back.pop() else { return false };
    if back.is_empty() && launch.is_empty() {
        go(state, den, Step::Idle);
    }
    if let Some(task) = write(protocol, state, &claim, Status::Claimed) {
        task.leave(Status::Queued);
    }
    true
}

fn launch(protocol: &Protocol, state: &mut State, den: u8) -> bool {
    if state.runners.len() >= protocol.setting.runners {
        return false;
    }
    let Step::Confirmed { limit, launch, .. } = &mut state.dens[usize::from(den)].step else { return false };
    let (confirmed, claim) = (Some(*limit), launch.remove(0));
    if launch.is_empty() {
        go(state, den, Step::Idle);
    }
    let ours = protocol.setting.runner == RunnerKind::Ours;
    state.runners.push(Runner { claim, ours, phase: Phase::Launched, plugin: Plugin::NotYet, confirmed });
    true
}

/// The task, if a write for this claim finds it in this status. Notes when it is found although the claim is over.
pub fn write<'a>(
    protocol: &Protocol,
    state: &'a mut State,
    claim: &Claim,
    status: Status,
) -> Option<&'a mut Task> {
    let State { tasks, stale_start, stale_write, .. } = state;
    let task = &mut tasks[usize::from(claim.task)];
    let found = task.status == status
        && task.node == Some(claim.node)
        && (!protocol.rules.attempt || task.attempt == claim.attempt)
        && (!protocol.rules.instance || task.instance == claim.instance);
    *(if status == Status::Claimed { stale_start } else { stale_write }) |= found && task.claim != claim.id;
    found.then_some(task)
}

/// A claim that nobody started goes back when its lease is over. One without a lease is orphaned by the DEN of its
/// node, five minutes later.
fn sweep_claimed(state: &mut State, number: u8) -> bool {
    let is_up = |den: &Den| den.step != Step::Down;
    let task = &mut state.tasks[usize::from(number)];
    let (possible, status) = match task.lease {
        Lease::Over => (state.dens.iter().any(is_up), Status::Queued),
        Lease::None => {
            let owner = task.node.and_then(|node| state.dens.get(usize::from(node)));
            (owner.is_some_and(is_up), Status::Orphaned)
        }
        Lease::Claim | Lease::Valid => (false, Status::Queued),
    };
    task.leave(status);
    possible
}

fn may_sweep_own(protocol: &Protocol, state: &State, task: &Task) -> bool {
    let owner = task.node.and_then(|node| state.dens.get(usize::from(node)));
    owner.is_some_and(|den| den.step != Step::Down)
        && (!protocol.rules.owner_waits || state.database == Database::Up)
}

/// The DEN of the node ends what is left of the attempt.
fn kill(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let runner = &state.runners[usize::from(number)];
    let task = state.task(&runner.claim);
    let possible = state.is_current(&runner.claim)
        && task.status == Status::Running
        && task.lease == Lease::Over
        && may_sweep_own(protocol, state, task);
    if possible {
        state.robbed |= is_well(protocol, runner);
        state.runners.remove(usize::from(number));
    }
    possible
}

/// Whether a runner deserves to go on although its lease is over: nothing is wrong with it but the database.
fn is_well(protocol: &Protocol, runner: &Runner) -> bool {
    let keeps = !runner.ours || protocol.setting.on_lost_lease == OnLostLease::Keep;
    keeps && runner.phase == Phase::Started && runner.plugin == Plugin::Runs
}

/// A DEN orphans a task of its node: its processes are gone, whether the lease is over or not. That none is left is
/// checked before, not in the same step as the update, which does not matter: the dead stay dead, and the update
/// names the attempt that they belonged to.
fn orphan_own(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let task = &state.tasks[usize::from(number)];
    let mut processes = state.runners_of(number);
    let gone = processes.all(|runner| runner.phase == Phase::Dead && !protocol.rules.owner_clears);
    drop(processes);
    let possible = gone && task.lease != Lease::None && may_sweep_own(protocol, state, task);
    if possible {
        orphan(protocol, state, number);
    }
    possible
}

/// A DEN orphans a task of another node. The protocol has it wait until that node's DEN seems dead; since seeming
/// proves nothing, the model does not count on it.
fn orphan_other(protocol: &Protocol, state: &mut State, number: u8) -> bool {
    let task = &state.tasks[usize::from(number)];
    let another = (0..).zip(&state.dens).any(|(den, d)| Some(den) != task.node && d.step != Step::Down);
    let waited = !protocol.rules.others_wait || state.database == Database::Up;
    let possible = another && waited && task.lease == Lease::Over;
    if possible {
        let robbed = state.runners_of(number).any(|runner| is_well(protocol, runner));
        state.robbed |= robbed;
        orphan(protocol, state, number);
    }
    possible
}

fn orphan(protocol: &Protocol, state: &mut State, number: u8) {
    let task = &mut state.tasks[usize::from(number)];
    task.failures += 1;
    match protocol.setting.on_orphan {
        OnOrphan::Requeue { max_attempts } if task.failures < max_attempts => task.leave(Status::Queued),
        OnOrphan::Requeue { .. } | OnOrphan::Fail => task.leave(Status::Orphaned),
    }
}
