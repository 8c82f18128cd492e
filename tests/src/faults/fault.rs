//! What can break.

use clap::ValueEnum;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// A DEN is killed, and started again at once or after a while.
    KillDen,
    /// All DENs are, while one of them makes a task of a schedule, and started again soon.
    KillFiring,
    /// All DENs are, while documents of the inbox are to be moved, and started again soon.
    KillMoving,
    /// The DEN that tells what happens is killed while another one begins to, and started again at once or after a while.
    KillNotifier,
    /// A runner is killed.
    KillRunner,
    /// The runner of a task that holds locks is.
    KillHolder,
    /// A runner's guard is killed.
    KillGuard,
    /// A plugin is killed.
    KillPlugin,
    /// What looks after a container, or asks a web service, is killed.
    KillAdapter,
    /// The DCI is killed.
    KillDci,
    /// A DEN stands still for longer than its lease.
    StopDen,
    /// A runner does.
    StopRunner,
    /// A DEN and all of its runners do.
    StopNode,
    /// A MongoDB server that is not the primary is killed, and comes back.
    KillMember,
    /// The primary is.
    KillPrimary,
    /// The primary steps down.
    StepDown,
    /// A DEN and its runners have nowhere to log to.
    FullLog,
    /// `threads` of a queue is lowered or raised.
    Threads,
    /// A queue is paused for a while.
    Pause,
    /// A task is cancelled.
    Cancel,
    /// Bodies come to the DCI that are as large as they may be.
    HugeBodies,
    /// A task with which nothing can be done is put into the database.
    Poison,
}

impl Fault {
    /// All kinds, each as often as it should happen compared with the others.
    pub fn mixture() -> Vec<Self> {
        let times = |fault: &Self| match fault {
            Self::KillRunner | Self::KillGuard | Self::KillPlugin | Self::Cancel => 6,
            Self::KillDen
            | Self::KillFiring
            | Self::KillMoving
            | Self::KillNotifier
            | Self::KillHolder
            | Self::KillAdapter
            | Self::StopRunner
            | Self::Threads
            | Self::Poison => 4,
            Self::StopDen | Self::StopNode | Self::Pause | Self::KillDci => 2,
            Self::HugeBodies | Self::KillMember | Self::KillPrimary | Self::StepDown | Self::FullLog => 1,
        };
        Self::value_variants().iter().flat_map(|fault| vec![*fault; times(fault)]).collect()
    }

    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
