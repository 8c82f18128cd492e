//! The steps of the DEN: claims, and for each runner what its attendant does.

use super::database::{Outcome, apply, bury, is_of, is_over, leave, spend};
use super::state::{
    Attendant, Claim, Kind, Process, Run, Runner, State, Status, Time, ToDen, ToRunner, Write,
};
use super::{Action, Linked};

/// Makes the step if it is one of the DEN and possible now. None: it is not one of the DEN.
pub fn step(linked: &Linked, state: &mut State, action: Action) -> Option<bool> {
    Some(match action {
        Action::Claim(task) => claim(linked, state, task),
        Action::Spawn(number) => {
            state.runners[number] = Runner {
                process: Process::Lives,
                linked: true,
                attendant: Some(Attendant::default()),
                ..Runner::absent()
            };
            state.den.claimed.is_some()
        }
        Action::Assign(number) => assign(linked, state, number),
        Action::Hear(number) => hear(linked, state, number),
        Action::Write(number, job) => write(linked, state, number, job),
        Action::WriteUnanswered(number, job) => write_unanswered(linked, state, number, job),
        Action::WriteGivenUp(number, job) => give_up(state, number, job),
        Action::Settle(number) => settle(linked, state, number),
        Action::KillDen => kill(state),
        Action::RestartDen => {
            state.den.instance = state.last_instance() + 1;
            state.den.up = true;
            true
        }
        _ => return None,
    })
}

/// A claim takes a place, of which there are as many as `threads`.
fn claim(linked: &Linked, state: &mut State, number: usize) -> bool {
    let counts = |status| matches!(status, Status::Claimed | Status::Running);
    let counted = state.tasks.iter().filter(|task| counts(task.status)).count();
    let possible = state.den.up && state.den.claimed.is_none() && counted < linked.limit;
    let id = state.last_claim(number) + 1;
    let State { tasks, den, .. } = state;
    let task = &mut tasks[number];
    task.status = Status::Claimed;
    task.attempt_before = task.attempt;
    task.attempt += 1;
    task.instance = Some(den.instance);
    task.claim = id;
    den.claimed = Some(Claim { task: number, attempt: task.attempt, instance: den.instance, id });
    possible
}

/// The task is sent, and started when the runner has taken it. If it cannot be sent, another runner may have it.
fn assign(linked: &Linked, state: &mut State, number: usize) -> bool {
    let Some(claim) = state.den.claimed.take() else { return false };
    let run = Run { claim, at: state.last_assignment() + 1 };
    let task = &mut state.tasks[claim.task];
    task.confirmed |= task.claim == claim.id;
    let runner = &mut state.runners[number];
    let is_free = |attendant: &Attendant| attendant.current.is_none() && !attendant.mute;
    if !runner.attendant.as_ref().is_some_and(is_free) {
        return false;
    }
    if !tell(runner, ToRunner::Assign(run)) {
        state.den.claimed = Some(claim);
        return true;
    }
    if !linked.rules.go_after_write {
        tell(runner, ToRunner::Go(Time::Sound));
    }
    if let Some(attendant) = &mut runner.attendant {
        attendant.current = Some(run);
        (attendant.taken, attendant.heard) = (false, false);
        if !linked.rules.taken {
            attendant.taken = true;
            attendant.writes.push(write_for(Kind::Start, run, run.at));
        }
    }
    true
}

fn write_for(kind: Kind, run: Run, about: u8) -> Write {
    Write { kind, run, about }
}

/// Sends a message, unless the runner has shut the link, or is dead. Tells whether it was sent.
fn tell(runner: &mut Runner, message: ToRunner) -> bool {
    let Some(attendant) = &mut runner.attendant else { return false };
    attendant.mute |= !runner.linked;
    if !attendant.mute {
        runner.inbox.push(message);
    }
    !attendant.mute
}

fn hear(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { tasks, runners, .. } = state;
    let runner = &mut runners[number];
    let said = runner.said.remove(0);
    let (ToDen::Taken(about) | ToDen::Renew(about) | ToDen::Finish(about)) = said;
    let Some(attendant) = &mut runner.attendant else { return false };
    let current = attendant.current.filter(|run| !linked.rules.named || run.at == about);
    match (current, said) {
        (None, ToDen::Taken(_)) => {}
        (Some(run), ToDen::Taken(_)) => {
            // A runner that has given the link up does it by itself.
            if !attendant.taken && !attendant.mute {
                attendant.taken = true;
                attendant.writes.push(write_for(Kind::Start, run, about));
            }
        }
        // It is about a task that is over.
        (None, ToDen::Renew(_)) => {
            tell(runner, ToRunner::Lost(about));
        }
        (None, ToDen::Finish(_)) => {
            tell(runner, ToRunner::Ended(about));
        }
        (Some(run), ToDen::Renew(_)) => attendant.writes.push(write_for(Kind::Renew, run, about)),
        (Some(run), ToDen::Finish(_)) => {
            attendant.writes.push(write_for(Kind::Finish, run, about));
            attendant.heard = true;
            if !linked.rules.stored_after_write && tell(runner, ToRunner::Ended(about)) {
                free(runner);
                let task = &mut tasks[run.claim.task];
                task.promised |= task.holder == Some(run.at);
            }
        }
    }
    true
}

