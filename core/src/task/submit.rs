//! Submit: a task is born queued (-2), or deferred (-7) if it is to start later, and belongs to no node.
//!
//! Submissions are acknowledged by a majority, which is also what lets change streams deliver them at once.

mod array;
mod idempotency;
mod insert;
mod noted;
mod options;

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;

pub use array::SubmittedArray;
pub use idempotency::Once;
pub(crate) use insert::Given;
pub use options::{StartAt, TaskOptions};

use self::insert::Cause;
use crate::admission::{Admitted, Scope};
use crate::budget::{self, OverBudget};
use crate::gates::MOST_LINKS;
use crate::model::{QueueId, Status, TaskId};
use crate::store::collections::TaskSource;
use crate::store::{Store, StoreError, Stored};
use crate::tenants::{Busy, OverQuota};
use disbatch_metrics::labels::{Refusal, Source};

/// How many tasks are sent to the server at once.
const BATCH: usize = 1_000;

/// A long submission says in the log how far it is after each so many tasks.
const PROGRESS: usize = 100_000;

/// So long the server may work on finding the documents that tasks are made of. A filter of a client's may be of any kind.
const FINDING: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The ids of the new tasks, in the order of their parameters.
    pub ids: Vec<TaskId>,
    /// Whether all of it had been done before, as its key tells.
    pub is_repetition: bool,
}

impl Submitted {
    fn now(ids: Vec<TaskId>) -> Self {
        Self { ids, is_repetition: false }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("a task of the queue with the same unique key has not ended")]
    NotUnique { task: TaskId },
    #[error("a unique key is for one task, and there are several")]
    UniqueForSeveral,
    #[error("the idempotency key was used for another request")]
    AnotherRequest,
    #[error("the idempotency key is that of the task {0}")]
    KeyTaken(TaskId),
    #[error("there are no tasks with these ids: {}", listed(.0))]
    NoSuchTasks(Vec<TaskId>),
    #[error("the tasks times those that each comes after are more than {most}", most = MOST_LINKS)]
    TooManyLinks,
    /// Tasks that are made of a collection have no order that everybody knows.
    #[error("tasks that are made of a collection cannot be a chain")]
    ChainOfCollection,
    #[error("an idempotency key is for at most {0} tasks")]
    TooManyForKey(usize),
    /// A rule says that no such tasks are taken at the moment, and perhaps why, in the words of whoever made it.
    #[error("{}", rejected(.scope, .reason.as_deref()))]
    Rejected { scope: Scope, reason: Option<String> },
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sees to it that tasks with these options and parameters can go through their whole life.
pub fn within_budget(options: &TaskOptions, params: &[Document]) -> Result<(), OverBudget> {
    let fields = options.fields();
    let several = params.len() > 1;
    let check = |(number, params): (usize, &Document)| {
        budget::check(params, &fields).map_err(|over| if several { over.of_task(number) } else { over })
    };
    params.iter().enumerate().try_for_each(check)
}

impl SubmitError {
    /// As what it is counted. That the database is away is no refusal.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::NotUnique { .. } => Some(Refusal::Unique),
            Self::AnotherRequest | Self::KeyTaken(_) => Some(Refusal::Idempotency),
            Self::Rejected { .. } => Some(Refusal::Admission),
            Self::OverBudget(_) => Some(Refusal::Size),
            Self::OverQuota(_) => Some(Refusal::Quota),
            Self::UniqueForSeveral
            | Self::NoSuchTasks(_)
            | Self::TooManyLinks
            | Self::ChainOfCollection
            | Self::TooManyForKey(_) => Some(Refusal::Invalid),
            Self::Busy(_) | Self::Store(_) => None,
        }
    }
}

fn rejected(scope: &Scope, reason: Option<&str>) -> String {
    let whose = match scope {
        Scope::All => String::new(),
        Scope::Queue(_) => " of this queue".to_owned(),
        Scope::Tenant(tenant) => format!(" for the tenant {tenant}"),
        Scope::Owner(owner) => format!(" of {owner}"),
    };
    let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("no new tasks{whose} are taken at the moment{why}")
}

fn listed(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl From<mongodb::error::Error> for SubmitError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Store(error.into())
    }
}

#[derive(Debug, Clone)]
struct Template {
    queue: QueueId,
    status: Status,
    now: DateTime,
    fields: Document,
    /// What those have besides that come after the one before, if they are a chain.
    chain: Option<TaskOptions>,
}

