//! Subscriptions: what is told, of what, and how.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document};
use disbatch_values::words;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::About;
use super::state::State;
use crate::secrets::{OpenError, Sealed};

const LONGEST_NAME: usize = 200;

/// So many queues, schedules, tenants or addresses at most.
const MOST: usize = 1_000;

const LONGEST_TEMPLATE: usize = 10_000;

/// Longer times than a year are a mistake.
const LONGEST: f64 = 366.0 * 86_400.0;

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        Failed = "failed",
        /// One has after the one before of its schedule or queue had not.
        FirstFailure = "first_failure",
        /// So many in a row have.
        FailuresInRow = "failures_in_row",
        /// One has succeeded after others had failed, or what lasted too long is over.
        Recovered = "recovered",
        Lost = "lost",
        WaitsLong = "waits_long",
        RunsLong = "runs_long",
        /// A time of a schedule has passed without a task.
        ScheduleMissed = "schedule_missed",
        /// A DEN is silent that has not said that it leaves.
        NodeDead = "node_dead",
        /// The canary of a queue was worse, and was taken back.
        CanaryReturned = "canary_returned",
        /// What happened for a while is not known.
        MissedEvents = "missed_events",
        /// Somebody wants to see whether messages arrive.
        Test = "test",
    }
}

impl Kind {
    /// Those that a subscription names. The others follow from numbers, or need nobody's word.
    pub const NAMED: [Self; 7] = [
        Self::Failed,
        Self::FirstFailure,
        Self::Recovered,
        Self::Lost,
        Self::ScheduleMissed,
        Self::NodeDead,
        Self::CanaryReturned,
    ];
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Channel {
        /// JSON for a program, signed as Standard Webhooks are.
        Webhook = "webhook",
        /// A message for Slack, or what takes the same.
        Slack = "slack",
        /// A card for Microsoft Teams.
        Teams = "teams",
        Mail = "mail",
    }
}

impl Channel {
    /// Whether who knows the address may write there.
    pub const fn has_secret_address(self) -> bool {
        matches!(self, Self::Slack | Self::Teams)
    }
}

/// What people say.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is told besides what the numbers say, in order.
    pub events: Vec<Kind>,
    /// Told when so many tasks of a schedule or queue have failed one after the other.
    pub failures_in_row: Option<i64>,
    /// Told when the first task of a queue has waited for so many seconds.
    pub waits_longer: Option<f64>,
    /// Told when a task has run for so many seconds.
    pub runs_longer: Option<f64>,
    /// Of these queues alone, if there are any here.
    #[serde(default)]
    pub queues: Vec<ObjectId>,
    /// Of these schedules alone, if there are any here.
    #[serde(default)]
    pub schedules: Vec<ObjectId>,
    /// Of tasks of these tenants alone, if there are any here.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Of tasks that have one of these tags alone, if there are any here.
    #[serde(default)]
    pub tags: Vec<String>,
    pub channel: Channel,
    /// Where. `None`: it is secret.
    pub url: Option<String>,
    /// Who logs in at a mail server.
    pub user: Option<String>,
    pub from: Option<String>,
    #[serde(default)]
    pub to: Vec<String>,
    /// How many seconds after a message the next one may be.
    pub every: f64,
    /// How many seconds after the first event of a message it is made, so that others get into it.
    pub delay: f64,
    /// The template of the first line. `None`: the usual one.
    pub subject: Option<String>,
    /// The template of the text. `None`: the usual one.
    pub text: Option<String>,
    pub enabled: bool,
}

/// Settings that cannot be those of a subscription. Names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SettingsError {
    field: &'static str,
    reason: String,
}

