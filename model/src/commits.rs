//! A task that its plugin ends in a transaction of its own, beside those who end or retry it otherwise.
//!
//! The plugin of each attempt goes on for as long as it likes, whoever has taken its task away; its transaction, which has the effects and a document
//! under the name of the attempt, may be open for as long. A runner and DENs want to end the attempt otherwise, or have another one. Each may stand still
//! between any two of its steps. *What a plugin has committed is how its task ends, and no attempt begins after it* ([`STANDS`]); *and a task that has
//! ended so has its effects* ([`THEIRS`]).
//!
//! # Why
//!
//! Whoever ends an attempt otherwise first has a document under its name by which nobody is to commit. The server lets one document of a name in, so
//! from then on either there are no effects of the attempt and never will be, or they are there, and that document says how the task ends. The
//! task itself is changed on the condition that the same attempt runs, so nothing that was settled is written for another one.
//!
//! # What is left out
//!
//! That a failover takes a commit, or what was settled, back. Both are known to a majority before the task is changed.

use stateright::{Model, Property};

/// The effects of an attempt are those of a task that runs in it, or has ended by it.
pub const STANDS: &str = "what was committed is how the task ends";
/// A task that has ended by a commit has the effects of that attempt.
pub const THEIRS: &str = "who is ended by a commit has its effects";
/// Some path has a DEN find that the plugin of a run has committed.
pub const FOUND: &str = "a burial ends the task as it was committed";
/// Some path has the second attempt commit.
pub const SECOND: &str = "a later attempt commits";
/// Some path has a plugin that comes too late.
pub const LATE: &str = "a plugin that has lost its task cannot commit";

/// What somebody makes of a transaction that is open when it settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It waits for the end of it.
    IsAwaited,
    IsNone,
    IsCommitted,
}

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Rules {
    /// A DEN settles an attempt before it buries it.
    pub burials_settle: bool,
    /// A runner does so before it ends it.
    pub ends_settle: bool,
    /// The plugin inserts its document; else it writes it, whatever is there.
    pub inserts: bool,
    pub open: Open,
    /// A task is changed only while it runs in the attempt that was settled.
    pub fences: bool,
    /// Each attempt has a document of its own.
    pub names_attempts: bool,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            burials_settle: true,
            ends_settle: true,
            inserts: true,
            open: Open::IsAwaited,
            fences: true,
            names_attempts: true,
        }
    }
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commits {
    pub rules: Rules,
    /// So often the task is tried at most.
    pub attempts: usize,
    /// So many DENs bury.
    pub dens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    Queued,
    Running,
    /// It has ended, by the commit of this attempt or otherwise.
    Ended(Option<usize>),
}

/// What is under the name of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    None,
    /// A transaction of this attempt's plugin has it, and has not ended.
    Open(usize),
    Committed(usize),
    /// Nobody commits by it.
    Never,
}

/// Who wants the running attempt to be over: a runner, whose plugin has exited or not, or a DEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ender {
    Idle,
    /// It has seen this attempt run.
    Saw(usize),
    /// It knows whether its plugin has committed.
    Settled(usize, bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    task: Task,
    /// How many have begun. The one that runs is the last.
    begun: usize,
    entries: Vec<Entry>,
    /// Of which attempts the plugin can still do something.
    works: Vec<bool>,
    effects: Vec<bool>,
    /// The runner of each attempt, then DENs.
    enders: Vec<Ender>,
    found: bool,
    late: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Begin,
    /// A plugin adds its document to its transaction.
    Insert(usize),
    Commit(usize),
    /// A plugin's transaction is aborted, or the plugin ends without any.
    Abort(usize),
    /// An ender sees what runs.
    Look(usize),
    Settle(usize),
    /// An ender changes the task: if nobody has committed, it has it tried again if this says so.
    Change(usize, bool),
}

