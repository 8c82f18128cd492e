//! Subscriptions: who is told what happens to tasks, queues, schedules and nodes.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::{apply, skip_serializing_none};

use crate::liberal::{Flag, Seconds, Text, Whole, list};

/// What a subscription is to be like, and nothing else.
#[skip_serializing_none]
#[apply(
    Vec =>
        #[serde(default, deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))],
    Option<Seconds> =>
        #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
        #[cfg_attr(feature = "cli", arg(long, value_name = "TIME"))],
)]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "events": ["first_failure", "recovered", "lost"], "queues": ["imports"], "waits_longer": 3600,
    "channel": "webhook", "url": "https://hooks.example.org/disbatch", "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
})))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct SubscriptionSettings {
    /// What is told: failed, first_failure, recovered, lost, schedule_missed, node_dead, canary_returned; several with commas between them
    #[cfg_attr(feature = "cli", arg(long, value_name = "EVENT", value_delimiter = ','))]
    pub events: Vec<String>,
    /// Tell when so many tasks of a schedule or queue have failed one after the other
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 2, maximum = 1_000_000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub failures_in_row: Option<Whole<2, 1_000_000>>,
    /// Tell when the first task of a queue waits longer than this
    pub waits_longer: Option<Seconds>,
    /// Tell when a task runs longer than this
    pub runs_longer: Option<Seconds>,
    /// Only about these queues, by name or id [default: all]
    #[cfg_attr(feature = "cli", arg(long, value_name = "QUEUE", value_delimiter = ','))]
    pub queues: Vec<String>,
    /// Only about these schedules, by name or id [default: all]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SCHEDULE", value_delimiter = ','))]
    pub schedules: Vec<String>,
    /// Only about tasks of these tenants [default: all]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TENANT", value_delimiter = ','))]
    pub tenants: Vec<String>,
    /// Only about tasks that have one of these tags [default: all]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TAG", value_delimiter = ','))]
    pub tags: Vec<String>,
    /// How it is told: webhook, slack, teams or mail
    #[serialize_always]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "webhook"))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "CHANNEL"))]
    pub channel: Option<Text>,
    /// Where: the address of a webhook, or of a mail server as smtps://mail.example.org or
    /// smtp://mail.example.org:587?tls=required
    #[cfg_attr(feature = "cli", arg(id = "address", long, value_name = "URL"))]
    // The URL of all commands is that of the web server.
    pub url: Option<String>,
    /// The name that the mail server knows
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub user: Option<String>,
    /// Whom mail is from
    #[cfg_attr(feature = "cli", arg(long, value_name = "ADDRESS"))]
    pub from: Option<String>,
    /// Whom mail is to; several with commas between them
    #[cfg_attr(feature = "cli", arg(long, value_name = "ADDRESS", value_delimiter = ','))]
    pub to: Vec<String>,
    /// The key that a webhook is signed with, or the password of the mail server. It is stored encrypted and never shown; one that is not
    /// given stays, if the address does.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub secret: Option<String>,
    /// How long after a message the next one may be [default: 5m]
    pub every: Option<Seconds>,
    /// How long a message waits for other events after its first one [default: 10s]
    pub delay: Option<Seconds>,
    /// A template of the first line
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEMPLATE"))]
    pub subject: Option<String>,
    /// A template of the text
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEMPLATE"))]
    pub text: Option<String>,
    /// Whether anything is told [default: true]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "true|false"))]
    pub enabled: Option<Flag>,
}

/// A subscription.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "name": "night imports", "events": ["first_failure", "recovered"], "failures_in_row": null, "waits_longer": 3600, "runs_longer": null,
    "queues": ["imports"], "schedules": [], "tenants": [], "tags": [], "channel": "webhook", "url": "https://hooks.example.org/disbatch",
    "user": null, "from": null, "to": [], "has_secret": true, "every": 300, "delay": 10, "subject": null, "text": null,
    "enabled": true, "messages": 7, "sent": "2026-11-24T03:12:00.123Z", "task": "6b0003bb686c8275d8013333", "pending": 0, "trouble": null,
})))]
pub struct Subscription {
    pub name: String,
    /// What is told besides what the numbers say.
    pub events: Vec<String>,
    pub failures_in_row: Option<i64>,
    /// Seconds.
    pub waits_longer: Option<f64>,
    /// Seconds.
    pub runs_longer: Option<f64>,
    /// The names of queues, or their ids where they have none; none: all.
    pub queues: Vec<String>,
    /// The names of schedules; none: all.
    pub schedules: Vec<String>,
    pub tenants: Vec<String>,
    pub tags: Vec<String>,
    pub channel: String,
    /// Null where the address is secret.
    pub url: Option<String>,
    pub user: Option<String>,
    pub from: Option<String>,
    pub to: Vec<String>,
    /// Whether something is stored that is not shown.
    pub has_secret: bool,
    /// Seconds.
    pub every: f64,
    /// Seconds.
    pub delay: f64,
    pub subject: Option<String>,
    pub text: Option<String>,
    pub enabled: bool,
    /// How many messages there were.
    pub messages: i64,
    /// When the last message was made.
    pub sent: Option<String>,
    /// The task that delivered it, or is to.
    pub task: Option<String>,
    /// How many events are to be told.
    pub pending: i64,
    /// Why messages are not delivered, if they are not.
    pub trouble: Option<String>,
}

/// What came of deleting a subscription.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "night imports", "deleted": true})))]
pub struct SubscriptionDeleted {
    pub name: String,
    pub deleted: bool,
}

/// The task that delivers a message that is a test.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"task": "6b0003bb686c8275d8013333"})))]
pub struct SubscriptionTest {
    pub task: String,
}

fn words<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(value)? {
        value @ (Value::Array(_) | Value::String(_) | Value::Null) => Ok(list(&value)),
        _ => Err(serde::de::Error::custom("must be a list")),
    }
}
