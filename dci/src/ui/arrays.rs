//! `GET /arrays` and `GET /arrays/:id` for people: how far arrays are, and a picture of their elements.

use std::collections::BTreeMap;

use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::doc;
use disbatch_core::accounts::Role;
use disbatch_core::arrays::{Array, ArrayRow, ArrayState, Cell, Counts, Element, FinalWhen};
use disbatch_core::model::{ArrayId, Queue, Selector, Status, TaskId};
use disbatch_core::store::StoreError;

use crate::access::{Who, viewer};
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{Called, QueueNames, Titles, address, label, names};
use crate::ui::parts::{cut, grouped};
use crate::ui::tasks::columns::ran;
use crate::ui::{Rendered, StatusView, integer, plain, text};
use crate::{arrays, ui};

#[derive(Template)]
#[template(path = "arrays.html")]
struct ArraysPage<'a> {
    found: &'a [ArrayRow],
    names: QueueNames,
    next: String,
}

#[derive(Template)]
#[template(path = "array.html")]
struct ArrayPage<'a> {
    panel: Panel<'a>,
    /// What its tasks are called, or their queue if they have no names.
    title: String,
    queue: Queue,
    queue_name: String,
    elements: Elements,
    /// Where the changes are told.
    live: String,
}

#[derive(Template)]
#[template(path = "array/elements.html")]
struct Elements {
    array: ArrayId,
    elements: Vec<Element>,
    called: Called,
    /// The status of those that are shown, if not all are.
    status: Option<StatusView>,
    sees_nodes: bool,
    previous: String,
    next: String,
}

impl HtmlSafe for Elements {}

#[derive(Template)]
#[template(path = "array/panel.html")]
struct Panel<'a> {
    array: &'a Array,
    /// None: counting takes too long.
    counts: Option<Counts>,
    last: Option<Last>,
    picture: Picture,
}

impl HtmlSafe for Panel<'_> {}

struct Last {
    id: TaskId,
    title: String,
    status: Option<StatusView>,
    when: FinalWhen,
}

pub async fn list(state: Data<State>, who: Who, params: Params) -> Rendered {
    let (filter, limit) = arrays::filter(&state, &who, &params).await?;
    let reach = who.reach(Role::Viewer);
    let (found, queues) =
        futures::try_join!(state.store.list_arrays(&filter, limit), state.store.queues_within(&reach))?;
    let search = search_of(&params, limit);
    ui::render(&ArraysPage::of(&found, &queues, &search, limit))
}

pub async fn one(state: Data<State>, id: Path<String>, params: Params) -> Rendered {
    let array = arrays::find(&state, &id).await?;
    let (queue, titles) = queue_of(&state, &array).await?;
    let elements = Elements::find(&state, (&array, &titles), &params, viewer::may(Role::Viewer)).await?;
    let queue_name = queue.as_ref().map_or_else(|| array.queue.to_string(), label);
    let title = match elements.elements.first() {
        Some(element) => titles.of_array(&state.store, element.id).await?,
        None => String::new(),
    };
    let (options, fields) = (&params.options, &params.fields);
    let asked =
        [(".from", options.get("from")), (".limit", options.get("limit")), ("status", fields.get("status"))];
    let asked = asked.map(|(name, value)| (name, text(value))).into_iter();
    let page = ArrayPage {
        title: if title.is_empty() { queue_name.clone() } else { title },
        queue: queue.unwrap_or_else(|| Queue::without_document(array.queue)),
        queue_name,
        panel: panel(&state, &array, &titles).await?,
        elements,
        live: address(&format!("/ui/arrays/{}", array.id), asked.filter(|(_, value)| !value.is_empty())),
    };
    ui::render(&page)
}

