//! Finds the tasks of a page, at a cost that does not grow with the tasks that there are.
//!
//! Where an index has them in the order of their ids, the newest come first, a page at a time. Tasks of a status in all queues
//! are those of each queue, merged. What remains comes in the order of the server, with `.skip`. No index knows what params
//! contain: only so many tasks are looked at for that, and whoever wants to know more goes on behind them.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_core::model::{Queue, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::TaskQuery;
use disbatch_core::task::pages::{Order, Page, PageQuery, Position, Selection};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::columns::{Column, params as params_of};
use super::search::{Search, is_usual};
use crate::counts;
use crate::error::HttpError;
use crate::params::Params;
use crate::query::{Listing, Refusal};
use crate::ui::plain;

/// At most so many tasks are looked at for what their params contain.
const LOOKED_AT: usize = 5_000;

/// So many of them are read at once.
const AT_ONCE: usize = 500;

/// Looking at them takes about so long at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many queues are asked at once.
const QUEUES_AT_ONCE: usize = 8;

/// The most queues that are asked for tasks of a status.
const MOST_QUEUES: usize = 200;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The tasks, as far as they are shown.
    pub tasks: Vec<Document>,
    /// The option and the value that lead to the page before.
    pub previous: Option<(&'static str, String)>,
    /// Likewise to the next one.
    pub next: Option<(&'static str, String)>,
    /// How many tasks there are, for people; nobody knows for what params contain.
    pub count: Option<String>,
    /// How many were looked at for what their params contain.
    pub looked_at: Option<usize>,
    /// Whether this is the first page of those in order, so that newer tasks belong before it.
    pub is_newest: bool,
}

/// How tasks are to be found.
#[derive(Debug)]
pub struct Plan {
    query: TaskQuery,
    /// Which page, and of whose tasks, where they are in order.
    page: Option<(PageQuery, Vec<Selection>)>,
    limit: usize,
    /// In lower case.
    text: String,
}

impl Plan {
    /// How to find what `search` is for. `params` are those that it was read from.
    ///
    /// # Errors
    /// No index is for that, or a value makes no sense.
    pub fn of(
        search: &Search,
        params: &Params,
        indexes: &BTreeSet<Vec<String>>,
        queues: &[Queue],
    ) -> Result<Self, Refusal> {
        let mut asked = search.params(params);
        let statuses = of_all_queues(search, &asked, queues)?;
        if statuses.is_some() {
            asked.fields.remove("status");
        }
        if is_in_order(&asked) {
            asked.options.insert("order".to_owned(), "-id".into());
        }
        let Listing { mut query, page, .. } = Listing::parse(&asked, indexes, None)?;
        let page = match (page, statuses) {
            (Some(page), Some(statuses)) => {
                let all: Vec<Bson> = queues.iter().map(|queue| queue.id.into()).collect();
                query.filter = doc! { "queue": { "$in": all }, "status": { "$in": statuses.clone() } };
                let of = |queue: &Queue| Selection {
                    queue: Some(queue.id),
                    statuses: Some(statuses.clone()),
                    node: None,
                };
                Some((page, queues.iter().map(of).collect()))
            }
            (Some(page), None) => {
                let of = page.of.clone();
                Some((page, vec![of]))
            }
            (None, _) => None,
        };
        let mut projection = Column::projection(&search.columns);
        if !search.text.is_empty() {
            projection.extend(Column::projection(&[Column::Params]));
        }
        query.projection = Some(projection);
        let limit = usize::try_from(search.limit).unwrap_or(usize::MAX);
        Ok(Self { query, page, limit, text: search.text.to_lowercase() })
    }

    /// Finds it.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the search.
    pub async fn find(&self, store: &Store) -> Result<Found, HttpError> {
        if !self.text.is_empty() {
            return self.look(store).await;
        }
        let counted = async {
            counts::about(store, self.query.clone()).await.map(Some).map_err(HttpError::from_search)
        };
        let (found, count) = futures::try_join!(self.page(store), counted)?;
        Ok(Found { count, ..found })
    }

    async fn page(&self, store: &Store) -> Result<Found, HttpError> {
        let Some((page, of)) = &self.page else { return self.skipped(store, self.limit).await };
        let found = find_page(store, page, of).await?;
        let id = |option, id: Option<TaskId>| id.map(|id| (option, id.to_string()));
        Ok(Found {
            previous: id("before", page.preceding(&found)),
            next: id("after", page.following(&found)),
            is_newest: page.position == Position::First && page.order == Order::Newest,
            tasks: self.tasks(store, &found.ids).await?,
            ..Found::default()
        })
    }

    /// `limit` tasks in the order of the server.
    async fn skipped(&self, store: &Store, limit: usize) -> Result<Found, HttpError> {
        let skip = self.query.skip;
        let query = TaskQuery { limit: i64::try_from(limit).ok(), ..self.query.clone() };
        let tasks = store.stream_tasks(query).await.map_err(HttpError::from_search)?;
        let tasks: Vec<Document> = tasks.try_collect().await.map_err(HttpError::from_search)?;
        let to = |skip: u64| ("skip", skip.to_string());
        Ok(Found {
            previous: (skip > 0).then(|| to(skip.saturating_sub(limit as u64))),
            next: (tasks.len() >= limit).then(|| to(skip.saturating_add(limit as u64))),
            tasks,
            ..Found::default()
        })
    }

    /// Tasks by their ids, in order.
    async fn tasks(&self, store: &Store, ids: &[TaskId]) -> Result<Vec<Document>, HttpError> {
        let query = &self.query;
        let tasks = store.stream_page(ids, query.filter.clone(), query.projection.clone()).await;
        tasks.map_err(HttpError::from_search)?.try_collect().await.map_err(HttpError::from_search)
    }

    /// Looks at so many tasks for what their params contain.
    async fn look(&self, store: &Store) -> Result<Found, HttpError> {
        let Some((page, of)) = &self.page else {
            let looked = self.skipped(store, LOOKED_AT).await?;
            let looked_at = Some(looked.tasks.len());
            let tasks = looked.tasks.into_iter().filter(|task| self.is_in(task)).collect();
            return Ok(Found { tasks, looked_at, next: looked.next, ..Found::default() });
        };
        let began = Instant::now();
        let (mut tasks, mut looked_at, mut position) = (Vec::new(), 0, page.position);
        let mut next = None;
        while looked_at < LOOKED_AT && tasks.len() < self.limit && began.elapsed() < PATIENCE {
            let some = PageQuery { position, limit: AT_ONCE, ..page.clone() };
            let found = find_page(store, &some, of).await?;
            for task in self.tasks(store, &found.ids).await? {
                looked_at += 1;
                next = task.get_object_id("_id").ok().map(TaskId);
                if self.is_in(&task) {
                    tasks.push(task);
                }
                if tasks.len() >= self.limit {
                    break;
                }
            }
            let is_full = tasks.len() >= self.limit;
            let Some(last) = found.ids.last().copied().filter(|_| found.more) else {
                next = next.filter(|last| is_full && found.ids.last() != Some(last));
                break;
            };
            if !is_full {
                next = Some(last);
            }
            position = Position::After(last);
        }
        let next = next.map(|id| ("after", id.to_string()));
        Ok(Found { tasks, next, looked_at: Some(looked_at), ..Found::default() })
    }

    fn is_in(&self, task: &Document) -> bool {
        plain(params_of(task)).to_lowercase().contains(&self.text)
    }

    /// Whether there are tasks that would come before `first`, the first one of the newest page.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn has_newer(&self, store: &Store, first: Option<TaskId>) -> Result<bool, StoreError> {
        let Some((page, of)) = &self.page else { return Ok(false) };
        let newest = PageQuery { position: Position::First, order: Order::Newest, limit: 1, ..page.clone() };
        let newest = find_page(store, &newest, of).await?.ids.first().copied();
        Ok(newest.is_some_and(|newest| first.is_none_or(|first| newest.0 > first.0)))
    }
}

