//! Whether a document of the inbox becomes a task that runs, as `POST /tasks` decides it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, Document};

use super::{Unread, read, trace};
use crate::accounts::Reach;
use crate::config::Producer;
use crate::model::{PluginName, Queue, QueueId, Selector, TaskId, TraceContext};
use crate::schema::{OfTask, Schemas, as_plugins_get, check_task};
use crate::store::{Store, StoreError};
use crate::task::{Given, SubmitError, TaskOptions, within_budget};
use disbatch_metrics::labels::Refusal as Label;
use tokio::task::spawn_blocking;

/// So long the parameters of a document may take to be checked.
const CHECKING: Duration = Duration::from_secs(1);

const LONGEST_REASON: usize = 900;

/// Alike tasks that are to be made, and are submitted together.
#[derive(Debug)]
pub(super) struct Group {
    pub queue: QueueId,
    /// Without traces, so that those of alike tasks are equal.
    pub options: TaskOptions,
    pub key: Option<String>,
    /// Their producer, if some tasks that they come after are not there yet: they may be of queues that are not for it.
    pub parents_of: Option<Producer>,
    pub tasks: Vec<Given>,
}

/// A task that is not to run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused {
    /// That of its document.
    pub id: Bson,
    pub queue: Option<QueueId>,
    pub owner: Option<String>,
    pub tenant: Option<String>,
    pub trace: Option<TraceContext>,
    pub refusal: Refusal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What has refused it, in a word.
    pub by: &'static str,
    pub reason: String,
    pub label: Option<Label>,
}

impl Refusal {
    pub(super) fn new(by: &'static str, reason: &str) -> Self {
        Self { by, reason: reason.chars().take(LONGEST_REASON).collect(), label: Some(Label::Invalid) }
    }

    pub(super) fn of(error: &SubmitError) -> Self {
        let by = match error {
            SubmitError::NotUnique { .. } | SubmitError::UniqueForSeveral => "unique",
            SubmitError::AnotherRequest | SubmitError::KeyTaken(_) | SubmitError::TooManyForKey(_) => "key",
            SubmitError::NoSuchTasks(_) | SubmitError::TooManyLinks | SubmitError::ChainOfCollection => {
                "after"
            }
            SubmitError::Rejected { .. } => "admission",
            SubmitError::OverBudget(_) => "size",
            SubmitError::OverQuota(_) | SubmitError::Busy(_) => "quota",
            SubmitError::Store(_) => "database",
        };
        let reason = match error {
            SubmitError::NotUnique { task } => format!("{error}: {task}"),
            _ => error.to_string(),
        };
        Self { label: error.refusal(), ..Self::new(by, &reason) }
    }
}

#[derive(Debug)]
pub(super) enum Fate {
    /// A group of one.
    Task(Box<Group>),
    Refused(Box<Refused>),
    /// It is left for a DEN that understands it; when none has come it is refused.
    Left(Box<Refused>),
}

/// The queues that have been looked up for a batch of documents, by what these call them.
pub(super) type QueueCache = HashMap<String, Option<Queue>>;

impl Store {
    /// The queue that a document names. One that nobody can read is none: what waits behind it does not wait for that.
    pub(super) async fn queue_of_document(&self, selector: &Selector) -> Result<Option<Queue>, StoreError> {
        match self.find_queue(selector).await {
            Err(error @ StoreError::Document { .. }) => {
                tracing::warn!(%error, queue = %selector, "a document of the inbox names a queue that cannot be read");
                Ok(None)
            }
            found => found,
        }
    }

    async fn known_queue(
        &self,
        known: &mut QueueCache,
        selector: Selector,
    ) -> Result<Option<Queue>, StoreError> {
        Ok(match known.entry(selector.to_string()) {
            Entry::Occupied(queue) => queue.get().clone(),
            Entry::Vacant(queue) => queue.insert(self.queue_of_document(&selector).await?).clone(),
        })
    }

    /// Decides about a document, but for what its insertion decides.
    pub(super) async fn judge_entry(
        &self,
        document: &Document,
        schemas: &Schemas,
        known: &mut QueueCache,
    ) -> Result<Fate, StoreError> {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let producer = self.inbox_config().producer(document.get_str("by").ok());
        let named = super::queue(document);
        let queue = match &named {
            Some(selector) => self.known_queue(known, selector.clone()).await?,
            None => None,
        };
        let own = queue.as_ref().and_then(Queue::tenant).map(str::to_owned);
        let refused = |refusal| {
            let producer = producer.clone().unwrap_or_default();
            Box::new(Refused {
                id: id.clone(),
                queue: queue.as_ref().map(|queue| queue.id),
                owner: producer.owner,
                tenant: own.clone().or(producer.tenant),
                trace: trace(document),
                refusal,
            })
        };
        let wanted = match read(document) {
            Ok(wanted) => wanted,
            Err(Unread::Unknown(what)) => return Ok(Fate::Left(refused(Refusal::new("contract", &what)))),
            Err(Unread::Wrong(what)) => return Ok(Fate::Refused(refused(Refusal::new("contract", &what)))),
        };
        let Some(id) = id.as_object_id() else {
            return Ok(Fate::Refused(refused(Refusal::new("contract", "_id must be an ObjectId"))));
        };
        let Some(producer) = &producer else {
            let by = wanted.by.map_or_else(
                || "by is missing".to_owned(),
                |by| format!("nobody is called '{by}' in inbox.producers"),
            );
            return Ok(Fate::Refused(refused(Refusal::new("producer", &by))));
        };
        // Queues that it may not submit to are as if there were none.
        let Some(queue) = queue.as_ref().filter(|queue| producer.may(queue)) else {
            let why = format!("there is no queue {}, or it is not for this producer", wanted.queue);
            return Ok(Fate::Refused(refused(Refusal::new("queue", &why))));
        };
        let mut options = TaskOptions {
            owner: producer.owner.clone(),
            tenant: own.clone().or(producer.tenant.clone()),
            ..wanted.options
        };
        if let Some(refusal) = self.refusal(queue, producer, (&options, &wanted.params), schemas).await? {
            return Ok(Fate::Refused(refused(refusal)));
        }
        let missing = match self.missing_parents(producer, &options.after, known).await {
            Ok(missing) => missing,
            Err(SubmitError::Store(error)) => return Err(error),
            Err(error) => return Ok(Fate::Refused(refused(Refusal::of(&error)))),
        };
        let parents_of = (!missing.is_empty()).then(|| producer.clone());
        let task = Given { id: TaskId(id), params: wanted.params, trace: options.trace.take() };
        let (queue, key) = (queue.id, wanted.key);
        Ok(Fate::Task(Box::new(Group { queue, options, key, parents_of, tasks: vec![task] })))
    }

