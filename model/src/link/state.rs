//! What there is: the database, the DEN with its attendants, the runners, and the links between them.

use super::{Faults, Linked};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The tasks of the queue.
    pub tasks: Vec<Task>,
    pub den: Den,
    /// Places for runners, sorted, since their order means nothing.
    pub runners: Vec<Runner>,
    /// Writes of a killed DEN that may still arrive.
    pub late: Vec<Write>,
    /// What may still go wrong.
    pub faults: Faults,
    /// What went wrong, for the properties.
    pub seen: Seen,
}

/// What must never be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Two plugins were begun for one claim.
    pub twice: bool,
    /// A write changed a task that it was not about.
    pub mixed: bool,
    /// A result was lost that its runner had said, or believed to be stored.
    pub lost: bool,
    /// A task was orphaned although its runner was well.
    pub groundless: bool,
    /// A claim was started that had not been confirmed.
    pub unconfirmed: bool,
    /// A task was given back whose plugin had been begun.
    pub again: bool,
}

/// Status of a task. Deferred is left out, as in the other model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// -2
    Queued,
    /// -1
    Claimed,
    /// 0
    Running,
    /// -6
    Orphaned,
    /// -3, 1 or more: its runner ended it.
    Finished,
}

/// The lease of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// It runs, or there is none.
    Valid,
    /// It is over, by the clock of the database.
    Over,
}

/// The document of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// `status`
    pub status: Status,
    /// `attempt`
    pub attempt: u8,
    /// What `attempt` was before the claim, for a failover that loses it.
    pub attempt_before: u8,
    /// `instance`
    pub instance: Option<u8>,
    /// `pid` and `started`: which assignment it was started for.
    pub holder: Option<u8>,
    /// `lease_until`, as far as it matters.
    pub lease: Lease,
    /// `failures`
    pub failures: u8,
    /// Which claim it is in, for ever different (the time of the claim, in the database).
    pub claim: u8,
    /// Its runner has started it once more, by itself: the time of the start (`mtime`) is a later one.
    pub restarted: bool,
    /// Not in the database: the claim was confirmed.
    pub confirmed: bool,
    /// Not in the database: a plugin was begun for this claim.
    pub begun: bool,
    /// Not in the database: there are grounds to orphan it.
    pub grounds: bool,
    /// Not in the database: its runner was told that its result is stored.
    pub promised: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Den {
    /// Its process runs.
    pub up: bool,
    /// New at each start.
    pub instance: u8,
    /// What it has claimed and not confirmed yet.
    pub claimed: Option<Claim>,
    /// Starts that no runner was told of, or that may have been made: what gives them back.
    pub untold: Vec<Write>,
}

/// A claim, as the DEN remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub task: usize,
    /// What the claim made of `attempt`.
    pub attempt: u8,
    /// The DEN's instance.
    pub instance: u8,
    /// `Task::claim`
    pub id: u8,
}

/// One assignment of a claimed task to a runner; the only one with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    pub claim: Claim,
    /// The runner's process and the time of the start, in one number.
    pub at: u8,
    /// The DEN has started it before it told the runner.
    pub started: bool,
}

/// The task that a runner is to have next, started in one write with its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Next {
    pub run: Run,
    /// It is started: until when the plugin may live, counted from before that was asked for. None: there is no answer yet.
    pub time: Option<Time>,
}

/// Until when a guard lets the plugin live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Time {
    /// This time is past, or none was given.
    Over,
    /// Certainly not longer than the lease.
    Sound,
    /// Perhaps longer than the lease.
    Unsound,
}

/// What a DEN tells a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToRunner {
    /// A task. One that is started has its go with it.
    Assign(Run, Time),
    /// It is started. The message does not name it.
    Go(Time),
    /// It is not claimed any more.
    Gone,
    /// The lease is renewed. Answers have numbers, so it is known what they are about.
    Held(u8, Time),
    /// The task was taken away.
    Lost(u8),
    /// The end is stored, or there was nothing to end.
    Ended(u8),
}

/// What a runner tells its DEN, and which assignment it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToDen {
    /// It has taken the task.
    Taken(u8),
    /// Renew the lease.
    Renew(u8),
    /// Store the result.
    Finish(u8),
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// -2 to 0, of any task that is queued: the server counts the attempt.
    Claim,
    /// -2 to 0, of a task that was read before and had no attempt then, in the slot of one that has ended.
    Take,
    /// -1 to 0
    Start,
    /// 0 to 0, by a runner that cannot say that it has taken its task.
    Restart,
    /// 0 to -2, of a start that nobody has begun.
    PutBack,
    /// The same, of one of which it is not known whether it was made.
    Withdraw,
    /// A longer lease.
    Renew,
    /// 0 to the end.
    Finish,
}

