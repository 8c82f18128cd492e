//! The runners of this node, what they have told of themselves, and what is left of tasks that they did not take.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use disbatch_core::model::TaskId;
use disbatch_core::task::Claim;
use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::launch::Launcher;
use crate::runner::{Event, Exit};

/// The runners, and what is to be settled about them.
#[derive(Debug)]
pub struct Runners {
    pub launcher: Launcher,
    events: mpsc::UnboundedReceiver<Event>,
    /// Launches fail: claim nothing for a while.
    pub launches: Backoff,
    freed: bool,
    /// Ends of runners that have not been looked into.
    pub exits: Vec<Exit>,
    /// Claims that a runner on its way out has not taken.
    pub refused: Vec<Claim>,
    /// Tasks that were started, or may have been, and that no runner was told of.
    pub untold: Vec<Claim>,
    /// Tasks whose runner has ended without starting them: with which that happens again are left alone for a while.
    pub unstarted: HashSet<TaskId>,
    /// The runner, by its serial, some of whose processes did not die when it did.
    pub undying: Option<u64>,
    /// A claim failed without an answer: there may be tasks claimed in our name that nobody launches.
    pub uncertain: bool,
}

impl Runners {
    /// There are none yet. What becomes of those that `launcher` starts arrives in `events`.
    pub fn new((launcher, events): (Launcher, mpsc::UnboundedReceiver<Event>)) -> Self {
        Self {
            launcher,
            events,
            launches: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            freed: false,
            exits: Vec::new(),
            refused: Vec::new(),
            untold: Vec::new(),
            unstarted: HashSet::new(),
            undying: None,
            uncertain: false,
        }
    }

    /// Waits until a runner tells something.
    pub async fn listen(&mut self) {
        if let Some(event) = self.events.recv().await {
            self.take(event);
        }
    }

    /// Takes note of what has become of runners up to now.
    pub fn take_all(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Free { serial, task } => {
                self.launcher.freed(serial, task);
                self.launches.worked();
                self.freed = true;
            }
            Event::Refused { serial, claim } => {
                self.launcher.refused(serial, claim.task);
                self.refused.push(claim);
            }
            Event::Untold(claim) => self.untold.push(claim),
            Event::FewAhead => {}
            Event::Exit(exit) => {
                self.launcher.gone(&exit);
                self.exits.push(*exit);
            }
        }
    }

    /// Whether there may be room for another task since this was asked last, or there will be when all is settled.
    pub fn have_news(&mut self) -> bool {
        std::mem::take(&mut self.freed)
            || !self.exits.is_empty()
            || !self.refused.is_empty()
            || !self.untold.is_empty()
            || self.uncertain
    }

    /// Whether runners can be started, as far as is known.
    pub fn may_launch(&self) -> bool {
        self.launches.left(Instant::now()).is_none()
    }

    /// Keeps a runner at hand for the next task, and lets those go that have been without one for long.
    pub fn look_after_idle(&mut self) {
        self.launcher.retire_idle();
        if self.may_launch()
            && let Err(error) = self.launcher.keep_one_ready()
        {
            let pause = self.launches.failed(Instant::now());
            let program = self.launcher.program();
            tracing::error!(%error, %program, retry_in_s = pause.as_secs(), "cannot start a runner");
        }
    }
}
