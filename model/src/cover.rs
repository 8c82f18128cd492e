//! A run without a lease of its own, as its DEN answers for it.
//!
//! There is one run. Its runner asks its DEN now and then whether the plugin may go on. The DEN removes the lease that the task has, then looks
//! whether the task is still there without one, and says so. Others give the task a lease when they think that nobody answers for it, which they may
//! think at any time, and take the task away when that is over. The runner may also take a lease by itself, and one round may still be
//! under way when the next begins.
//!
//! # What holds
//!
//! *A task that was taken away has no plugin that works* ([`OWNED`]).
//!
//! # Why
//!
//! Who takes it away has found a lease that is over, which lasts longer than what a plugin is given. A lease that others give is a whole one. So when
//! the DEN saw none, the end of any was more than that ahead. What the plugin is given counts from before it looked.
//!
//! # Time
//!
//! All times are what is left, and a [`Action::Tick`] takes one from each. So the clocks of the processes go alike; how the guard's does is
//! what [`crate::timing`] is about. Between two ticks anything may happen, in any order.
//!
//! # A second primary
//!
//! A server that was the primary answers the DEN, until it learns that it is none ([`Action::Split`], [`Action::Heal`]). What is done there is lost. The others, and what a
//! majority has to acknowledge, are at the new one.

use stateright::{Model, Property};

/// No plugin works for a task that was taken away.
pub const OWNED: &str = "who works has the task";
/// Some path has the plugin work for a covered task for longer than a lease.
pub const LONG: &str = "a covered run goes on";
/// Some path has a task taken away.
pub const BURIED: &str = "a task is taken away";

/// How long a lease is.
const LEASE: u8 = 4;

/// How long a plugin may live for it.
const SHARE: u8 = 3;

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Rules {
    /// The DEN looks whether the task is still there; else it answers for it without.
    pub looks: bool,
    /// It says that the plugin may go on only if it has seen no lease.
    pub sees_no_lease: bool,
    /// What is given to the plugin counts from before the DEN looked.
    pub counts_from_asking: bool,
    /// The server that tells the DEN is the primary.
    pub asks_primary: bool,
    /// A lease that others give is a whole one.
    pub gives_whole_leases: bool,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            looks: true,
            sees_no_lease: true,
            counts_from_asking: true,
            asks_primary: true,
            gives_whole_leases: true,
        }
    }
}

/// What is checked: rules with so many rounds at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    pub rules: Rules,
    pub rounds: usize,
}

/// The task, as a server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    Covered,
    /// So much is left of its lease.
    Leased(u8),
    TakenAway,
}

/// How far a renewal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The DEN was asked.
    Asked,
    /// It has removed the lease, or was about to.
    Removed,
    /// The plugin may go on.
    Held,
    /// The runner renews its lease by itself.
    Alone,
}

/// A renewal, and how long a plugin may live for it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round {
    pub stage: Stage,
    pub left: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub task: Task,
    /// The task at the server that was the primary, while that still thinks that it is.
    pub old: Option<Task>,
    pub rounds: Vec<Round>,
    /// How long the plugin may live yet.
    pub plugin: u8,
    /// Not in the world: for how long there has been no lease.
    pub covered_for: u8,
}

/// One atomic step. The numbers are places in the list of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    /// Another server is the primary, and the DEN is still at the first.
    Split,
    /// That one learns of it.
    Heal,
    /// The runner asks its DEN.
    Ask,
    /// It renews its lease by itself.
    Renew,
    /// The next step of a round.
    Go(usize),
    /// What a round was to do is not done, or its answer is lost.
    Lose(usize),
    /// Somebody gives the task a lease.
    Give,
    /// Somebody takes it away.
    Bury,
}

impl Model for Cover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let task = Task::Leased(LEASE);
        vec![State { task, old: None, rounds: Vec::new(), plugin: SHARE, covered_for: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{Ask, Bury, Give, Go, Heal, Lose, Renew, Split, Tick};
        actions.extend([Tick, Split, Heal, Ask, Renew, Give, Bury]);
        actions.extend((0..state.rounds.len()).flat_map(|round| [Go(round), Lose(round)]));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Split => state.old = Some(state.task),
            Action::Heal => state.old = None,
            Action::Ask => state.begin(Stage::Asked),
            Action::Renew => state.begin(Stage::Alone),
            Action::Go(round) => self.go(&mut state, round),
            Action::Lose(round) => drop(state.rounds.remove(round)),
            Action::Give if state.task == Task::Covered => {
                state.task = Task::Leased(if self.rules.gives_whole_leases { LEASE } else { SHARE - 1 });
            }
            Action::Bury if state.task == Task::Leased(0) => state.task = Task::TakenAway,
            Action::Give | Action::Bury => return None,
        }
        state.rounds.sort_unstable();
        let is_possible =
            state.rounds.len() <= self.rounds && !(action == Action::Split && last.old.is_some());
        (state != *last && is_possible).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(OWNED, |_, state: &State| state.task != Task::TakenAway || state.plugin == 0),
            Property::sometimes(LONG, |_, state: &State| state.covered_for > LEASE && state.plugin > 0),
            Property::sometimes(BURIED, |_, state: &State| state.task == Task::TakenAway),
        ]
    }
}

impl Cover {
    fn go(&self, state: &mut State, number: usize) {
        let Round { stage, left } = state.rounds.remove(number);
        let left = if self.rules.counts_from_asking { left } else { SHARE };
        let task = *state.old.as_ref().unwrap_or(&state.task);
        let next = match stage {
            Stage::Asked if !self.rules.looks => Some(Stage::Held),
            Stage::Asked => {
                if task != Task::TakenAway {
                    *state.old.as_mut().unwrap_or(&mut state.task) = Task::Covered;
                }
                Some(Stage::Removed)
            }
            Stage::Removed => {
                let is_told = state.old.is_none() || !self.rules.asks_primary;
                let is_held = match task {
                    Task::Covered => true,
                    Task::Leased(_) => !self.rules.sees_no_lease,
                    Task::TakenAway => false,
                };
                (is_told && is_held).then_some(Stage::Held)
            }
            Stage::Held => {
                // A plugin that has ended does not begin again.
                if state.plugin > 0 {
                    state.plugin = state.plugin.max(left);
                }
                None
            }
            // A majority has it, so it is at the primary.
            Stage::Alone => (state.task != Task::TakenAway).then(|| {
                state.task = Task::Leased(LEASE);
                Stage::Held
            }),
        };
        state.rounds.extend(next.map(|stage| Round { stage, left }));
    }
}

impl State {
    fn begin(&mut self, stage: Stage) {
        self.rounds.push(Round { stage, left: SHARE });
    }

    fn tick(&mut self) {
        self.covered_for = match self.task {
            Task::Covered => (self.covered_for + 1).min(LEASE + 1),
            _ => 0,
        };
        for task in [Some(&mut self.task), self.old.as_mut()].into_iter().flatten() {
            if let Task::Leased(left) = task {
                *left = left.saturating_sub(1);
            }
        }
        self.plugin = self.plugin.saturating_sub(1);
        self.rounds.iter_mut().for_each(|round| round.left = round.left.saturating_sub(1));
    }
}
