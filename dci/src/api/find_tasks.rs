//! `GET /tasks/find`

use std::time::Duration;

use actix_web::web::Data;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::accounts::{Reach, Role, tasks_within};
use disbatch_core::model::{NodeName, Queue, Selector, Status, TaskId};
use disbatch_core::store::Store;
use disbatch_core::tags::TAGS;
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_core::task::{Created, long_ago};
use disbatch_wire::search::{FoundTasks, TaskFind};
use futures::TryStreamExt;
use serde_json::Value;
use tokio::time::Instant;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::Dates;
use crate::params::Params;
use crate::state::State;
use crate::ui::names::{QueueNames, names};
use crate::ui::plain;
use crate::ui::tasks::{MOST_BYTES, TOO_LARGE, params_of, statuses, unless_large};
use crate::values::CREATED;
use crate::{bulk, json, values};

/// Tasks of all queues that the client may see, or of one, the newest first: by status, node, tags, time of the last change, and text in
/// their params. Archived tasks are not among them.
///
/// Status, node and tags are looked up in indexes. No index knows when tasks changed or what their params contain: for that, up to 5,000
/// tasks are read, for up to 2 s. `next` is null when all have been looked at; else more may be found `.after` it.
#[utoipa::path(
    get, path = "/tasks/find", tag = "tasks", operation_id = "findTasks",
    params(TaskFind),
    responses(
        (status = 200, description = "What was found.", body = FoundTasks),
        (status = 400, description = "A parameter is wrong, or there is no such queue."),
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let search = Search::of(&state, &who, &params).await?;
    let found = scan(&state.store, &search).await?;
    let names = names(&search.queues);
    json::of(&FoundTasks {
        tasks: found.tasks.iter().map(|task| view(task, &names)).collect(),
        looked_at: found.looked_at as u64,
        next: found.next.map(|id| id.to_string()),
    })
}

/// A task as clients see it. Large params are left out.
fn view(task: &Document, names: &QueueNames) -> Value {
    let mut view = json::from_document(task, Dates::Text);
    let status = Status::stored(task);
    let queue = task.get_object_id("queue").ok();
    view.remove("parameters");
    view.insert("params".to_owned(), params_of(task).map_or(Value::Null, small));
    if let Some(id) = view.remove("_id") {
        view.insert("id".to_owned(), id);
    }
    view.insert("word".to_owned(), status.map(Status::word).into());
    view.insert("queue_name".to_owned(), queue.and_then(|id| names.get(&id).cloned()).into());
    bulk::plain_ids(Value::Object(view))
}

fn small(params: &Bson) -> Value {
    let value = json::from_bson(params, Dates::Text);
    let most = usize::try_from(MOST_BYTES).unwrap_or(usize::MAX);
    if json::compact(&value).len() > most { TOO_LARGE.into() } else { value }
}

/// At most so many tasks are looked at for what no index knows, here and for pages.
pub const LOOKED_AT: usize = 5_000;

/// So many of them are read at once.
pub const AT_ONCE: usize = 500;

/// Looking at them takes about so long at most.
pub const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct ScanResult {
    /// The newest first.
    tasks: Vec<Document>,
    looked_at: usize,
    /// Behind which task there may be more; nothing if all have been looked at.
    next: Option<TaskId>,
}

