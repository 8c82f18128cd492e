//! `GET /locks` and `GET /locks/:name` for people: who holds what, and who waits.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::accounts::Role;
use disbatch_core::gates::{LockDetails, LockFilter, LockMode, LockRow, Relative};
use disbatch_core::model::{Queue, Status};

use crate::access::{Sight, Who};
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::names::{Link, Names, encoded, name_of};
use crate::ui::parts::When;
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
    panel: Panel,
}

/// Who holds a lock and who waits for it, which changes by itself. Nobody does of a lock that is free.
#[derive(Default, Template)]
#[template(path = "locks/one.html")]
struct Panel {
    name: String,
    held_by: u64,
    waiting: u64,
    holders: Vec<Task>,
    waiters: Vec<Task>,
    sees_all: bool,
}

impl HtmlSafe for Table {}
impl HtmlSafe for Panel {}

struct Row {
    lock: LockRow,
    first: Option<Task>,
}

/// A task that holds a lock, or waits for it.
struct Task {
    /// `None`: whoever looks may not see it.
    id: Option<String>,
    title: String,
    queue: Link,
    status: StatusView,
    mode: String,
    node: Option<Link>,
    since: When,
}

pub async fn list(state: Data<State>, who: Who, params: Params) -> Rendered {
    let (sight, queues) = seen(&state, &who).await?;
    let asked = gates::filter(&params)?;
    let table = Table::gather(&state, &sight, &queues, &asked).await?;
    ui::render(&LocksPage::of(table, asked))
}

/// One lock. It has a page when it is free, too: whoever comes from a task wants to know that.
pub async fn one(state: Data<State>, who: Who, name: Path<String>) -> Rendered {
    let (sight, queues) = seen(&state, &who).await?;
    ui::render(&LockPage { panel: panel(&state, &sight, &name, &queues).await? })
}

/// What of the page of locks changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get,
    path = "/ui/locks",
    tag = "service",
    operation_id = "locksEvents",
    responses(EventStream, OfFixed)
)]
pub async fn live(request: HttpRequest, state: Data<State>, Lenient(params): Lenient) -> HttpResponse {
    live::of_search(&request, &state, ("locks", params), async |state, params| {
        let queues = state.store.list_queues().await?;
        let table = Table::gather(state, &Sight::All, &queues, &gates::filter(params)?).await?;
        Ok(vec![Part::new(&table)?])
    })
}

/// What of the page of a lock changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/locks/{name}", tag = "service", operation_id = "lockEvents",
    params(("name" = String, Path, description = "Its name.", example = "db")),
    responses(EventStream, OfFixed),
)]
pub async fn live_one(request: HttpRequest, state: Data<State>, name: Path<String>) -> HttpResponse {
    live::of_one(&request, &state, ("lock", name.into_inner()), async |state, name| {
        let queues = state.store.list_queues().await?;
        Ok(vec![Part::new(&panel(state, &Sight::All, name, &queues).await?)?])
    })
}

async fn panel(state: &State, sight: &Sight, name: &str, queues: &[Queue]) -> Result<Panel, HttpError> {
    let sees_all = matches!(sight, Sight::All);
    match gates::lock(state, sight, name).await {
        Ok(lock) => {
            let tasks = lock.row.holders.iter().chain(&lock.waiters).filter_map(|(_, task)| task.id);
            Ok(Panel::of(&lock, sees_all, &Names::read(state, queues, tasks).await?))
        }
        Err(error) if error.status() == StatusCode::NOT_FOUND => {
            Ok(Panel { name: name.to_owned(), sees_all, ..Panel::default() })
        }
        Err(error) => Err(error),
    }
}

/// What somebody may see, and the queues of it.
async fn seen(state: &State, who: &Who) -> Result<(Sight, Vec<Queue>), HttpError> {
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    Ok((gates::sight(state, who).await?, queues))
}

impl LocksPage {
    fn of(table: Table, (filter, limit): (LockFilter, i64)) -> Self {
        let (prefix, after) = (filter.prefix.unwrap_or_default(), filter.after.unwrap_or_default());
        let is_full = i64::try_from(table.rows.len()).is_ok_and(|rows| rows >= limit);
        let last = table.rows.last().filter(|_| is_full);
        let from =
            |after: &str| format!("?.prefix={}&.after={}&.limit={limit}", encoded(&prefix), encoded(after));
        Self {
            next: last.map(|last| format!("/locks{}", from(&last.lock.name))).unwrap_or_default(),
            live: format!("/ui/locks{}", from(&after)),
            table,
            prefix,
        }
    }
}

