//! What a task's page is told. Its output, params and whatever else is large is not read for that, and once it has ended,
//! the task is only asked whether that is still so.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bson::{Bson, Document};
use disbatch_core::accounts::Reach;

use super::life::status;
use super::look;
use crate::api::task_actions;
use crate::error::HttpError;
use crate::state::State;
use crate::ui::live::Part;

/// After so long all of an ended task is looked at again: its queue may have another name.
const RARELY: Duration = Duration::from_secs(30);

/// What tells whether an ended task is as it was.
const STAMP: [&str; 4] = ["status", "mtime", "complete", "archived"];

/// The looks at one task.
#[derive(Debug)]
pub struct Feed {
    /// How far the rights of those reach who are told.
    reach: Reach,
    /// What the task is called, which does not change: its params are read once.
    title: RefCell<Option<String>>,
    last: RefCell<Option<Last>>,
}

/// The last one at a task that has ended.
#[derive(Debug)]
struct Last {
    stamp: Vec<Option<Bson>>,
    at: Instant,
    parts: Vec<Part>,
}

impl Feed {
    pub fn new(reach: Reach) -> Self {
        Self { reach, title: RefCell::default(), last: RefCell::default() }
    }

    /// The parts of the page that change.
    pub async fn look(&self, state: &State, id: &str) -> Result<Vec<Part>, HttpError> {
        if self.last.borrow().is_some() {
            let now = read(state, id, only(&STAMP, 1)).await?;
            if let Some(parts) = self.known(&now) {
                return Ok(parts);
            }
        }
        let title = self.title.borrow().clone();
        let large: &[&str] = if title.is_some() {
            &["stdout", "stderr", "params", "parameters"]
        } else {
            &["stdout", "stderr"]
        };
        let of = task_actions::task_id(id)?;
        let (task, attempts) = futures::try_join!(read(state, id, only(large, 0)), async {
            state.store.list_attempts(of).await.map_err(HttpError::from)
        })?;
        let (look, _) = look(state, id, (&task, &attempts), title, &self.reach).await?;
        *self.title.borrow_mut() = Some(look.head.title().to_owned());
        let parts = look.parts()?;
        self.note(&task, &parts);
        Ok(parts)
    }

    /// The parts of a task that has ended and is as it was.
    fn known(&self, now: &Document) -> Option<Vec<Part>> {
        let last = self.last.borrow();
        let same = last.as_ref().filter(|last| last.stamp == stamp(now) && last.at.elapsed() < RARELY)?;
        Some(same.parts.clone())
    }

    fn note(&self, task: &Document, parts: &[Part]) {
        let has_ended = status(task).is_some_and(|status| status.has_ended());
        let last = || Last { stamp: stamp(task), at: Instant::now(), parts: parts.to_vec() };
        *self.last.borrow_mut() = has_ended.then(last);
    }
}

fn stamp(task: &Document) -> Vec<Option<Bson>> {
    STAMP.iter().map(|field| task.get(*field).cloned()).collect()
}

fn only(fields: &[&str], which: i32) -> Document {
    fields.iter().map(|field| ((*field).to_owned(), Bson::Int32(which))).collect()
}

async fn read(state: &State, id: &str, projection: Document) -> Result<Document, HttpError> {
    let found = state.store.find_task_fields(task_actions::task_id(id)?, projection).await?;
    found.ok_or_else(|| task_actions::not_found(id))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn an_ended_task_is_looked_at_again_when_something_has_happened() {
        let feed = Feed::new(Reach::All);
        let running = doc! { "status": 0, "mtime": 5_i64 };
        feed.note(&running, &[]);
        assert!(feed.known(&running).is_none(), "it goes on");
        let ended = doc! { "status": 2, "mtime": 6_i64, "complete": true, "result": "not compared" };
        feed.note(&ended, &[]);
        assert!(feed.known(&doc! { "status": 2, "mtime": 6_i64, "complete": true }).is_some());
        for other in [
            doc! { "status": -2, "mtime": 6_i64, "complete": true },
            doc! { "status": 2, "mtime": 7_i64, "complete": true },
            doc! { "status": 2, "mtime": 6_i64 },
            doc! { "status": 2, "mtime": 6_i64, "complete": true, "archived": 7_i64 },
        ] {
            assert!(feed.known(&other).is_none(), "{other}");
        }
        feed.note(&running, &[]);
        assert!(feed.known(&ended).is_none(), "it was tried again");
    }

    #[test]
    fn what_is_large_is_not_read() {
        assert_eq!(only(&["stdout"], 0), doc! { "stdout": 0 });
        assert!(STAMP.iter().all(|field| !["stdout", "stderr", "params", "result"].contains(field)));
    }
}
