//! A DEN and its warm runners: who writes, and why nothing is lost or done twice.
//!
//! The other model lets each runner write for itself. Here the DEN writes for its runners: it assigns a claimed task
//! over a link, hears that it was taken, writes the start, says go, and writes renewals and results that it is asked
//! for. A runner that is not answered does all that by itself, with the same values. Both may have written, or both may
//! be about to.
//!
//! A link is two buffers. What a process has sent before its death can still be read. Each write has an answer that
//! may be lost, after which it is made again; writes of a DEN that was killed may still arrive. How often something
//! goes wrong is limited by [`Faults`]; everything else happens in every order.
//!
//! # What holds
//!
//! *A plugin works only while its task is in status 0 by the start of the very runner that began it*
//! ([`properties::OWNED`]), and for each claim at most one is begun ([`properties::ONCE`]), so the limit holds as in
//! the other model ([`properties::PLUGINS`]). *A write for one task or claim changes no other*
//! ([`properties::APART`]). *What a runner has said is stored, unless its lease was over* ([`properties::STORED`]).
//! *A task is orphaned only if a process that had it was killed, or stood still until its lease was over*
//! ([`properties::GROUNDS`]). A DEN has what it has started, or is starting, until a runner was told of it;
//! and a start that the database makes only after who sent it is gone, or has given it up, has no runner either. *Only a confirmed claim is started* ([`properties::CONFIRMED`]). From every state some
//! path leads to the end of all tasks.
//!
//! # Time
//!
//! A lease is prolonged when a write is made; the guard is told a time that was counted from some moment. If that
//! moment was before the write was sent, the guard acts before the lease is over; otherwise it may be late. So it
//! is enough to know of each such time whether it is [`state::Time::Sound`].
//!
//! # Two ways
//!
//! Where a runner is ready, a task is started before that is told ([`Way::Ready`]): a claim and a start are one write, or the start
//! goes with the end of the task before. Between the write and the telling nobody runs it. So what the runner has not *taken* is given
//! back if the runner dies, by a write that names the very start; and a runner that cannot say that it has taken it starts it once
//! more, with another time. *What a plugin was begun for is never given back* ([`properties::AGAIN`]).
//!
//! # What is left out
//!
//! Batches: their statements are made and answered one by one here, in any order, which includes all at once. A
//! runner whose task was taken away says that it lets go; here it asks for the end, and is told that there is
//! nothing to end, which frees it as well. Perl's programs and the confirmation itself are in the other model.

mod database;
mod den;
mod normal;
pub mod properties;
mod runner;
pub mod state;

use stateright::{Model, Property};

use self::state::{Lease, Phase, Process, State, Status};

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The DEN has a task started when its runner has taken it, not when it was sent.
    pub taken: bool,
    /// A runner begins no plugin before it has been told that the task is started.
    pub waits_for_go: bool,
    /// The DEN says go after the start was acknowledged, not when it is sent.
    pub go_after_write: bool,
    /// The DEN says that a result is stored, and takes the runner for free, after it was written.
    pub stored_after_write: bool,
    /// A runner that leaves closes the link, then looks for a task that was assigned meanwhile.
    pub looks_back: bool,
    /// The DEN stores a dead runner's result that it has heard and could not write, rather than to bury the task.
    pub keeps: bool,
    /// The DEN buries a dead runner's task after it has read and written all that the runner had said.
    pub hears_out: bool,
    /// Each question names the assignment that it is about.
    pub named: bool,
    /// Writes name `attempt`.
    pub attempt: bool,
    /// Writes name `instance`.
    pub instance: bool,
    /// A start, or a give-back, names the very claim that it is for. `attempt` and `instance` alone come again when a
    /// claim was lost in a failover.
    pub claim: bool,
    /// How a start that finds no claim knows whether it was made already.
    pub recognition: Recognition,
    /// The time that a start gives counts from its first sending, however often it is repeated.
    pub first_sending: bool,
    /// A runner that has started its task without the DEN renews its lease before the plugin begins: the DEN may
    /// have made this start long ago.
    pub renews_first: bool,
    /// The time that a renewal gives counts from its sending, not from its answer.
    pub from_sending: bool,
    /// The DEN gives a started task of a dead runner back only if that has not said that it had taken it.
    pub looks_at_taken: bool,
    /// Giving back a start names the time of it.
    pub names_time: bool,
    /// A runner that starts its task once more gives the start another time.
    pub new_time: bool,
    /// Giving back a claim without an answer names the very start, too; not only the DEN and its runners.
    pub names_unknown: bool,
    /// It is given back also if another runner has had that task, and its DEN has not heard how that ended.
    pub gives_back_of_others: bool,
    /// A start in the slot of another task that has no answer is given back, and not sent again as well.
    pub starts_once: bool,
    /// How such a start that finds its task running knows whether that is its own.
    pub take_recognition: Recognition,
    /// The time that comes with a started task counts from before the start was asked for, not from the telling.
    pub go_from_asking: bool,
    /// A DEN that is told to end waits until what it has started is told, or given back.
    pub waits_at_end: bool,
    /// The DEN gives up only runners that could say that they have taken their task, and have not.
    pub spares_the_well: bool,
}

