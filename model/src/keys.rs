//! Who has a key that only one live task may have, where no unique index keeps them apart.
//!
//! A key names a task, and two submitters and two who retry want it for theirs; each may stand still, or die, between any two of its
//! steps, which are the database's: a document is read, or one changed on a condition. Tasks end, and leave, at any time, and what
//! nobody has is swept. *There is never more than one live task.* ([`ONE`].)
//!
//! # Why
//!
//! A task becomes live only by an update that finds it pending, or with its mark, and only after the key was seen to name it. And the key
//! goes to another only from a task that was seen to be neither live nor pending, and without a mark, on the condition that it names that task by the
//! same hold. So that task would have to come to be pending or marked again first; pending it is only once, and who marks it
//! has the key name it by another hold before anything follows from that, and so has whoever settles it in place of its submitter.
//!
//! # What is left out
//!
//! That a failover takes the end of a task back. An end is known to a majority before the key goes on.

use stateright::{Model, Property};

/// There is one live task at most.
pub const ONE: &str = "one live task has the key";
/// Some path has a task live that another process has let go on.
pub const HELPED: &str = "somebody else does the rest";
/// Some path has a task live once more.
pub const RETRIED: &str = "a task is live once more";
/// Some path has each submitter's task live, one after the other.
pub const BOTH: &str = "the key goes from task to task";

/// The rules. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Rules {
    /// A task is inserted, pending, before a key names it; else it is inserted, live, when the key does.
    pub inserts_first: bool,
    /// The key goes on only if it names the same task by the same hold.
    pub compares_holds: bool,
    /// Who retries marks the task before the key names it, and makes it live only while it has the mark.
    pub marks: bool,
    /// Who finds a mark removes it before the key goes on.
    pub removes_marks: bool,
    /// Who has the key looks for a live task that no key names.
    pub looks_again: bool,
    /// Who lets the task of somebody else go on has looked for one, too.
    pub helpers_look: bool,
    /// Who settles the task of somebody else has the key name it by a hold of its own.
    pub settlers_differ: bool,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            inserts_first: true,
            compares_holds: true,
            marks: true,
            removes_marks: true,
            looks_again: true,
            helpers_look: true,
            settlers_differ: true,
        }
    }
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub rules: Rules,
    /// So many submit a task.
    pub submitters: usize,
    /// So many retry one that has ended.
    pub retries: usize,
    /// So many do for a pending task what its submitter would.
    pub settlers: usize,
    /// There is a live task that no key names.
    pub legacy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// It was never inserted, was removed, or has left.
    Absent,
    /// It is there, and waits for its key.
    Pending,
    /// It waits or runs.
    Live,
    /// It has ended, and has this mark.
    Ended(Option<usize>),
}

/// What a key names: a task, and by which hold. Holds are the processes that had the key name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    task: usize,
    hold: usize,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It inserts its task, or marks one.
    Begin,
    /// It reads the key.
    Read,
    /// It looks at the task that the key names.
    Look(Named),
    /// That is pending: it looks for a live one beside it.
    LookBeside(Named),
    /// It lets that go on.
    Help(Named),
    /// It removes this mark of it.
    Unmark(Named, usize),
    /// It has the key name its own task in place of this one.
    Take(Option<Named>),
    /// It has the key, and looks for a live task beside.
    LookAgain,
    /// It makes its task live.
    Flip,
    /// Another one has the key: it takes its task back.
    Withdraw,
    /// It has ended.
    Done,
}

/// A process, and the task that it wants to be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    task: usize,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    tasks: Vec<Task>,
    key: Option<Named>,
    /// First those who submit, each the task with its number, then those who retry, then those who settle.
    processes: Vec<Process>,
    /// What a sweeper has read, and whether it has seen that the task does not count.
    swept: Option<(Named, bool)>,
    helped: bool,
    retried: bool,
    was_live: Vec<bool>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A process makes its next step.
    Step(usize),
    /// One that retries, or settles, chooses this task.
    Choose(usize, usize),
    /// A task ends.
    End(usize),
    /// A task that has ended leaves.
    Leave(usize),
    /// The sweeper makes its next step.
    Sweep,
}

