//! The rules, each of which can be left out, and the setting in which they are tried.

/// The rules of the protocol. Each is a switch, so that a test can show what goes wrong without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A claim takes a slot below `threads`, which no other claimed or running task of the queue has.
    pub slots: bool,
    /// A slot is free only when its task has left it; otherwise when the lease of that is over.
    pub slots_until_left: bool,
    /// After claiming and before launching, a DEN reads `threads` again and counts again.
    pub confirmation: bool,
    /// Writes for a claim name its `attempt`.
    pub attempt: bool,
    /// Writes for a claim name the `instance` of the DEN that made it.
    pub instance: bool,
    /// What ends a plugin whose runner cannot.
    pub guard: Guard,
    /// A DEN claims with a lease only where it starts runners that know attempts and renew leases.
    pub lease_for_ours_only: bool,
    /// A DEN sweeps tasks of others only after a whole lease of answers from the database.
    pub others_wait: bool,
    /// A DEN sweeps tasks of its own node only after a whole lease of answers from the database.
    pub owner_waits: bool,
    /// A DEN orphans a task of its own node only when no process of that attempt is left.
    pub owner_clears: bool,
}

/// What ends a plugin whose runner is dead, stopped or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    Absent,
    /// A guard that begins to count when the plugin begins.
    FromPlugin,
    /// A guard that counts from before the task is started, and begins no plugin after the end of the lease.
    FromStart,
}

/// What becomes of a task whose runner is lost: `on_orphan` of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOrphan {
    /// It is orphaned.
    Fail,
    /// It is queued again, until it failed this many times.
    Requeue {
        /// `max_attempts`
        max_attempts: u8,
    },
}

/// What a runner does that cannot renew its lease: `on_lost_lease` of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLostLease {
    /// Its plugin goes on.
    Keep,
    /// Its plugin is ended before the lease is over.
    Stop,
}

/// Which program DENs of ours start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerKind {
    /// `dtr`.
    Ours,
    /// The one of Perl Disbatch, by the key `task_runner` of the configuration.
    Perl,
}

/// Who takes part, and what may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How many tasks are queued.
    pub tasks: u8,
    /// How many DENs of ours there are.
    pub dens: u8,
    /// The node of each Perl DEN. Names below `dens` are those of our DENs: both kinds may serve one host.
    pub perl_dens: Vec<u8>,
    /// The first `threads`, then what the operator may set it to, at any time.
    pub limits: Vec<u8>,
    /// `on_orphan`
    pub on_orphan: OnOrphan,
    /// `on_lost_lease`
    pub on_lost_lease: OnLostLease,
    /// What our DENs start.
    pub runner: RunnerKind,
    /// As many runners, at work or stopped, are looked at together. Where there are more, a DEN waits.
    pub runners: usize,
    /// DENs and runners may be killed.
    pub crashes: bool,
    /// Leases of running tasks may end, since a process stood still.
    pub stalls: bool,
    /// The database may go away for all.
    pub outages: bool,
    /// The database may go away for some.
    pub partitions: bool,
}

/// What is checked: rules in a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub rules: Rules,
    /// Among whom.
    pub setting: Setting,
}

impl Rules {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            slots: true,
            slots_until_left: true,
            confirmation: true,
            attempt: true,
            instance: true,
            guard: Guard::FromStart,
            lease_for_ours_only: true,
            others_wait: true,
            owner_waits: true,
            owner_clears: true,
        }
    }
}

impl Setting {
    /// One DEN, one task, `threads` 1; nothing goes wrong; what is lost is queued again, once.
    #[must_use]
    pub fn smallest() -> Self {
        Self {
            tasks: 1,
            dens: 1,
            perl_dens: Vec::new(),
            limits: vec![1],
            on_orphan: OnOrphan::Requeue { max_attempts: 2 },
            on_lost_lease: OnLostLease::Stop,
            runner: RunnerKind::Ours,
            runners: 2,
            crashes: false,
            stalls: false,
            outages: false,
            partitions: false,
        }
    }

    /// How often a task may be started.
    #[must_use]
    pub fn max_starts(&self) -> u8 {
        match self.on_orphan {
            OnOrphan::Fail => 1,
            OnOrphan::Requeue { max_attempts } => max_attempts,
        }
    }

    /// The operator never lowers `threads`.
    #[must_use]
    pub fn never_lowers(&self) -> bool {
        self.limits.len() == 1
    }
}