impl Table {
    async fn gather(
        state: &State,
        sight: &Sight,
        queues: &[Queue],
        asked: &(LockFilter, i64),
    ) -> Result<Self, HttpError> {
        let rows = gates::locks(state, sight, asked).await?;
        let first = rows.iter().filter_map(|row| row.holders.first()?.1.id);
        let names = Names::read(state, queues, first).await?;
        let row =
            |lock: LockRow| Row { first: lock.holders.first().map(|task| Task::of(task, &names)), lock };
        let searched = asked.0.prefix.as_ref().is_some_and(|prefix| !prefix.is_empty());
        Ok(Self { rows: rows.into_iter().map(row).collect(), searched })
    }
}

impl Panel {
    fn of(lock: &LockDetails, sees_all: bool, names: &Names) -> Self {
        let tasks = |tasks: &[(LockMode, Relative)]| tasks.iter().map(|task| Task::of(task, names)).collect();
        Self {
            held_by: lock.row.held_by,
            waiting: lock.row.waiting,
            holders: tasks(&lock.row.holders),
            waiters: tasks(&lock.waiters),
            name: lock.row.name.clone(),
            sees_all,
        }
    }
}

impl Task {
    fn of((mode, task): &(LockMode, Relative), names: &Names) -> Self {
        let mode = match mode {
            LockMode::Exclusive => "alone".to_owned(),
            LockMode::Shared => "shared".to_owned(),
            LockMode::Places(places) => format!("one of {places}"),
        };
        let queue =
            task.queue.map(|queue| Link::to(name_of(&names.queues, queue), format!("/queues/{queue}")));
        let gone = StatusView::named("", "gone");
        Self {
            id: task.id.map(|id| id.to_string()),
            title: task.id.map(|id| names.tasks.of(&id).to_owned()).unwrap_or_default(),
            queue: queue.unwrap_or_default(),
            status: task.status.map(Status::code).map_or(gone, StatusView::from_code),
            mode,
            node: task.node.as_deref().filter(|node| !node.is_empty()).map(Link::node),
            since: task.since.map(When::at).unwrap_or_default(),
        }
    }
}

fn waiting(tasks: u64) -> String {
    if tasks >= COUNTED { "1,000+".to_owned() } else { tasks.to_string() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bson::DateTime;
    use bson::oid::ObjectId;
    use disbatch_core::model::{QueueId, TaskId};

    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::names::Called;

    fn relative(id: Option<u8>) -> Relative {
        Relative {
            id: id.map(|number| TaskId(ObjectId::from_bytes([number; 12]))),
            queue: id.map(|_| QueueId(ObjectId::from_bytes([7; 12]))),
            status: Some(Status::Running),
            node: Some("<vm>".to_owned()),
            since: Some(DateTime::from_millis(1_795_163_067_344)),
            is_queue_gone: false,
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
            waiting: 5_000,
            holders: vec![task(Some(1)), task(None)],
            waiters: vec![],
            sees_all: true,
        };
        let parts = [Part::new(&panel).unwrap()];
        let html = LockPage { panel }.render().unwrap();
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
        let free =
            |sees_all| Panel { name: "<db>".to_owned(), sees_all, ..Panel::default() }.render().unwrap();
        assert!(free(true).contains(">free</span>") && free(true).contains("Nobody holds it."));
        assert!(
            !free(false).contains(">free</span>")
                && free(false).contains("No task that you may see holds it.")
        );
        assert!(free(true).contains("&#60;db&#62;"));
    }

    #[test]
    fn no_locks_is_said_with_what_they_are() {
        let none = Table { rows: vec![], searched: false };
        let html = LocksPage::of(none, (LockFilter::default(), 100)).render().unwrap();
        assert!(html.contains("No task holds a lock or waits for one.") && html.contains(".locks"), "{html}");
        assert!(!html.contains("rel=\"next\"") && html.contains("id=\"locks\""), "{html}");
    }
}
