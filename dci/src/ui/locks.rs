//! `GET /locks` and `GET /locks/:name` for people: who holds what, and who waits.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::gates::{LockDetails, LockMode, LockRow, Relative};
use disbatch_core::model::{Queue, Status};
use disbatch_core::store::StoreError;

use crate::access::{Sight, Who};
use crate::error::HttpError;
use crate::openapi::OfFixed;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::live::Part;
use crate::ui::names::{Called, names};
use crate::ui::parts::{Pill, When};
use crate::ui::{Rendered, StatusView, live};
use crate::{gates, ui};

/// More tasks than this that wait are not counted.
const COUNTED: u64 = 1_000;

#[derive(Template)]
#[template(path = "locks.html")]
struct LocksPage {
    prefix: String,
    table: Table,
    next: String,
    /// Where the changes are told.
    live: String,
}

/// The list, which changes by itself.
#[derive(Template)]
#[template(path = "locks/table.html")]
struct Table {
    rows: Vec<Row>,
    /// Whether only some are looked for.
    searched: bool,
}

#[derive(Template)]
#[template(path = "lock.html")]
struct LockPage {
    /// Where the changes are told.
    live: String,
    panel: Panel,
}

/// Who holds a lock and who waits for it, which changes by itself. Nobody does of a lock that is free.
#[derive(Template)]
#[template(path = "locks/one.html")]
struct Panel {
    name: String,
    held_by: u64,
    waiting: String,
    holders: Vec<Task>,
    waiters: Vec<Task>,
    /// Whether whoever looks sees all tasks.
    sees_all: bool,
}

impl HtmlSafe for Table {}
impl HtmlSafe for Panel {}

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
    title: String,
    queue: String,
    /// Its page; `None`: it has no queue.
    queue_address: Option<String>,
    status: StatusView,
    mode: String,
    node: String,
    since: When,
}

/// What queues and tasks are called.
struct Names {
    queues: HashMap<ObjectId, String>,
    tasks: Called,
}

impl Names {
    /// Those of these queues, and of the tasks of locks.
    async fn read<'a>(
        state: &State,
        queues: &[Queue],
        tasks: impl Iterator<Item = &'a (LockMode, Relative)>,
    ) -> Result<Self, StoreError> {
        let ids = tasks.filter_map(|(_, task)| task.id);
        let tasks = state.titles(queues).await?.read(&state.store, ids).await?;
        Ok(Self { queues: names(queues), tasks })
    }

    /// The same for a list of locks, each of which is shown with who holds it first.
    async fn of_list(state: &State, queues: &[Queue], rows: &[LockRow]) -> Result<Self, StoreError> {
        Self::read(state, queues, rows.iter().filter_map(|row| row.holders.first())).await
    }
}

pub async fn list(state: &State, who: &Who, params: &Params) -> Rendered {
    let (sight, queues) = seen(state, who).await?;
    let asked = gates::filter(params)?;
    let rows = gates::locks(state, &sight, &asked).await?;
    let names = Names::of_list(state, &queues, &rows).await?;
    let (filter, limit) = asked;
    let after = filter.after.unwrap_or_default();
    let page = LocksPage::of(&rows, (&filter.prefix.unwrap_or_default(), &after), limit, &names);
    ui::render(StatusCode::OK, &page)
}

/// One lock. It has a page when it is free, too: whoever comes from a task wants to know that.
pub async fn one(state: &State, who: &Who, name: &str) -> Rendered {
    let (sight, queues) = seen(state, who).await?;
    let page = LockPage {
        live: format!("/ui/locks/{}", encoded(name)),
        panel: panel(state, &sight, name, &queues).await?,
    };
    ui::render(StatusCode::OK, &page)
}

