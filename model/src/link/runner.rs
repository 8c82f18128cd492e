//! The steps of a runner, its guard and its plugin.

use super::database::{Outcome, apply, spend};
use super::state::{Kind, Phase, Process, Run, Runner, State, Status, Time, ToDen, ToRunner, Write};
use super::{Action, Linked};

/// Makes the step if it is one of a runner and possible now. None: it is not one of a runner.
pub fn step(linked: &Linked, state: &mut State, action: Action) -> Option<bool> {
    Some(match action {
        Action::Read(number) => read(&mut state.runners[number]),
        Action::CannotSay(number) => cannot_say(state, number),
        Action::GiveUp(number) => give_up(linked, state, number),
        Action::Leave(number) => leave(linked, state, number),
        Action::StartAlone(number) => start(linked, state, number),
        Action::StartUnanswered(number) => unanswered(linked, state, number, Kind::Start),
        Action::AskRenewal(number) => ask_renewal(&mut state.runners[number]),
        Action::RenewAlone(number) => renew(linked, state, number),
        Action::Begin(number) => begin(linked, state, number),
        Action::PluginEnds(number) => end_plugin(&mut state.runners[number]),
        Action::AskFinish(number) => ask_finish(&mut state.runners[number]),
        Action::FinishAlone(number) => finish(linked, state, number),
        Action::FinishUnanswered(number) => unanswered(linked, state, number, Kind::Finish),
        Action::KillRunner(number) => kill(state, number),
        _ => return None,
    })
}

fn read(runner: &mut Runner) -> bool {
    let Some(message) = runner.inbox.first().copied() else { return false };
    let run = runner.phase.run();
    let is_own = |about| run.is_some_and(|run| run.at == about);
    match (message, runner.phase) {
        (ToRunner::Assign(run, time), Phase::Idle) => {
            runner.phase = if run.started { Phase::Started(run) } else { Phase::Assigned(run) };
            runner.time = time;
            runner.said.push(ToDen::Taken(run.at));
        }
        // One task after the other.
        (ToRunner::Assign(..), _) => return false,
        (ToRunner::Go(time), Phase::Assigned(run)) => {
            runner.phase = Phase::Started(run);
            runner.time = time;
        }
        (ToRunner::Gone, Phase::Assigned(_)) => runner.phase = Phase::Idle,
        (ToRunner::Held(about, time), _) if is_own(about) => {
            runner.renewing = false;
            if matches!(runner.phase, Phase::Started(_) | Phase::Working(_)) {
                runner.time = time;
            }
        }
        (ToRunner::Lost(about), _) if is_own(about) => {
            runner.renewing = false;
            // It has the plugin killed, if there is one.
            if let Phase::Started(run) = runner.phase {
                runner.phase = Phase::Storing(run);
            }
        }
        (ToRunner::Ended(about), Phase::Storing(_)) if is_own(about) => be_idle(runner),
        // What was meant for a task that is over.
        _ => {}
    }
    runner.inbox.remove(0);
    true
}

fn be_idle(runner: &mut Runner) {
    runner.phase = Phase::Idle;
    (runner.renewing, runner.asked, runner.time) = (false, false, Time::Over);
}

/// It shuts the link first: what comes after that does not arrive, and the DEN is told so. What had come by then is
/// its own.
fn shut(runner: &mut Runner) {
    runner.linked = false;
    (runner.renewing, runner.asked) = (false, false);
    runner.inbox.retain(|message| matches!(message, ToRunner::Assign(..)));
}

/// It has a task that was started for it, and the DEN will not hear that it has taken it.
fn cannot_say(state: &mut State, number: usize) -> bool {
    let State { runners, faults, .. } = state;
    let runner = &mut runners[number];
    let (Phase::Idle, Some(ToRunner::Assign(run, _))) = (runner.phase, runner.inbox.first().copied()) else {
        return false;
    };
    runner.inbox.remove(0);
    shut(runner);
    runner.phase = Phase::Starting(run);
    run.started && spend(&mut faults.delays)
}

/// Because the link has ended, or because there is no answer.
fn give_up(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { runners, faults, .. } = state;
    let runner = &mut runners[number];
    let is_spoken_to = runner.attendant.as_ref().is_some_and(|attendant| !attendant.mute);
    let ended = !is_spoken_to && runner.inbox.is_empty();
    let waits = matches!(runner.phase, Phase::Assigned(_)) || runner.renewing || runner.asked;
    if !runner.linked || !(ended || (waits && spend(&mut faults.delays))) {
        return false;
    }
    shut(runner);
    match runner.phase {
        Phase::Idle => go_on(linked, runner),
        Phase::Assigned(run) => runner.phase = Phase::Starting(run),
        Phase::Starting(_) | Phase::Started(_) | Phase::Working(_) | Phase::Storing(_) => {}
    }
    true
}

fn leave(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { runners, faults, .. } = state;
    let runner = &mut runners[number];
    if !runner.linked || !spend(&mut faults.leaves) {
        return false;
    }
    shut(runner);
    go_on(linked, runner);
    true
}

