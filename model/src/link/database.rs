//! The conditional updates, and what becomes of tasks as time passes.

use super::state::{Kind, Lease, Next, Phase, Process, Run, State, Status, Task, Time, ToRunner, Write};
use super::{Action, Linked, Recognition};

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Made,
    /// It had been made before.
    Recognised,
    /// The task is not in that state any more.
    Nothing,
}

/// Makes the step if it is one of these and possible now. None: it is none of these.
pub fn step(linked: &Linked, state: &mut State, action: Action) -> Option<bool> {
    Some(match action {
        Action::Late(number) => {
            let write = state.late.remove(number);
            let made = apply(linked, state, write) == Outcome::Made;
            // Who has sent it is gone, or has found that it was not made: nobody will be told.
            if made && matches!(write.kind, Kind::Claim | Kind::Take) {
                state.tasks[write.run.claim.task].grounds = true;
            }
            true
        }
        Action::NeverArrives(number) => {
            state.late.remove(number);
            true
        }
        Action::RollBack(task) => roll_back(state, task),
        Action::SweepClaimed(task) => sweep_claimed(state, task),
        Action::LeaseEnds(task) => lease_ends(state, task),
        Action::BuryExpired(task) => {
            let promised = state.tasks[task].promised;
            bury(linked, state, task, promised);
            true
        }
        _ => return None,
    })
}

/// Whether a task is in the claim that a write names.
pub fn is_of(linked: &Linked, task: &Task, run: &Run) -> bool {
    let rules = &linked.rules;
    (!rules.attempt || task.attempt == run.claim.attempt)
        && (!rules.instance || task.instance == Some(run.claim.instance))
}

/// Makes one conditional update.
pub fn apply(linked: &Linked, state: &mut State, write: Write) -> Outcome {
    let Write { kind, run, about } = write;
    let has_room = counted(state) < linked.limit;
    let State { tasks, seen, .. } = state;
    let task = &mut tasks[run.claim.task];
    let is_its = is_of(linked, task, &run);
    match (kind, task.status) {
        (Kind::Claim | Kind::Take, Status::Queued)
            if has_room && (kind == Kind::Claim || task.attempt == 0) =>
        {
            task.attempt_before = task.attempt;
            task.attempt += 1;
            task.instance = Some(run.claim.instance);
            task.claim = run.claim.id;
            task.status = Status::Running;
            task.holder = Some(run.at);
            task.confirmed = true;
            Outcome::Made
        }
        (Kind::Take, Status::Running)
            if matches(
                linked.rules.take_recognition,
                (task.attempt == 1) && task.instance == Some(run.claim.instance),
                task,
                &run,
            ) =>
        {
            Outcome::Recognised
        }
        (Kind::Restart, Status::Running) if is_its && task.holder == Some(run.at) => {
            let outcome = if task.restarted { Outcome::Recognised } else { Outcome::Made };
            task.restarted |= linked.rules.new_time;
            if outcome == Outcome::Made {
                task.lease = Lease::Valid;
            }
            outcome
        }
        (Kind::PutBack | Kind::Withdraw, Status::Running) if is_to_be_put_back(linked, task, &write) => {
            give_back(state, run.claim.task);
            Outcome::Made
        }
        (Kind::Start, Status::Claimed) if is_its && (!linked.rules.claim || task.claim == run.claim.id) => {
            seen.unconfirmed |= !task.confirmed;
            task.status = Status::Running;
            task.holder = Some(run.at);
            task.lease = Lease::Valid;
            Outcome::Made
        }
        (Kind::Renew | Kind::Finish, Status::Running) if is_its => {
            seen.mixed |= task.holder != Some(about);
            if kind == Kind::Renew {
                task.lease = Lease::Valid;
            } else {
                leave(task, Status::Finished);
            }
            Outcome::Made
        }
        (Kind::Start, Status::Running) if is_recognised(linked, task, &run) => Outcome::Recognised,
        (Kind::Finish, Status::Finished) if task.attempt == run.claim.attempt => Outcome::Recognised,
        _ => Outcome::Nothing,
    }
}

/// Whether a task runs by the start that is to be given back, as far as the write says which that is.
fn is_to_be_put_back(linked: &Linked, task: &Task, write: &Write) -> bool {
    let rules = &linked.rules;
    let is_this = task.holder == Some(write.run.at) && !task.restarted;
    let is_of_den = task.instance == Some(write.run.claim.instance);
    match write.kind {
        Kind::Withdraw => is_of_den && (is_this || !rules.names_unknown),
        _ => is_of(linked, task, &write.run) && (is_this || !rules.names_time),
    }
}

/// Back to the queue, from 0.
fn give_back(state: &mut State, number: usize) {
    let State { tasks, seen, .. } = state;
    let task = &mut tasks[number];
    seen.again |= task.begun;
    leave(task, Status::Queued);
}