impl Template {
    /// The tasks with these ids and parameters, which were admitted. One after the other: many small ones take much memory.
    fn tasks<'a>(
        &'a self,
        tasks: impl IntoIterator<Item = (ObjectId, Document)> + 'a,
        admitted: &'a Admitted,
    ) -> impl Iterator<Item = Document> + 'a {
        let mut before: Option<ObjectId> = None;
        let task = move |(id, params): (ObjectId, Document)| {
            let mut task = self.task(id, params);
            if let (Some(before), Some(options)) = (before.replace(id), &self.chain) {
                let after = [TaskId(before)];
                let (status, gate) = options.born(Status::Queued, &after);
                task.insert("status", status);
                task.extend(options.behind(&after));
                task.extend(gate);
            }
            admitted.mark(std::slice::from_mut(&mut task));
            task
        };
        tasks.into_iter().map(task)
    }

    fn task(&self, id: ObjectId, params: Document) -> Document {
        let mut task = doc! {
            "_id": id,
            "queue": self.queue,
            "status": self.status,
            "node": Bson::Null,
            "params": params,
            "stdout": Bson::Null,
            "stderr": Bson::Null,
            "ctime": self.now,
            "mtime": self.now,
        };
        task.extend(self.fields.clone());
        task
    }
}

impl Store {
    /// Creates one task in `queue` for each of `params`.
    ///
    /// # Errors
    /// See [`SubmitError`]. The database may refuse a document (too large, for instance); tasks before the
    /// refused one exist then.
    #[operation(queue = %queue, tasks = params.len())]
    pub async fn submit_tasks(
        &self,
        queue: QueueId,
        params: Vec<Document>,
        options: &TaskOptions,
    ) -> Result<Submitted, SubmitError> {
        within_budget(options, &params)?;
        self.check_after(options, params.len()).await?;
        let template = self.template(queue, options, params.len()).await?;
        self.insert_new(&template, params, options).await
    }

    /// Sees to it that there are all tasks that new ones are to come after. As none can be named before it exists, no
    /// task ever comes after itself.
    async fn check_after(&self, options: &TaskOptions, tasks: usize) -> Result<(), SubmitError> {
        options.check_links(tasks)?;
        if options.after.is_empty() {
            return Ok(());
        }
        let missing = self.missing_tasks(&options.after).await?;
        if missing.is_empty() { Ok(()) } else { Err(SubmitError::NoSuchTasks(missing)) }
    }

    /// Creates one task in `queue` for each document of `source` that `filter` finds, with the parameters
    /// that `params` makes of it. Reads and writes in batches: of all tasks, only the ids are held in memory.
    ///
    /// # Errors
    /// See [`SubmitError`]. The database may refuse the filter or a document; tasks of earlier batches exist
    /// then.
    #[operation(queue = %queue, collection = source.name())]
    pub async fn submit_tasks_for(
        &self,
        queue: QueueId,
        source: &TaskSource,
        filter: Document,
        params: &(dyn Fn(&Document) -> Document + Sync),
        options: &TaskOptions,
    ) -> Result<Submitted, SubmitError> {
        if options.chain {
            return Err(SubmitError::ChainOfCollection);
        }
        self.check_after(options, 1).await?;
        let collection = source.name();
        let filter = self.without_new_tasks(collection, filter);
        let documents = self.database().collection::<Stored>(collection);
        if !options.after.is_empty() {
            let most = u64::try_from(options.most_tasks()).unwrap_or(u64::MAX);
            let found = documents.count_documents(filter.clone()).limit(most + 1).max_time(FINDING).await?;
            options.check_links(usize::try_from(found).unwrap_or(usize::MAX))?;
        }
        let found = documents.find(filter).max_time(FINDING).await?;
        let mut batches = found.map_ok(Document::from).try_chunks(BATCH);
        let mut ids = Vec::new();
        let mut template = None;
        while let Some(documents) = batches.try_next().await.map_err(|error| StoreError::from(error.1))? {
            let batch: Vec<Document> = documents.iter().map(params).collect();
            within_budget(options, &batch)?;
            let template = match &mut template {
                // Once for all, so that all of them start at the same time.
                None => template.insert(self.template(queue, options, batch.len()).await?),
                Some(template) => template,
            };
            let before = ids.len() / PROGRESS;
            ids.extend(self.insert_new(template, batch, options).await?.ids);
            if ids.len() / PROGRESS > before {
                tracing::info!(queue = %queue, collection, tasks = ids.len(), "creating tasks");
            }
        }
        Ok(Submitted::now(ids))
    }