/// The runner can be assigned another task.
fn free(runner: &mut Runner) {
    if let Some(attendant) = &mut runner.attendant {
        attendant.current = None;
        (attendant.taken, attendant.heard) = (false, false);
    }
}

/// A write is made, and answered.
fn write(linked: &Linked, state: &mut State, number: usize, place: usize) -> bool {
    let Some(attendant) = &mut state.runners[number].attendant else { return false };
    let write = attendant.writes.remove(place);
    let outcome = apply(linked, state, write);
    let over = is_over(state, write.run);
    let runner = &mut state.runners[number];
    let made = outcome != Outcome::Nothing;
    match write.kind {
        Kind::Start if made => {
            let time = match outcome {
                Outcome::Recognised if !linked.rules.first_sending => Time::Unsound,
                Outcome::Recognised if over => Time::Over,
                _ => Time::Sound,
            };
            tell(runner, ToRunner::Go(time));
        }
        Kind::Start => {
            if tell(runner, ToRunner::Gone) {
                free(runner);
            }
        }
        Kind::Renew if made => {
            let time = if linked.rules.from_sending { Time::Sound } else { Time::Unsound };
            tell(runner, ToRunner::Held(write.about, time));
        }
        Kind::Renew => {
            tell(runner, ToRunner::Lost(write.about));
        }
        Kind::Finish => {
            let is_current =
                runner.attendant.as_ref().is_some_and(|attendant| attendant.current == Some(write.run));
            // What was answered before is not answered again.
            if is_current && tell(runner, ToRunner::Ended(write.about)) {
                free(runner);
            }
        }
    }
    true
}

/// A write is made, and will be repeated.
fn write_unanswered(linked: &Linked, state: &mut State, number: usize, place: usize) -> bool {
    if !spend(&mut state.faults.losses) {
        return false;
    }
    let Some(attendant) = &mut state.runners[number].attendant else { return false };
    let write = attendant.writes[place];
    apply(linked, state, write) == Outcome::Made
}

/// The database has been away for too long: the runner is to do it by itself.
fn give_up(state: &mut State, number: usize, place: usize) -> bool {
    let State { runners, faults, late, .. } = state;
    let Some(attendant) = &mut runners[number].attendant else { return false };
    attendant.mute = true;
    late.push(attendant.writes.remove(place));
    spend(&mut faults.delays)
}

/// A runner's process has ended, and everything that it had said was dealt with.
fn settle(linked: &Linked, state: &mut State, number: usize) -> bool {
    let runner = &mut state.runners[number];
    let Some(attendant) = &runner.attendant else { return false };
    let is_heard_out = runner.said.is_empty() && attendant.writes.is_empty();
    if runner.plugin.is_some() || (linked.rules.hears_out && !is_heard_out) {
        return false;
    }
    let (current, heard, told) = (attendant.current, attendant.heard, runner.told);
    *runner = Runner::absent();
    let Some(run) = current else { return true };
    let has_another = state.runners.iter().any(|other| {
        let current = other.attendant.as_ref().and_then(|attendant| attendant.current);
        current.is_some_and(|other| other.claim.task == run.claim.task)
    });
    if has_another {
        return true;
    }
    let place = run.claim.task;
    let task = &mut state.tasks[place];
    let is_its = is_of(linked, task, &run);
    match task.status {
        Status::Claimed if is_its && (!linked.rules.claim || task.claim == run.claim.id) => {
            leave(task, Status::Queued);
        }
        Status::Running if is_its && heard && linked.rules.keeps => {
            apply(linked, state, Write { kind: Kind::Finish, run, about: run.at });
        }
        Status::Running if is_its => bury(linked, state, place, told == Some(run.at)),
        _ => {}
    }
    true
}

/// What it was writing may arrive or not; what it had not read is lost.
fn kill(state: &mut State) -> bool {
    let State { den, runners, late, faults, .. } = state;
    den.up = false;
    den.claimed = None;
    for runner in runners {
        let attendant = runner.attendant.take();
        late.extend(attendant.into_iter().flat_map(|attendant| attendant.writes));
        runner.said.clear();
        runner.vanish();
    }
    spend(&mut faults.den_kills)
}