    async fn refusal(
        &self,
        queue: &Queue,
        producer: &Producer,
        (options, params): (&TaskOptions, &Document),
        schemas: &Schemas,
    ) -> Result<Option<Refusal>, StoreError> {
        if !queue.is_accepting() {
            let reason = queue.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
            let why = format!("queue {} accepts no tasks{reason}", queue.display_name());
            return Ok(Some(Refusal { label: Some(Label::Closed), ..Refusal::new("queue", &why) }));
        }
        if let Err(over) = within_budget(options, std::slice::from_ref(params)) {
            return Ok(Some(Refusal::of(&over.into())));
        }
        if options.files.is_some() && options.tenant.is_none() && !producer.may_use_files_of_nobody() {
            let why = "file sets of no tenant are for producers of all queues";
            return Ok(Some(Refusal::new("files", why)));
        }
        let plugin = queue.plugin_name().ok().flatten();
        if let Some(refusal) = self.foreign_step(producer, options, plugin.as_ref()).await? {
            return Ok(Some(refusal));
        }
        let plugin = queue.effective_plugin().ok().flatten();
        let own = options.steps.iter().filter_map(|step| step.plugin.as_ref());
        if own.chain(&plugin).all(|plugin| schemas.get(plugin).is_none()) {
            return Ok(None);
        }
        let (schemas, steps, params) = (schemas.clone(), options.steps.clone(), as_plugins_get(params));
        // On a thread where that holds up nobody.
        let checked = spawn_blocking(move || {
            let until = Instant::now().checked_add(CHECKING).unwrap_or_else(Instant::now);
            check_task(&schemas, OfTask { plugin: plugin.as_ref(), steps: &steps }, &params, until)
        });
        let checked = checked.await.map_err(|error| StoreError::Unconfirmed { reason: error.to_string() })?;
        Ok(checked.err().map(|misfit| Refusal {
            label: Some(Label::Schema),
            ..Refusal::new("schema", &misfit.to_string())
        }))
    }

    /// Nobody runs a plugin by way of a step who has no queue of that plugin.
    async fn foreign_step(
        &self,
        producer: &Producer,
        options: &TaskOptions,
        of_queue: Option<&PluginName>,
    ) -> Result<Option<Refusal>, StoreError> {
        let named = options.steps.iter().filter_map(|step| step.plugin.as_ref());
        let others: Vec<&PluginName> = named.filter(|plugin| Some(*plugin) != of_queue).collect();
        if others.is_empty() {
            return Ok(None);
        }
        let queues = self.queues_within(&Reach::All).await?;
        let may: Vec<PluginName> = queues
            .iter()
            .filter(|queue| producer.may(queue))
            .filter_map(|queue| queue.plugin_name().ok().flatten())
            .collect();
        Ok(others.into_iter().find(|plugin| !may.contains(plugin)).map(|plugin| {
            let why = format!(
                "a step of the plugin {plugin} needs a queue of that plugin that its producer may submit to"
            );
            Refusal::new("steps", &why)
        }))
    }

    /// Those of `after` that are not there, and may still come. One of a queue that its producer may not submit to is an error.
    pub(super) async fn missing_parents(
        &self,
        producer: &Producer,
        after: &[TaskId],
        known: &mut QueueCache,
    ) -> Result<Vec<TaskId>, SubmitError> {
        if after.is_empty() {
            return Ok(Vec::new());
        }
        let there = self.queues_of_tasks(after).await?;
        for (task, queue) in &there {
            let queue = match queue {
                Some(queue) => self
                    .known_queue(known, Selector::Id(queue.0))
                    .await?
                    .or_else(|| Some(Queue::without_document(*queue))),
                None => None,
            };
            if !queue.is_some_and(|queue| producer.may(&queue)) {
                return Err(SubmitError::NoSuchTasks(vec![*task]));
            }
        }
        Ok(after.iter().filter(|task| !there.contains_key(*task)).copied().collect())
    }
}

/// Under which id a refused task is stored whose document has none that a task could have: always the same.
pub(super) fn id_of(id: &Bson) -> ObjectId {
    use sha2::{Digest, Sha256};

    id.as_object_id().unwrap_or_else(|| {
        let digest = Sha256::digest(format!("{id:?}"));
        let mut bytes = [0; 12];
        bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        ObjectId::from_bytes(bytes)
    })
}
