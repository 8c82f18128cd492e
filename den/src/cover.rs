//! For which runs this DEN answers, so that they need no lease: those whose runners have asked it lately. See `core/src/task/cover.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use disbatch_core::model::TaskId;

use crate::lock;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cover(Arc<Mutex<HashMap<TaskId, Instant>>>);

impl Cover {
    /// The runner of a task has asked at that time, and is told that it may go on.
    pub fn answered(&self, task: TaskId, asked: Instant) {
        lock(&self.0).insert(task, asked);
    }

    /// Those whose runners have asked within so long. The others are forgotten.
    pub fn within(&self, time: Duration, now: Instant) -> Vec<TaskId> {
        let mut answered = lock(&self.0);
        answered.retain(|_, asked| now.saturating_duration_since(*asked) < time);
        answered.keys().copied().collect()
    }
}