impl SettingsError {
    fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl Settings {
    pub fn check(&self) -> Result<(), SettingsError> {
        let kinds = [self.failures_in_row.is_some(), self.waits_longer.is_some(), self.runs_longer.is_some()];
        if self.events.is_empty() && kinds == [false; 3] {
            let all = Kind::NAMED.map(Kind::as_str).join(", ");
            let reason = format!(
                "nothing is to be told: give some of {all}; or failures_in_row, waits_longer, runs_longer"
            );
            return Err(SettingsError::new("events", reason));
        }
        if let Some(other) = self.events.iter().find(|kind| !Kind::NAMED.contains(kind)) {
            return Err(SettingsError::new("events", format!("{} is told by a number", other.as_str())));
        }
        if self.failures_in_row.is_some_and(|number| !(2..=1_000_000).contains(&number)) {
            return Err(SettingsError::new("failures_in_row", "expected a number from 2 to 1000000"));
        }
        let times = [("waits_longer", self.waits_longer), ("runs_longer", self.runs_longer)];
        let times = times.into_iter().filter_map(|(field, time)| Some((field, time?, 1.0)));
        for (field, time, least) in times.chain([("every", self.every, 0.0), ("delay", self.delay, 0.0)]) {
            if !(least..=LONGEST).contains(&time) {
                return Err(SettingsError::new(field, format!("expected {least} to {LONGEST} seconds")));
            }
        }
        for (field, number) in [
            ("queues", self.queues.len()),
            ("schedules", self.schedules.len()),
            ("tenants", self.tenants.len()),
            ("tags", self.tags.len()),
            ("to", self.to.len()),
        ] {
            if number > MOST {
                return Err(SettingsError::new(field, format!("expected at most {MOST}")));
            }
        }
        if self.tags.iter().any(|tag| tag.contains(',')) {
            return Err(SettingsError::new("tags", "expected tags without commas"));
        }
        for (field, template) in [("subject", &self.subject), ("text", &self.text)] {
            if template.as_ref().is_some_and(|text| text.chars().count() > LONGEST_TEMPLATE) {
                let reason = format!("expected at most {LONGEST_TEMPLATE} characters");
                return Err(SettingsError::new(field, reason));
            }
        }
        self.check_channel()
    }

    fn check_channel(&self) -> Result<(), SettingsError> {
        let schemes: &[&str] = match self.channel {
            Channel::Mail => &["smtp://", "smtps://"],
            Channel::Webhook | Channel::Slack | Channel::Teams => &["http://", "https://"],
        };
        let of_mail = self.channel == Channel::Mail;
        if let Some(url) = &self.url {
            check_address(url, schemes).map_err(|reason| SettingsError::new("url", reason))?;
        }
        if self.url.is_none() && !self.channel.has_secret_address() {
            return Err(SettingsError::new("url", "must be given"));
        }
        let is_address = |text: &str| {
            text.contains('@') && text.len() <= 320 && !text.chars().any(|c| c.is_control() || c == ',')
        };
        match &self.from {
            Some(from) if !of_mail || !is_address(from) => {
                return Err(SettingsError::new("from", "expected an address, and is for mail alone"));
            }
            None if of_mail => return Err(SettingsError::new("from", "must be given: whom mail is from")),
            _ => {}
        }
        if of_mail == self.to.is_empty() || !self.to.iter().all(|to| is_address(to)) {
            let reason = "expected the addresses that mail is to, and is for mail alone";
            return Err(SettingsError::new("to", reason));
        }
        if self.user.is_some() && !of_mail {
            return Err(SettingsError::new("user", "is for mail alone"));
        }
        Ok(())
    }

    pub fn tells(&self, kind: Kind) -> bool {
        match kind {
            Kind::FailuresInRow => self.failures_in_row.is_some(),
            Kind::WaitsLong => self.waits_longer.is_some(),
            Kind::RunsLong => self.runs_longer.is_some(),
            Kind::MissedEvents | Kind::Test => true,
            named => self.events.contains(&named),
        }
    }

    pub fn follows_tasks(&self) -> bool {
        let kinds = [Kind::Failed, Kind::FirstFailure, Kind::FailuresInRow, Kind::Recovered, Kind::Lost];
        kinds.into_iter().any(|kind| self.tells(kind))
    }

    pub fn counts_failures(&self) -> bool {
        [Kind::FirstFailure, Kind::FailuresInRow, Kind::Recovered].into_iter().any(|kind| self.tells(kind))
    }

    /// Whether something of this is to be told. What belongs to no queue is, unless queues or schedules are named.
    pub fn covers(&self, about: &About, tenant: Option<&str>, tags: &[String]) -> bool {
        let of =
            |ids: &[ObjectId], id: Option<ObjectId>| ids.is_empty() || id.is_some_and(|id| ids.contains(&id));
        of(&self.queues, about.queue)
            && of(&self.schedules, about.schedule)
            && (self.tags.is_empty() || tags.iter().any(|tag| self.tags.contains(tag)))
            && (self.tenants.is_empty()
                || tenant.is_some_and(|name| self.tenants.iter().any(|one| one == name)))
    }

    pub fn every(&self) -> Duration {
        Duration::try_from_secs_f64(self.every).unwrap_or_default()
    }

    pub fn delay(&self) -> Duration {
        Duration::try_from_secs_f64(self.delay).unwrap_or_default()
    }
}

/// The rest is for the plugin to find: it has what reads addresses.
fn check_address(url: &str, schemes: &[&str]) -> Result<(), String> {
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return Err(format!("expected an address with {}", schemes.join(" or ")));
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let host = place.split('/').next().unwrap_or_default();
    if host.is_empty() || url.chars().any(|c| c.is_control() || c == ' ') {
        return Err("has no host, or has spaces in it".to_owned());
    }
    if host.contains('@') {
        return Err("user and password are given apart".to_owned());
    }
    let tls = query.split('&').find_map(|pair| pair.strip_prefix("tls="));
    if url.starts_with("smtp") && tls.is_some_and(|tls| !["required", "opportunistic", "none"].contains(&tls))
    {
        return Err("tls must be required, opportunistic or none".to_owned());
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    #[serde(rename = "_id")]
    pub name: String,
    pub settings: Settings,
    /// What is not to be shown, encrypted for [`super::QUEUE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_params: Option<Document>,
    /// Since when it is as it is. Nothing is told of what was before.
    pub since: DateTime,
    /// Which of its states this is. Each update is for one alone.
    pub revision: ObjectId,
    #[serde(default)]
    pub state: State,
}

impl Subscription {
    pub fn is_name(name: &str) -> bool {
        (1..=LONGEST_NAME).contains(&name.chars().count())
            && !name.chars().any(char::is_control)
            && name.trim() == name
    }

    /// What is not to be shown.
    pub fn sealed(&self) -> Result<Option<Sealed>, OpenError> {
        self.secure_params.as_ref().map(Sealed::stored).transpose()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Those of a webhook that tells of failures.
    pub fn settings() -> Settings {
        Settings {
            events: vec![Kind::Failed],
            failures_in_row: None,
            waits_longer: None,
            runs_longer: None,
            queues: vec![],
            schedules: vec![],
            tenants: vec![],
            tags: vec![],
            channel: Channel::Webhook,
            url: Some("https://hooks.example/x".to_owned()),
            user: None,
            from: None,
            to: vec![],
            every: 300.0,
            delay: 10.0,
            subject: None,
            text: None,
            enabled: true,
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert_eq!(settings().check(), Ok(()));
        let mail = || Settings {
            channel: Channel::Mail,
            url: Some("smtps://mail.example".to_owned()),
            from: Some("Disbatch <disbatch@example.org>".to_owned()),
            to: vec!["ann@example.org".to_owned()],
            ..settings()
        };
        assert_eq!(mail().check(), Ok(()));
        assert_eq!(Settings { channel: Channel::Slack, url: None, ..settings() }.check(), Ok(()));
        for (odd, part) in [
            (Settings { events: vec![], ..settings() }, "events: nothing is to be told"),
            (
                Settings { events: vec![Kind::RunsLong], ..settings() },
                "events: runs_long is told by a number",
            ),
            (Settings { failures_in_row: Some(1), ..settings() }, "failures_in_row: expected"),
            (Settings { waits_longer: Some(0.0), ..settings() }, "waits_longer: expected 1 to"),
            (Settings { every: f64::NAN, ..settings() }, "every: expected 0 to"),
            (
                Settings { url: Some("ftp://x".to_owned()), ..settings() },
                "url: expected an address with http://",
            ),
            (Settings { url: Some("https:///x".to_owned()), ..settings() }, "url: has no host"),
            (
                Settings { url: Some("https://u:p@h.example/".to_owned()), ..settings() },
                "url: user and password",
            ),
            (Settings { url: Some("smtp://m.example?tls=maybe".to_owned()), ..mail() }, "url: tls must be"),
            (Settings { url: None, ..settings() }, "url: must be given"),
            (Settings { to: vec!["a@b".to_owned()], ..settings() }, "to: expected"),
            (Settings { user: Some("u".to_owned()), ..settings() }, "user: is for mail"),
            (
                Settings { url: Some("https://x".to_owned()), ..mail() },
                "url: expected an address with smtp://",
            ),
            (Settings { from: None, ..mail() }, "from: must be given"),
            (Settings { to: vec![], ..mail() }, "to: expected"),
            (Settings { to: vec!["a@b\r\nBcc: c@d".to_owned()], ..mail() }, "to: expected"),
            (Settings { text: Some("x".repeat(10_001)), ..settings() }, "text: expected at most"),
        ] {
            let error = odd.check().unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn what_is_named_restricts() {
        let (queue, schedule) = (ObjectId::new(), ObjectId::new());
        let task = About { queue: Some(queue), ..About::default() };
        let node = About { node: Some("n1".to_owned()), ..About::default() };
        assert!(settings().covers(&task, None, &[]) && settings().covers(&node, None, &[]));
        let of_queue = Settings { queues: vec![queue], ..settings() };
        assert!(of_queue.covers(&task, None, &[]) && !of_queue.covers(&node, None, &[]));
        let of_schedule = Settings { schedules: vec![schedule], ..settings() };
        assert!(!of_schedule.covers(&task, None, &[]));
        assert!(of_schedule.covers(&About { schedule: Some(schedule), ..task.clone() }, None, &[]));
        let of_tenant = Settings { tenants: vec!["acme".to_owned()], ..settings() };
        assert!(
            of_tenant.covers(&task, Some("acme"), &[])
                && !of_tenant.covers(&task, Some("other"), &[])
                && !of_tenant.covers(&task, None, &[])
        );
        let of_tag = Settings { tags: vec!["customer=7".to_owned()], ..settings() };
        let tags = ["mail".to_owned(), "customer=7".to_owned()];
        assert!(of_tag.covers(&task, None, &tags) && !of_tag.covers(&task, None, &tags[..1]));
    }

    #[test]
    fn names_are_short_text() {
        assert!(Subscription::is_name("night imports") && !Subscription::is_name(""));
        assert!(
            !Subscription::is_name(" a")
                && !Subscription::is_name("a\nb")
                && !Subscription::is_name(&"x".repeat(201))
        );
    }
}