async fn scan(store: &Store, search: &Search) -> Result<ScanResult, HttpError> {
    let mut found = ScanResult::default();
    let began = Instant::now();
    let mut position = search.after.map_or(Position::First, Position::After);
    loop {
        let limit = if search.is_read { AT_ONCE } else { search.limit };
        let page = PageQuery { of: search.of.clone(), order: Order::Newest, position, limit };
        let page = store.find_page(&page).await.map_err(HttpError::from_search)?;
        let projection = Some(search.projection.clone());
        let tasks = store.stream_page(&page.rows, search.filter.clone(), projection).await;
        let mut tasks = tasks.map_err(HttpError::from_search)?;
        let last = page.rows.last().copied();
        while let Some(task) = tasks.try_next().await.map_err(HttpError::from_search)? {
            if !contains(&task, &search.text) {
                continue;
            }
            let id = task.get_object_id("_id").ok().map(TaskId);
            found.tasks.push(task);
            if found.tasks.len() >= search.limit {
                let place = page.rows.iter().position(|one| Some(*one) == id).unwrap_or(page.rows.len());
                found.looked_at += place + 1;
                found.next = id.filter(|_| page.next.is_some() || id != last);
                return Ok(found);
            }
        }
        found.looked_at += page.rows.len();
        let Some(last) = page.next else { return Ok(found) };
        if found.looked_at >= LOOKED_AT || began.elapsed() >= PATIENCE {
            found.next = Some(last);
            return Ok(found);
        }
        position = Position::After(last);
    }
}

fn contains(task: &Document, text: &str) -> bool {
    text.is_empty() || plain(params_of(task)).to_lowercase().contains(text)
}

/// The most queues that are looked through where only each by itself has an index.
pub const MOST_QUEUES: usize = 200;

/// Clocks of those who submit and those who run tasks differ by less, in milliseconds.
const CLOCKS: i64 = 3_600_000;

/// What is told of a task, besides its params.
const SHOWN: [&str; 21] = [
    "queue", "status", "node", "ctime", "mtime", "started", "run_at", "deadline", "attempt", "failures",
    "error", "exit", "progress", "group", "priority", "unique", "schedule", "array", "tenant", "owner", TAGS,
];

#[derive(Debug)]
struct Search {
    /// The queues that whoever asks may see, or the one that is asked for.
    queues: Vec<Queue>,
    of: Selection,
    /// What must also be so of each of them, and what no index knows.
    filter: Document,
    projection: Document,
    /// What the params must contain, in lower case.
    text: String,
    /// Whether tasks have to be read to know whether they are meant.
    is_read: bool,
    limit: usize,
    /// Only those that are older than this one.
    after: Option<TaskId>,
}

/// The times between which a task must have changed last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Changed {
    since: Option<DateTime>,
    until: Option<DateTime>,
}

impl Search {
    /// As the parameters have it, for those who may see some queues only within these.
    async fn of(state: &State, who: &Who, params: &Params) -> Result<Self, HttpError> {
        let asked = params.search::<TaskFind>()?;
        let statuses = asked.status.as_ref().map(wanted).transpose()?;
        let reach = who.reach(Role::Viewer);
        let queues = match &asked.queue {
            Some(name) => vec![one(state, who, name).await?],
            None => state.store.queues_within(&reach).await?,
        };
        let tagged = values::tag_filter(asked.tags.as_ref(), asked.any_tags.as_ref())?;
        let statuses = match (&asked.node, statuses) {
            // An index has nodes before statuses.
            (Some(node), None) if tagged.is_none() => Some(state.store.statuses_on_node(node).await?),
            (_, statuses) => statuses,
        };
        let now = state.store.now();
        let changed = Changed::of(&asked, now)?;
        let moment =
            |name, given: Option<Value>| given.map(|value| values::moment(name, &value, now)).transpose();
        let [since, until] = CREATED;
        let created = Created {
            since: moment(since, asked.created_since)?,
            until: moment(until, asked.created_until)?,
        };
        let text = asked.text.unwrap_or_default().to_lowercase();
        let mut filter = changed.filter();
        filter.extend(statuses.as_ref().map(|all| ("status".to_owned(), doc! { "$in": all.clone() }.into())));
        filter.extend(asked.node.clone().map(|node| ("node".to_owned(), Bson::from(node))));
        let is_narrower = asked.queue.is_some() || reach != Reach::All;
        let within = |tagged| if is_narrower { tasks_within(tagged, &queues, &[]) } else { tagged };
        let tagged = tagged.map(within);
        // No index has the tasks of several queues in order: each is looked through by itself.
        let of_each = tagged.is_none() && (is_narrower || statuses.is_some());
        if of_each && queues.len() > MOST_QUEUES {
            let message =
                format!("there are more than {MOST_QUEUES} queues to look through: name one with 'queue'");
            return Err(HttpError::bad_request(message));
        }
        let ids = of_each.then(|| queues.iter().map(|queue| queue.id).collect());
        let node = asked.node.map(NodeName::new);
        Ok(Self {
            of: Selection { queues: ids, statuses, node, tagged, created },
            queues,
            is_read: changed != Changed::default() || !text.is_empty(),
            filter,
            projection: projection(!text.is_empty()),
            text,
            limit: asked.limit.unwrap_or(100),
            after: changed.before(asked.after.as_ref().map(task).transpose()?),
        })
    }
}

