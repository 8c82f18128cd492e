//! What can be asked of a server, each with one or a few requests of its REST API.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::VERSION;
use crate::call::Connection;
use crate::error::{Error, Result};
use crate::files::{self, Source};
use crate::follow::{Event, EventReader, OutputReader, OutputStream};
use crate::settings::{Settings, Traceparent};
use crate::task::Task;

/// One question to the server: a proxy in between may give up on a connection that is silent for a minute.
const LONG_POLL: Duration = Duration::from_secs(50);
/// Before the next question after one that was answered too early.
const EARLY: Duration = Duration::from_millis(200);
/// The server asks for less than 16 MiB in one body, and remembers what one key has made.
const MOST_TASKS: usize = 1000;
const MOST_BYTES: usize = 8 * 1024 * 1024;
const PAGE: usize = 1000;

/// Speaks to a DCI. Copies share its connections.
///
/// `options`, `settings`, `fields` and `filters` are whatever becomes an object of JSON: `json!({..})`, a type of yours, or
/// `()` for none. Their keys are those of the REST API without the dot.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Prepares requests; nothing is sent yet. TLS is by `ring` unless the program has chosen another provider of `rustls`.
    ///
    /// # Errors
    /// The address or the file of certificates is none.
    pub fn new(settings: Settings) -> Result<Self> {
        Ok(Self { connection: Connection::new(settings)? })
    }

    /// A client that passes on this trace; it shares the connections of this one.
    #[must_use]
    pub fn with_traceparent(&self, value: impl Traceparent) -> Self {
        Self { connection: self.connection.with_traceparent(value) }
    }

    /// Submits a task, or with `array` an array of them, and returns its id.
    pub async fn submit(
        &self,
        queue: &str,
        params: impl Serialize,
        options: impl Serialize,
    ) -> Result<String> {
        let mut body = dotted(object("options", &options)?);
        // To the server an empty one is none.
        if body.get(".idempotency_key").is_none_or(|key| key == "") {
            body.insert(".idempotency_key".to_owned(), random_key()?.into());
        }
        body.insert("queue".to_owned(), queue.into());
        body.insert("params".to_owned(), object("params", &params)?.into());
        let answer = self.connection.send(&self.connection.post(&["tasks"], &body)?.repeatable()).await?;
        let value = answer.json()?;
        match value.pointer("/array/id").and_then(Value::as_str) {
            Some(id) => Ok(id.to_owned()),
            None => inserted(&value)
                .and_then(|ids| ids.into_iter().next())
                .ok_or_else(|| answer.lacks("id of a task")),
        }
    }

    /// Submits a task for each params, 1000 and 8 MiB in one request, and returns their ids in the same order.
    pub async fn submit_many(
        &self,
        queue: &str,
        params: impl IntoIterator<Item = impl Serialize>,
        options: impl Serialize,
    ) -> Result<Vec<String>> {
        let mut body = dotted(object("options", &options)?);
        let given = body.get(".idempotency_key").and_then(Value::as_str).filter(|key| !key.is_empty());
        let key = given.map_or_else(random_key, |key| Ok(key.to_owned()))?;
        let parts = parts(params.into_iter().map(|one| object("params", &one)))?;
        if parts.len() > 1 && body.get(".chain").is_some_and(|chain| chain != false) {
            return Err(Error::Invalid("a chain cannot be longer than one request".into()));
        }
        body.insert("queue".to_owned(), queue.into());
        let mut all = Vec::new();
        for (number, part) in parts.into_iter().enumerate() {
            let own = if number == 0 { key.clone() } else { format!("{key}/{number}") };
            body.insert(".idempotency_key".to_owned(), own.into());
            body.insert("params".to_owned(), part.into());
            let answer = self.connection.send(&self.connection.post(&["tasks"], &body)?.repeatable()).await?;
            all.extend(inserted(&answer.json()?).ok_or_else(|| answer.lacks("ids of tasks"))?);
        }
        Ok(all)
    }

    /// A task. Output that is too large for it is an id there; `output` has it.
    pub async fn get(&self, id: &str) -> Result<Task> {
        Task::read(self.connection.ask(self.connection.get(&["tasks", id])?.query(".details", 1)).await?)
    }

    /// The task when it has ended, within `timeout` if there is one.
    pub async fn wait(&self, id: &str, timeout: Option<Duration>) -> Result<Task> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let asked = Instant::now();
            // The server takes whole seconds.
            let left = end.map_or(LONG_POLL, |end| whole_seconds(end - asked).min(LONG_POLL));
            let call = self.connection.get(&["tasks", id, "wait"])?;
            let call = call.query(".timeout", left.as_secs()).patience(left);
            let task = self.connection.ask(call).await?;
            if task["ended"] == true {
                return self.get(id).await;
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                let word = task["word"].as_str().unwrap_or("unknown");
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                let message = format!("task {id} has not ended after {seconds} s: it is {word}");
                return Err(Error::WaitTimeout { message, task });
            }
            if asked.elapsed() < left {
                sleep(EARLY).await;
            }
        }
    }

    /// Waits for the end and returns the result of the task, whose status must be 1, succeeded.
    pub async fn result(&self, id: &str, timeout: Option<Duration>) -> Result<Value> {
        let mut task = self.wait(id, timeout).await?;
        if task.status == 1 {
            return Ok(task.fields.remove("result").unwrap_or_default());
        }
        let last = task["stderr"].as_str().and_then(|said| said.trim_end().lines().last());
        let why = last.map(|last| format!(": {last}")).unwrap_or_default();
        let message =
            format!("task {id} has not succeeded: it is {} (status {}){why}", task.word, task.status);
        Err(Error::TaskFailed { message, task: Box::new(task) })
    }

    pub async fn cancel(&self, id: &str, reason: Option<&str>) -> Result<Value> {
        self.connection.ask(self.connection.post(&["tasks", id, "cancel"], &given(reason))?).await
    }

    pub async fn retry(&self, id: &str, reason: Option<&str>) -> Result<Value> {
        self.connection.ask(self.connection.post(&["tasks", id, "retry"], &given(reason))?).await
    }

    /// Runs a task again that has ended. Options: `params` in place of its own, `downstream` (`none`, `failed` or `all`) for those that come
    /// after it, and `reason`.
    pub async fn rerun(&self, id: &str, options: impl Serialize) -> Result<Value> {
        self.connection.ask(self.connection.post(&["tasks", id, "rerun"], &options)?).await
    }

    /// Runs elements of an array again that have ended: those that failed, or with the option `elements` `all`; the others are those of
    /// [`Client::rerun`]. Answers with the `id` of the bulk job that does it.
    pub async fn rerun_array(&self, id: &str, options: impl Serialize) -> Result<Value> {
        self.connection.ask(self.connection.post(&["arrays", id, "rerun"], &options)?).await
    }

    /// Answers what a task has asked. A conflict if somebody else has: its details have the `answer`.
    pub async fn answer(&self, id: &str, value: impl Serialize) -> Result<Value> {
        let body = json!({ "value": object("value", &value)? });
        self.connection.ask(self.connection.post(&["tasks", id, "answer"], &body)?).await
    }

    /// Why a task does not run, or how it does: `summary` and `gates`.
    pub async fn explain(&self, id: &str) -> Result<Value> {
        self.connection.ask(self.connection.get(&["tasks", id, "explain"])?).await
    }

    /// Tasks, the newest first, at most `limit`; asks for the next page when it is needed.
    pub fn list(&self, filters: impl Serialize, limit: Option<usize>) -> BoxStream<'static, Result<Task>> {
        let (connection, filters) = (self.connection.clone(), object("filters", &filters));
        let state =
            Listing { connection, filters, limit, after: None, page: VecDeque::new(), is_last: false };
        try_unfold(state, |mut state| async move { Ok(state.next().await?.map(|task| (task, state))) })
            .boxed()
    }

    /// What the task has printed so far, in its last attempt or another one.
    pub async fn output(&self, id: &str, stream: OutputStream, attempt: Option<u32>) -> Result<Vec<u8>> {
        OutputReader::new(self.connection.clone(), id, stream, attempt, false)
            .into_stream()
            .try_concat()
            .await
    }

    /// What the task prints, piece by piece until its attempt is over, over lost connections.
    pub fn follow_output(
        &self,
        id: &str,
        stream: OutputStream,
        attempt: Option<u32>,
    ) -> BoxStream<'static, Result<Vec<u8>>> {
        OutputReader::new(self.connection.clone(), id, stream, attempt, true).into_stream()
    }

    /// What happens to the task, until it is over; `after` is the `id` of the last event that is known.
    pub fn events(&self, id: &str, after: Option<&str>) -> BoxStream<'static, Result<Event>> {
        EventReader::new(self.connection.clone(), id, after).into_stream()
    }
}