    /// Shows the documents that [`Store::submit_tasks_for`] would make tasks of, one after the other, as long as `goes_on` wants more.
    #[operation(collection = source.name())]
    pub async fn look_at_source(
        &self,
        source: &TaskSource,
        filter: Document,
        goes_on: &mut (dyn FnMut(&Document) -> bool + Send),
    ) -> Result<(), StoreError> {
        let filter = self.without_new_tasks(source.name(), filter);
        let documents = self.database().collection::<Stored>(source.name());
        let mut found = documents.find(filter).max_time(FINDING).await?;
        while let Some(document) = found.try_next().await? {
            if !goes_on(&document.into()) {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Tasks made of tasks must not be found by the same search.
    fn without_new_tasks(&self, collection: &str, filter: Document) -> Document {
        let before = (collection == self.tasks().name()).then(|| made_before(ObjectId::new()));
        doc! { "$and": [filter, before.unwrap_or_default()] }
    }

    /// What all of `tasks` new tasks will have, by the server's clock.
    async fn template(
        &self,
        queue: QueueId,
        options: &TaskOptions,
        tasks: usize,
    ) -> Result<Template, SubmitError> {
        if options.unique.is_some() && tasks > 1 {
            return Err(SubmitError::UniqueForSeveral);
        }
        let mut fields = options.fields();
        let mut status = Status::Queued;
        if let Some(start) = options.start {
            let now = self.server_time().await?;
            let run_at = start.time(now);
            fields.insert("run_at", run_at);
            if run_at > now {
                status = Status::Deferred;
            }
        }
        let (status, gate) = options.born(status, &options.after);
        fields.extend(gate);
        let chain = options.chain.then(|| options.clone());
        Ok(Template { queue, status, now: self.now(), fields, chain })
    }

    /// A task with this id, as it is born, that was admitted. It is inserted by whoever has asked for it.
    pub(crate) async fn new_task(
        &self,
        queue: QueueId,
        id: TaskId,
        params: Document,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Document, SubmitError> {
        within_budget(options, std::slice::from_ref(&params))?;
        let mut task = self.template(queue, options, 1).await?.task(id.0, params);
        admitted.mark(std::slice::from_mut(&mut task));
        Ok(task)
    }

    async fn insert_new(
        &self,
        template: &Template,
        params: Vec<Document>,
        options: &TaskOptions,
    ) -> Result<Submitted, SubmitError> {
        let admitted = self.admit(template.queue, options, params.len()).await?;
        let inserted = self.insert_tasks(template, params, &admitted).await;
        self.conclude(admitted, inserted).await
    }

    async fn insert_tasks(
        &self,
        template: &Template,
        params: Vec<Document>,
        admitted: &Admitted,
    ) -> Result<Submitted, SubmitError> {
        let ids: Vec<TaskId> = params.iter().map(|_| TaskId(ObjectId::new())).collect();
        if ids.is_empty() {
            return Ok(Submitted::now(ids));
        }
        let mut blocked = 0;
        let tasks = template.tasks(ids.iter().map(|id| id.0).zip(params), admitted);
        let counted = tasks.inspect(|task| blocked += u64::from(is_blocked(task)));
        match template.fields.get_str("unique") {
            Ok(key) => {
                let tasks: Vec<Document> = counted.collect();
                self.insert_unique(template.queue, key, tasks, Cause::Request).await?;
            }
            Err(_) => {
                let collection = self.new_tasks();
                let insert = collection.insert_many(counted);
                let inserted = insert.await.map_err(StoreError::from);
                // How many of them are there nobody knows.
                inserted.inspect_err(|_| self.doubt_counters())?;
            }
        }
        let others = ids.len() as u64 - blocked;
        self.submitted(template.queue, Some(template.status), others, Source::Api);
        self.submitted(template.queue, Some(Status::Blocked), blocked, Source::Api);
        if blocked > 0 {
            self.link_at_once(&ids).await;
        }
        Ok(Submitted::now(ids))
    }
}

fn blocked(tasks: &[Document]) -> u64 {
    tasks.iter().filter(|task| is_blocked(task)).count() as u64
}

fn is_blocked(task: &Document) -> bool {
    task.get("status") == Some(&Bson::from(Status::Blocked))
}

/// Matches ids made up to now, of all processes, but not those that this one makes from `new` on. Ids of one second are in the order of
/// the processes that made them.
fn made_before(new: ObjectId) -> Document {
    let [a, b, c, d, process @ .., _, _, _] = new.bytes();
    let second = u32::from_be_bytes([a, b, c, d]);
    let (mut last, mut later) = ([0xff; 12], [0; 12]);
    last[..4].copy_from_slice(&[a, b, c, d]);
    last[4..9].copy_from_slice(&process);
    later[..4].copy_from_slice(&second.saturating_add(1).to_be_bytes());
    let ours = doc! { "_id": { "$gte": new, "$lte": ObjectId::from_bytes(last) } };
    doc! { "_id": { "$lt": ObjectId::from_bytes(later) }, "$nor": [ours] }
}
