//! The protocol as a transition system: which steps are possible, and which properties must hold.

use crate::protocol::Protocol;
use crate::state::{Database, Den, PerlDen, Phase, Plugin, State, Status, Step, Task};
use crate::{den, properties, runner, world};
use stateright::{Model, Property};

/// One atomic step of one process, or of the world around them. The numbers are places in the lists of [`State`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A DEN reads `threads`.
    ReadQueue(u8),
    /// A DEN reads the tasks in status -1 and 0 with their slots.
    ReadRunning(u8),
    /// A DEN claims this task with its next slot; it may find that slot taken.
    Claim(u8, u8),
    /// A DEN without claims ends its round.
    EndRound(u8),
    /// A DEN reads `threads` again.
    Reread(u8),
    /// A DEN counts again, and decides what it launches.
    Count(u8),
    /// A DEN gives a claim back.
    GiveBack(u8),
    /// A DEN launches a runner.
    Launch(u8),
    /// A DEN is killed.
    CrashDen(u8),
    /// A DEN starts, as a new instance of the same node.
    RestartDen(u8),
    /// Some DEN queues a task again whose claim's lease is over.
    SweepClaimed(u8),
    /// A DEN kills the processes of a task of its node whose lease is over.
    Kill(u8),
    /// A DEN orphans a task of its own node.
    OrphanOwn(u8),
    /// A DEN orphans a task of another node.
    OrphanOther(u8),
    /// A runner starts its task.
    Start(u8),
    /// A runner's guard begins the plugin.
    Begin(u8),
    /// A plugin ends by itself.
    PluginEnds(u8),
    /// A guard ends the plugin, or will not begin it: the runner is dead or silent, or its lease is nearly over.
    GuardEnds(u8),
    /// A runner renews its lease.
    Renew(u8),
    /// A runner stores how its plugin ended, and leaves.
    Finish(u8),
    /// A runner is killed.
    CrashRunner(u8),
    /// The lease of a task comes to its end.
    LeaseEnds(u8),
    /// The operator sets `threads`.
    SetLimit(u8),
    /// The database goes away.
    DatabaseGoes,
    /// The database comes back.
    DatabaseReturns,
    /// The database has been back for a whole lease.
    DatabaseStays,
    /// A Perl DEN counts.
    PerlCount(u8),
    /// A Perl DEN claims a task and launches a runner.
    PerlClaim(u8, u8),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let setting = &self.setting;
        vec![State {
            limit: setting.limits[0],
            database: Database::Up,
            tasks: vec![Task::queued(); usize::from(setting.tasks)],
            dens: vec![Den { instance: 0, step: Step::Idle }; usize::from(setting.dens)],
            perl_dens: setting.perl_dens.iter().map(|&node| PerlDen { node, sees_room: false }).collect(),
            runners: Vec::new(),
            order: Vec::new(),
            stale_start: false,
            stale_write: false,
            robbed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, den) in (0..).zip(&state.dens) {
            of_den(number, den, state, actions);
        }
        for (number, den) in (0..).zip(&state.perl_dens) {
            if den.sees_room {
                actions
                    .extend(with_status(state, Status::Queued).map(|task| Action::PerlClaim(number, task)));
            } else {
                actions.push(Action::PerlCount(number));
            }
        }
        for (number, runner) in (0..).zip(&state.runners) {
            of_runner(number, runner.phase, runner.plugin, actions);
        }
        for task in with_status(state, Status::Claimed) {
            actions.extend([Action::SweepClaimed(task), Action::LeaseEnds(task)]);
        }
        for task in with_status(state, Status::Running) {
            actions.extend([Action::OrphanOwn(task), Action::OrphanOther(task), Action::LeaseEnds(task)]);
        }
        actions
            .extend(self.setting.limits.iter().filter(|&&l| l != state.limit).map(|&l| Action::SetLimit(l)));
        actions.extend([Action::DatabaseGoes, Action::DatabaseReturns, Action::DatabaseStays]);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if !action.is_local() && last.database == Database::Down {
            return None;
        }
        let mut state = last.clone();
        let possible = den::step(self, &mut state, &action)
            .or_else(|| runner::step(self, &mut state, &action))
            .or_else(|| world::step(self, &mut state, &action));
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

fn with_status(state: &State, status: Status) -> impl Iterator<Item = u8> + use<'_> {
    (0..).zip(&state.tasks).filter(move |(_, task)| task.status == status).map(|(number, _)| number)
}

fn of_den(number: u8, den: &Den, state: &State, actions: &mut Vec<Action>) {
    match &den.step {
        Step::Down => actions.push(Action::RestartDen(number)),
        Step::Idle => actions.push(Action::ReadQueue(number)),
        Step::Queue { .. } => actions.push(Action::ReadRunning(number)),
        Step::Claiming { slots, claims } => {
            if !slots.is_empty() {
                actions.extend(with_status(state, Status::Queued).map(|task| Action::Claim(number, task)));
            }
            actions.push(if claims.is_empty() { Action::EndRound(number) } else { Action::Reread(number) });
        }
        Step::Confirming { .. } => actions.push(Action::Count(number)),
        Step::Confirmed { back, .. } => {
            actions.push(if back.is_empty() { Action::Launch(number) } else { Action::GiveBack(number) });
        }
    }
    if den.step != Step::Down {
        actions.push(Action::CrashDen(number));
    }
}

fn of_runner(number: u8, phase: Phase, plugin: Plugin, actions: &mut Vec<Action>) {
    match plugin {
        Plugin::Runs => actions.extend([Action::PluginEnds(number), Action::GuardEnds(number)]),
        Plugin::NotYet if phase == Phase::Started => {
            actions.extend([Action::Begin(number), Action::GuardEnds(number)]);
        }
        Plugin::NotYet | Plugin::Gone => {}
    }
    match (phase, plugin) {
        (Phase::Launched, _) => actions.extend([Action::Start(number), Action::CrashRunner(number)]),
        (Phase::Started, _) => {
            let next = if plugin == Plugin::Gone { Action::Finish(number) } else { Action::Renew(number) };
            actions.extend([next, Action::CrashRunner(number), Action::Kill(number)]);
        }
        (Phase::Dead, _) => actions.push(Action::Kill(number)),
    }
}

impl Action {
    /// Whether it needs no database.
    fn is_local(&self) -> bool {
        matches!(
            self,
            Self::EndRound(_)
                | Self::Launch(_)
                | Self::CrashDen(_)
                | Self::RestartDen(_)
                | Self::Begin(_)
                | Self::PluginEnds(_)
                | Self::GuardEnds(_)
                | Self::CrashRunner(_)
                | Self::LeaseEnds(_)
                | Self::DatabaseGoes
                | Self::DatabaseReturns
        )
    }
}