/// Queues.
impl Client {
    pub async fn queues(&self) -> Result<Vec<Value>> {
        list(self.connection.ask(self.connection.get(&["queues"])?).await?)
    }

    /// A queue, by name or id, with its settings.
    pub async fn queue(&self, name: &str) -> Result<Value> {
        self.connection.ask(self.connection.get(&["queues", name])?.query(".details", 1)).await
    }

    /// Creates a queue, with settings such as `threads`, and returns its id.
    pub async fn create_queue(&self, name: &str, plugin: &str, settings: impl Serialize) -> Result<String> {
        let settings = object("settings", &settings)?;
        let body = json!({"name": name, "plugin": plugin});
        let answer = self.connection.send(&self.connection.post(&["queues"], &body)?).await?;
        let id = answer.json()?.pointer("/id/$oid").and_then(Value::as_str).map(str::to_owned);
        let id = id.ok_or_else(|| answer.lacks("id of a queue"))?;
        if !settings.is_empty() {
            self.update_queue(name, settings).await?;
        }
        Ok(id)
    }

    /// Changes settings; null unsets one.
    pub async fn update_queue(&self, name: &str, settings: impl Serialize) -> Result<()> {
        let call = self.connection.post(&["queues", name], &object("settings", &settings)?)?;
        self.connection.send(&call.repeatable()).await.map(drop)
    }