impl Changed {
    fn of(asked: &TaskFind, now: DateTime) -> Result<Self, HttpError> {
        type Given<'a> = (&'a str, &'a Option<Value>);
        let bound = |(time, at): Given<'_>, (age, span): Given<'_>| match (at, span) {
            (Some(_), Some(_)) => Err(HttpError::bad_request(format!("{time} and {age} exclude each other"))),
            (Some(value), None) => Ok(Some(values::time(time, value)?)),
            (None, Some(value)) => Ok(Some(long_ago(now, values::seconds(age, value)?))),
            (None, None) => Ok(None),
        };
        Ok(Self {
            since: bound(("since", &asked.since), ("newer_than", &asked.newer_than))?,
            until: bound(("until", &asked.until), ("older_than", &asked.older_than))?,
        })
    }

    /// Perl's programs may have stored seconds.
    fn filter(self) -> Document {
        let bounds = [("$gte", self.since), ("$lte", self.until)];
        let of = |value: fn(DateTime) -> Bson| -> Document {
            bounds.iter().filter_map(|(name, at)| Some(((*name).to_owned(), value((*at)?)))).collect()
        };
        if self == Self::default() {
            return Document::new();
        }
        let dates = of(Bson::DateTime);
        let seconds = of(|at| Bson::Int64(at.timestamp_millis() / 1000));
        doc! { "$or": [{ "mtime": dates }, { "mtime": seconds }] }
    }

    /// Behind which task to begin: what was made later than asked for has not changed before.
    fn before(self, after: Option<TaskId>) -> Option<TaskId> {
        let made = self.until.map(|until| {
            let seconds = until.timestamp_millis().saturating_add(CLOCKS) / 1000;
            let seconds = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&seconds.to_be_bytes());
            TaskId(ObjectId::from_bytes(bytes))
        });
        match (after, made) {
            (Some(after), Some(made)) => Some(if after.0 < made.0 { after } else { made }),
            (after, made) => after.or(made),
        }
    }
}

/// The queue of this name or id. One that is not for whoever asks is as if there were none.
async fn one(state: &State, who: &Who, name: &str) -> Result<Queue, HttpError> {
    let none = || HttpError::bad_request(format!("no queue '{name}'"));
    let queue = state.store.find_queue(&Selector::parse(name)).await?.filter(|queue| who.sees(queue));
    queue.ok_or_else(none)
}

/// Statuses by word or number.
fn wanted(value: &Value) -> Result<Vec<i64>, HttpError> {
    let status = |text: &String| {
        Status::from_word(text).map(Status::code).or_else(|| text.parse().ok()).ok_or_else(|| {
            HttpError::bad_request(format!(
                "status must be words or numbers of statuses, and '{text}' is none"
            ))
        })
    };
    statuses::given(Some(value)).iter().map(status).collect()
}

fn task(given: &Value) -> Result<TaskId, HttpError> {
    let id = given.as_str().and_then(|text| text.parse().ok());
    id.ok_or_else(|| HttpError::bad_request("'.after' must be the id of a task"))
}

