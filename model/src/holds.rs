//! Who has a slot of a queue, where a document says so, and no index over running tasks keeps them apart.
//!
//! A slot that somebody has is a document with queue and slot as its `_id`, and a holder: an id that a DEN draws when it starts. The DEN
//! starts tasks in the slots that it has, one after the other, and does not look at their documents again. Each start carries a fence, a
//! time of the server's clock, after which the server refuses it. Each heartbeat gives the DEN a later one.
//!
//! # What holds
//!
//! *There are never two tasks, claimed or running, in one slot* ([`ONE`]). So there are never more of them than slots.
//!
//! # Why
//!
//! A task is in a slot only while the document of the slot names the holder that the task was started under ([`OWNED`]). A document names
//! one holder, so all tasks in a slot have the same. And its DEN starts a task only where it knows that none of its own is.
//!
//! It remains that a document goes only when no task of its holder is in the slot, and none comes. It goes in two ways. The DEN of the
//! holder has it deleted: it knows that there is no task, and starts none there any more. Or somebody else has, who has looked for tasks
//! when no start of the holder could be made any more, and has found none. A deletion that comes late names a holder that has nothing in
//! that slot, then or later.
//!
//! # Time
//!
//! A fence passes at any time ([`Action::Pass`]): its DEN stands still, is dead, or just late, and need not notice. The server reads its
//! clock once for a command, and may take long over the rest; so a start whose fence it has compared may be written after that. Others
//! take a holder for gone when that is over, too ([`Action::Close`]): that is what the margin is for. It is longer than a start may
//! take, which the server enforces. A process that stands still is one whose next step comes late.
//!
//! # Commands and answers
//!
//! A command is on its way until the server does it, which may be at any time, or until it is sure that it will not
//! ([`Action::Drop`]): it was lost, or its fence has passed. Its answer need not arrive. A DEN reads what it has to know; what it does not
//! know to be over it takes for being on its way.
//!
//! # What is left out
//!
//! Tasks are alike, and there are always more. A claim is a start that no runner was told of; it carries a fence as well. A failover takes
//! nothing back: who relies on a document, or on the end or absence of a task, knows that a majority has it. The server's clock does not
//! go back by more than the margin, nor is that of the next server so far behind. Each holder beats for itself: no other one hides its
//! heartbeats. A reading of tasks is one moment: those of a holder that is gone only become fewer, so a scan does as well, unless one of
//! them can pass it by unseen.

pub mod state;

use stateright::{Model, Property};

use self::state::{Command, Den, Fence, Kind, State, Task, View};

/// No two tasks in one slot.
pub const ONE: &str = "one task is in a slot";
/// Why there are not: the holder that a task was started under still has its slot.
pub const OWNED: &str = "a task is in a slot of its holder";
/// Some path has a task in each slot.
pub const FULL: &str = "all slots are used";
/// Some path has a slot go from task to task in one command.
pub const HANDED: &str = "a slot is handed over";
/// Some path has a slot used that was taken back from a holder that is gone.
pub const REUSED: &str = "a slot is taken back and used again";

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Rules {
    /// A slot is taken by an insert, which fails where there is a document.
    pub inserts: bool,
    /// The server refuses a start whose fence has passed.
    pub fences: bool,
    /// The server ends what takes longer than the margin.
    pub bounds_starts: bool,
    /// A DEN whose fence had passed draws a new id.
    pub draws_anew: bool,
    /// Only slots without a task are taken back.
    pub looks_for_tasks: bool,
    /// It is looked for them when the holder is gone.
    pub looks_when_gone: bool,
    /// A deletion names the holder.
    pub names_holders: bool,
    /// A start is not made when the end before it in the same command has failed.
    pub ends_first: bool,
    /// A start without an answer is made yet, for all that its DEN knows, until its fence has passed.
    pub waits_for_starts: bool,
    /// A DEN does not use a slot again, under the same id, that it may still have deleted.
    pub waits_for_deletions: bool,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            inserts: true,
            fences: true,
            bounds_starts: true,
            draws_anew: true,
            looks_for_tasks: true,
            looks_when_gone: true,
            names_holders: true,
            ends_first: true,
            waits_for_starts: true,
            waits_for_deletions: true,
        }
    }
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    pub rules: Rules,
    pub dens: usize,
    /// `threads` of the queue.
    pub slots: usize,
    /// So many commands are on their way at once.
    pub commands: usize,
    /// So many holders are named anywhere at once.
    pub holders: usize,
    /// It is remembered how tasks came to their slots, for [`HANDED`] and [`REUSED`]. There are more states then.
    pub history: bool,
}