    pub async fn delete_queue(&self, name: &str) -> Result<()> {
        self.connection.send(&self.connection.call(Method::DELETE, &["queues", name])?).await.map(drop)
    }

    /// Nothing more is claimed from the queue; what runs goes on.
    pub async fn pause(&self, queue: &str, reason: Option<&str>) -> Result<()> {
        self.update_queue(queue, json!({"paused": true, "reason": reason})).await
    }

    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.update_queue(queue, json!({"paused": null, "reason": null})).await
    }
}

/// Schedules.
impl Client {
    /// All schedules, or those of a `queue`, of a `tenant`, or that are `paused`.
    pub async fn schedules(&self, filters: impl Serialize) -> Result<Vec<Value>> {
        let filters = object("filters", &filters)?;
        self.all(&["schedules"], &filters, ".limit", ".after").await
    }

    pub async fn schedule(&self, name: &str) -> Result<Value> {
        self.connection.ask(self.connection.get(&["schedules", name])?).await
    }

    pub async fn create_schedule(&self, name: &str, queue: &str, fields: impl Serialize) -> Result<Value> {
        let mut fields = schedule_fields(&fields)?;
        fields.extend([("name".to_owned(), name.into()), ("queue".to_owned(), queue.into())]);
        self.connection.ask(self.connection.post(&["schedules"], &fields)?).await
    }

    /// Changes fields; null takes one back to its default. With `rev` only if it still has that revision.
    pub async fn update_schedule(&self, name: &str, fields: impl Serialize) -> Result<Value> {
        self.connection.ask(self.connection.post(&["schedules", name], &schedule_fields(&fields)?)?).await
    }

    pub async fn delete_schedule(&self, name: &str) -> Result<()> {
        self.connection.send(&self.connection.call(Method::DELETE, &["schedules", name])?).await.map(drop)
    }

    pub async fn pause_schedule(&self, name: &str) -> Result<Value> {
        let call = self.connection.post(&["schedules", name, "pause"], &json!({}))?;
        self.connection.ask(call.repeatable()).await
    }

    pub async fn resume_schedule(&self, name: &str) -> Result<Value> {
        let call = self.connection.post(&["schedules", name, "resume"], &json!({}))?;
        self.connection.ask(call.repeatable()).await
    }

    /// Makes a task of the schedule now, and returns its id.
    pub async fn run_schedule(&self, name: &str) -> Result<String> {
        let answer =
            self.connection.send(&self.connection.post(&["schedules", name, "run"], &json!({}))?).await?;
        answer.json()?["task"].as_str().map(str::to_owned).ok_or_else(|| answer.lacks("id of a task"))
    }
}