impl Model for Keys {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        let mut tasks = vec![Task::Absent; self.submitters];
        if self.legacy {
            tasks.push(Task::Live);
        }
        let processes = 0..self.submitters + self.retries + self.settlers;
        let processes = processes.map(|task| Process { task, step: Step::Begin });
        vec![Moment {
            key: None,
            processes: processes.collect(),
            swept: None,
            helped: false,
            retried: false,
            was_live: vec![false; tasks.len()],
            tasks,
        }]
    }

    fn actions(&self, moment: &Moment, events: &mut Vec<Event>) {
        for (number, process) in moment.processes.iter().enumerate() {
            if number >= self.submitters && process.step == Step::Begin {
                events.extend((0..moment.tasks.len()).map(|task| Event::Choose(number, task)));
            } else {
                events.push(Event::Step(number));
            }
        }
        events.extend((0..moment.tasks.len()).flat_map(|task| [Event::End(task), Event::Leave(task)]));
        events.push(Event::Sweep);
    }

    fn next_state(&self, last: &Moment, event: Event) -> Option<Moment> {
        let mut next = last.clone();
        let possible = match event {
            Event::Step(number) => self.step(&mut next, number),
            Event::Choose(number, task) => {
                next.processes[number] = Process { task, step: Step::Read };
                if self.is_settler(number) {
                    last.tasks[task] == Task::Pending
                } else {
                    if self.rules.marks {
                        next.tasks[task] = Task::Ended(Some(number));
                    }
                    matches!(last.tasks[task], Task::Ended(_))
                }
            }
            Event::End(task) => {
                next.tasks[task] = Task::Ended(None);
                matches!(last.tasks[task], Task::Live | Task::Pending)
            }
            Event::Leave(task) => {
                next.tasks[task] = Task::Absent;
                matches!(last.tasks[task], Task::Ended(_))
            }
            Event::Sweep => next.sweep(),
        };
        for (was, task) in next.was_live.iter_mut().zip(&next.tasks) {
            *was |= *task == Task::Live;
        }
        (possible && next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |_, moment: &Moment| {
                moment.tasks.iter().filter(|task| **task == Task::Live).count() <= 1
            }),
            Property::sometimes(HELPED, |_, moment: &Moment| moment.helped),
            Property::sometimes(RETRIED, |_, moment: &Moment| moment.retried),
            Property::sometimes(BOTH, |_, moment: &Moment| moment.was_live.iter().all(|was| *was)),
        ]
    }
}

impl Keys {
    fn is_settler(&self, number: usize) -> bool {
        number >= self.submitters + self.retries
    }

    /// The next step of a process. Returns whether it has one.
    fn step(&self, moment: &mut Moment, number: usize) -> bool {
        let Process { task, step } = moment.processes[number];
        let is_new = number < self.submitters || self.is_settler(number);
        let hold = if self.is_settler(number) && !self.rules.settlers_differ { task } else { number };
        let own = Named { task, hold };
        let next = match step {
            Step::Begin => {
                if self.rules.inserts_first {
                    moment.tasks[task] = Task::Pending;
                }
                Step::Read
            }
            Step::Read => match moment.key {
                Some(named) if named == own => Step::LookAgain,
                Some(named) if named.task != task => Step::Look(named),
                named => Step::Take(named),
            },
            Step::Look(named) => match moment.tasks[named.task] {
                Task::Live => Step::Withdraw,
                Task::Pending if self.rules.helpers_look => Step::LookBeside(named),
                Task::Pending => Step::Help(named),
                Task::Ended(Some(mark)) if self.rules.removes_marks => Step::Unmark(named, mark),
                Task::Absent | Task::Ended(_) => Step::Take(Some(named)),
            },
            Step::LookBeside(named) if moment.is_live_beside(named.task) => Step::Withdraw,
            Step::LookBeside(named) => Step::Help(named),
            Step::Help(named) => {
                moment.helped |= moment.flip(named.task, Task::Pending);
                Step::Read
            }
            Step::Unmark(named, mark) => {
                if moment.tasks[named.task] == Task::Ended(Some(mark)) {
                    moment.tasks[named.task] = Task::Ended(None);
                }
                Step::Read
            }
            Step::Take(named) => {
                let is_same = match (moment.key, named) {
                    (Some(now), Some(then)) if !self.rules.compares_holds => now.task == then.task,
                    (now, then) => now == then,
                };
                moment.key = if is_same { Some(own) } else { moment.key };
                if is_same { Step::LookAgain } else { Step::Read }
            }
            Step::LookAgain if self.rules.looks_again && moment.is_live_beside(task) => Step::Withdraw,
            Step::LookAgain => Step::Flip,
            Step::Flip => {
                let from = match is_new {
                    true if self.rules.inserts_first => Task::Pending,
                    true => Task::Absent,
                    false => Task::Ended(self.rules.marks.then_some(number)),
                };
                moment.retried |= moment.flip(task, from) && !is_new;
                Step::Done
            }
            Step::Withdraw => moment.withdraw(task, number, is_new),
            Step::Done => return false,
        };
        moment.processes[number].step = next;
        true
    }
}

impl Moment {
    /// Makes a task live if it is like this. Returns whether it was.
    fn flip(&mut self, task: usize, from: Task) -> bool {
        let is_so = self.tasks[task] == from;
        if is_so {
            self.tasks[task] = Task::Live;
        }
        is_so
    }

    /// Whoever does not get the key takes its task back, as far as that is still its own to take.
    fn withdraw(&mut self, task: usize, number: usize, is_new: bool) -> Step {
        match self.tasks[task] {
            Task::Pending if is_new => self.tasks[task] = Task::Absent,
            Task::Ended(Some(mark)) if mark == number => self.tasks[task] = Task::Ended(None),
            Task::Absent | Task::Pending | Task::Live | Task::Ended(_) => {}
        }
        Step::Done
    }

    fn is_live_beside(&self, task: usize) -> bool {
        self.tasks.iter().enumerate().any(|(other, is)| other != task && *is == Task::Live)
    }

    /// The sweeper reads the key, looks at its task, and removes the key if it is the same.
    fn sweep(&mut self) -> bool {
        self.swept = match self.swept {
            None => self.key.map(|named| (named, false)),
            Some((named, false)) => {
                matches!(self.tasks[named.task], Task::Absent | Task::Ended(None)).then_some((named, true))
            }
            Some((named, true)) => {
                self.key = self.key.filter(|now| *now != named);
                None
            }
        };
        true
    }
}