fn projection(with_all_params: bool) -> Document {
    let mut projection: Document =
        ["_id"].iter().chain(&SHOWN).map(|field| ((*field).to_owned(), Bson::Int32(1))).collect();
    for field in ["params", "parameters"] {
        projection.insert(field, if with_all_params { Bson::Int32(1) } else { unless_large(field) });
    }
    projection
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_have_the_names_of_their_queues_and_words_for_their_statuses() {
        let (id, queue) = (ObjectId::from_bytes([1; 12]), ObjectId::from_bytes([2; 12]));
        let names = HashMap::from([(queue, "mail".to_owned())]);
        let task = doc! { "_id": id, "queue": queue, "status": 2_i64, "parameters": { "a": 1 } };
        let expected = json!({
            "id": id.to_hex(), "queue": queue.to_hex(), "queue_name": "mail", "status": 2, "word": "failed",
            "params": { "a": 1 },
        });
        assert_eq!(view(&task, &names), expected);
        let odd = view(&doc! { "_id": id, "status": "x", "params": { "a": "x".repeat(20_000) } }, &names);
        assert_eq!(
            (&odd["word"], &odd["queue_name"], &odd["params"]),
            (&Value::Null, &Value::Null, &json!(TOO_LARGE))
        );
    }

    fn changed(fields: Value) -> Result<Changed, String> {
        let fields = fields.as_object().unwrap().clone();
        let asked = Params { fields, ..Params::default() }.search::<TaskFind>();
        asked
            .and_then(|asked| Changed::of(&asked, DateTime::from_millis(9_999_999)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn statuses_are_words_or_numbers() {
        assert_eq!(wanted(&json!("failed, -6")).unwrap(), [2, -6]);
        assert_eq!(wanted(&json!(["queued", 17])).unwrap(), [-2, 17]);
        let error = wanted(&json!("done")).unwrap_err();
        assert!(error.message().contains("'done' is none"), "{error}");
    }

    #[test]
    fn times_are_points_or_ages() {
        let at = |seconds: i64| Some(DateTime::from_millis(seconds * 1000));
        let found = changed(json!({"since": "2026-11-20T08:24:27Z", "until": 1_795_163_068_i64})).unwrap();
        assert_eq!(found, Changed { since: at(1_795_163_067), until: at(1_795_163_068) });
        let ages = changed(json!({"newer_than": "7200", "older_than": 3600})).unwrap();
        let between = ages.until.unwrap().timestamp_millis() - ages.since.unwrap().timestamp_millis();
        assert_eq!(between, 3_600_000);
        for (wrong, text) in [
            (json!({"since": "yesterday"}), "since must be a time"),
            (json!({"newer_than": "1h"}), "newer_than must be seconds"),
            (json!({"since": 1, "newer_than": 1}), "since and newer_than exclude each other"),
        ] {
            assert!(changed(wrong).unwrap_err().starts_with(text));
        }
    }

    #[test]
    fn dates_and_seconds_are_compared_with_their_like() {
        assert_eq!(Changed::default().filter(), doc! {});
        let since = Changed { since: Some(DateTime::from_millis(5_000)), until: None };
        let dates = doc! { "mtime": { "$gte": DateTime::from_millis(5_000) } };
        assert_eq!(since.filter(), doc! { "$or": [dates, { "mtime": { "$gte": 5_i64 } }] });
    }

    #[test]
    fn what_was_made_too_late_is_not_looked_at() {
        let until =
            |seconds: i64| Changed { since: None, until: Some(DateTime::from_millis(seconds * 1000)) };
        let first = |id: Option<TaskId>| id.unwrap().0.timestamp().timestamp_millis() / 1000;
        assert_eq!(first(until(1_000).before(None)), 4_600);
        let later = TaskId(ObjectId::from_bytes([0xff; 12]));
        assert_eq!(first(until(1_000).before(Some(later))), 4_600);
        let earlier = TaskId(ObjectId::from_bytes([0; 12]));
        assert_eq!(until(1_000).before(Some(earlier)), Some(earlier));
        assert_eq!(Changed::default().before(None), None);
    }
}