/// What of an array's page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. The parameters are those of the page.
#[utoipa::path(
    get, path = "/ui/arrays/{id}", tag = "service", operation_id = "arrayEvents",
    params(("id" = String, Path, description = "The array's id.")),
    responses(EventStream, OfFixed),
)]
pub async fn live(
    request: HttpRequest,
    state: Data<State>,
    id: Path<String>,
    who: Who,
    Lenient(params): Lenient,
) -> HttpResponse {
    let (id, sees_nodes) = (id.into_inner(), who.is_everywhere(Role::Viewer));
    let name = format!("array {id} {}", request.query_string());
    live::respond(&request, &state, name, async move |state: &State| {
        let array = arrays::find(state, &id).await?;
        let (_, titles) = queue_of(state, &array).await?;
        let elements = Elements::find(state, (&array, &titles), &params, sees_nodes).await?;
        Ok(vec![Part::new(&panel(state, &array, &titles).await?)?, Part::new(&elements)?])
    })
}

async fn queue_of(state: &State, array: &Array) -> Result<(Option<Queue>, Titles), StoreError> {
    let queue = state.store.find_queue(&Selector::Id(array.queue.0)).await?;
    let titles = state.titles(queue.as_slice()).await?;
    Ok((queue, titles))
}

impl Elements {
    async fn find(
        state: &State,
        (array, titles): (&Array, &Titles),
        params: &Params,
        sees_nodes: bool,
    ) -> Result<Self, HttpError> {
        let (from, limit) = arrays::extent(params)?;
        let status: Option<i64> = text(params.fields.get("status")).trim().parse().ok();
        let elements = match status.map(Status::from_code) {
            Some(status) => state.store.array_elements_with(array, status, from, limit).await?,
            None => state.store.array_elements(array, from, limit).await?,
        };
        let called = titles.read(&state.store, elements.iter().map(|element| element.id)).await?;
        let only = status.map(|status| format!("&status={status}")).unwrap_or_default();
        let address = |from: u32| format!("/arrays/{}?.from={from}&.limit={limit}{only}", array.id);
        let is_full = u32::try_from(elements.len()).is_ok_and(|count| count >= limit);
        let last = elements.last().filter(|_| is_full).map(|element| element.index.saturating_add(1));
        Ok(Self {
            array: array.id,
            called,
            status: status.map(StatusView::from_code),
            sees_nodes,
            // How far back the page before begins is only known of all elements.
            previous: match status {
                _ if from == 0 => String::new(),
                Some(_) => address(0),
                None => address(from.saturating_sub(limit)),
            },
            next: last.filter(|after| *after < array.count).map(address).unwrap_or_default(),
            elements,
        })
    }
}

async fn panel<'a>(state: &State, array: &'a Array, titles: &Titles) -> Result<Panel<'a>, HttpError> {
    let size = in_a_square(array.count);
    let store = &state.store;
    let only = [array.id];
    let picture = async {
        Ok::<_, StoreError>(if size == 1 {
            Picture::of_elements(&store.array_elements(array, 0, array.count).await?)
        } else {
            Picture::of(array, &store.array_cells(array.id, size).await?, size)
        })
    };
    let (mut counted, picture) = futures::try_join!(store.count_elements(&only), picture)?;
    let counts = counted.as_mut().map(|all| all.remove(&array.id).unwrap_or_default());
    let last = match array.last {
        Some((id, when)) => {
            let (task, called) = futures::try_join!(
                store.find_task_fields(id, doc! { "status": 1 }),
                titles.read(store, [id])
            )?;
            let status = task.and_then(|task| integer(&task, "status")).map(StatusView::from_code);
            Some(Last { id, title: called.of(&id).to_owned(), status, when })
        }
        None => None,
    };
    Ok(Panel { array, counts, last, picture })
}

impl<'a> ArraysPage<'a> {
    fn of(found: &'a [ArrayRow], queues: &[Queue], search: &str, limit: i64) -> Self {
        let is_full = i64::try_from(found.len()).is_ok_and(|rows| rows >= limit);
        let last = found.last().filter(|_| is_full).map(|(array, _)| array.id);
        let next = last.map(|last| format!("{search}&.before={last}"));
        Self { found, names: names(queues), next: next.unwrap_or_default() }
    }
}

