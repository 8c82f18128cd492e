//! The runners of this node: what they have and may have beside that, what they have told of themselves, and what is left of tasks that they
//! did not take.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use disbatch_core::model::{PluginName, QueueId, TaskId};
use disbatch_core::task::Claim;
use tokio::sync::mpsc;

use crate::launch::Launcher;
use crate::lock;
use crate::pace::Backoff;
use crate::runner::{Event, Exit};
use crate::supervise::Deaths;

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
    /// Tasks that no runner has any more, and that may have their slots still.
    pub doubtful: Vec<Held>,
    /// A start was sent, and nobody knows whether it is made: it may be yet.
    pub has_lost_track: bool,
    /// Tasks whose runner has ended without starting them: with which that happens again are left alone for a while.
    pub unstarted: HashSet<TaskId>,
    /// Runs that are to be ended when their processes are gone.
    pub deaths: Deaths,
    /// Ends of runners of such.
    pub dying: Vec<Exit>,
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
            doubtful: Vec::new(),
            has_lost_track: false,
            unstarted: HashSet::new(),
            deaths: Deaths::default(),
            dying: Vec::new(),
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
            Event::Free { serial, task, over } => {
                let held = self.launcher.freed(serial, task);
                self.doubtful.extend(held.filter(|_| !over));
                self.launches.worked();
                self.freed = true;
            }
            Event::Refused { serial, claim } => {
                self.launcher.refused(serial, claim.task);
                self.refused.push(claim);
            }
            Event::Untold { claim, known } => {
                self.untold.push(claim);
                self.has_lost_track |= !known;
            }
            Event::Left(held) => self.doubtful.push(held),
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

/// What runners are to have that have not been told yet, by their processes: which tasks, and how many.
#[derive(Debug, Default)]
pub struct Promised(HashMap<u32, (Option<Lanes>, usize)>);

impl Promised {
    /// The runner of this claim is to have it, if there is one.
    pub fn add(&mut self, claim: &Claim, lanes: Option<&Lanes>) {
        if let Some(pid) = claim.runner() {
            self.0.entry(pid).or_insert_with(|| (lanes.cloned(), 0)).1 += 1;
        }
    }

    /// For how many tasks of those there is room beside what is promised, in a process that has room for so many.
    pub fn room_left(&self, pid: u32, room: usize, lanes: Option<&Lanes>) -> usize {
        match self.0.get(&pid) {
            None => room,
            Some((of, tasks)) if lanes.is_some() && of.as_ref() == lanes => room.saturating_sub(*tasks),
            Some(_) => 0,
        }
    }
}

/// What is to be known of a claim while a runner has it.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub task: TaskId,
    pub queue: QueueId,
    pub slot: Option<u64>,
}

impl Held {
    pub fn of(claim: &Claim) -> Self {
        Self { task: claim.task, queue: claim.queue, slot: claim.slot() }
    }
}

/// What a runner works on, as the node sees it. Clones share it: where a slot goes from task to task, the runner's attendant changes it.
#[derive(Debug, Clone, Default)]
pub struct Hold(Arc<Mutex<Vec<Held>>>);

impl Hold {
    pub fn add(&self, claim: &Claim) {
        lock(&self.0).push(Held::of(claim));
    }

    pub fn replace(&self, task: TaskId, claim: &Claim) {
        let mut held = lock(&self.0);
        match held.iter_mut().find(|held| held.task == task) {
            Some(held) => *held = Held::of(claim),
            None => held.push(Held::of(claim)),
        }
    }

    pub fn take(&self, task: TaskId) -> Option<Held> {
        let mut held = lock(&self.0);
        let at = held.iter().position(|held| held.task == task)?;
        Some(held.swap_remove(at))
    }

    pub fn has(&self, task: TaskId) -> bool {
        lock(&self.0).iter().any(|held| held.task == task)
    }

    pub fn count(&self) -> usize {
        lock(&self.0).len()
    }

    pub fn all(&self) -> Vec<Held> {
        lock(&self.0).clone()
    }
}

/// Which tasks one runner may have at a time: those of one warm plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    pub plugin: PluginName,
    /// How many tasks these may be.
    pub most: usize,
}