/// The statuses, if tasks of these are looked for in all queues.
fn of_all_queues(search: &Search, asked: &Params, queues: &[Queue]) -> Result<Option<Vec<i64>>, Refusal> {
    let is_alone = search.queue.is_empty() && search.node.is_empty() && search.id.is_empty();
    let has_order = ["skip", "order"].iter().any(|name| asked.options.contains_key(*name));
    if search.statuses.is_empty() || !is_alone || !search.others.is_empty() || search.archive || has_order {
        return Ok(None);
    }
    if queues.len() > MOST_QUEUES {
        let message = "There are too many queues to look through all of them: choose one.";
        return Err(HttpError::bad_request(message).into());
    }
    let status = |text: &String| {
        text.parse().map_err(|_| HttpError::bad_request(format!("{text} is no status: they are numbers")))
    };
    Ok(Some(search.statuses.iter().map(status).collect::<Result<_, _>>()?))
}

/// Whether to show the newest tasks first, a page at a time: where there are such pages, and nobody has asked for
/// something else.
fn is_in_order(params: &Params) -> bool {
    let given = |name: &str| params.fields.get(name).is_some_and(|value| *value != "");
    let of_node = given("node") && given("queue") && given("status");
    let only = params.fields.iter().all(|(name, value)| {
        *value == "" || matches!(name.as_str(), "queue" | "status") || (name == "node" && of_node)
    });
    let is_plain = |value: &Value| value.is_array() || value.is_string() || value.is_number();
    let options = ["skip", "order"];
    only && (given("queue") || !given("status"))
        && params.fields.iter().filter(|(name, _)| is_usual(name)).all(|(_, value)| is_plain(value))
        && !params.is_on("archive")
        && options.iter().all(|name| params.options.get(*name).is_none_or(|value| *value == ""))
        && statuses_are_numbers(params)
}

