//! `GET /arrays` and `GET /arrays/:id` for people: how far arrays are, and a picture of their elements.

mod picture;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::doc;
use disbatch_core::accounts::Role;
use disbatch_core::arrays::{Array, ArrayRow, Cell, Counts, Element, FinalWhen};
use disbatch_core::model::{Queue, Selector, Status, whole_number};

use crate::access::Who;
use crate::arrays;
use crate::error::HttpError;
use crate::openapi::OfFixed;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::live::{self, Part};
use crate::ui::names::{label, names};
use crate::ui::parts::{Pill, When, cut, grouped};
use crate::ui::{self, Rendered, StatusView, plain, text};
use picture::{Picture, in_a_square};

/// So much of a value is shown.
const SHOWN: usize = 80;

#[derive(Template)]
#[template(path = "arrays.html")]
struct ArraysPage {
    rows: Vec<Row>,
    next: String,
}

#[derive(Template)]
#[template(path = "array.html")]
struct ArrayPage {
    id: String,
    queue: String,
    queue_name: String,
    panel: Panel,
    elements: Vec<Line>,
    previous: String,
    next: String,
}

/// An array of the list.
struct Row {
    id: String,
    queue: String,
    queue_name: String,
    words: String,
    state: Pill,
    done: Option<i64>,
    failed: Option<i64>,
    count: u32,
    created: When,
}

/// How far an array is.
#[derive(Template)]
#[template(path = "array/panel.html")]
struct Panel {
    id: String,
    words: String,
    state: Pill,
    count: u32,
    inserted: u32,
    cap: Option<u32>,
    key: String,
    done: Option<i64>,
    counts: Vec<(StatusView, String)>,
    created: When,
    ended: When,
    owner: String,
    last: Option<Last>,
    picture: Picture,
    can_cancel: bool,
    can_retry: bool,
}

impl HtmlSafe for Panel {}

/// The task that comes after all elements.
struct Last {
    id: String,
    status: Option<StatusView>,
    when: &'static str,
}

/// An element of the table.
struct Line {
    id: String,
    index: String,
    value: String,
    status: Option<StatusView>,
}

pub async fn list(state: &State, who: &Who, params: &Params) -> Rendered {
    let (filter, limit) = arrays::filter(state, who, params).await?;
    let reach = who.reach(Role::Viewer);
    let (found, queues) =
        futures::try_join!(state.store.list_arrays(&filter, limit), state.store.queues_within(&reach))?;
    let search = search_of(params, limit);
    ui::render(StatusCode::OK, &ArraysPage::of(&found, &queues, &search, limit))
}

/// One array.
pub async fn one(state: &State, id: &str, params: &Params) -> Rendered {
    let (from, limit) = arrays::extent(params)?;
    let array = arrays::find(state, id).await?;
    let elements = state.store.array_elements(&array, from, limit).await?;
    let queue = state.store.find_queue(&Selector::Id(array.queue.0)).await?;
    let address = |from: u32| format!("/arrays/{}?.from={from}&.limit={limit}", array.id);
    let after = from.saturating_add(limit);
    let page = ArrayPage {
        id: array.id.to_string(),
        queue: array.queue.to_string(),
        queue_name: queue.as_ref().map_or_else(|| array.queue.to_string(), label),
        panel: panel(state, &array).await?,
        elements: elements.iter().map(Line::of).collect(),
        previous: if from > 0 { address(from.saturating_sub(limit)) } else { String::new() },
        next: if after < array.count { address(after) } else { String::new() },
    };
    ui::render(StatusCode::OK, &page)
}

/// What of an array's page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids.
#[utoipa::path(
    get, path = "/ui/arrays/{id}", tag = "service", operation_id = "arrayEvents",
    params(("id" = String, Path, description = "The array's id.")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    live::of_one(&request, &state, ("array", id.into_inner()), parts)
}

async fn parts(state: &State, id: &str) -> Result<Vec<Part>, HttpError> {
    let array = arrays::find(state, id).await?;
    Ok(vec![Part::new(format!("array-{}", array.id), &panel(state, &array).await?)?])
}

