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
mod manage;
mod state;
mod subscription;

use bson::oid::ObjectId;

pub use advance::Delivered;
pub use conditions::Condition;
pub use follow::{FollowError, Followed, Follower};
pub use manage::SubscriptionError;
pub use state::{About, Came, End, Event, Group, Outbox, Position, State};
pub use subscription::{Channel, Kind, Settings, SettingsError, Subscription};

use crate::model::QueueId;

/// The queue of the tasks that deliver messages. Secrets are encrypted for it.
pub const QUEUE: QueueId = QueueId(ObjectId::from_bytes(*b"notification"));

/// What it is called when it is made.
pub const QUEUE_NAME: &str = "notifications";

/// The plugin that delivers.
pub const PLUGIN: &str = "Disbatch::Plugin::Notify";
