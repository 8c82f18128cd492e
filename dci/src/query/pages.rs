//! Pages in the order of ids: `.order`, `.after` and `.before`.

use bson::{Bson, Document, doc};
use disbatch_core::model::{NodeName, QueueId, TaskId, whole_number};
use disbatch_core::tags::TAGS;
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_core::task::{Created, TaskQuery};
use serde_json::Value;

use crate::error::HttpError;
use crate::params::Params;

/// How long a page is unless it is told.
const DEFAULT_LIMIT: usize = 100;

/// The longest page.
const MOST: usize = 10_000;

/// The page that the options ask for; none if they ask for none.
pub fn page(params: &Params, query: &TaskQuery, created: Created) -> Result<Option<PageQuery>, HttpError> {
    let option = |name: &str| params.options.get(name).filter(|value| !value.is_null() && *value != "");
    let order = match option("order").map(Value::as_str) {
        None => Order::Oldest,
        Some(Some("id")) => Order::Oldest,
        Some(Some("-id")) => Order::Newest,
        Some(_) => return Err(HttpError::bad_request("'.order' must be id or -id")),
    };
    let id = |name: &str| {
        let id = option(name).map(|value| value.as_str().and_then(|text| text.parse::<TaskId>().ok()));
        id.map(|id| id.ok_or_else(|| HttpError::bad_request(format!("'.{name}' must be the id of a task"))))
            .transpose()
    };
    let position = match (id("after")?, id("before")?) {
        (None, None) if option("order").is_none() => return Ok(None),
        (None, None) => Position::First,
        (Some(task), None) => Position::After(task),
        (None, Some(task)) => Position::Before(task),
        (Some(_), Some(_)) => {
            return Err(HttpError::bad_request("'.after' and '.before' exclude each other"));
        }
    };
    if query.archive || query.skip > 0 {
        return Err(HttpError::bad_request("pages in the order of ids have neither '.skip' nor '.archive'"));
    }
    let limit = query.limit.map_or(Some(DEFAULT_LIMIT), |limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit <= MOST);
    let limit = limit
        .ok_or_else(|| HttpError::bad_request(format!("'.limit' of a page must not be more than {MOST}")))?;
    let of = selection(&query.filter).map(|of| Selection { created, ..of });
    let of = of.ok_or_else(|| {
        HttpError::bad_request(
            "there are pages in the order of ids of all tasks, of those with tags, of a queue, of a queue and statuses, \
             and of a queue, statuses and a node",
        )
    })?;
    Ok(Some(PageQuery { of, order, position, limit }))
}

/// What a filter selects, if it does so by an index that has ids in order.
fn selection(filter: &Document) -> Option<Selection> {
    let mut selection = Selection::default();
    for (field, value) in filter {
        match (field.as_str(), value) {
            ("queue", Bson::ObjectId(id)) => selection.queues = Some(vec![QueueId(*id)]),
            ("node", Bson::String(node)) => selection.node = Some(NodeName::new(node)),
            (TAGS, Bson::Document(_)) => selection.tagged = Some(doc! { TAGS: value }),
            ("status", Bson::Document(any)) if any.len() == 1 => {
                let statuses = any.get_array("$in").ok()?.iter().map(whole_number);
                selection.statuses = Some(statuses.collect::<Option<Vec<i64>>>()?);
            }
            // When they were made: an id itself is no document.
            ("_id", Bson::Document(_)) => {}
            ("status", status) => selection.statuses = Some(vec![whole_number(status)?]),
            _ => return None, // No index has it before ids.
        }
    }
    let needs_queue = selection.statuses.is_some() || selection.node.is_some();
    let is_ordered = selection.tagged.is_some()
        || (selection.queues.is_some() || !needs_queue)
            && (selection.statuses.is_some() || selection.node.is_none());
    is_ordered.then_some(selection)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d8013333";

    fn asked(options: Value, filter: Document) -> Result<Option<PageQuery>, HttpError> {
        let options = options.as_object().unwrap().clone();
        let limit = options.get("limit").and_then(Value::as_i64);
        let params = Params { options, ..Params::default() };
        page(&params, &TaskQuery { filter, limit, ..TaskQuery::default() }, Created::default())
    }

    #[test]
    fn a_page_is_asked_for_by_its_order_or_its_place() {
        assert_eq!(asked(json!({"limit": 5, "after": "", "order": null}), doc! {}).unwrap(), None);
        let task: TaskId = ID.parse().unwrap();
        for (options, order, position) in [
            (json!({"order": "id"}), Order::Oldest, Position::First),
            (json!({"order": "-id", "after": ID}), Order::Newest, Position::After(task)),
            (json!({"before": ID}), Order::Oldest, Position::Before(task)),
        ] {
            let page = asked(options, doc! {}).unwrap().unwrap();
            assert_eq!((page.order, page.position, page.limit), (order, position, DEFAULT_LIMIT));
        }
        for wrong in [
            json!({"order": "name"}),
            json!({"order": 1}),
            json!({"after": "x"}),
            json!({"after": 1}),
            json!({"after": ID, "before": ID}),
            json!({"order": "id", "limit": 10_001}),
        ] {
            assert_eq!(asked(wrong.clone(), doc! {}).unwrap_err().status(), 400, "{wrong}");
        }
    }

    #[test]
    fn there_are_pages_where_an_index_has_ids_in_order() {
        let queue = ObjectId::new();
        let of = |filter| asked(json!({"order": "id"}), filter).map(|page| page.unwrap().of);
        assert_eq!(of(doc! {}).unwrap(), Selection::default());
        let all = doc! { "queue": queue, "status": { "$in": [1, 2] }, "node": "n" };
        let expected = Selection {
            statuses: Some(vec![1, 2]),
            node: Some(NodeName::new("n")),
            ..Selection::of_queue(QueueId(queue))
        };
        assert_eq!(of(all).unwrap(), expected);
        let tags = doc! { "tags": { "$all": ["a"] } };
        let tagged = of(doc! { "tags": { "$all": ["a"] }, "node": "n" }).unwrap();
        assert_eq!((tagged.tagged, tagged.node), (Some(tags), Some(NodeName::new("n"))));
        for wrong in [
            doc! { "node": "n" },
            doc! { "queue": queue, "node": "n" },
            doc! { "status": 1 },
            doc! { "queue": queue, "status": { "$gt": 1 } },
            doc! { "queue": queue, "status": "x" },
            doc! { "_id": queue },
        ] {
            assert_eq!(of(wrong.clone()).unwrap_err().status(), 400, "{wrong}");
        }
    }
}