async fn panel(state: &State, array: &Array) -> Result<Panel, HttpError> {
    let size = in_a_square(array.count);
    let store = &state.store;
    let only = [array.id];
    let (mut counted, cells) =
        futures::try_join!(store.count_elements(&only), store.array_cells(array.id, size))?;
    let counts = counted.as_mut().map(|all| all.remove(&array.id).unwrap_or_default());
    let last = match array.last {
        Some((id, when)) => {
            let task = store.find_task_fields(id, doc! { "status": 1 }).await?;
            let status = task.as_ref().and_then(|task| task.get("status")).and_then(whole_number);
            let when = match when {
                FinalWhen::Succeeded => "when all elements have succeeded",
                FinalWhen::Finished => "when all elements have ended",
            };
            Some(Last { id: id.to_string(), status: status.map(StatusView::from_code), when })
        }
        None => None,
    };
    Ok(Panel { last, ..Panel::of(array, counts.as_ref(), &cells, size) })
}

impl ArraysPage {
    /// `search` is the address of the same search from the first array on.
    fn of(found: &[ArrayRow], queues: &[Queue], search: &str, limit: i64) -> Self {
        let known = names(queues);
        let row = |(array, counts): &ArrayRow| Row {
            id: array.id.to_string(),
            queue: array.queue.to_string(),
            queue_name: known.get(&array.queue.0).cloned().unwrap_or_else(|| array.queue.to_string()),
            words: cut(&array.words, SHOWN),
            state: Pill { tone: array.state.as_str(), word: array.state.as_str() },
            done: counts.as_ref().map(arrays::ended),
            failed: counts.as_ref().map(failed),
            count: array.count,
            created: array.created.map(When::at).unwrap_or_default(),
        };
        let is_full = i64::try_from(found.len()).is_ok_and(|rows| rows >= limit);
        let last = found.last().filter(|_| is_full).map(|(array, _)| array.id);
        let next = last.map(|last| format!("{search}&.before={last}"));
        Self { rows: found.iter().map(row).collect(), next: next.unwrap_or_default() }
    }
}

/// The address of the search that `params` asks for, from the first array on.
fn search_of(params: &Params, limit: i64) -> String {
    let given = ["queue", "state"].map(|name| (name, text(params.fields.get(name))));
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(name, value)| format!("&{name}={}", encoded(&value)));
    format!("/arrays?.limit={limit}{}", given.collect::<String>())
}

/// How many have ended without success.
fn failed(counts: &Counts) -> i64 {
    let of_success = counts.get(&Status::Succeeded.code()).copied().unwrap_or(0);
    arrays::ended(counts).saturating_sub(of_success)
}

impl Panel {
    fn of(array: &Array, counts: Option<&Counts>, cells: &[Cell], size: u32) -> Self {
        let done = counts.map(arrays::ended);
        let shown = counts.into_iter().flatten();
        Self {
            id: array.id.to_string(),
            words: cut(&array.words, 4 * SHOWN),
            state: Pill { tone: array.state.as_str(), word: array.state.as_str() },
            count: array.count,
            inserted: array.inserted,
            cap: array.cap,
            key: array.key.clone(),
            done,
            counts: shown.map(|(status, tasks)| (StatusView::from_code(*status), number(*tasks))).collect(),
            created: array.created.map(When::at).unwrap_or_default(),
            ended: array.ended.map(When::at).unwrap_or_default(),
            owner: array.owner.clone().unwrap_or_default(),
            last: None,
            picture: Picture::of(array.count, cells, size),
            can_cancel: done.is_none_or(|done| done < i64::from(array.count)),
            can_retry: counts.is_none_or(|counts| failed(counts) > 0),
        }
    }
}

fn number(tasks: i64) -> String {
    grouped(u64::try_from(tasks).unwrap_or(0))
}