impl Model for Commits {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment {
            task: Task::Queued,
            begun: 0,
            entries: vec![Entry::None; self.attempts],
            works: vec![false; self.attempts],
            effects: vec![false; self.attempts],
            enders: vec![Ender::Idle; self.attempts + self.dens],
            found: false,
            late: false,
        }]
    }

    fn actions(&self, moment: &Moment, events: &mut Vec<Event>) {
        events.push(Event::Begin);
        let plugins = 0..moment.begun;
        events.extend(
            plugins
                .flat_map(|attempt| [Event::Insert(attempt), Event::Commit(attempt), Event::Abort(attempt)]),
        );
        let enders = 0..moment.enders.len();
        events.extend(enders.flat_map(|ender| {
            [
                Event::Look(ender),
                Event::Settle(ender),
                Event::Change(ender, false),
                Event::Change(ender, true),
            ]
        }));
    }

    fn next_state(&self, last: &Moment, event: Event) -> Option<Moment> {
        let mut next = last.clone();
        let possible = match event {
            Event::Begin => {
                if last.begun < self.attempts {
                    next.works[last.begun] = true;
                }
                next.begun += 1;
                next.task = Task::Running;
                last.task == Task::Queued && last.begun < self.attempts
            }
            Event::Insert(attempt) => self.insert(&mut next, attempt),
            Event::Commit(attempt) => {
                *next.entry(self, attempt) = Entry::Committed(attempt);
                next.effects[attempt] = true;
                next.works[attempt] = false;
                last.works[attempt] && last.entries[self.name(attempt)] == Entry::Open(attempt)
            }
            Event::Abort(attempt) => {
                if last.entries[self.name(attempt)] == Entry::Open(attempt) {
                    *next.entry(self, attempt) = Entry::None;
                }
                next.works[attempt] = false;
                last.works[attempt]
            }
            Event::Look(ender) => self.look(&mut next, ender),
            Event::Settle(ender) => self.settle(&mut next, ender),
            Event::Change(ender, again) => self.change(&mut next, ender, again),
        };
        (possible && next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(STANDS, |_, moment: &Moment| {
                let mut committed = moment.effects.iter().enumerate().filter(|(_, is)| **is);
                committed.all(|(attempt, _)| match moment.task {
                    Task::Running => moment.begun == attempt + 1,
                    Task::Ended(by) => by == Some(attempt),
                    Task::Queued => false,
                })
            }),
            Property::always(THEIRS, |_, moment: &Moment| match moment.task {
                Task::Ended(Some(attempt)) => moment.effects[attempt],
                Task::Ended(None) | Task::Queued | Task::Running => true,
            }),
            Property::sometimes(FOUND, |_, moment: &Moment| moment.found),
            Property::sometimes(SECOND, |_, moment: &Moment| moment.task == Task::Ended(Some(1))),
            Property::sometimes(LATE, |_, moment: &Moment| moment.late),
        ]
    }
}

impl Commits {
    /// The name of its document, as a number.
    fn name(&self, attempt: usize) -> usize {
        if self.rules.names_attempts { attempt } else { 0 }
    }

    fn insert(&self, moment: &mut Moment, attempt: usize) -> bool {
        let entry = moment.entries[self.name(attempt)];
        match entry {
            // The server has the second of two transactions fail.
            Entry::Open(_) => return false,
            Entry::Committed(_) | Entry::Never if self.rules.inserts => {
                moment.late |= moment.works[attempt];
                moment.works[attempt] = false;
                return true;
            }
            Entry::None | Entry::Committed(_) | Entry::Never => {
                *moment.entry(self, attempt) = Entry::Open(attempt)
            }
        }
        moment.works[attempt]
    }

    fn look(&self, moment: &mut Moment, ender: usize) -> bool {
        let runs = moment.begun.checked_sub(1).filter(|_| moment.task == Task::Running);
        // A runner ends its own attempt.
        let Some(attempt) = runs.filter(|attempt| ender >= self.attempts || ender == *attempt) else {
            return false;
        };
        std::mem::replace(&mut moment.enders[ender], Ender::Saw(attempt)) == Ender::Idle
    }

    fn settle(&self, moment: &mut Moment, ender: usize) -> bool {
        let Ender::Saw(attempt) = moment.enders[ender] else { return false };
        let settles = if ender < self.attempts { self.rules.ends_settle } else { self.rules.burials_settle };
        let entry = moment.entry(self, attempt);
        let is_committed = match *entry {
            _ if !settles => false,
            Entry::Open(_) if self.rules.open == Open::IsAwaited => return false,
            Entry::Open(_) => self.rules.open == Open::IsCommitted,
            Entry::Committed(_) => true,
            Entry::None | Entry::Never => {
                *entry = Entry::Never;
                false
            }
        };
        moment.enders[ender] = Ender::Settled(attempt, is_committed);
        true
    }

    fn change(&self, moment: &mut Moment, ender: usize, again: bool) -> bool {
        let Ender::Settled(attempt, is_committed) = moment.enders[ender] else { return false };
        moment.enders[ender] = Ender::Idle;
        if moment.task == Task::Running && (moment.begun == attempt + 1 || !self.rules.fences) {
            moment.found |= is_committed && ender >= self.attempts;
            moment.task = match is_committed {
                true => Task::Ended(Some(attempt)),
                false if again && moment.begun < self.attempts => Task::Queued,
                false => Task::Ended(None),
            };
        }
        true
    }
}

impl Moment {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.task, Task::Ended(_))
    }

    fn entry(&mut self, commits: &Commits, attempt: usize) -> &mut Entry {
        &mut self.entries[commits.name(attempt)]
    }
}