/// One conditional update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    pub kind: Kind,
    pub run: Run,
    /// Not in the database: about which assignment it was asked for.
    pub about: u8,
}

/// The DEN's view of one of its runners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attendant {
    /// The task that the runner has.
    pub current: Option<Run>,
    pub next: Option<Next>,
    /// The runner has taken it.
    pub taken: bool,
    /// The runner has said the result of it.
    pub heard: bool,
    /// The DEN has given up to speak.
    pub mute: bool,
    /// What is being written for it.
    pub writes: Vec<Write>,
}

/// Whether there is a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// No.
    Absent,
    /// Yes.
    Lives,
    /// It was, and its DEN has not looked after it yet, or its plugin lives.
    Ended,
}

/// How far a runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has no task.
    Idle,
    /// It has taken a task, and waits for go.
    Assigned(Run),
    /// It starts the task by itself.
    Starting(Run),
    /// The task is started.
    Started(Run),
    /// The plugin was begun.
    Working(Run),
    /// The plugin is gone.
    Storing(Run),
}

/// A place for a runner, with its guard, its plugin, and its link.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Runner {
    pub process: Process,
    /// It has not given its link up.
    pub linked: bool,
    /// How far it is.
    pub phase: Phase,
    /// Until when its guard lets the plugin live.
    pub time: Time,
    /// It has asked for a renewal, and waits.
    pub renewing: bool,
    /// It has asked for its result to be stored, and waits.
    pub asked: bool,
    /// A plugin that lives.
    pub plugin: Option<Run>,
    /// What it has not read yet.
    pub inbox: Vec<ToRunner>,
    /// What its DEN has not read yet.
    pub said: Vec<ToDen>,
    /// Not in the world: for which assignment it has said the result.
    pub told: Option<u8>,
    /// The DEN's view of it; none if the DEN that started it is dead.
    pub attendant: Option<Attendant>,
}

impl Phase {
    /// The task that a runner has.
    #[must_use]
    pub fn run(self) -> Option<Run> {
        match self {
            Self::Idle => None,
            Self::Assigned(run)
            | Self::Starting(run)
            | Self::Started(run)
            | Self::Working(run)
            | Self::Storing(run) => Some(run),
        }
    }
}

impl Runner {
    /// A place where there is no process.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            process: Process::Absent,
            linked: false,
            phase: Phase::Idle,
            time: Time::Over,
            renewing: false,
            asked: false,
            plugin: None,
            inbox: Vec::new(),
            said: Vec::new(),
            told: None,
            attendant: None,
        }
    }

    /// What it works on, and what it will find that was assigned to it.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let assigned = self.inbox.iter().filter_map(|message| match message {
            ToRunner::Assign(run, _) => Some(*run),
            _ => None,
        });
        self.phase.run().into_iter().chain(assigned)
    }

    /// The process ends.
    pub fn end(&mut self) {
        self.process = Process::Ended;
        self.linked = false;
        self.phase = Phase::Idle;
        self.renewing = false;
        self.asked = false;
        self.inbox.clear();
        self.vanish();
    }

    /// Nothing is left that anybody would look after.
    pub fn vanish(&mut self) {
        if self.process == Process::Ended && self.plugin.is_none() && self.attendant.is_none() {
            *self = Self::absent();
        }
    }
}

impl State {
    pub(super) fn first(linked: &Linked) -> Self {
        let task = Task {
            status: Status::Queued,
            attempt: 0,
            attempt_before: 0,
            instance: None,
            holder: None,
            lease: Lease::Valid,
            failures: 0,
            claim: 0,
            restarted: false,
            confirmed: false,
            begun: false,
            grounds: false,
            promised: false,
        };
        Self {
            tasks: vec![task; linked.tasks],
            den: Den { up: true, instance: 0, claimed: None, untold: Vec::new() },
            runners: vec![Runner::absent(); linked.runners],
            late: Vec::new(),
            faults: linked.faults,
            seen: Seen::default(),
        }
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.tasks.iter().all(|task| matches!(task.status, Status::Finished | Status::Orphaned))
    }
}