/// How many tasks have a slot.
pub fn counted(state: &State) -> usize {
    let counts = |task: &&Task| matches!(task.status, Status::Claimed | Status::Running);
    state.tasks.iter().filter(counts).count()
}

fn is_recognised(linked: &Linked, task: &Task, run: &Run) -> bool {
    let same_claim = task.attempt == run.claim.attempt && task.instance == Some(run.claim.instance);
    matches(linked.rules.recognition, same_claim, task, run)
}

fn matches(by: Recognition, same_claim: bool, task: &Task, run: &Run) -> bool {
    match by {
        Recognition::Never => false,
        Recognition::ByClaim => same_claim,
        Recognition::ByRunner => same_claim && task.holder == Some(run.at),
    }
}

/// Whether the lease of a task has come to its end.
pub fn is_over(state: &State, run: Run) -> bool {
    state.tasks[run.claim.task].lease == Lease::Over
}

/// Out of -1 or 0: what belongs to the attempt goes in the same update.
pub fn leave(task: &mut Task, status: Status) {
    task.status = status;
    task.instance = None;
    task.holder = None;
    task.lease = Lease::Valid;
    task.attempt_before = task.attempt;
    task.restarted = false;
    (task.confirmed, task.begun, task.grounds, task.promised) = (false, false, false, false);
}

/// A task whose runner is lost is orphaned, or tried again. `lost`: its result was known.
pub fn bury(linked: &Linked, state: &mut State, number: usize, lost: bool) {
    let State { tasks, seen, .. } = state;
    let task = &mut tasks[number];
    seen.lost |= lost;
    seen.groundless |= !task.grounds;
    task.failures += 1;
    let again = task.failures < linked.max_attempts;
    leave(task, if again { Status::Queued } else { Status::Orphaned });
}

/// The new primary has never heard of the claim. A start is acknowledged by a majority, and stays.
fn roll_back(state: &mut State, number: usize) -> bool {
    let task = &mut state.tasks[number];
    task.attempt = task.attempt_before;
    leave(task, Status::Queued);
    spend(&mut state.faults.rollbacks)
}

fn sweep_claimed(state: &mut State, number: usize) -> bool {
    let claim = state.tasks[number].claim;
    let is_this = |run: Run| run.claim.task == number && run.claim.id == claim;
    let waits = state.den.claimed.is_some_and(|own| own.task == number && own.id == claim)
        || state.runners.iter().any(|runner| {
            let current = runner.attendant.as_ref().and_then(|attendant| attendant.current);
            current.is_some_and(is_this) || runner.runs().any(is_this)
        });
    leave(&mut state.tasks[number], Status::Queued);
    !waits || spend(&mut state.faults.stalls)
}

/// Time passes. By the end of a lease the guard has acted, if it was told a sound time. What begins later finds that
/// its time is over.
fn lease_ends(state: &mut State, number: usize) -> bool {
    let State { tasks, runners, faults, den, .. } = state;
    let task = &mut tasks[number];
    let Some(holder) = task.holder else { return false };
    // Who means to tell a runner of it, or to give it back, stands still.
    let mut has_runner = den.untold.iter().any(|write| write.run.at == holder);
    for runner in runners {
        if runner.plugin.is_some_and(|run| run.at == holder) && runner.time == Time::Sound {
            return false;
        }
        let next = runner.attendant.as_mut().and_then(|attendant| attendant.next.as_mut());
        if let Some(Next { time: Some(time), .. }) = next.filter(|next| next.run.at == holder) {
            *time = Time::Over;
            has_runner = true;
        }
        // Whose runner ended before it had taken the task, its DEN is to give back.
        let attendant = runner.attendant.as_ref().filter(|attendant| !attendant.taken);
        let current = attendant.and_then(|attendant| attendant.current);
        has_runner |= current.is_some_and(|run| run.started && run.at == holder);
        has_runner |= runner.process == Process::Lives && runner.runs().any(|run| run.at == holder);
        let starts = matches!(runner.phase, Phase::Assigned(run) | Phase::Started(run) if run.at == holder);
        if starts && runner.time == Time::Sound {
            runner.time = Time::Over;
        }
        if runner.runs().any(|run| run.at == holder) {
            for message in &mut runner.inbox {
                if let ToRunner::Go(time) | ToRunner::Held(_, time) | ToRunner::Assign(_, time) = message
                    && *time == Time::Sound
                {
                    *time = Time::Over;
                }
            }
        }
    }
    task.lease = Lease::Over;
    // A runner that is well renews its lease.
    task.grounds |= has_runner;
    !has_runner || spend(&mut faults.stalls)
}

/// Whether this may still go wrong; then once less.
pub fn spend(budget: &mut u8) -> bool {
    let possible = *budget > 0;
    *budget = budget.saturating_sub(1);
    possible
}
