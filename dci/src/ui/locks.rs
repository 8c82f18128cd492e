//! `GET /locks` and `GET /locks/:name` for people: who holds what, and who waits.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use askama::Template;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::gates::{LockMode, LockRow, Relative};
use disbatch_core::model::Status;

use crate::access::{Sight, Who};
use crate::gates;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::names::names;
use crate::ui::parts::When;
use crate::ui::{self, Rendered, StatusView};

/// More tasks than this that wait are not counted.
const COUNTED: u64 = 1_000;

#[derive(Template)]
#[template(path = "locks.html")]
struct LocksPage {
    prefix: String,
    rows: Vec<Row>,
    next: String,
}

#[derive(Template)]
#[template(path = "lock.html")]
struct LockPage {
    name: String,
    held_by: u64,
    waiting: String,
    holders: Vec<Task>,
    waiters: Vec<Task>,
}

/// A lock of the list.
struct Row {
    name: String,
    address: String,
    held_by: u64,
    first: Option<Task>,
    waiting: String,
}

/// A task that holds a lock, or waits for it.
struct Task {
    /// `None`: whoever looks may not see it.
    id: Option<String>,
    queue: String,
    status: StatusView,
    mode: String,
    node: String,
    since: When,
}

pub async fn list(state: &State, who: &Who, params: &Params) -> Rendered {
    let (sight, names) = seen(state, who).await?;
    let asked = gates::filter(params)?;
    let rows = gates::locks(state, &sight, &asked).await?;
    ui::render(StatusCode::OK, &LocksPage::of(&rows, &asked.0.prefix.unwrap_or_default(), asked.1, &names))
}

/// One lock.
pub async fn one(state: &State, who: &Who, name: &str) -> Rendered {
    let (sight, names) = seen(state, who).await?;
    let lock = gates::lock(state, &sight, name).await?;
    let tasks = |tasks: &[(LockMode, Relative)]| tasks.iter().map(|task| Task::of(task, &names)).collect();
    let page = LockPage {
        held_by: lock.row.held_by,
        waiting: waiting(lock.row.waiting),
        holders: tasks(&lock.row.holders),
        waiters: tasks(&lock.waiters),
        name: lock.row.name,
    };
    ui::render(StatusCode::OK, &page)
}

/// What somebody may see, and what the queues of it are called.
async fn seen(
    state: &State,
    who: &Who,
) -> Result<(Sight, HashMap<ObjectId, String>), crate::error::HttpError> {
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    Ok((gates::sight(state, who).await?, names(&queues)))
}

impl LocksPage {
    fn of(rows: &[LockRow], prefix: &str, limit: i64, names: &HashMap<ObjectId, String>) -> Self {
        let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
        let last = rows.last().filter(|_| is_full);
        let next =
            last.map(|last| format!("/locks?.prefix={}&.after={}", encoded(prefix), encoded(&last.name)));
        Self {
            prefix: prefix.to_owned(),
            rows: rows.iter().map(|row| Row::of(row, names)).collect(),
            next: next.unwrap_or_default(),
        }
    }
}

impl Row {
    fn of(row: &LockRow, names: &HashMap<ObjectId, String>) -> Self {
        Self {
            name: row.name.clone(),
            address: format!("/locks/{}", encoded(&row.name)),
            held_by: row.held_by,
            first: row.holders.first().map(|holder| Task::of(holder, names)),
            waiting: waiting(row.waiting),
        }
    }

    /// How many hold it beside the first.
    fn others(&self) -> u64 {
        self.held_by.saturating_sub(1)
    }
}

impl Task {
    fn of((mode, task): &(LockMode, Relative), names: &HashMap<ObjectId, String>) -> Self {
        let mode = match mode {
            LockMode::Exclusive => "alone".to_owned(),
            LockMode::Shared => "shared".to_owned(),
            LockMode::Places(places) => format!("one of {places}"),
        };
        let queue = task.queue.map(|queue| names.get(&queue.0).cloned().unwrap_or_else(|| queue.to_string()));
        let gone = StatusView { code: String::new(), word: "gone" };
        Self {
            id: task.id.map(|id| id.to_string()),
            queue: queue.unwrap_or_default(),
            status: task.status.map(Status::code).map_or(gone, StatusView::from_code),
            mode,
            node: task.node.clone().unwrap_or_default(),
            since: task.since.map(When::at).unwrap_or_default(),
        }
    }
}

fn waiting(tasks: u64) -> String {
    if tasks >= COUNTED { "1,000+".to_owned() } else { tasks.to_string() }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use disbatch_core::model::{QueueId, TaskId};

    use super::*;

    fn relative(id: Option<u8>) -> Relative {
        Relative {
            id: id.map(|number| TaskId(ObjectId::from_bytes([number; 12]))),
            queue: id.map(|_| QueueId(ObjectId::from_bytes([7; 12]))),
            status: Some(Status::Running),
            node: Some("<vm>".to_owned()),
            since: Some(DateTime::from_millis(1_795_163_067_344)),
        }
    }

    fn names() -> HashMap<ObjectId, String> {
        HashMap::from([(ObjectId::from_bytes([7; 12]), "<mail>".to_owned())])
    }

    #[test]
    fn a_lock_tells_who_has_it_and_who_waits() {
        let task = |id| Task::of(&(LockMode::Places(3), relative(id)), &names());
        let page = LockPage {
            name: "db:1".to_owned(),
            held_by: 2,
            waiting: waiting(5_000),
            holders: vec![task(Some(1)), task(None)],
            waiters: vec![],
        };
        let html = page.render().unwrap();
        for part in [
            "db:1",
            "href=\"/tasks/010101010101010101010101\"",
            "a task of another queue",
            "one of 3",
            "&#60;mail&#62;",
            "&#60;vm&#62;",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "1,000+",
            "Nobody waits for it.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<vm>"), "{html}");
    }

    #[test]
    fn no_locks_is_said_with_what_they_are() {
        let html = LocksPage::of(&[], "", 100, &names()).render().unwrap();
        assert!(html.contains("No task holds a lock or waits for one.") && html.contains(".locks"), "{html}");
        assert!(!html.contains("rel=\"next\""), "{html}");
    }
}