/// Where an array stands, as a tone of the style sheet and in words. What has failed does not look as if all was well.
fn standing(array: &Array, counts: &Option<Counts>) -> (&'static str, String) {
    let state = array.state.as_str();
    let cancelled = counts.as_ref().and_then(|counts| counts.get(&Status::Cancelled.code()));
    let cancelled = cancelled.copied().unwrap_or(0);
    let bad = counts.as_ref().map_or(0, failed).saturating_sub(cancelled);
    match (array.state, bad, cancelled) {
        (ArrayState::Done, 0, 1..) => ("cancelled", format!("ended, {} cancelled", grouped(cancelled))),
        (_, 0, _) => (state, state.to_owned()),
        (ArrayState::Done, ..) => ("failed", format!("ended, {} failed", grouped(bad))),
        _ => ("failed", format!("{state}, {} failed", grouped(bad))),
    }
}

fn search_of(params: &Params, limit: i64) -> String {
    let given = ["queue", "state"].map(|name| (name, text(params.fields.get(name))));
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    address("/arrays", [(".limit", limit.to_string())].into_iter().chain(given))
}

fn failed(counts: &Counts) -> i64 {
    let of_success = counts.get(&Status::Succeeded.code()).copied().unwrap_or(0);
    arrays::ended(counts).saturating_sub(of_success)
}

impl Panel<'_> {
    fn can_cancel(&self) -> bool {
        self.counts.as_ref().is_none_or(|counts| arrays::ended(counts) < i64::from(self.array.count))
    }

    fn can_retry(&self) -> bool {
        self.counts.as_ref().is_none_or(|counts| failed(counts) > 0)
    }

    fn can_rerun(&self) -> bool {
        self.counts.as_ref().is_none_or(|counts| arrays::ended(counts) > 0)
    }
}

const SQUARES: u32 = 400;
const IN_A_ROW: u32 = 40;

const SIZE: u32 = 16;

const VALUE: usize = 40;

struct Picture {
    width: u32,
    height: u32,
    words: String,
    squares: Vec<Square>,
}

struct Square {
    x: u32,
    y: u32,
    class: &'static str,
    title: String,
    address: Option<String>,
}

/// So many elements share a square of the picture of an array of `count`.
fn in_a_square(count: u32) -> u32 {
    count.div_ceil(SQUARES).max(1)
}

impl Picture {
    fn of_elements(elements: &[Element]) -> Self {
        let square = |element: &Element| {
            let within: Vec<(Status, i64)> = element.status.map(|status| (status, 1)).into_iter().collect();
            let value = cut(&plain(element.value.as_ref()), VALUE);
            let mut title = format!("element {}", element.index);
            if value != element.index.to_string() && !value.is_empty() {
                title = format!("{title}, {value}");
            }
            title = format!("{title}: {}", told(&within));
            let ran = ran(element.exit.as_ref());
            if element.status.is_some_and(Status::has_ended) && !ran.is_empty() {
                title = format!("{title}, ran {ran}");
            }
            (class(&within), title, element.status.map(|_| format!("/tasks/{}", element.id)))
        };
        Self::with(elements.iter().map(square), "an element")
    }

    fn of(array: &Array, cells: &[Cell], size: u32) -> Self {
        let count = array.count;
        let mut by_cell: BTreeMap<u32, Vec<(Status, i64)>> = BTreeMap::new();
        for cell in cells {
            by_cell.entry(cell.number).or_default().push((cell.status, cell.tasks));
        }
        let total = count.div_ceil(size.max(1));
        let square = |index: u32| {
            let within = by_cell.get(&index).map(Vec::as_slice).unwrap_or_default();
            let first = index.saturating_mul(size);
            let last = first.saturating_add(size).min(count).saturating_sub(1);
            let place = if first == last {
                format!("element {first}")
            } else {
                format!("elements {first} to {last}")
            };
            let address = format!("/arrays/{}?.from={first}&.limit={size}#elements", array.id);
            (class(within), format!("{place}: {}", told(within)), Some(address))
        };
        Self::with((0..total).map(square), &format!("{size} elements"))
    }

