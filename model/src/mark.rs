//! Why a DEN finds no process of a task and still none is begun later: the mark of a guard.
//!
//! A guard serves one task after the other, so nothing that it was started with tells of which task it is. It takes a
//! mark with each: it goes to the folder of the task. When a runner has died, its DEN looks for the mark; if there is
//! none, the task is buried. But the dead runner's order to begin the plugin may still wait in the guard's socket.
//!
//! A warm plugin was begun for an earlier task, and is handed the next by the runner. The guard only has to be marked.

use stateright::{Model, Property};

/// Nothing of a buried task works.
pub const GONE: &str = "no plugin works after its task was buried";
/// The DEN does find something.
pub const FOUND: &str = "a search finds the guard";

/// When a guard looks whether its runner lives. Its orders end with the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Looks {
    /// Not at all: it begins what it was told to begin, and notices the end then.
    Never,
    /// Before it takes the mark.
    Before,
    /// When it has taken the mark.
    After,
}

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The guard begins the plugin.
    Cold(Looks),
    /// The runner hands the task to a warm plugin.
    Warm {
        /// Not before the guard has answered that it is marked.
        answered: bool,
    },
}

/// How far a guard is with its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// It has no order.
    Idle,
    Ordered,
    /// And has seen that its runner lives.
    Seen,
    /// It may begin the plugin, or it has answered that the runner may.
    Ready,
    /// It has begun the plugin.
    Begun,
    /// It has ended what there was, and taken off the mark.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The runner lives.
    pub runner: bool,
    /// The order is in the pipe.
    pub sent: bool,
    pub guard: Guard,
    /// The guard carries the mark.
    pub marked: bool,
    /// The plugin works on the task.
    pub works: bool,
    /// The DEN has found the mark once.
    pub found: bool,
    /// The DEN has buried the task.
    pub buried: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The runner sends its order.
    Send,
    /// The runner is killed.
    Kill,
    /// The guard makes its next step.
    Step,
    /// The runner hands the task to a warm plugin.
    HandOver,
    /// The guard notices that its orders have ended, and ends the plugin.
    Notice,
    /// The DEN, whose runner is dead, looks for the mark, and buries the task if there is none.
    Search,
}

impl Model for Mark {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        vec![Moment {
            runner: true,
            sent: false,
            guard: Guard::Idle,
            marked: false,
            works: false,
            found: false,
            buried: false,
        }]
    }

    fn actions(&self, _: &Moment, events: &mut Vec<Event>) {
        use Event::{HandOver, Kill, Notice, Search, Send, Step};
        events.extend([Send, Kill, Step, HandOver, Notice, Search]);
    }

    fn next_state(&self, last: &Moment, event: Event) -> Option<Moment> {
        let mut next = last.clone();
        let possible = match event {
            Event::Send => {
                next.sent = true;
                last.runner && !last.sent
            }
            Event::Kill => {
                next.runner = false;
                last.runner
            }
            Event::Step => self.step(&mut next),
            Event::HandOver => {
                next.works = true;
                let may = matches!(self, Self::Warm { answered } if !answered || last.guard == Guard::Ready);
                last.runner && last.sent && may
            }
            Event::Notice => {
                next.guard = Guard::Done;
                (next.marked, next.works) = (false, false);
                let reads = match self {
                    Self::Cold(_) => last.guard == Guard::Begun,
                    Self::Warm { .. } => last.guard == Guard::Ready,
                };
                !last.runner && reads
            }
            Event::Search => {
                next.found |= last.marked;
                next.buried |= !last.marked;
                !last.runner && !last.buried
            }
        };
        possible.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(GONE, |_, moment: &Moment| !(moment.buried && moment.works)),
            Property::sometimes(FOUND, |_, moment: &Moment| moment.found && moment.buried),
        ]
    }
}

impl Mark {
    fn step(self, moment: &mut Moment) -> bool {
        let ended = !moment.runner;
        match (moment.guard, self) {
            (Guard::Idle, _) => {
                moment.guard = Guard::Ordered;
                return moment.sent;
            }
            (Guard::Ordered, Self::Cold(Looks::Before)) => moment.look(Guard::Seen, ended),
            (Guard::Ordered, Self::Cold(Looks::After)) if moment.marked => moment.look(Guard::Ready, ended),
            (Guard::Ordered, Self::Cold(Looks::After)) => moment.marked = true,
            (Guard::Ordered, Self::Cold(Looks::Never) | Self::Warm { .. }) | (Guard::Seen, _) => {
                moment.marked = true;
                moment.guard = Guard::Ready;
            }
            (Guard::Ready, Self::Cold(_)) => {
                moment.works = true;
                moment.guard = Guard::Begun;
            }
            (Guard::Ready, Self::Warm { .. }) | (Guard::Begun | Guard::Done, _) => return false,
        }
        true
    }
}

impl Moment {
    fn look(&mut self, next: Guard, ended: bool) {
        self.guard = if ended { Guard::Done } else { next };
        self.marked &= !ended;
    }
}