/// By what a start is recognised in a task that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// By nothing: such a task has been started by somebody else.
    Never,
    /// By `attempt` and `instance`.
    ByClaim,
    /// By those, and by the runner's process and the time of the start.
    ByRunner,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            taken: true,
            waits_for_go: true,
            go_after_write: true,
            stored_after_write: true,
            looks_back: true,
            keeps: true,
            hears_out: true,
            named: true,
            attempt: true,
            instance: true,
            claim: true,
            recognition: Recognition::ByRunner,
            first_sending: true,
            renews_first: true,
            from_sending: true,
            looks_at_taken: true,
            names_time: true,
            new_time: true,
            names_unknown: true,
            gives_back_of_others: true,
            starts_once: true,
            take_recognition: Recognition::ByRunner,
            go_from_asking: true,
            waits_at_end: true,
            spares_the_well: true,
        }
    }
}

/// How often something may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// The DEN is killed, and started again.
    pub den_kills: u8,
    pub runner_kills: u8,
    /// An answer of the database is lost.
    pub losses: u8,
    /// A runner does not wait any longer for an answer of the DEN, or the DEN gives a write up.
    pub delays: u8,
    /// An idle runner is told to leave.
    pub leaves: u8,
    /// A process stands still until a lease is over.
    pub stalls: u8,
    /// A claim is lost in a failover.
    pub rollbacks: u8,
    /// The DEN is told to end, and started again.
    pub ends: u8,
}

/// How the DEN gets tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It claims them, and starts each when a runner has taken it.
    Claimed,
    /// It has runners ready, and starts tasks for them in one write: a first one for each, then others in the slots of those that end.
    Ready,
    /// Either, as it comes.
    Both,
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub rules: Rules,
    pub way: Way,
    /// How many tasks are queued.
    pub tasks: usize,
    /// How many runners there are at once.
    pub runners: usize,
    /// `threads` of the queue.
    pub limit: usize,
    /// A task whose runner is lost is queued again until this happened so often.
    pub max_attempts: u8,
    /// What may go wrong.
    pub faults: Faults,
}

/// One atomic step. Numbers are places in the lists of [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The DEN claims this task, acknowledged by one member only.
    Claim(usize),
    /// The DEN starts a runner.
    Spawn(usize),
    /// The DEN confirms its claim and assigns the task to this runner.
    Assign(usize),
    /// The DEN reads what this runner says.
    Hear(usize),
    /// The database makes this write for this runner, and the DEN passes on what became of it.
    Write(usize, usize),
    /// The same, but the answer is lost: the write will be repeated.
    WriteUnanswered(usize, usize),
    /// The DEN gives the write up.
    WriteGivenUp(usize, usize),
    /// The DEN finds out what an ended runner has left.
    Settle(usize),
    /// The DEN sends the start of this task for this runner, which is ready.
    ClaimFor(usize, usize),
    /// The DEN sends the start of this task in the slot of the one whose end it is about to write for this runner.
    TakeNext(usize, usize),
    /// The DEN tells this runner of the task that was started for it; or nobody, if that one has not become free.
    Tell(usize),
    /// The DEN gives a start back.
    PutBack(usize),
    /// The same, but that comes later; it will be repeated.
    PutBackLater(usize),
    /// The DEN kills this runner because it does not take its task.
    GiveUpRunner(usize),
    /// The DEN is told to end.
    EndDen,
    KillDen,
    /// The DEN is started again.
    RestartDen,
    /// A write of a killed DEN arrives.
    Late(usize),
    /// A write of a killed DEN never arrives.
    NeverArrives(usize),
    /// A claim is lost in a failover.
    RollBack(usize),
    /// A claim that nobody has started is given back: its lease is over.
    SweepClaimed(usize),
    /// The lease of a running task comes to its end.
    LeaseEnds(usize),
    /// Some DEN buries a task whose lease is over.
    BuryExpired(usize),
    /// The runner reads what the DEN says.
    Read(usize),
    /// The runner reads what the DEN says, and cannot say all of its answer.
    CannotSay(usize),
    /// The runner gives the link up.
    GiveUp(usize),
    /// The runner is told to leave when it has nothing to do.
    Leave(usize),
    /// The runner starts its task by itself.
    StartAlone(usize),
    /// The same, but the answer is lost.
    StartUnanswered(usize),
    /// The runner asks for a renewal.
    AskRenewal(usize),
    /// The runner renews its lease by itself.
    RenewAlone(usize),
    /// The runner's guard begins the plugin.
    Begin(usize),
    /// The plugin ends, by itself or by the guard.
    PluginEnds(usize),
    /// The runner asks for its result to be stored.
    AskFinish(usize),
    /// The runner stores its result by itself.
    FinishAlone(usize),
    /// The same, but the answer is lost.
    FinishUnanswered(usize),
    KillRunner(usize),
}