/// Others are in no page.
fn statuses_are_numbers(params: &Params) -> bool {
    let is_number = |value: &Value| match value {
        Value::String(text) => text.is_empty() || text.parse::<i64>().is_ok(),
        value => value.is_i64(),
    };
    match params.fields.get("status") {
        Some(Value::Array(statuses)) => statuses.iter().all(is_number),
        status => status.is_none_or(is_number),
    }
}

/// A page of the tasks of all selections together.
async fn find_page(store: &Store, page: &PageQuery, of: &[Selection]) -> Result<Page, StoreError> {
    let one = async |of: Selection| store.find_page(&PageQuery { of, ..page.clone() }).await;
    if let [of] = of {
        return one(of.clone()).await;
    }
    let found = stream::iter(of.to_vec()).map(one).buffer_unordered(QUEUES_AT_ONCE);
    Ok(merged(page, found.try_collect().await?))
}

/// Those of several pages that are next to where the page begins.
fn merged(page: &PageQuery, found: Vec<Page>) -> Page {
    let more = found.iter().any(|page| page.more);
    let ids: BTreeSet<_> = found.into_iter().flat_map(|page| page.ids).map(|id| id.0).collect();
    let backwards = matches!(page.position, Position::Before(_));
    let ascends = page.order == Order::Oldest;
    let more = more || ids.len() > page.limit;
    // As they are read: from where the page begins.
    let reads_up = ascends != backwards;
    let mut ids: Vec<TaskId> = if reads_up {
        ids.into_iter().take(page.limit).map(TaskId).collect()
    } else {
        ids.into_iter().rev().take(page.limit).map(TaskId).collect()
    };
    if backwards {
        ids.reverse();
    }
    Page { ids, more }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";
    const TASK: &str = "6b0003bb686c8275d8013333";

    fn indexes() -> BTreeSet<Vec<String>> {
        ["_id", "node status queue", "node status queue _id", "queue status", "params.customer"]
            .iter()
            .map(|index| index.split(' ').map(str::to_owned).collect())
            .collect()
    }

    fn plan(fields: Value, options: Value) -> Result<Plan, HttpError> {
        let map = |value: Value| value.as_object().unwrap().clone();
        let params = Params { fields: map(fields), options: map(options) };
        let queue = |n: u8| {
            let id = ObjectId::from_bytes([n; 12]);
            bson::deserialize_from_document::<Queue>(doc! { "_id": id, "name": "q" }).unwrap()
        };
        let queues = [1, 2].map(queue);
        Plan::of(&Search::of(&params), &params, &indexes(), &queues).map_err(HttpError::from)
    }

    #[test]
    fn pages_are_in_order_wherever_an_index_is() {
        for fields in [
            json!({}),
            json!({"queue": QUEUE}),
            json!({"queue": QUEUE, "status": ["1", "2"], "node": ""}),
            json!({"queue": QUEUE, "status": "1", "node": "n"}),
        ] {
            let (page, of) = plan(fields.clone(), json!({})).unwrap().page.unwrap();
            assert_eq!(
                (page.order, page.position, of.len()),
                (Order::Newest, Position::First, 1),
                "{fields}"
            );
            assert!(plan(fields.clone(), json!({"skip": "5"})).unwrap().page.is_none(), "{fields}");
            assert!(plan(fields, json!({"archive": "1"})).unwrap().page.is_none());
        }
        for fields in [json!({"node": "n"}), json!({"id": TASK}), json!({"params.customer": "c"})] {
            assert!(plan(fields.clone(), json!({})).unwrap().page.is_none(), "{fields}");
        }
        let (page, _) = plan(json!({"queue": QUEUE}), json!({"after": TASK})).unwrap().page.unwrap();
        assert_eq!(page.position, Position::After(TASK.parse().unwrap()));
    }

    #[test]
    fn a_status_is_looked_for_in_each_queue() {
        let found = plan(json!({"status": ["2", "-6"]}), json!({"before": TASK})).unwrap();
        let (page, of) = found.page.unwrap();
        assert_eq!(page.position, Position::Before(TASK.parse().unwrap()));
        assert!(of.iter().all(|of| of.statuses == Some(vec![2, -6])) && of.len() == 2);
        assert_eq!(found.query.filter.get_document("status").unwrap(), &doc! { "$in": [2_i64, -6_i64] });
        for wrong in [
            (json!({"status": "x"}), json!({})),
            (json!({"status": "2"}), json!({"archive": "1"})),
            (json!({"queue": "mail"}), json!({})),
            (json!({"params.other": "c"}), json!({})),
            (json!({"queue": QUEUE}), json!({"after": "x"})),
        ] {
            assert_eq!(plan(wrong.0.clone(), wrong.1).unwrap_err().status(), 400, "{}", wrong.0);
        }
    }

    #[test]
    fn only_what_is_shown_or_looked_at_is_read() {
        let usual = plan(json!({}), json!({"columns": "status"})).unwrap();
        assert_eq!(usual.query.projection, Some(doc! { "_id": 1, "status": 1 }));
        let text = plan(json!({}), json!({"columns": "status", "text": "Some ☃"})).unwrap();
        assert!(text.query.projection.as_ref().unwrap().contains_key("params"));
        let has = |params: Bson| text.is_in(&doc! { "params": params });
        assert!(has(doc! { "a": ["this is SOME ☃!"] }.into()) && !has("some".into()) && !has(Bson::Null));
    }

    #[test]
    fn pages_of_several_queues_are_one() {
        let id = |n: u8| TaskId(ObjectId::from_bytes([n; 12]));
        let ids = |numbers: &[u8]| numbers.iter().map(|n| id(*n)).collect::<Vec<_>>();
        let of = |order, position, pages: [&[u8]; 2]| {
            let page = PageQuery { of: Selection::default(), order, position, limit: 3 };
            let found = merged(&page, pages.map(|some| Page { ids: ids(some), more: false }).to_vec());
            (found.ids, found.more)
        };
        let newest = of(Order::Newest, Position::First, [&[9, 5], &[7, 6]]);
        assert_eq!(newest, (ids(&[9, 7, 6]), true));
        let before = of(Order::Newest, Position::Before(id(4)), [&[9, 5], &[7, 6]]);
        assert_eq!(before, (ids(&[7, 6, 5]), true), "those next to it");
        let oldest = of(Order::Oldest, Position::After(id(4)), [&[5, 9], &[6]]);
        assert_eq!(oldest, (ids(&[5, 6, 9]), false));
        assert_eq!(of(Order::Oldest, Position::Before(id(9)), [&[1, 5], &[6, 7]]).0, ids(&[5, 6, 7]));
        assert_eq!(of(Order::Newest, Position::First, [&[], &[]]), (vec![], false));
    }
}
