//! Finds the tasks of a page, at a cost that does not grow with the tasks that there are.
//!
//! Where an index has them in the order of their ids, the newest come first, a page at a time. Tasks of a status in all queues
//! are those of each queue, which the server merges. What remains comes in the order of the server, with `.skip`. No index knows what params
//! contain: only so many tasks are looked at for that, and whoever wants to know more goes on behind them.

use std::collections::BTreeSet;

use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{Reach, tasks_within};
use disbatch_core::model::{Queue, QueueId, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::tags::{ANY_TAGS, TAGS};
use disbatch_core::task::TaskQuery;
use disbatch_core::task::pages::{Order, PageQuery, Position};
use futures::{Stream, TryStreamExt};
use serde_json::Value;
use tokio::time::Instant;

use super::columns::{Column, Row, params};
use super::search::{Search, is_usual};
use crate::api::find_tasks::{AT_ONCE, LOOKED_AT, MOST_QUEUES, PATIENCE};
use crate::counts;
use crate::error::HttpError;
use crate::params::Params;
use crate::query::{Listing, Refusal};
use crate::ui::names::{QueueNames, Titles, names};
use crate::ui::plain;
use crate::values::TAG_NAMES;

#[derive(Debug, Default)]
pub struct ResultPage {
    pub rows: Vec<Row>,
    /// The option and the value that lead to the page before.
    pub previous: Option<(&'static str, String)>,
    pub next: Option<(&'static str, String)>,
    /// How many tasks there are, for people; nobody knows for what params contain.
    pub count: Option<String>,
    pub looked_at: Option<usize>,
    pub of_all: Option<String>,
    pub is_first: bool,
    /// Whether this is the first page of those in order, so that newer tasks belong before it.
    pub is_newest: bool,
}

#[derive(Debug)]
pub struct Plan {
    query: TaskQuery,
    page: Option<PageQuery>,
    limit: usize,
    /// In lower case.
    text: String,
    columns: Vec<Column>,
    names: QueueNames,
    titles: Titles,
}

impl Plan {
    /// How to find what `search` is for. `params` are those that it was read from.
    pub fn of(
        (search, params): (&Search, &Params),
        indexes: &BTreeSet<Vec<String>>,
        queues: &[Queue],
        titles: &Titles,
        now: DateTime,
    ) -> Result<Self, Refusal> {
        let mut asked = search.params(params, now);
        let statuses = of_all_queues(search, &asked, queues)?;
        if statuses.is_some() {
            asked.fields.remove("status");
        }
        if is_in_order(&asked) {
            let order = if search.oldest { "id" } else { "-id" };
            asked.options.insert("order".to_owned(), order.into());
        }
        // No page reads all tasks because a field of its form was left empty.
        asked.fields.retain(|_, value| *value != "");
        let Listing { mut query, mut page, .. } = Listing::parse(&asked, indexes, None, now)?;
        if let (Some(page), Some(statuses)) = (&mut page, statuses) {
            let all: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
            query.filter.extend(doc! { "queue": { "$in": &all }, "status": { "$in": &statuses } });
            (page.of.queues, page.of.statuses) = (Some(all), Some(statuses));
        }
        let mut projection = Column::projection(&search.columns);
        if !search.text.is_empty() {
            // Looked at as a whole, one after the other.
            projection.extend(doc! { "params": 1, "parameters": 1 });
        }
        query.projection = Some(projection);
        let limit = usize::try_from(search.limit).unwrap_or(usize::MAX);
        let (text, columns) = (search.text.to_lowercase(), search.columns.clone());
        Ok(Self { query, page, limit, text, columns, names: names(queues), titles: titles.clone() })
    }

    /// The same, but none of other queues, unless they are for a tenant within reach. Pages in the order of ids are of queues:
    /// without a queue, those that are within reach as a whole.
    pub fn within(mut self, queues: &[Queue], reach: &Reach) -> Self {
        let is_theirs = |id: QueueId| queues.iter().any(|queue| queue.id == id);
        let is_tagged = self.page.as_ref().is_some_and(|page| page.of.tagged.is_some());
        let of_another =
            |page: &PageQuery| matches!(page.of.queues.as_deref(), Some([id]) if !is_theirs(*id));
        if !reach.tenants().is_empty() && !is_tagged && self.page.as_ref().is_some_and(of_another) {
            self.page = None;
        }
        let tenants = if self.page.is_some() && !is_tagged { Vec::new() } else { reach.tenants() };
        self.query.filter = tasks_within(self.query.filter, queues, &tenants);
        let Some(PageQuery { of, .. }) = &mut self.page else { return self };
        if is_tagged {
            of.tagged = of.tagged.take().map(|tagged| tasks_within(tagged, queues, &tenants));
        } else if let Some(asked) = &mut of.queues {
            asked.retain(|id| is_theirs(*id));
        } else {
            of.queues = Some(queues.iter().take(MOST_QUEUES).map(|queue| queue.id).collect());
        }
        self
    }

    pub async fn find(&self, store: &Store) -> Result<ResultPage, StoreError> {
        let counted = async { self.count(store).await.map(Some) };
        if self.text.is_empty() {
            let (found, count) = futures::try_join!(self.page(store), counted)?;
            return Ok(ResultPage { count, ..found });
        }
        let (found, of_all) = futures::try_join!(self.look(store), counted)?;
        Ok(ResultPage { of_all, ..found })
    }

    async fn count(&self, store: &Store) -> Result<String, StoreError> {
        if let Some(PageQuery { of, .. }) = &self.page
            && let (Some([queue]), None, None) = (of.queues.as_deref(), &of.statuses, &of.tagged)
            && !of.created.is_any()
        {
            let amount = store.count_created(*queue, of.created, counts::BOUND).await?;
            return Ok(counts::words(amount));
        }
        counts::about(store, self.query.clone()).await
    }

    async fn page(&self, store: &Store) -> Result<ResultPage, StoreError> {
        let Some(page) = &self.page else { return self.skipped(store).await };
        let found = store.find_page(page).await?;
        let id = |option, id: Option<TaskId>| id.map(|id| (option, id.to_string()));
        Ok(ResultPage {
            previous: id("before", found.previous),
            next: id("after", found.next),
            is_newest: page.position == Position::First && page.order == Order::Newest,
            rows: self.rows(self.tasks(store, &found.rows).await?).await?,
            ..ResultPage::default()
        })
    }

    async fn skipped(&self, store: &Store) -> Result<ResultPage, StoreError> {
        let (skip, limit) = (self.query.skip, self.limit as u64);
        let query = TaskQuery { limit: i64::try_from(limit).ok(), ..self.query.clone() };
        let rows = self.rows(store.stream_tasks(query).await?).await?;
        let to = |skip: u64| ("skip", skip.to_string());
        Ok(ResultPage {
            previous: (skip > 0).then(|| to(skip.saturating_sub(limit))),
            next: (rows.len() >= self.limit).then(|| to(skip.saturating_add(limit))),
            rows,
            ..ResultPage::default()
        })
    }

    async fn tasks(
        &self,
        store: &Store,
        ids: &[TaskId],
    ) -> Result<impl Stream<Item = Result<Document, StoreError>> + Unpin, StoreError> {
        store.stream_page(ids, self.query.filter.clone(), self.query.projection.clone()).await
    }

    /// What is shown of tasks. They may be large, so none is kept.
    async fn rows(
        &self,
        tasks: impl Stream<Item = Result<Document, StoreError>> + Unpin,
    ) -> Result<Vec<Row>, StoreError> {
        tasks.map_ok(|task| self.row(&task)).try_collect().await
    }

    fn row(&self, task: &Document) -> Row {
        Row::of(task, &self.columns, &self.names, &self.text).called(self.titles.of_task(task))
    }

    /// Whether there are tasks that would come before `first`, the first one of the newest page.
    pub async fn has_newer(&self, store: &Store, first: Option<TaskId>) -> Result<bool, StoreError> {
        let Some(page) = &self.page else { return Ok(false) };
        let newest = PageQuery { position: Position::First, order: Order::Newest, limit: 1, ..page.clone() };
        let newest = store.find_page(&newest).await?.rows.first().copied();
        Ok(newest.is_some_and(|newest| first.is_none_or(|first| newest.0 > first.0)))
    }
}

/// The statuses, if tasks of these are looked for in all queues.
fn of_all_queues(search: &Search, asked: &Params, queues: &[Queue]) -> Result<Option<Vec<i64>>, Refusal> {
    let given = [&search.queue, &search.node, &search.id, &search.tags, &search.any_tags];
    let is_alone = given.iter().all(|given| given.is_empty());
    let skips = asked.options.contains_key("skip");
    if search.statuses.is_empty() || !is_alone || !search.others.is_empty() || search.archive || skips {
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
    let is_tagged = TAG_NAMES.into_iter().any(given);
    let of_node = given("node") && (is_tagged || given("queue") && given("status"));
    let only = params.fields.iter().all(|(name, value)| {
        *value == ""
            || matches!(name.as_str(), "queue" | "status" | TAGS | ANY_TAGS)
            // Pages are of nodes with names.
            || (name == "node" && of_node && *value != "-1")
    });
    let is_plain = |value: &Value| value.is_array() || value.is_string() || value.is_number();
    let is_none = |name: &str| params.options.get(name).is_none_or(|value| *value == "");
    only && (is_tagged || given("queue") || !given("status"))
        && params.fields.iter().filter(|(name, _)| is_usual(name)).all(|(_, value)| is_plain(value))
        && !params.is_on("archive")
        && is_none("skip")
        && (is_none("order")
            || params.options.get("order").is_some_and(|order| *order == "id" || *order == "-id"))
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

/// What comes of looking at one task after the other for what params contain: no index knows.
struct Look<'a> {
    plan: &'a Plan,
    began: Instant,
    rows: Vec<Row>,
    looked_at: usize,
}

impl Plan {
    async fn look(&self, store: &Store) -> Result<ResultPage, StoreError> {
        let mut look = Look { plan: self, began: Instant::now(), rows: Vec::new(), looked_at: 0 };
        let (next, is_first) = match &self.page {
            Some(page) => {
                let next = self.look_in_order(store, &mut look, page).await?;
                (next.map(|id| ("after", id.to_string())), page.position == Position::First)
            }
            None => {
                let query = TaskQuery { limit: i64::try_from(LOOKED_AT).ok(), ..self.query.clone() };
                let last = look.through(store.stream_tasks(query).await?).await?;
                let next = last.map(|_| self.query.skip.saturating_add(look.looked_at as u64));
                (next.map(|skip| ("skip", skip.to_string())), self.query.skip == 0)
            }
        };
        let looked_at = Some(look.looked_at);
        Ok(ResultPage { rows: look.rows, next, is_first, looked_at, ..ResultPage::default() })
    }

    /// Returns behind which task to go on.
    async fn look_in_order(
        &self,
        store: &Store,
        look: &mut Look<'_>,
        page: &PageQuery,
    ) -> Result<Option<TaskId>, StoreError> {
        let mut position = page.position;
        loop {
            let some = PageQuery { position, limit: AT_ONCE, ..page.clone() };
            let found = store.find_page(&some).await?;
            let last = found.rows.last().copied();
            let more = if position.is_backwards() { found.previous } else { found.next }.is_some();
            if let Some(task) = look.through(self.tasks(store, &found.rows).await?).await? {
                let id = task.get_object_id("_id").ok().map(TaskId);
                return Ok(id.filter(|_| more || id != last));
            }
            let Some(last) = last.filter(|_| more) else { return Ok(None) };
            // It may be that nothing of this page is there any more.
            if look.is_over() {
                return Ok(Some(last));
            }
            position = Position::After(last);
        }
    }

    fn is_in(&self, task: &Document) -> bool {
        plain(params(task)).to_lowercase().contains(&self.text)
    }
}

impl Look<'_> {
    /// Looks at these tasks until it is over. Returns the one that it was over with.
    async fn through(
        &mut self,
        mut tasks: impl Stream<Item = Result<Document, StoreError>> + Unpin,
    ) -> Result<Option<Document>, StoreError> {
        while let Some(task) = tasks.try_next().await? {
            self.at(&task);
            if self.is_over() {
                return Ok(Some(task));
            }
        }
        Ok(None)
    }

    fn at(&mut self, task: &Document) {
        self.looked_at += 1;
        if self.plan.is_in(task) {
            self.rows.push(self.plan.row(task));
        }
    }

    /// Whether there are enough, or it has taken long enough.
    fn is_over(&self) -> bool {
        let is_full = self.rows.len() >= self.plan.limit;
        is_full || self.looked_at >= LOOKED_AT || self.began.elapsed() >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use bson::Bson;
    use bson::oid::ObjectId;
    use futures::stream;
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
        let (indexes, titles) = (indexes(), Titles::default());
        let now = DateTime::from_millis(100_000);
        Plan::of((&Search::of(&params), &params), &indexes, &queues, &titles, now).map_err(HttpError::from)
    }

    #[test]
    fn pages_are_in_order_wherever_an_index_is() {
        for fields in [
            json!({}),
            json!({"queue": QUEUE}),
            json!({"queue": QUEUE, "status": ["1", "2"], "node": ""}),
            json!({"queue": QUEUE, "status": "1", "node": "n"}),
            json!({"tags": "a", "status": ["1", "2"]}),
            json!({"any_tags": ["a", "b"], "node": "n"}),
        ] {
            let page = plan(fields.clone(), json!({})).unwrap().page.unwrap();
            assert_eq!((page.order, page.position), (Order::Newest, Position::First), "{fields}");
            assert!(plan(fields.clone(), json!({"skip": "5"})).unwrap().page.is_none(), "{fields}");
            assert!(plan(fields, json!({"archive": "1"})).unwrap().page.is_none());
        }
        for fields in [json!({"node": "n"}), json!({"id": TASK}), json!({"params.customer": "c"})] {
            assert!(plan(fields.clone(), json!({})).unwrap().page.is_none(), "{fields}");
        }
        let page =
            plan(json!({"status": "2"}), json!({"order": "id", "created": "today"})).unwrap().page.unwrap();
        assert_eq!((page.order, page.of.created.since), (Order::Oldest, Some(DateTime::from_millis(0))));
        let found = plan(json!({"status": "2"}), json!({"created": "today"})).unwrap();
        assert_eq!(found.query.filter.keys().collect::<Vec<_>>(), ["_id", "queue", "status"]);
        let page = plan(json!({"queue": QUEUE}), json!({"after": TASK})).unwrap().page.unwrap();
        assert_eq!(page.position, Position::After(TASK.parse().unwrap()));
    }

    #[test]
    fn a_status_is_looked_for_in_each_queue() {
        let found = plan(json!({"status": ["2", "-6"]}), json!({"before": TASK})).unwrap();
        let page = found.page.unwrap();
        assert_eq!(page.position, Position::Before(TASK.parse().unwrap()));
        assert_eq!(page.of.statuses, Some(vec![2, -6]));
        assert_eq!(page.of.queues.unwrap(), [1, 2].map(|n| QueueId(ObjectId::from_bytes([n; 12]))));
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
        let fields = usual.query.projection.unwrap();
        let names: Vec<&String> = fields.keys().collect();
        let of_status = ["awaiting.asked", "failures", "run_at", "exit.reason", "cancel.by"];
        let others = ["queue", "params", "parameters", "array", "final_of"];
        assert_eq!(names, [&["_id", "status"][..], &of_status, &others].concat());
        assert!(fields.get_document("params").unwrap().contains_key("$cond"), "its beginning: {fields}");
        let text = plan(json!({}), json!({"columns": "status", "text": "Some ☃"})).unwrap();
        assert_eq!(text.query.projection.as_ref().unwrap().get("params"), Some(&Bson::Int32(1)), "the whole");
        let shown = plan(json!({}), json!({"columns": "params"})).unwrap().query.projection.unwrap();
        assert!(shown.get_document("params").unwrap().contains_key("$cond"), "its beginning: {shown}");
        let has = |params: Bson| text.is_in(&doc! { "params": params });
        assert!(has(doc! { "a": ["this is SOME ☃!"] }.into()) && !has("some".into()) && !has(Bson::Null));
    }

    #[tokio::test]
    async fn of_tasks_only_their_rows_are_kept_and_no_more_than_fit() {
        let plan = plan(json!({}), json!({"text": "x", "limit": 2})).unwrap();
        let task = |n: u8| {
            let params = doc! { "a": "x".repeat(100_000) };
            doc! { "_id": ObjectId::from_bytes([n; 12]), "params": params }
        };
        let rows = plan.rows(stream::iter((0..3).map(|n| Ok(task(n))))).await.unwrap();
        assert!(rows.iter().all(|row| format!("{row:?}").len() < 2_000) && rows.len() == 3);
        let mut look = Look { plan: &plan, began: Instant::now(), rows: Vec::new(), looked_at: 0 };
        look.at(&doc! { "params": "other" });
        look.at(&task(1));
        assert!(!look.is_over());
        look.at(&task(2));
        assert!(look.is_over(), "the page is full");
        assert_eq!((look.looked_at, look.rows.len()), (3, 2));
        let late = Look { plan: &plan, began: Instant::now() - PATIENCE, rows: Vec::new(), looked_at: 1 };
        assert!(late.is_over());
    }
}