/// File sets.
impl Client {
    /// All file sets, or the newest versions of one.
    pub async fn files(&self, name: Option<&str>) -> Result<Vec<Value>> {
        match name {
            None => self.all(&["files"], &Map::new(), ".limit", ".after").await,
            Some(name) => {
                let call = self.connection.get(&["files", name])?.query(".limit", 1);
                list(self.connection.ask(call).await?["versions"].take())
            }
        }
    }

    /// Makes a new version of a set: of a folder, a file, or a map from paths in the set to bytes. Options are `tenant` and `expires`.
    pub async fn put_files(
        &self,
        name: &str,
        source: impl Into<Source>,
        options: impl Serialize,
    ) -> Result<Value> {
        files::put(&self.connection, name, source.into(), &dotted(object("options", &options)?)).await
    }

    /// Brings the files of a version into a folder, and returns the version: the newest unless `version` says another, and all
    /// files unless `prefix` says how their paths begin.
    pub async fn get_files(
        &self,
        name: &str,
        folder: impl AsRef<Path>,
        version: Option<u64>,
        prefix: Option<&str>,
    ) -> Result<Value> {
        files::get(&self.connection, name, folder.as_ref(), version, prefix).await
    }
}

/// The server.
impl Client {
    /// The server's version.
    pub async fn version(&self) -> Result<String> {
        let answer = self.connection.send(&self.connection.get(&["info"])?).await?;
        if answer.json()?.get("routes").is_none() {
            let why = "GET /info: this is not the answer of a DCI; is the address right?";
            return Err(Error::Protocol(why.into()));
        }
        // Perl's, and those before this header.
        let version = answer.headers.get("disbatch-version").and_then(|value| value.to_str().ok());
        Ok(version.unwrap_or("unknown").to_owned())
    }

    /// The server's version, which is an error unless it is one that this library is for.
    pub async fn check(&self) -> Result<String> {
        let server = self.version().await?;
        // Before 1.0, a minor version may change what another one relies on.
        let parts = if VERSION.starts_with("0.") { 2 } else { 1 };
        let want: Vec<_> = VERSION.split('.').take(parts).collect();
        if server.split('.').take(parts).eq(want.iter().copied()) {
            return Ok(server);
        }
        Err(Error::Version(format!(
            "the server has version {server}, and this library ({VERSION}) is for servers of version {}: install the version \
             of the library that the server has",
            want.join("."),
        )))
    }

    /// Any other route of the API. It is repeated after failures if its method allows that. A body of null is none.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        query: impl Serialize,
        body: impl Serialize,
    ) -> Result<Value> {
        let method = method.parse().map_err(|_| Error::Invalid(format!("{method:?} is no method")))?;
        let segments: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let mut call = self.connection.call(method, &segments)?.queries(&object("query", &query)?);
        let body = value("body", &body)?;
        if !body.is_null() {
            call = call.json(&body)?;
        }
        let answer = self.connection.send(&call).await?;
        if answer.body.is_empty() { Ok(Value::Null) } else { answer.json() }
    }

    /// All pages of a list that is in the order of names.
    async fn all(
        &self,
        path: &[&str],
        filters: &Map<String, Value>,
        limit: &str,
        after: &str,
    ) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let last = all.last().and_then(|one| one["name"].as_str());
            let call = self.connection.get(path)?.queries(filters).query(limit, PAGE).maybe(after, last);
            let page = list(self.connection.ask(call).await?)?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// Tasks, page by page.
struct Listing {
    connection: Connection,
    filters: Result<Map<String, Value>>,
    limit: Option<usize>,
    after: Option<String>,
    page: VecDeque<Value>,
    is_last: bool,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<Task>> {
        while self.page.is_empty() && !self.is_last && self.limit != Some(0) {
            let filters = std::mem::replace(&mut self.filters, Ok(Map::new()))?;
            let size = self.limit.unwrap_or(PAGE).min(PAGE);
            let call = self.connection.get(&["tasks", "find"])?.queries(&filters).query(".limit", size);
            self.filters = Ok(filters);
            let mut answer = self.connection.ask(call.maybe(".after", self.after.as_ref())).await?;
            self.page = list(answer["tasks"].take())?.into();
            self.after = answer["next"].as_str().map(str::to_owned);
            self.is_last = self.after.is_none();
        }
        if self.limit == Some(0) {
            return Ok(None);
        }
        self.limit = self.limit.map(|limit| limit - 1);
        self.page.pop_front().map(Task::read).transpose()
    }
}