impl Line {
    fn of(element: &Element) -> Self {
        Self {
            id: element.id.to_string(),
            index: element.index.to_string(),
            value: cut(&plain(element.value.as_ref()), SHOWN),
            status: element.status.map(|status| StatusView::from_code(status.code())),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Bson, DateTime};
    use disbatch_core::arrays::ArrayState;
    use disbatch_core::model::{ArrayId, QueueId, TaskId};

    use super::*;

    fn array(count: u32) -> Array {
        Array {
            id: ArrayId(ObjectId::from_bytes([1; 12])),
            queue: QueueId(ObjectId::from_bytes([2; 12])),
            words: "0-9<1>".to_owned(),
            count,
            inserted: count,
            cap: Some(5),
            key: "item".to_owned(),
            state: ArrayState::Open,
            created: Some(DateTime::from_millis(1_795_163_067_344)),
            ended: None,
            succeeded: None,
            owner: Some("<ann>".to_owned()),
            tenant: None,
            last: None,
        }
    }

    fn page(panel: Panel) -> String {
        let element = Element {
            id: TaskId(ObjectId::from_bytes([3; 12])),
            index: 0,
            value: Some(Bson::from("<v>")),
            status: Some(Status::Failed),
        };
        let page = ArrayPage {
            id: panel.id.clone(),
            queue: "02".to_owned(),
            queue_name: "<mail>".to_owned(),
            panel,
            elements: vec![Line::of(&element)],
            previous: String::new(),
            next: "/arrays/x?.from=1".to_owned(),
        };
        page.render().unwrap()
    }

    #[test]
    fn the_page_shows_how_its_elements_are() {
        let cells = [(0, Status::Failed), (1, Status::Running), (2, Status::Succeeded)];
        let cells = cells.map(|(number, status)| Cell { number, status, tasks: 1 });
        let counts = Counts::from([(0, 1), (1, 1), (2, 1)]);
        let last = Last { id: "04".to_owned(), status: None, when: "when all elements have ended" };
        let html = page(Panel { last: Some(last), ..Panel::of(&array(4), Some(&counts), &cells, 1) });
        for part in [
            "0-9&#60;1&#62;",
            "&#60;ann&#62;",
            "&#60;mail&#62;",
            "&#60;v&#62;",
            "data-live=\"/ui/arrays/010101010101010101010101\"",
            "id=\"array-010101010101010101010101\"",
            "<progress max=\"4\" value=\"2\"",
            "class=\"failed\" x=\"0\" y=\"0\"",
            "class=\"running\" x=\"16\" y=\"0\"",
            "class=\"none\" x=\"48\" y=\"0\"",
            "<title>element 3: no task</title>",
            "action=\"/arrays/010101010101010101010101/cancel\"",
            "action=\"/arrays/010101010101010101010101/retry\"",
            "href=\"/tasks/04\"",
            "rel=\"next\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<v>"), "{html}");
    }

    #[test]
    fn what_has_succeeded_cannot_be_acted_on() {
        let counts = Counts::from([(1, 4)]);
        let html = page(Panel::of(&array(4), Some(&counts), &[], 1));
        assert!(!html.contains("/cancel\"") && !html.contains("/retry\""), "{html}");
    }

    #[test]
    fn a_full_list_has_a_next_page() {
        let rows = [(array(3), Some(Counts::from([(1, 2), (2, 1)])))];
        let of = |limit| ArraysPage::of(&rows, &[], "/arrays?.limit=1", limit).render().unwrap();
        assert!(of(1).contains("/arrays?.limit=1&#38;.before=010101010101010101010101\""), "{}", of(1));
        assert!(!of(2).contains("rel=\"next\""));
        let none = ArraysPage::of(&[], &[], "/arrays?.limit=5", 5).render().unwrap();
        assert!(none.contains("There is no array."), "{none}");
    }

    #[test]
    fn pages_of_a_search_are_all_of_that_search() {
        let of = |fields: serde_json::Value| {
            search_of(&Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }, 5)
        };
        assert_eq!(of(serde_json::json!({})), "/arrays?.limit=5");
        assert_eq!(of(serde_json::json!({ "queue": "", "state": "open" })), "/arrays?.limit=5&state=open");
        let both = of(serde_json::json!({ "queue": "a&b", "state": "done" }));
        assert_eq!(both, "/arrays?.limit=5&queue=a%26b&state=done");
    }
}
