//! What there is: the database, and what each process knows.

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `threads` of the queue. A paused queue is one with 0.
    pub limit: u8,
    /// Whether the processes reach the database.
    pub database: Database,
    /// The tasks of the queue.
    pub tasks: Vec<Task>,
    /// Our execution nodes; a DEN's place here is its node's name.
    pub dens: Vec<Den>,
    /// DENs that count, then claim, as those of Perl Disbatch do.
    pub perl_dens: Vec<PerlDen>,
    /// Runners with their guards and plugins, sorted, since their order means nothing.
    pub runners: Vec<Runner>,
    /// Not in the database: the tasks in status -1 and 0, the oldest claim first.
    pub order: Vec<u8>,
    /// Not in the database: a write for a claim that was over found a later claim, and started it or gave it back.
    pub stale_start: bool,
    /// Not in the database: a write for a claim that was over found a later claim that runs, and changed it.
    pub stale_write: bool,
    /// Not in the database: a sweep took a task from a runner that was well.
    pub robbed: bool,
}

/// The database as the processes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Database {
    /// It answers, and has answered for at least a whole lease.
    Up,
    /// It answers nobody.
    Down,
    /// It answers again, for less than a lease.
    Back,
}

/// Status of a task, as far as the protocol tells them apart. Deferred (-7) is left out: a task that waits for
/// its retry is as far from running as one that is queued.
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

/// The document of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// `status`
    pub status: Status,
    /// `node`, while claimed or running.
    pub node: Option<u8>,
    /// `attempt`
    pub attempt: u8,
    /// `instance`; none for a claim by Perl.
    pub instance: Option<u8>,
    /// `slot`
    pub slot: Option<u8>,
    /// `lease_until`, as far as it matters.
    pub lease: Lease,
    /// `failures`
    pub failures: u8,
    /// Not in the database: which claim it is in. Unlike `attempt` it counts the claims of Perl too.
    pub claim: u8,
    /// Not in the database: how many runners of ours started it.
    pub starts: u8,
    /// Not in the database: the limit that the confirmation of the running claim found in force.
    pub confirmed: Option<u8>,
}

/// The lease of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lease {
    /// There is none: the task has no claim, or one of Perl's.
    None,
    /// The one that the claim gave; nobody has started yet.
    Claim,
    /// It runs.
    Valid,
    /// It is over, by the clock of the database.
    Over,
}

/// A claim, as the one who made it remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub task: u8,
    pub node: u8,
    /// What the claim made of `attempt`.
    pub attempt: u8,
    /// The claiming DEN's instance; none if it was a Perl DEN.
    pub instance: Option<u8>,
    /// `Task::claim` at that time.
    pub id: u8,
}

/// A DEN of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Den {
    /// New at each start.
    pub instance: u8,
    /// Where it is in its round, and what it believes.
    pub step: Step,
}

/// Where a DEN is in its round. It can stay there for as long as it likes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Its process is gone.
    Down,
    /// Between two rounds.
    Idle,
    /// It has read the queue.
    Queue {
        /// `threads`, as it was read.
        limit: u8,
    },
    /// It has read what runs, and claims.
    Claiming {
        /// Slots that it still means to try, lowest first.
        slots: Vec<u8>,
        /// What it got so far, oldest first.
        claims: Vec<Claim>,
    },
    /// It has read the queue a second time.
    Confirming {
        /// `threads`, as it was read.
        limit: u8,
        /// What it got, oldest first.
        claims: Vec<Claim>,
    },
    /// It has counted: it gives some claims back, then launches the others.
    Confirmed {
        /// `threads`, by which this was decided.
        limit: u8,
        /// To be given back.
        back: Vec<Claim>,
        launch: Vec<Claim>,
    },
}

/// A DEN of Perl Disbatch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerlDen {
    /// Its node's name.
    pub node: u8,
    /// It has counted less than `threads`, and will claim.
    pub sees_room: bool,
}

/// A runner, with its guard and its plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Runner {
    /// What it was launched for.
    pub claim: Claim,
    /// It knows leases and attempts; Perl's runner does not.
    pub ours: bool,
    /// How far it is.
    pub phase: Phase,
    pub plugin: Plugin,
    /// The limit by which its claim was confirmed.
    pub confirmed: Option<u8>,
}

/// How far a runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Its process runs; the task is not started.
    Launched,
    /// It started the task.
    Started,
    /// Its process was killed; its plugin may live.
    Dead,
}