/// What of the page of locks changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/locks", tag = "service", operation_id = "locksEvents",
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live(
    request: HttpRequest,
    state: Data<State>,
    params: Result<Params, HttpError>,
) -> HttpResponse {
    live::of_search(&request, &state, ("locks", params), async |state, params| {
        let queues = state.store.list_queues().await?;
        let asked = gates::filter(params)?;
        let rows = gates::locks(state, &Sight::All, &asked).await?;
        let names = Names::of_list(state, &queues, &rows).await?;
        let searched = asked.0.prefix.is_some_and(|prefix| !prefix.is_empty());
        Ok(vec![Part::new("locks", &Table::of(&rows, searched, &names))?])
    })
}

/// What of the page of a lock changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/locks/{name}", tag = "service", operation_id = "lockEvents",
    params(("name" = String, Path, description = "Its name.", example = "db")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live_one(request: HttpRequest, state: Data<State>, name: Path<String>) -> HttpResponse {
    live::of_one(&request, &state, ("lock", name.into_inner()), async |state, name| {
        let queues = state.store.list_queues().await?;
        Ok(vec![Part::new("lock", &panel(state, &Sight::All, name, &queues).await?)?])
    })
}

async fn panel(state: &State, sight: &Sight, name: &str, queues: &[Queue]) -> Result<Panel, HttpError> {
    let sees_all = matches!(sight, Sight::All);
    match gates::lock(state, sight, name).await {
        Ok(lock) => {
            let tasks = lock.row.holders.iter().chain(&lock.waiters);
            Ok(Panel::of(&lock, sees_all, &Names::read(state, queues, tasks).await?))
        }
        Err(error) if error.status() == StatusCode::NOT_FOUND => Ok(Panel::free(name, sees_all)),
        Err(error) => Err(error),
    }
}

/// What somebody may see, and the queues of it.
async fn seen(state: &State, who: &Who) -> Result<(Sight, Vec<Queue>), HttpError> {
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    Ok((gates::sight(state, who).await?, queues))
}

impl LocksPage {
    fn of(rows: &[LockRow], (prefix, after): (&str, &str), limit: i64, names: &Names) -> Self {
        let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
        let last = rows.last().filter(|_| is_full);
        let from =
            |after: &str| format!("?.prefix={}&.after={}&.limit={limit}", encoded(prefix), encoded(after));
        Self {
            prefix: prefix.to_owned(),
            table: Table::of(rows, !prefix.is_empty(), names),
            next: last.map(|last| format!("/locks{}", from(&last.name))).unwrap_or_default(),
            live: format!("/ui/locks{}", from(after)),
        }
    }
}

impl Table {
    fn of(rows: &[LockRow], searched: bool, names: &Names) -> Self {
        Self { rows: rows.iter().map(|row| Row::of(row, names)).collect(), searched }
    }
}

impl Panel {
    fn of(lock: &LockDetails, sees_all: bool, names: &Names) -> Self {
        let tasks = |tasks: &[(LockMode, Relative)]| tasks.iter().map(|task| Task::of(task, names)).collect();
        Self {
            held_by: lock.row.held_by,
            waiting: waiting(lock.row.waiting),
            holders: tasks(&lock.row.holders),
            waiters: tasks(&lock.waiters),
            name: lock.row.name.clone(),
            sees_all,
        }
    }

    /// That of a lock that nobody holds or waits for.
    fn free(name: &str, sees_all: bool) -> Self {
        Self {
            name: name.to_owned(),
            held_by: 0,
            waiting: waiting(0),
            holders: vec![],
            waiters: vec![],
            sees_all,
        }
    }

    fn state(&self) -> Pill {
        match self.held_by {
            0 => Pill { tone: "alive", word: "free" },
            _ => Pill { tone: "held", word: "held" },
        }
    }
}

impl Row {
    fn of(row: &LockRow, names: &Names) -> Self {
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
    fn of((mode, task): &(LockMode, Relative), names: &Names) -> Self {
        let mode = match mode {
            LockMode::Exclusive => "alone".to_owned(),
            LockMode::Shared => "shared".to_owned(),
            LockMode::Places(places) => format!("one of {places}"),
        };
        let queue_address = task.queue.map(|queue| format!("/queues/{queue}"));
        let queue =
            task.queue.map(|queue| names.queues.get(&queue.0).cloned().unwrap_or_else(|| queue.to_string()));
        let gone = StatusView::named("", "gone");
        Self {
            id: task.id.map(|id| id.to_string()),
            title: task.id.map(|id| names.tasks.of(&id).to_owned()).unwrap_or_default(),
            queue: queue.unwrap_or_default(),
            queue_address,
            status: task.status.map(Status::code).map_or(gone, StatusView::from_code),
            mode,
            node: task.node.clone().unwrap_or_default(),
            since: task.since.map(When::at).unwrap_or_default(),
        }
    }
}

fn node_address(node: &str) -> String {
    format!("/nodes/{}", encoded(node))
}

fn waiting(tasks: u64) -> String {
    if tasks >= COUNTED { "1,000+".to_owned() } else { tasks.to_string() }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use disbatch_core::model::{QueueId, TaskId};

    use super::*;
    use crate::ui::live::assert_on_page;

    fn relative(id: Option<u8>) -> Relative {
        Relative {
            id: id.map(|number| TaskId(ObjectId::from_bytes([number; 12]))),
            queue: id.map(|_| QueueId(ObjectId::from_bytes([7; 12]))),
            status: Some(Status::Running),
            node: Some("<vm>".to_owned()),
            since: Some(DateTime::from_millis(1_795_163_067_344)),
        }
    }

    fn names() -> Names {
        let queues = HashMap::from([(ObjectId::from_bytes([7; 12]), "<mail>".to_owned())]);
        Names {
            queues,
            tasks: Called::from([(TaskId(ObjectId::from_bytes([1; 12])), "send <b>".to_owned())]),
        }
    }

    #[test]
    fn a_lock_tells_who_has_it_and_who_waits() {
        let task = |id| Task::of(&(LockMode::Places(3), relative(id)), &names());
        let panel = Panel {
            name: "db:1".to_owned(),
            held_by: 2,
            waiting: waiting(5_000),
            holders: vec![task(Some(1)), task(None)],
            waiters: vec![],
            sees_all: true,
        };
        let parts = [Part::new("lock", &panel).unwrap()];
        let page = LockPage { live: "/ui/locks/db%3A1".to_owned(), panel };
        let html = page.render().unwrap();
        for part in [
            "db:1",
            "data-live=\"/ui/locks/db%3A1\"",
            "href=\"/queues/070707070707070707070707\">&#60;mail&#62;</a>",
            "href=\"/nodes/%3Cvm%3E\">&#60;vm&#62;</a>",
            ">held</span>",
            "href=\"/tasks/010101010101010101010101\" title=\"send &#60;b&#62;\">send &#60;b&#62;</a> <code class=\"hint\">…010101</code>",
            "a task of another queue",
            "one of 3",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "1,000+",
            "Nobody waits for it.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<vm>"), "{html}");
        assert_on_page(&parts, &html);
    }

    #[test]
    fn a_lock_that_nobody_holds_is_free_as_far_as_one_sees() {
        let free = |sees_all| Panel::free("<db>", sees_all).render().unwrap();
        assert!(free(true).contains(">free</span>") && free(true).contains("Nobody holds it."));
        assert!(
            !free(false).contains(">free</span>")
                && free(false).contains("No task that you may see holds it.")
        );
        assert!(free(true).contains("&#60;db&#62;"));
    }

    #[test]
    fn no_locks_is_said_with_what_they_are() {
        let html = LocksPage::of(&[], ("", ""), 100, &names()).render().unwrap();
        assert!(html.contains("No task holds a lock or waits for one.") && html.contains(".locks"), "{html}");
        assert!(!html.contains("rel=\"next\"") && html.contains("id=\"locks\""), "{html}");
    }
}
