//! The steps of the DEN: claims, and for each runner what its attendant does.

use super::database::{Outcome, apply, bury, counted, is_of, is_over, leave, spend};
use super::state::{
    Attendant, Claim, Kind, Next, Process, Run, Runner, State, Status, Time, ToDen, ToRunner, Write,
};
use super::{Action, Linked, Way};

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
            state.den.up && (state.den.claimed.is_some() || linked.way != Way::Claimed)
        }
        Action::Assign(number) => assign(linked, state, number),
        Action::Hear(number) => hear(linked, state, number),
        Action::Write(number, job) => write(linked, state, number, job),
        Action::WriteUnanswered(number, job) => write_unanswered(linked, state, number, job),
        Action::WriteGivenUp(number, job) => give_up(state, number, job),
        Action::Settle(number) => settle(linked, state, number),
        Action::ClaimFor(number, task) => claim_for(linked, state, number, task),
        Action::TakeNext(number, task) => take_next(linked, state, number, task),
        Action::Tell(number) => tell_next(linked, state, number),
        Action::PutBack(number) => put_back(linked, state, number),
        Action::PutBackLater(number) => {
            state.late.push(state.den.untold[number]);
            spend(&mut state.faults.delays)
        }
        Action::GiveUpRunner(number) => give_up_runner(linked, state, number),
        Action::EndDen => end(linked, state),
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
    let possible = linked.way != Way::Ready
        && state.den.up
        && state.den.claimed.is_none()
        && counted(state) < linked.limit;
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
    let run = Run { claim, at: state.last_assignment() + 1, started: false };
    let task = &mut state.tasks[claim.task];
    task.confirmed |= task.claim == claim.id;
    let runner = &mut state.runners[number];
    let is_free =
        |attendant: &Attendant| attendant.current.is_none() && attendant.next.is_none() && !attendant.mute;
    if !runner.attendant.as_ref().is_some_and(is_free) {
        return false;
    }
    if !tell(runner, ToRunner::Assign(run, Time::Over)) {
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
            if run.started {
                attendant.taken = true;
            } else if !attendant.taken && !attendant.mute {
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

/// A start for a runner that is ready: it takes a place, and is assigned when it is written.
fn claim_for(linked: &Linked, state: &mut State, number: usize, task: usize) -> bool {
    let is_free = |attendant: &Attendant| attendant.current.is_none();
    linked.way != Way::Claimed && send_start(state, (number, task), Kind::Claim, is_free)
}

/// The start of the next task goes with the end of the one before, after it.
fn take_next(linked: &Linked, state: &mut State, number: usize, task: usize) -> bool {
    linked.way != Way::Claimed
        && state.tasks[task].attempt == 0
        && send_start(state, (number, task), Kind::Take, is_ending)
}

fn is_ending(attendant: &Attendant) -> bool {
    attendant.writes.iter().any(|write| write.kind == Kind::Finish && attendant.current == Some(write.run))
}

fn send_start(
    state: &mut State,
    (number, task): (usize, usize),
    kind: Kind,
    is_ready: impl Fn(&Attendant) -> bool,
) -> bool {
    let (at, id) = (state.last_assignment() + 1, state.last_claim(task) + 1);
    let State { tasks, den, runners, .. } = state;
    let claim = Claim { task, attempt: tasks[task].attempt + 1, instance: den.instance, id };
    let run = Run { claim, at, started: true };
    let Some(attendant) = &mut runners[number].attendant else { return false };
    let possible = den.up && !attendant.mute && attendant.next.is_none() && is_ready(attendant);
    attendant.next = Some(Next { run, time: None });
    attendant.writes.push(write_for(kind, run, at));
    possible
}

/// The runner is told, if it has become free. Otherwise the start is given back.
fn tell_next(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { den, runners, .. } = state;
    let runner = &mut runners[number];
    let Some(attendant) = &mut runner.attendant else { return false };
    let Some(Next { run, time: Some(time) }) = attendant.next else { return false };
    if is_ending(attendant) {
        return false;
    }
    attendant.next = None;
    let is_free = attendant.current.is_none();
    let time = if linked.rules.go_from_asking { time } else { Time::Unsound };
    if is_free && tell(runner, ToRunner::Assign(run, time)) {
        if let Some(attendant) = &mut runner.attendant {
            attendant.current = Some(run);
            (attendant.taken, attendant.heard) = (false, false);
        }
    } else {
        den.untold.push(write_for(Kind::PutBack, run, run.at));
    }
    true
}

/// A start of which nobody was told is given back, or was not made.
fn put_back(linked: &Linked, state: &mut State, number: usize) -> bool {
    let write = state.den.untold.remove(number);
    let has = |runner: &Runner| {
        let current = runner.attendant.as_ref().and_then(|attendant| attendant.current);
        current.is_some_and(|run| run.claim.task == write.run.claim.task)
    };
    let is_named =
        write.kind == Kind::PutBack || (linked.rules.names_unknown && linked.rules.gives_back_of_others);
    if is_named || !state.runners.iter().any(has) {
        apply(linked, state, write);
    }
    true
}

/// The start has no answer, and may have been made: it is to be given back.
fn doubt(state: &mut State, number: usize, write: Write) {
    let State { den, runners, .. } = state;
    if let Some(attendant) = &mut runners[number].attendant {
        attendant.next = None;
    }
    let kind = if write.kind == Kind::Claim { Kind::Withdraw } else { Kind::PutBack };
    den.untold.push(Write { kind, ..write });
}

/// The runner stands still, or seems to.
fn give_up_runner(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { runners, faults, .. } = state;
    let runner = &mut runners[number];
    let Some(attendant) = &mut runner.attendant else { return false };
    let Some(run) = attendant.current else { return false };
    if attendant.taken || runner.process != Process::Lives {
        return false;
    }
    let could_say = runner.linked && !runner.said.contains(&ToDen::Taken(run.at));
    attendant.mute = true;
    runner.end();
    if linked.rules.spares_the_well { could_say && spend(&mut faults.stalls) } else { true }
}

/// A write is made, and answered.
fn write(linked: &Linked, state: &mut State, number: usize, place: usize) -> bool {
    let Some(attendant) = &mut state.runners[number].attendant else { return false };
    if attendant.writes[place].kind == Kind::Take && is_ending(attendant) {
        return false;
    }
    let write = attendant.writes.remove(place);
    let outcome = apply(linked, state, write);
    let attempt = state.tasks[write.run.claim.task].attempt;
    let over = is_over(state, write.run);
    let runner = &mut state.runners[number];
    let made = outcome != Outcome::Nothing;
    match write.kind {
        Kind::Claim | Kind::Take => {
            let Some(attendant) = &mut runner.attendant else { return false };
            let time = if over { Time::Over } else { Time::Sound };
            let claim = Claim { attempt, ..write.run.claim };
            let next = Next { run: Run { claim, ..write.run }, time: Some(time) };
            // It may have been given back already, where it was sent again.
            let is_awaited = attendant.next.is_some_and(|next| next.run.at == write.run.at);
            attendant.next = Some(next).filter(|_| made && is_awaited);
        }
        // These are not asked for by runners.
        Kind::Restart | Kind::PutBack | Kind::Withdraw => {}
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
    if !matches!(write.kind, Kind::Claim | Kind::Take) {
        return apply(linked, state, write) == Outcome::Made;
    }
    if is_ending(attendant) {
        return false;
    }
    if linked.rules.starts_once {
        attendant.writes.remove(place);
        let made = apply(linked, state, write) == Outcome::Made;
        let claim = Claim { attempt: state.tasks[write.run.claim.task].attempt, ..write.run.claim };
        doubt(state, number, Write { run: Run { claim, ..write.run }, ..write });
        return made;
    }
    state.den.untold.push(Write { kind: Kind::PutBack, ..write });
    apply(linked, state, write) == Outcome::Made
}

/// The database has been away for too long: the runner is to do it by itself.
fn give_up(state: &mut State, number: usize, place: usize) -> bool {
    let State { runners, faults, late, .. } = state;
    let Some(attendant) = &mut runners[number].attendant else { return false };
    let write = attendant.writes.remove(place);
    late.push(write);
    let possible = spend(&mut faults.delays);
    if matches!(write.kind, Kind::Claim | Kind::Take) {
        doubt(state, number, write);
    } else {
        attendant.mute = true;
    }
    possible
}

/// A runner's process has ended, and everything that it had said was dealt with.
fn settle(linked: &Linked, state: &mut State, number: usize) -> bool {
    let runner = &mut state.runners[number];
    let Some(attendant) = &runner.attendant else { return false };
    let is_heard_out = runner.said.is_empty() && attendant.writes.is_empty();
    if runner.plugin.is_some() || attendant.next.is_some() || (linked.rules.hears_out && !is_heard_out) {
        return false;
    }
    let (current, heard, told) = (attendant.current, attendant.heard, runner.told);
    let may_be_begun = attendant.taken && linked.rules.looks_at_taken;
    *runner = Runner::absent();
    let Some(run) = current else { return true };
    let stores = heard && linked.rules.keeps;
    if run.started
        && !may_be_begun
        && !stores
        && apply(linked, state, write_for(Kind::PutBack, run, run.at)) == Outcome::Made
    {
        return true;
    }
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

/// It is told to end. Runners go on by themselves; what no runner was told of is seen to first.
fn end(linked: &Linked, state: &mut State) -> bool {
    let has_next =
        |runner: &Runner| runner.attendant.as_ref().is_some_and(|attendant| attendant.next.is_some());
    let is_done = state.den.untold.is_empty() && !state.runners.iter().any(has_next);
    // A process has died.
    let lost = of_dead_runners(state);
    have_grounds(state, &lost);
    stop(state);
    (is_done || !linked.rules.waits_at_end) && spend(&mut state.faults.ends)
}

/// What it has started, and has told no runner of, nobody runs; nor does it look after a runner that has died.
fn kill(state: &mut State) -> bool {
    let untold = state.den.untold.iter().map(|write| write.run);
    let nexts = state.runners.iter().filter_map(|runner| Some(runner.attendant.as_ref()?.next?.run));
    let lost: Vec<Run> = untold.chain(nexts).chain(of_dead_runners(state)).collect();
    have_grounds(state, &lost);
    stop(state);
    spend(&mut state.faults.den_kills)
}

fn of_dead_runners(state: &State) -> Vec<Run> {
    let dead = state.runners.iter().filter(|runner| runner.process == Process::Ended);
    dead.filter_map(|runner| runner.attendant.as_ref()?.current).collect()
}

/// Their DEN goes, and no runner has them.
fn have_grounds(state: &mut State, runs: &[Run]) {
    for run in runs {
        let task = &mut state.tasks[run.claim.task];
        task.grounds |= task.holder == Some(run.at);
    }
}

/// What it was writing may arrive or not; what it had not read is lost.
fn stop(state: &mut State) {
    let State { den, runners, late, .. } = state;
    den.up = false;
    den.claimed = None;
    late.append(&mut den.untold);
    for runner in runners {
        let attendant = runner.attendant.take();
        late.extend(attendant.into_iter().flat_map(|attendant| attendant.writes));
        runner.said.clear();
        runner.vanish();
    }
}