/// How far a plugin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plugin {
    /// Not begun.
    NotYet,
    /// It works.
    Runs,
    /// It ended, was ended, or will never begin.
    Gone,
}

impl Status {
    /// Whether the task counts for the limit.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn ended(self) -> bool {
        matches!(self, Self::Orphaned | Self::Finished)
    }
}

impl Task {
    /// A task as it was submitted.
    #[must_use]
    pub fn queued() -> Self {
        Self {
            status: Status::Queued,
            node: None,
            attempt: 0,
            instance: None,
            slot: None,
            lease: Lease::None,
            failures: 0,
            claim: 0,
            starts: 0,
            confirmed: None,
        }
    }

    /// Takes the task out of -1 or 0; `slot`, `lease_until` and `instance` are unset in the same update.
    pub fn leave(&mut self, status: Status) {
        self.status = status;
        self.node = None;
        self.instance = None;
        self.slot = None;
        self.lease = Lease::None;
        self.confirmed = None;
        if status.ended() {
            // Nobody asks any more.
            (self.failures, self.starts) = (0, 0);
        }
    }
}

impl State {
    /// How many tasks are in status -1 or 0.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.tasks.iter().filter(|task| task.status.counts()).count()
    }

    /// How many tasks are in status 0.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.iter().filter(|task| task.status == Status::Running).count()
    }

    #[must_use]
    pub fn task(&self, claim: &Claim) -> &Task {
        &self.tasks[usize::from(claim.task)]
    }

    /// Whether the claim is the one that the task is in.
    #[must_use]
    pub fn is_current(&self, claim: &Claim) -> bool {
        let task = self.task(claim);
        task.status.counts() && task.claim == claim.id
    }

    /// The runners that were launched for the claim that a task is in.
    pub fn runners_of(&self, number: u8) -> impl Iterator<Item = &Runner> {
        self.runners
            .iter()
            .filter(move |runner| runner.claim.task == number && self.is_current(&runner.claim))
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.tasks.iter().all(|task| task.status.ended())
    }

    /// Brings the state to its normal form, so that the model is finite: attempts, claims and instances only
    /// matter by their order, and who comes first in a list of runners does not matter at all.
    pub fn normalise(&mut self) {
        let State { tasks, dens, runners, order, .. } = self;
        order.retain(|&task| tasks[usize::from(task)].status.counts());
        for (number, task) in tasks.iter_mut().enumerate() {
            let mut claims: Vec<&mut Claim> =
                all_claims(dens, runners).filter(|claim| usize::from(claim.task) == number).collect();
            rank(claims.iter_mut().map(|claim| &mut claim.attempt).chain([&mut task.attempt]).collect());
            rank(claims.iter_mut().map(|claim| &mut claim.id).chain([&mut task.claim]).collect());
        }
        for node in 0..dens.len() {
            normalise_instances(node, tasks, dens, runners);
        }
        runners.sort();
    }
}

fn all_claims<'a>(
    dens: &'a mut [Den],
    runners: &'a mut [Runner],
) -> impl Iterator<Item = &'a mut Claim> + use<'a> {
    let of_dens = dens.iter_mut().flat_map(|den| match &mut den.step {
        Step::Down | Step::Idle | Step::Queue { .. } => Vec::new(),
        Step::Claiming { claims, .. } | Step::Confirming { claims, .. } => claims.iter_mut().collect(),
        Step::Confirmed { back, launch, .. } => back.iter_mut().chain(launch).collect(),
    });
    of_dens.chain(runners.iter_mut().map(|runner| &mut runner.claim))
}

fn normalise_instances(node: usize, tasks: &mut [Task], dens: &mut [Den], runners: &mut [Runner]) {
    let mut own = [dens[node].instance];
    let of_tasks = tasks.iter_mut().filter(|task| task.node.map(usize::from) == Some(node));
    let of_tasks = of_tasks.filter_map(|task| task.instance.as_mut());
    let of_claims = all_claims(dens, runners).filter(|claim| usize::from(claim.node) == node);
    let of_claims = of_claims.filter_map(|claim| claim.instance.as_mut());
    rank(of_tasks.chain(of_claims).chain(own.iter_mut()).collect());
    dens[node].instance = own[0];
}

/// Replaces numbers by their rank, from 0.
fn rank(mut numbers: Vec<&mut u8>) {
    numbers.sort();
    let mut rank = 0;
    let mut last = None;
    for number in numbers {
        if last.is_some_and(|last| last != *number) {
            rank += 1;
        }
        last = Some(*number);
        *number = rank;
    }
}
