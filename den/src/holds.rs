//! What runners have, and may have beside that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disbatch_core::model::{PluginName, QueueId, TaskId};
use disbatch_core::task::Claim;

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
    fn of(claim: &Claim) -> Self {
        Self { task: claim.task, queue: claim.queue, slot: claim.slot() }
    }
}

/// What a runner works on, as the node sees it. Clones share it: where a slot goes from task to task, the runner's attendant changes it.
#[derive(Debug, Clone, Default)]
pub struct Hold(Arc<Mutex<Vec<Held>>>);

impl Hold {
    pub fn add(&self, claim: &Claim) {
        self.lock().push(Held::of(claim));
    }

    pub fn replace(&self, task: TaskId, claim: &Claim) {
        let mut held = self.lock();
        match held.iter_mut().find(|held| held.task == task) {
            Some(held) => *held = Held::of(claim),
            None => held.push(Held::of(claim)),
        }
    }

    pub fn take(&self, task: TaskId) -> Option<Held> {
        let mut held = self.lock();
        let at = held.iter().position(|held| held.task == task)?;
        Some(held.swap_remove(at))
    }

    pub fn has(&self, task: TaskId) -> bool {
        self.lock().iter().any(|held| held.task == task)
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    pub fn all(&self) -> Vec<Held> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which tasks one runner may have at a time: those of one warm plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    pub plugin: PluginName,
    /// How many tasks these may be.
    pub most: usize,
}
