//! How a subscription goes on: each step is one update that holds for the revision that was read.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;

use super::{Channel, Group, Kind, QUEUE, QUEUE_NAME, Subscription};
use crate::model::{Selector, Status, TaskId, as_text};
use crate::secrets::Sealed;
use crate::store::{Store, StoreError, Stored, collect, put};
use crate::task::{SubmitError, TaskOptions};
use disbatch_metrics::labels::Source;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// There is a task that delivers it.
    Task(TaskId),
    /// It has to wait.
    Later(String),
    /// There can be none.
    Never(String),
}

impl Store {
    /// Stores the state of a subscription that has the revision that was read. Returns whether it still had.
    #[operation]
    pub async fn advance_subscription(&self, subscription: &mut Subscription) -> Result<bool, StoreError> {
        let state = bson::serialize_to_bson(&subscription.state)
            .map_err(|error| StoreError::unfit(&error.to_string()))?;
        let revision = ObjectId::new();
        let read = doc! { "_id": &subscription.name, "revision": subscription.revision };
        let update = doc! { "$set": { "state": state, "revision": revision } };
        let updated = self.subscriptions().update_one(read, update).await?;
        subscription.revision = revision;
        Ok(updated.matched_count == 1)
    }

    /// Makes the next message of what was noted in a subscription. Nothing is stored. `now` is by the server's clock.
    #[operation]
    pub async fn compose_message(
        &self,
        subscription: &mut Subscription,
        url: Option<&str>,
        now: DateTime,
    ) -> Result<(), StoreError> {
        let names = Names::of(self, &subscription.state.pending).await?;
        let name = subscription.name.clone();
        subscription.state.take(now, |task, groups, more| {
            let count: i64 = groups.iter().map(|group| group.count).sum();
            let first = groups.iter().map(|group| group.first).min();
            doc! {
                "id": task.to_hex(),
                "subscription": &name,
                "at": text(now),
                "since": first.map(text),
                "until": groups.iter().map(|group| group.last).max().map(text),
                "count": count + more,
                "more": more,
                "url": url,
                "events": groups.iter().map(|group| names.event(group, url)).collect::<Vec<_>>(),
            }
        });
        Ok(())
    }

    /// Makes the task that delivers the message of a subscription, if there is none yet and the subscription still has the message.
    #[operation]
    pub async fn deliver_message(
        &self,
        subscription: &Subscription,
    ) -> Result<Option<Delivered>, StoreError> {
        let Some(outbox) = &subscription.state.outbox else { return Ok(None) };
        let task = TaskId(outbox.task);
        if self.find_queue(&Selector::Id(QUEUE.0)).await?.is_none() {
            let why = format!(
                "the queue {QUEUE_NAME} was deleted: store the subscription once more, which makes it anew"
            );
            return Ok(Some(Delivered::Later(why)));
        }
        if self.missing_tasks(&[task]).await?.is_empty() {
            return Ok(Some(Delivered::Task(task)));
        }
        match self.insert_message(subscription, task, outbox.message.clone()).await {
            Ok(()) => Ok(Some(Delivered::Task(task))),
            Err(SubmitError::Store(error)) => Err(error),
            Err(error) => Ok(Some(Delivered::Never(error.to_string()))),
        }
    }

    async fn insert_message(
        &self,
        subscription: &Subscription,
        task: TaskId,
        message: Document,
    ) -> Result<(), SubmitError> {
        let options = TaskOptions { secure_params: subscription.sealed_or_none(), ..TaskOptions::default() };
        let admitted = self.admit_unasked(QUEUE, &options).await?;
        let params = subscription.params(message);
        let document = self.new_task(QUEUE, task, params, &options, &admitted).await?;
        let status = Status::stored(&document);
        let is_wanted = doc! { "_id": &subscription.name, "state.outbox.task": task };
        if self.insert_because(&self.subscriptions(), is_wanted, document).await? {
            self.submitted(QUEUE, status, 1, Source::Notification);
        }
        Ok(())
    }
}

impl Subscription {
    /// What is not to be shown. What cannot be read is for the plugin to miss.
    pub(super) fn sealed_or_none(&self) -> Option<Sealed> {
        self.sealed()
            .inspect_err(|error| tracing::warn!(subscription = self.name, %error, "its secrets"))
            .ok()
            .flatten()
    }

    /// Those of the task that delivers a message.
    fn params(&self, message: Document) -> Document {
        let settings = &self.settings;
        let url = if settings.channel == Channel::Mail { "server" } else { "url" };
        let mut channel = doc! { "kind": settings.channel.as_str() };
        for (name, value) in [(url, &settings.url), ("user", &settings.user), ("from", &settings.from)] {
            put(&mut channel, name, value.as_ref());
        }
        put(&mut channel, "to", (!settings.to.is_empty()).then_some(&settings.to));
        let mut params = doc! { "channel": channel, "message": message };
        if settings.subject.is_some() || settings.text.is_some() {
            params.insert("template", doc! { "subject": &settings.subject, "text": &settings.text });
        }
        params
    }

    /// Those of a task that delivers a message that is a test.
    pub(super) fn test_params(&self, now: DateTime) -> Document {
        let id = ObjectId::new().to_hex();
        let event = doc! {
            "event": Kind::Test.as_str(), "queue": null, "schedule": null, "node": null, "count": 1, "first": text(now), "last": text(now),
            "tasks": [], "detail": null,
        };
        self.params(doc! {
            "id": id, "subscription": &self.name, "number": 0, "at": text(now), "since": text(now),
            "until": text(now), "count": 1, "more": 0, "url": null, "events": [event],
        })
    }
}

struct Names(HashMap<ObjectId, String>);

impl Names {
    async fn of(store: &Store, groups: &[Group]) -> Result<Self, StoreError> {
        let queues = groups.iter().filter_map(|group| group.about.queue).collect::<Vec<_>>();
        let schedules = groups.iter().filter_map(|group| group.about.schedule).collect::<Vec<_>>();
        let mut names = named(&store.queues(), queues).await?;
        names.extend(named(&store.schedules(), schedules).await?);
        Ok(Self(names))
    }

    fn event(&self, group: &Group, url: Option<&str>) -> Document {
        let about = &group.about;
        let name = |id: ObjectId| self.0.get(&id).cloned().unwrap_or_else(|| id.to_hex());
        let (queue, schedule) = (about.queue.map(name), about.schedule.map(name));
        let task = |id: &ObjectId| {
            let page = url.map(|url| format!("{}/tasks/{id}", url.trim_end_matches('/')));
            doc! { "id": id.to_hex(), "url": page }
        };
        doc! {
            "event": group.kind.as_str(), "queue": queue, "schedule": schedule, "node": &about.node, "count": group.count,
            "first": text(group.first), "last": text(group.last), "tasks": group.tasks.iter().map(task).collect::<Vec<_>>(),
            "detail": &group.detail,
        }
    }
}

async fn named(
    collection: &mongodb::Collection<Stored>,
    ids: Vec<ObjectId>,
) -> Result<HashMap<ObjectId, String>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found =
        collect(collection.find(doc! { "_id": { "$in": ids } }).projection(doc! { "name": 1 })).await?;
    let name = |found: &Document| {
        let name = as_text(found.get("name")?);
        Some((found.get_object_id("_id").ok()?, name))
    };
    Ok(found.iter().filter_map(name).collect())
}

/// In words for programs.
fn text(time: DateTime) -> String {
    time.try_to_rfc3339_string().unwrap_or_default()
}