fn value(what: &str, given: &impl Serialize) -> Result<Value> {
    serde_json::to_value(given)
        .map_err(|error| Error::Invalid(format!("the {what} cannot be sent as JSON: {error}")))
}

fn object(what: &str, given: &impl Serialize) -> Result<Map<String, Value>> {
    match value(what, given)? {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err(Error::Invalid(format!("the {what} are no object"))),
    }
}

fn list(answer: Value) -> Result<Vec<Value>> {
    match answer {
        Value::Array(all) => Ok(all),
        _ => Err(Error::Protocol("the answer is no list; is this the address of a DCI?".into())),
    }
}

/// Options with their dot, without those that are null.
fn dotted(options: Map<String, Value>) -> Map<String, Value> {
    options
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (format!(".{key}"), value))
        .collect()
}

/// Of a schedule, of which only these have one.
fn schedule_fields(fields: &impl Serialize) -> Result<Map<String, Value>> {
    let dotted =
        |key: String| if matches!(key.as_str(), "secure_params" | "rev") { format!(".{key}") } else { key };
    Ok(object("fields", fields)?.into_iter().map(|(key, value)| (dotted(key), value)).collect())
}

fn given(reason: Option<&str>) -> Value {
    reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}))
}

/// Params cut by number and by size.
fn parts(params: impl Iterator<Item = Result<Map<String, Value>>>) -> Result<Vec<Vec<Value>>> {
    let mut parts: Vec<Vec<Value>> = Vec::new();
    let mut size = 0;
    for one in params {
        let one = Value::from(one?);
        let more = one.to_string().len();
        match parts.last_mut() {
            Some(part) if part.len() < MOST_TASKS && size + more <= MOST_BYTES => {
                part.push(one);
                size += more;
            }
            _ => {
                parts.push(vec![one]); // It is the first, or the last one is full.
                size = more;
            }
        }
    }
    Ok(parts)
}

/// The ids of new tasks, in the order in which they were submitted.
fn inserted(answer: &Value) -> Option<Vec<String>> {
    let listed = answer.pointer("/MongoDB::InsertManyResult/inserted")?.as_array()?;
    let mut ids = Vec::with_capacity(listed.len());
    for one in listed {
        ids.push((one["index"].as_u64()?, one.pointer("/_id/$oid")?.as_str()?.to_owned()));
    }
    ids.sort();
    Some(ids.into_iter().map(|(_, id)| id).collect())
}

fn random_key() -> Result<String> {
    let random =
        || getrandom::u64().map_err(|error| Error::Invalid(format!("there are no random numbers: {error}")));
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// Not less.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_by_number_and_by_size() {
        let sizes = |params: Vec<Value>| {
            let parts = parts(params.into_iter().map(|one| object("params", &one))).unwrap();
            parts.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(vec![json!({}); 2500]), [1000, 1000, 500]);
        let large = json!({"x": "y".repeat(5 * 1024 * 1024)});
        assert_eq!(sizes(vec![large.clone(), large, json!({}), json!({})]), [1, 3]);
        assert_eq!(sizes(vec![]), [0; 0]);
    }

    #[test]
    fn what_is_given_must_be_an_object() {
        assert_eq!(object("options", &()).unwrap(), Map::new());
        assert_eq!(object("options", &7).unwrap_err().to_string(), "the options are no object");
        assert_eq!(dotted(object("options", &json!({"a": null, "b": 1})).unwrap()).len(), 1);
    }

    #[test]
    fn keys_are_new_ones() {
        let (one, other) = (random_key().unwrap(), random_key().unwrap());
        assert!(one.len() == 32 && one != other, "{one} {other}");
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(1001)), Duration::from_secs(2));
        assert_eq!(whole_seconds(Duration::from_secs(2)), Duration::from_secs(2));
        assert_eq!(whole_seconds(Duration::ZERO), Duration::ZERO);
    }
}