/// One atomic step. The numbers are places in the lists of [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The fence of a holder passes.
    Pass(usize),
    /// A holder is gone: it has not beaten for longer than its fence and the margin.
    Close(usize),
    /// A DEN learns that its fence had passed.
    Beat(usize),
    /// A DEN is killed and started again. What it has sent is on its way, and its tasks go on.
    Restart(usize),
    /// A DEN takes a slot.
    Take(usize, usize),
    /// A DEN learns that it has a slot: by the answer, or it has read the document.
    Find(usize, usize),
    /// A DEN has the document of a slot deleted.
    Release(usize, usize),
    /// A DEN starts a task in a slot.
    Start(usize, usize),
    /// A DEN ends a task and starts another one in its slot, by one command.
    HandOver(usize, usize),
    /// A DEN learns that its task in a slot has ended, or was not started.
    Learn(usize, usize),
    /// Somebody finds the holder of a slot gone, and no task, and has the document deleted.
    TakeBack(usize),
    /// A task ends, or is buried.
    End(usize),
    /// The server does a command, or the first part of it.
    Execute(usize),
    /// The end in a command fails.
    Fail(usize),
    /// A command will not be done.
    Drop(usize),
}

impl Model for Holds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let den = |holder| Den { holder, views: vec![View::NotOurs; self.slots] };
        vec![State {
            documents: vec![None; self.slots],
            taken_back: vec![false; self.slots],
            fences: vec![Fence::Ahead; self.dens],
            dens: (0..self.dens).map(den).collect(),
            tasks: Vec::new(),
            commands: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{
            Beat, Close, Drop, End, Execute, Fail, Find, HandOver, Learn, Pass, Release, Restart, Start,
            Take, TakeBack,
        };
        actions.extend((0..state.fences.len()).flat_map(|holder| [Pass(holder), Close(holder)]));
        actions.extend((0..state.tasks.len()).map(End));
        actions.extend((0..state.commands.len()).flat_map(|it| [Execute(it), Fail(it), Drop(it)]));
        actions.extend((0..self.slots).map(TakeBack));
        for den in 0..self.dens {
            actions.extend([Beat(den), Restart(den)]);
            actions.extend((0..self.slots).flat_map(|slot| {
                [Take(den, slot), Find(den, slot), Release(den, slot), Start(den, slot), HandOver(den, slot)]
            }));
            actions.extend((0..self.slots).map(|slot| Learn(den, slot)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let possible = match action {
            Action::Pass(holder) => {
                std::mem::replace(&mut state.fences[holder], Fence::Passed) == Fence::Ahead
            }
            Action::Close(holder) => {
                let may_write = |it: &Command| it.holder == holder && matches!(it.kind, Kind::Write { .. });
                let is_over = !self.rules.bounds_starts || !state.commands.iter().any(may_write);
                std::mem::replace(&mut state.fences[holder], Fence::Gone) == Fence::Passed && is_over
            }
            Action::Beat(den) => {
                let holder = state.dens[den].holder;
                if self.rules.draws_anew {
                    state.draw(den);
                } else {
                    state.fences[holder] = Fence::Ahead;
                }
                last.fences[holder] != Fence::Ahead
            }
            Action::Restart(den) => {
                state.draw(den);
                true
            }
            Action::Take(den, slot) => {
                let may_take = !self.may_delete(last, den, slot);
                may_take && state.send(Kind::Insert, den, slot, [View::NotOurs; 2])
            }
            Action::Find(den, slot) => {
                let is_ours = last.documents[slot] == Some(last.dens[den].holder);
                let view = std::mem::replace(&mut state.dens[den].views[slot], View::Free);
                is_ours && view == View::NotOurs && !self.may_delete(last, den, slot)
            }
            Action::Release(den, slot) => state.send(Kind::Release, den, slot, [View::Free, View::NotOurs]),
            Action::Start(den, slot) => state.send(Kind::Start, den, slot, [View::Free, View::Used]),
            Action::HandOver(den, slot) => {
                !last.may_start(den, slot) && state.send(Kind::HandOver, den, slot, [View::Used; 2])
            }
            Action::Learn(den, slot) => self.learn(&mut state, den, slot),
            Action::TakeBack(slot) => self.take_back(&mut state, slot),
            Action::End(task) => {
                state.tasks.remove(task);
                true
            }
            Action::Execute(command) => self.execute(&mut state, command),
            Action::Fail(command) => self.fail(&mut state, command),
            Action::Drop(command) => {
                state.commands.remove(command);
                true
            }
        };
        if !possible || state.commands.len() > self.commands {
            return None;
        }
        state.normalise();
        (state != *last && state.fences.len() <= self.holders).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |_, state: &State| {
                let count = |slot| state.tasks.iter().filter(|task| task.slot == slot).count();
                (0..state.documents.len()).all(|slot| count(slot) <= 1)
            }),
            Property::always(OWNED, |_, state: &State| {
                state.tasks.iter().all(|task| state.documents[task.slot] == Some(task.holder))
            }),
            Property::sometimes(FULL, |_, state: &State| {
                (0..state.documents.len()).all(|slot| state.tasks.iter().any(|task| task.slot == slot))
            }),
            Property::sometimes(HANDED, |_, state: &State| state.tasks.iter().any(|task| task.handed)),
            Property::sometimes(REUSED, |_, state: &State| {
                state.tasks.iter().any(|task| state.taken_back[task.slot])
            }),
        ]
    }
}

impl Holds {
    /// A deletion by this DEN may be on its way.
    fn may_delete(&self, state: &State, den: usize, slot: usize) -> bool {
        self.rules.waits_for_deletions && state.is_under_way(den, slot, |kind| kind == Kind::Release)
    }

    fn learn(&self, state: &mut State, den: usize, slot: usize) -> bool {
        let holder = state.dens[den].holder;
        let runs = state.tasks.iter().any(|task| task.slot == slot && task.holder == holder);
        let may_come = self.rules.waits_for_starts && state.may_start(den, slot);
        let view = std::mem::replace(&mut state.dens[den].views[slot], View::Free);
        view == View::Used && !runs && !may_come
    }

    fn take_back(&self, state: &mut State, slot: usize) -> bool {
        let Some(holder) = state.documents[slot] else { return false };
        let is_gone = state.fences[holder] == Fence::Gone || !self.rules.looks_when_gone;
        let is_free = state.tasks.iter().all(|task| task.slot != slot) || !self.rules.looks_for_tasks;
        state.commands.push(Command { kind: Kind::TakeBack, slot, holder });
        is_gone && is_free
    }

    fn execute(&self, state: &mut State, number: usize) -> bool {
        let Command { kind, slot, holder } = state.commands.remove(number);
        let fence = state.fences[holder];
        let passes = fence == Fence::Ahead || !self.rules.fences;
        let names = state.documents[slot] == Some(holder) || !self.rules.names_holders;
        match kind {
            Kind::Insert => {
                if state.documents[slot].is_none() || !self.rules.inserts {
                    state.documents[slot] = Some(holder);
                }
            }
            Kind::Release | Kind::TakeBack => {
                if names {
                    state.taken_back[slot] = kind == Kind::TakeBack && self.history;
                    state.documents[slot] = None;
                }
                // It is not sent before the holder is gone, whenever it was looked for tasks.
                return kind == Kind::Release || fence == Fence::Gone;
            }
            Kind::Start | Kind::HandOver => {
                let handed = kind == Kind::HandOver;
                if handed {
                    state.tasks.retain(|task| task.slot != slot || task.holder != holder);
                }
                if passes {
                    state.commands.push(Command {
                        kind: Kind::Write { handed: handed && self.history },
                        slot,
                        holder,
                    });
                }
            }
            Kind::Write { handed } => state.tasks.push(Task { slot, holder, handed }),
        }
        true
    }

    fn fail(&self, state: &mut State, number: usize) -> bool {
        let Command { kind, slot, holder } = state.commands.remove(number);
        if !self.rules.ends_first && state.fences[holder] == Fence::Ahead {
            state.commands.push(Command { kind: Kind::Write { handed: self.history }, slot, holder });
        }
        kind == Kind::HandOver
    }
}