/// Without a link and without a task: it takes what was assigned at the last moment, or ends.
fn go_on(linked: &Linked, runner: &mut Runner) {
    be_idle(runner);
    if linked.rules.looks_back
        && let Some(ToRunner::Assign(run, _)) = runner.inbox.first().copied()
    {
        runner.inbox.remove(0);
        runner.phase = Phase::Starting(run);
        return;
    }
    runner.end();
}

fn write_of(kind: Kind, run: Run) -> Write {
    Write { kind, run, about: run.at }
}

fn start_of(run: Run) -> Kind {
    if run.started { Kind::Restart } else { Kind::Start }
}

fn start(linked: &Linked, state: &mut State, number: usize) -> bool {
    let Phase::Starting(run) = state.runners[number].phase else { return false };
    let outcome = apply(linked, state, write_of(start_of(run), run));
    let runner = &mut state.runners[number];
    runner.time = match outcome {
        Outcome::Nothing => {
            go_on(linked, runner);
            return true;
        }
        Outcome::Made | Outcome::Recognised if linked.rules.renews_first => Time::Over,
        Outcome::Made => Time::Sound,
        // It may have been made long ago.
        Outcome::Recognised => Time::Unsound,
    };
    runner.phase = Phase::Started(run);
    true
}

/// A write whose answer is lost. It will be repeated.
fn unanswered(linked: &Linked, state: &mut State, number: usize, kind: Kind) -> bool {
    let runner = &state.runners[number];
    let (Phase::Starting(run) | Phase::Storing(run)) = runner.phase else { return false };
    if runner.linked || !spend(&mut state.faults.losses) {
        return false;
    }
    let kind = if kind == Kind::Start { start_of(run) } else { kind };
    apply(linked, state, write_of(kind, run)) == Outcome::Made
}

fn ask_renewal(runner: &mut Runner) -> bool {
    let (Phase::Started(run) | Phase::Working(run) | Phase::Storing(run)) = runner.phase else {
        return false;
    };
    let possible = runner.linked && !runner.renewing;
    runner.renewing = true;
    runner.said.push(ToDen::Renew(run.at));
    possible
}

fn renew(linked: &Linked, state: &mut State, number: usize) -> bool {
    let runner = &state.runners[number];
    let (Phase::Started(run) | Phase::Working(run)) = runner.phase else { return false };
    if runner.linked {
        return false;
    }
    let outcome = apply(linked, state, write_of(Kind::Renew, run));
    let runner = &mut state.runners[number];
    match outcome {
        Outcome::Nothing => {
            runner.plugin = None;
            runner.phase = Phase::Storing(run);
        }
        _ if linked.rules.from_sending => runner.time = Time::Sound,
        _ => runner.time = Time::Unsound,
    }
    true
}

/// The guard is given the time, and begins nothing when it is late.
fn begin(linked: &Linked, state: &mut State, number: usize) -> bool {
    let State { tasks, runners, seen, .. } = state;
    let runner = &mut runners[number];
    let run = match runner.phase {
        Phase::Started(run) if runner.time != Time::Over => run,
        Phase::Assigned(run) if !linked.rules.waits_for_go => {
            runner.time = Time::Sound;
            run
        }
        _ => return false,
    };
    runner.phase = Phase::Working(run);
    runner.plugin = Some(run);
    let task = &mut tasks[run.claim.task];
    if task.attempt == run.claim.attempt && task.instance == Some(run.claim.instance) {
        seen.twice |= task.begun;
        task.begun = true;
    }
    true
}

/// By itself, because somebody wants that, because its time is over, or because its runner is dead.
fn end_plugin(runner: &mut Runner) -> bool {
    let Some(run) = runner.plugin.take() else { return false };
    if runner.process == Process::Lives {
        runner.phase = Phase::Storing(run);
    }
    runner.time = Time::Over;
    runner.vanish();
    true
}

fn ask_finish(runner: &mut Runner) -> bool {
    let Phase::Storing(run) = runner.phase else { return false };
    let possible = runner.linked && !runner.asked;
    runner.asked = true;
    runner.said.push(ToDen::Finish(run.at));
    runner.told = Some(run.at);
    possible
}

fn finish(linked: &Linked, state: &mut State, number: usize) -> bool {
    let runner = &state.runners[number];
    let Phase::Storing(run) = runner.phase else { return false };
    if runner.linked {
        return false;
    }
    apply(linked, state, write_of(Kind::Finish, run));
    go_on(linked, &mut state.runners[number]);
    true
}

/// What it had taken, it has no more.
fn kill(state: &mut State, number: usize) -> bool {
    let State { tasks, runners, faults, .. } = state;
    let runner = &mut runners[number];
    // What it had not taken, its DEN gives back, if that lives.
    let unread = runner.runs().filter(|_| runner.attendant.is_none());
    let runs: Vec<Run> = runner.phase.run().into_iter().chain(unread).collect();
    for run in runs {
        let task = &mut tasks[run.claim.task];
        let is_its = match task.status {
            Status::Claimed => task.claim == run.claim.id,
            Status::Running => task.holder == Some(run.at),
            Status::Queued | Status::Finished | Status::Orphaned => false,
        };
        task.grounds |= is_its;
    }
    runner.end();
    spend(&mut faults.runner_kills)
}