    fn with(squares: impl Iterator<Item = (&'static str, String, Option<String>)>, each: &str) -> Self {
        let at = |place: u32| (place % IN_A_ROW * SIZE, place / IN_A_ROW * SIZE);
        let square = |((x, y), (class, title, address))| Square { x, y, class, title, address };
        let squares: Vec<Square> = (0..SQUARES).map(at).zip(squares).map(square).collect();
        Self {
            width: IN_A_ROW * SIZE,
            height: squares.last().map_or(0, |last| last.y + SIZE),
            words: format!("The elements in their order, each square for {each}"),
            squares,
        }
    }
}

fn told(within: &[(Status, i64)]) -> String {
    let each = |(status, tasks): &(Status, i64)| format!("{tasks} {}", ui::word(*status));
    match within {
        [(status, 1)] => ui::word(*status).to_owned(),
        [] => "no task".to_owned(),
        several => several.iter().map(each).collect::<Vec<_>>().join(", "),
    }
}

/// What a square looks like: what needs attention first.
fn class(within: &[(Status, i64)]) -> &'static str {
    let has = |is: fn(Status) -> bool| within.iter().any(|(status, _)| is(*status));
    if has(|status| status.has_ended() && !matches!(status, Status::Succeeded | Status::Cancelled)) {
        "failed"
    } else if has(|status| status == Status::Running) {
        "running"
    } else if has(|status| !status.has_ended()) {
        "queued"
    } else if has(|status| status == Status::Cancelled) {
        "cancelled"
    } else if within.is_empty() {
        "none"
    } else {
        "succeeded"
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Bson, DateTime};
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use disbatch_core::model::QueueId;

    use super::*;
    use crate::access::viewer::Viewer;
    use crate::ui::live::assert_on_page;

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

    fn element(index: u32, status: Option<Status>) -> Element {
        Element {
            id: TaskId(ObjectId::from_bytes([3; 12])),
            index,
            value: Some(Bson::from("<v>")),
            status,
            node: Some("<vm>".to_owned()),
            started: Some(DateTime::from_millis(1_795_163_067_344)),
            exit: Some(doc! { "code": 7, "duration": 2.5 }),
        }
    }

    fn page(counts: &Counts, elements: &[Element], last: Option<Last>) -> String {
        let array = array(4);
        let picture = Picture::of_elements(elements);
        let panel = Panel { array: &array, counts: Some(counts.clone()), last, picture };
        let elements = Elements {
            array: array.id,
            elements: vec![element(0, Some(Status::Failed))],
            called: Called::from([(TaskId(ObjectId::from_bytes([3; 12])), "<make> v".to_owned())]),
            status: None,
            sees_nodes: true,
            previous: String::new(),
            next: "/arrays/x?.from=1".to_owned(),
        };
        let parts = [Part::new(&panel).unwrap(), Part::new(&elements).unwrap()];
        let page = ArrayPage {
            title: "<make>".to_owned(),
            queue: Queue::without_document(array.queue),
            queue_name: "<mail>".to_owned(),
            panel,
            elements,
            live: "/ui/arrays/010101010101010101010101".to_owned(),
        };
        let html = page.render().unwrap();
        assert_on_page(&parts, &html);
        html
    }