impl Model for Linked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{
            BuryExpired, Claim, EndDen, KillDen, LeaseEnds, NeverArrives, PutBack, PutBackLater, RestartDen,
            RollBack, SweepClaimed,
        };
        if state.den.up {
            actions.extend([KillDen, EndDen]);
        } else {
            actions.push(RestartDen);
        }
        for number in 0..state.den.untold.len() {
            actions.extend([PutBack(number), PutBackLater(number)]);
        }
        for (number, task) in state.tasks.iter().enumerate() {
            match (task.status, task.lease) {
                (Status::Queued, _) => {
                    actions.push(Claim(number));
                    for runner in 0..state.runners.len() {
                        actions.extend([Action::ClaimFor(runner, number), Action::TakeNext(runner, number)]);
                    }
                }
                (Status::Claimed, _) => actions.extend([SweepClaimed(number), RollBack(number)]),
                (Status::Running, Lease::Over) => actions.push(BuryExpired(number)),
                (Status::Running, _) => actions.push(LeaseEnds(number)),
                (Status::Finished | Status::Orphaned, _) => {}
            }
        }
        for number in 0..state.late.len() {
            actions.extend([Action::Late(number), NeverArrives(number)]);
        }
        for (number, runner) in state.runners.iter().enumerate() {
            of_attendant(number, runner, actions);
            of_runner(number, runner, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let possible = den::step(self, &mut state, action)
            .or_else(|| runner::step(self, &mut state, action))
            .or_else(|| database::step(self, &mut state, action));
        if possible != Some(true) {
            return None;
        }
        state.normalise();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

fn of_attendant(number: usize, runner: &state::Runner, actions: &mut Vec<Action>) {
    use Action::{Assign, GiveUpRunner, Hear, Settle, Spawn, Tell, Write, WriteGivenUp, WriteUnanswered};
    let Some(attendant) = &runner.attendant else {
        if runner.process == Process::Absent {
            actions.push(Spawn(number));
        }
        return;
    };
    for write in 0..attendant.writes.len() {
        actions.extend([Write(number, write), WriteUnanswered(number, write), WriteGivenUp(number, write)]);
    }
    if attendant.current.is_none() {
        actions.push(Assign(number));
    } else {
        actions.push(GiveUpRunner(number));
    }
    if attendant.next.is_some() {
        actions.push(Tell(number));
    }
    if !runner.said.is_empty() {
        actions.push(Hear(number));
    }
    if runner.process == Process::Ended {
        actions.push(Settle(number));
    }
}

fn of_runner(number: usize, runner: &state::Runner, actions: &mut Vec<Action>) {
    use Action::{
        AskFinish, AskRenewal, Begin, CannotSay, FinishAlone, FinishUnanswered, GiveUp, KillRunner, Leave,
        PluginEnds, Read, RenewAlone, StartAlone, StartUnanswered,
    };
    if runner.plugin.is_some() {
        actions.push(PluginEnds(number));
    }
    if runner.process != Process::Lives {
        return;
    }
    actions.extend([KillRunner(number), GiveUp(number)]);
    if runner.linked {
        actions.extend([Read(number), CannotSay(number)]);
    }
    match runner.phase {
        Phase::Idle => actions.push(Leave(number)),
        Phase::Assigned(_) => actions.push(Begin(number)),
        Phase::Starting(_) => actions.extend([StartAlone(number), StartUnanswered(number)]),
        Phase::Started(_) => actions.extend([Begin(number), AskRenewal(number), RenewAlone(number)]),
        Phase::Working(_) => actions.extend([AskRenewal(number), RenewAlone(number)]),
        Phase::Storing(_) => actions.extend([
            AskRenewal(number),
            AskFinish(number),
            FinishAlone(number),
            FinishUnanswered(number),
        ]),
    }
}
