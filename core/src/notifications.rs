//! Notifications: people and programs are told what happens to tasks, queues, schedules and nodes.
//!
//! A subscription says what is told, of what, and how. One DEN at a time (see [`crate::lease`]) reads from the server's log of changes what
//! tasks have come to, looks now and then for what lasts too long, and notes in each subscription what is to be told. What has been
//! noted is told in one message after a moment, and not again before [`Settings::every`] is over: ten thousand failures are one message with a count.
//!
//! **Each event is told once.** It is noted by the update that moves the subscription's place in the log past it; that update holds only
//! for the revision that was read. A message is taken out of what was noted, by such an update, with the id of the task that will deliver
//! it; the task is inserted under that id, if the subscription still has the message, and then the message is removed. Whoever dies in between
//! has left all that the next one needs.
//!
//! Messages are delivered by tasks of a queue of their own, so that attempts, history and limits are those of tasks. What happens to these
//! is not told.

mod advance;
mod conditions;
mod follow;
mod state;
mod subscription;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;

pub use advance::Delivered;
pub use conditions::Condition;
pub use follow::{FollowError, Followed, Follower};
pub use state::{About, End, Event, Group, Outbox, Position, State};
pub use subscription::{Channel, Kind, Settings, SettingsError, Subscription};

use crate::model::{QueueId, Selector};
use crate::secrets::{self, Sealed};
use crate::store::{Altered, Store, StoreError, collect, put};
use crate::task::{SubmitError, Submitted, TaskOptions};
use crate::text::hex;

/// The queue of the tasks that deliver messages. Secrets are encrypted for it.
pub const QUEUE: QueueId = QueueId(ObjectId::from_bytes(*b"notification"));

pub const QUEUE_NAME: &str = "notifications";

pub const PLUGIN: &str = "Disbatch::Plugin::Notify";

/// What people may not know, or what changes by itself.
const HIDDEN: [&str; 5] = [secrets::FIELD, "state", "revision", "since", "follows"];

#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    #[error(
        "there is a queue '{QUEUE_NAME}' already, which is not the one for messages: give it another name"
    )]
    QueueName,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// All of them, by name. One that cannot be read is logged and left out.
    #[operation]
    pub async fn list_subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        let all = self.subscriptions().clone_with_type::<Document>();
        let found = collect(all.find(doc! {}).sort(doc! { "_id": 1 })).await?;
        let read = |document: Document| {
            let name = document.get("_id").cloned();
            bson::deserialize_from_document(document)
                .inspect_err(
                    |error| tracing::warn!(?name, %error, "ignoring a subscription that cannot be read"),
                )
                .ok()
        };
        Ok(found.into_iter().filter_map(read).collect())
    }

    #[operation]
    pub async fn find_subscription(&self, name: &str) -> Result<Option<Subscription>, StoreError> {
        Ok(self.subscriptions().find_one(doc! { "_id": name }).await?)
    }

    /// Gives a subscription these settings and secrets, and no others; makes it if there is none. One that is switched on begins anew: what
    /// happened while it was off is not told. It needs [`Store::make_notification_queue`].
    #[operation]
    pub async fn set_subscription(
        &self,
        name: &str,
        settings: &Settings,
        secret: Option<&Sealed>,
    ) -> Result<Altered, StoreError> {
        let stored =
            bson::serialize_to_document(settings).map_err(|error| StoreError::unfit(&error.to_string()))?;
        let goes_on = doc! { "$eq": ["$settings.enabled", true] };
        // Where it has not followed tasks so far, it has no place in the log.
        let follows = settings.follows_tasks();
        let followed = doc! { "$or": [!follows, { "$eq": ["$follows", true] }] };
        let anew = doc! { "number": { "$ifNull": ["$state.number", 0_i64] } };
        let mut update = vec![
            doc! { "$set": {
                "state": { "$cond": [&goes_on, "$state", anew] },
                "since": { "$cond": [{ "$and": [&goes_on, followed] }, "$since", "$$NOW"] },
                "revision": ObjectId::new(),
            } },
            doc! { "$set": {
                "settings": { "$literal": &stored },
                "follows": follows,
                secrets::FIELD: secret.map_or(Bson::from("$$REMOVE"), |sealed| doc! { "$literal": sealed.field() }.into()),
            } },
        ];
        if !follows {
            update.push(doc! { "$unset": ["state.position", "state.failing"] });
        }
        let subscriptions = self.subscriptions().clone_with_type::<Document>();
        let before = subscriptions
            .find_one_and_update(doc! { "_id": name }, update)
            .upsert(true)
            .return_document(ReturnDocument::Before)
            .await?;
        let field = secret.map_or(Bson::Null, Sealed::field);
        let after = shown(doc! { "_id": name, "settings": stored, secrets::FIELD: field });
        Ok(Altered { before: before.map(shown), after })
    }

    /// Removes a subscription. Returns what it was; `None`: there was none.
    #[operation]
    pub async fn delete_subscription(&self, name: &str) -> Result<Option<Document>, StoreError> {
        let subscriptions = self.subscriptions().clone_with_type::<Document>();
        Ok(subscriptions.find_one_and_delete(doc! { "_id": name }).await?.map(shown))
    }

    /// Has a message delivered that says nothing but that messages arrive. It needs [`Store::make_notification_queue`].
    #[operation]
    pub async fn test_subscription(&self, subscription: &Subscription) -> Result<Submitted, SubmitError> {
        let params = subscription.test_params(self.now());
        let options = TaskOptions { secure_params: subscription.sealed_or_none(), ..TaskOptions::default() };
        self.submit_tasks(QUEUE, vec![params], &options).await
    }

    /// Makes the queue of messages, and returns it. `None`: there is one.
    #[operation]
    pub async fn make_notification_queue(&self) -> Result<Option<Document>, SubscriptionError> {
        if self.find_queue(&Selector::Id(QUEUE.0)).await?.is_some() {
            return Ok(None);
        }
        let queue = doc! {
            "_id": QUEUE, "name": QUEUE_NAME, "plugin": PLUGIN, "threads": 4,
            "max_attempts": 8, "backoff": { "base": 5, "factor": 3, "max": 3600 }, "timeout": 60,
            // Who gets a message twice sees by its id that it is one.
            "on_orphan": "requeue",
            "retention": { "delete_after": 30 * 86_400 },
        };
        if StoreError::unless_duplicate(self.insert_queue(queue.clone()).await)?.is_some() {
            return Ok(Some(queue));
        }
        match self.find_queue(&Selector::Id(QUEUE.0)).await? {
            Some(_) => Ok(None), // Somebody else was faster.
            None => Err(SubscriptionError::QueueName),
        }
    }
}

fn shown(mut subscription: Document) -> Document {
    // Another secret is a change, and the beginning of what it was encrypted with is no part of it.
    let sealed = subscription.get_document(secrets::FIELD).ok().and_then(|sealed| match sealed.get("data") {
        Some(Bson::Binary(data)) => data.bytes.first_chunk::<6>().map(hex),
        _ => None,
    });
    for name in HIDDEN {
        subscription.remove(name);
    }
    put(&mut subscription, "secret", sealed);
    subscription
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_secret_is_seen_and_not_shown() {
        let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![7; 60] };
        let stored = doc! { "_id": "a", "state": {}, secrets::FIELD: { "key": "k", "data": data } };
        assert_eq!(shown(stored), doc! { "_id": "a", "secret": "070707070707" });
        assert_eq!(shown(doc! { "_id": "a", secrets::FIELD: Bson::Null }), doc! { "_id": "a" });
    }
}