    #[test]
    fn the_page_shows_how_its_elements_are() {
        let all = [Some(Status::Failed), Some(Status::Running), Some(Status::Succeeded), None];
        let elements: Vec<Element> = (0..).zip(all).map(|(index, status)| element(index, status)).collect();
        let counts = Counts::from([(0, 1), (1, 1), (2, 1)]);
        let id = TaskId(ObjectId::from_bytes([4; 12]));
        let last = Last { id, title: String::new(), status: None, when: FinalWhen::Finished };
        let html = page(&counts, &elements, Some(last));
        for part in [
            "<h1>&#60;make&#62; <span class=\"hint\">array for 0-9&#60;1&#62;</span></h1>",
            "<p class=\"id hint\"><code>010101010101010101010101</code>",
            "&#60;ann&#62;",
            "&#60;mail&#62;",
            "&#60;v&#62;",
            "data-live=\"/ui/arrays/010101010101010101010101\"",
            "id=\"array-010101010101010101010101\"",
            "<progress max=\"4\" value=\"2\"",
            "class=\"failed\" x=\"0\" y=\"0\"",
            "class=\"running\" x=\"16\" y=\"0\"",
            "class=\"none\" x=\"48\" y=\"0\"",
            "<title>element 0, &#60;v&#62;: failed, ran 2.5 s</title>",
            "<title>element 3, &#60;v&#62;: no task</title>",
            "<a href=\"/tasks/030303030303030303030303\" tabindex=\"-1\">",
            "href=\"/arrays/010101010101010101010101?status=2#elements\"",
            "open, 1 failed",
            "Retry the 1 that failed",
            "&#60;vm&#62;",
            "<td data-label=\"Exit\" class=\"number\">7</td>",
            "action=\"/arrays/010101010101010101010101/cancel\"",
            "action=\"/arrays/010101010101010101010101/retry\"",
            "href=\"#rerun\" data-dialog=\"rerun\"",
            "action=\"/arrays/010101010101010101010101/rerun\"",
            "<a href=\"/tasks/040404040404040404040404\"><code>040404040404040404040404</code></a>",
            ">&#60;make&#62; v</a> <code class=\"hint\">…030303</code>",
            "rel=\"next\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<v>"), "{html}");
    }

    #[tokio::test]
    async fn its_controls_are_for_operators_of_its_queue() {
        let grant = |queue, role| Grant { scope: Scope::Queue(QueueId(ObjectId::from_bytes(queue))), role };
        let mut who = Who::anybody("10.0.0.1".into());
        who.name = Some("alice".into());
        who.rights = Rights::new(None, vec![grant([2; 12], Role::Viewer), grant([9; 12], Role::Operator)]);
        let html = Viewer::of(&who).look(async { page(&Counts::from([(2, 4)]), &[], None) }).await;
        assert!(html.contains("<body data-role=\"viewer\" data-everywhere=\"\""), "{html}");
    }

    #[test]
    fn what_has_failed_does_not_look_done() {
        let done = Array { state: ArrayState::Done, ..array(4) };
        let of =
            |array: &Array, counts: &[(i64, i64)]| standing(array, &Some(counts.iter().copied().collect()));
        assert_eq!(of(&done, &[(1, 4)]), ("done", "done".to_owned()));
        assert_eq!(of(&done, &[(1, 1), (2, 2), (-6, 1)]), ("failed", "ended, 3 failed".to_owned()));
        assert_eq!(of(&done, &[(1, 1), (-5, 3)]), ("cancelled", "ended, 3 cancelled".to_owned()));
        assert_eq!(of(&array(4), &[(-2, 4)]), ("open", "open".to_owned()));
        assert_eq!(of(&array(4), &[(-2, 2), (-5, 2)]), ("open", "open".to_owned()));
        assert_eq!(of(&array(4), &[(-2, 3), (2, 1)]), ("failed", "open, 1 failed".to_owned()));
        assert_eq!(standing(&done, &None).1, "done");
    }

    #[test]
    fn what_has_succeeded_cannot_be_acted_on() {
        let counts = Counts::from([(1, 4)]);
        let html = page(&counts, &[], None);
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

    #[test]
    fn many_elements_share_a_square_that_shows_the_worst() {
        let cell = |number, status, tasks| Cell { number, status, tasks };
        let cells =
            [cell(0, Status::Succeeded, 249), cell(0, Status::Failed, 1), cell(1, Status::Queued, 250)];
        let picture = Picture::of(&Array { count: 100_000, ..array(4) }, &cells, 250);
        assert_eq!((picture.squares.len(), picture.width, picture.height), (400, 640, 160));
        assert_eq!((picture.squares[0].class, picture.squares[1].class), ("failed", "queued"));
        assert_eq!(picture.squares[0].title, "elements 0 to 249: 249 succeeded, 1 failed");
        let address = "/arrays/010101010101010101010101?.from=250&.limit=250#elements";
        assert_eq!(picture.squares[1].address.as_deref(), Some(address));
        assert_eq!(class(&[(Status::Succeeded, 5), (Status::Cancelled, 1)]), "cancelled");
    }

    #[test]
    fn a_large_array_has_as_many_squares_as_fit() {
        assert_eq!([0, 1, 400, 401, 100_000].map(in_a_square), [1, 1, 1, 2, 250]);
    }
}
