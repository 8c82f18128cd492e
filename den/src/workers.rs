//! The plugins that the database defines, as this node knows them.
//!
//! A look around tells whether any definition has changed, by a small value for all of them; they are read when it has, and when a
//! hint tells of a change. Now and then they are read besides: what somebody has changed by hand may have the same length.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bson::{Bson, RawDocument, RawDocumentBuf};
use disbatch_core::definitions::Definition;
use disbatch_core::model::Queue;
use disbatch_core::store::{Store, StoreError};

/// They are read again after so long, also when nothing tells of a change.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Workers {
    all: Vec<Definition>,
    mark: Option<Bson>,
    read: Option<Instant>,
}

impl Workers {
    pub fn changed(&mut self) {
        self.read = None;
    }

    /// A look around has found this value.
    pub fn marked(&mut self, mark: Option<Bson>) {
        if self.mark != mark {
            self.mark = mark;
            self.changed();
        }
    }

    /// Reads them again if they may have changed. Returns whether they have.
    pub async fn refresh(&mut self, store: &Store) -> Result<bool, StoreError> {
        let now = Instant::now();
        if !self.are_old(now) {
            return Ok(false);
        }
        let all = store.workers().await?;
        Ok(self.set(all, now))
    }

    pub fn all(&self) -> &[Definition] {
        &self.all
    }

    /// What a runner has to know of them for a task of `queue`.
    pub fn of_task(&self, queue: &Queue, task: &RawDocument) -> Vec<RawDocumentBuf> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let of_queue = queue.plugin_name().ok().flatten();
        let mut names = of_steps(task);
        names.extend(of_queue.as_ref().map(|name| name.as_str()));
        let is_named = |worker: &&Definition| names.contains(worker.name.as_str());
        self.all.iter().filter(is_named).map(Definition::to_raw).collect()
    }

    fn are_old(&self, now: Instant) -> bool {
        self.read.is_none_or(|read| now.saturating_duration_since(read) >= KEPT)
    }

    fn set(&mut self, all: Vec<Definition>, now: Instant) -> bool {
        self.read = Some(now);
        let have_changed = all != self.all;
        self.all = all;
        have_changed
    }
}

/// The plugins that the steps of a task name.
fn of_steps(task: &RawDocument) -> BTreeSet<&str> {
    let steps = task.get_array("steps").into_iter().flatten().filter_map(Result::ok);
    steps.filter_map(|step| step.as_document()?.get_str("plugin").ok()).collect()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{doc, rawdoc};

    use super::*;

    fn worker(name: &str) -> Definition {
        Definition::read(doc! { "_id": name, "engine": "http" }).unwrap()
    }

    #[test]
    fn they_are_read_when_something_tells_of_a_change_and_now_and_then() {
        let now = Instant::now();
        let mut workers = Workers::default();
        assert!(workers.are_old(now), "they have not been read");
        assert!(workers.set(vec![worker("a")], now));
        assert!(!workers.are_old(now));
        workers.marked(None);
        assert!(!workers.are_old(now), "it is the same mark");
        workers.marked(Some(Bson::from(5)));
        assert!(workers.are_old(now));
        assert!(!workers.set(vec![worker("a")], now), "nothing has changed that matters");
        workers.marked(Some(Bson::from(5)));
        assert!(!workers.are_old(now) && workers.are_old(now + KEPT));
        workers.changed();
        assert!(workers.are_old(now));
    }

    #[test]
    fn a_runner_is_told_of_those_that_its_task_needs() {
        let mut workers = Workers::default();
        workers.set(["a", "b", "c"].map(worker).to_vec(), Instant::now());
        let queue = doc! { "_id": ObjectId::new(), "name": "q", "plugin": "a" };
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let names = |task: RawDocumentBuf| -> Vec<String> {
            let told = workers.of_task(&queue, &task);
            told.iter().map(|raw| Definition::of_raw(raw).unwrap().name.to_string()).collect()
        };
        assert_eq!(names(rawdoc! { "status": -1 }), ["a"]);
        assert_eq!(names(rawdoc! { "steps": [{ "name": "x" }, { "plugin": "c" }, 5] }), ["a", "c"]);
        assert_eq!(names(rawdoc! { "steps": "odd" }), ["a"]);
    }
}
