//! What works on the database itself, without a DCI: whoever may read the configuration of Disbatch may do this, and no
//! process that answers requests can make users.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use bson::{DateTime, Document, doc};
use disbatch_cli::output::{date, plain};
use disbatch_core::accounts::{Grant, Rights, Role, User, UserName};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::config::{self, Config, DEFAULT_PATH};
use disbatch_core::model::{NodeName, Queue, QueueId, Selector};
use disbatch_core::store::{Store, StoreError};
use nix::unistd::{User as Account, getuid};
use serde_json::{Value, json};

/// A connection to the database of a configuration, as the MongoDB user of a DCI.
#[derive(Debug)]
pub struct Direct {
    pub store: Store,
}

impl Direct {
    /// Reads the configuration. Nothing is sent yet.
    pub async fn open(config: Option<&Path>) -> anyhow::Result<Self> {
        let config = Config::load(config.unwrap_or(Path::new(DEFAULT_PATH)))?;
        if let Some(exposure) = config.exposure() {
            eprintln!("Warning: {exposure}");
        }
        let store = Store::connect(&config, config::Role::DisbatchWeb).await;
        let store = store.with_context(|| format!("cannot use mongohost of {}", config.path.display()))?;
        Ok(Self { store })
    }

    pub async fn user(&self, name: &UserName) -> anyhow::Result<User> {
        self.store.find_user(name).await?.with_context(|| nobody(name))
    }

    /// The queue of this name or id.
    pub async fn queue(&self, name: &str) -> anyhow::Result<Queue> {
        let found = self.store.find_queue(&Selector::parse(name)).await?;
        found.with_context(|| format!("there is no queue '{name}'"))
    }

    /// Notes in the audit what was done with a user.
    pub async fn note_user(
        &self,
        verb: Verb,
        name: &UserName,
        before: Option<Document>,
        after: Option<Document>,
    ) -> anyhow::Result<()> {
        self.note(verb, Object::with_name(ObjectKind::User, name.as_str()), before, after).await
    }

    /// Notes in the audit what was done with something.
    pub async fn note(
        &self,
        verb: Verb,
        object: Object,
        before: Option<Document>,
        after: Option<Document>,
    ) -> anyhow::Result<()> {
        let entry = AuditEntry { before, after, ..AuditEntry::new(who(), verb, object) };
        self.store.record_audit(&entry).await.context("it was done, and could not be noted in the audit")
    }
}

#[derive(Debug, Default)]
pub struct QueueNames(BTreeMap<QueueId, String>);

impl QueueNames {
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let queues = store.list_queues().await?;
        Ok(Self(queues.iter().map(|queue| (queue.id, queue.display_name())).collect()))
    }

    /// The name of a queue. None: it has none, or is gone.
    pub fn get(&self, queue: QueueId) -> Option<&str> {
        self.0.get(&queue).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The same for people, who get the id then.
    pub fn of(&self, queue: QueueId) -> String {
        self.get(queue).map_or_else(|| queue.to_string(), str::to_owned)
    }
}

impl<const N: usize> From<[(QueueId, String); N]> for QueueNames {
    fn from(names: [(QueueId, String); N]) -> Self {
        Self(names.into())
    }
}

/// That there is no such user.
pub fn nobody(name: &UserName) -> String {
    format!("there is no user {name}")
}

/// What the audit has of a user.
pub fn user_document(rights: &Rights) -> Document {
    let grants: Vec<Document> = rights.grants().iter().map(Grant::document).collect();
    doc! { "role": rights.everywhere().map(Role::as_str), "grants": grants }
}

/// A queue as the lists have it.
pub fn queue_value(queue: QueueId, names: &QueueNames) -> Value {
    json!({ "queue": queue.to_string(), "name": names.get(queue) })
}

/// The same as a person reads it.
pub fn queue_text(queue: &Value) -> String {
    let name = queue.get("name").filter(|name| !name.is_null());
    plain(name.or(queue.get("queue")))
}

/// A time as the DCI writes it.
pub fn time(time: DateTime) -> String {
    date(Some(&Value::from(time.timestamp_millis())))
}

/// An error with what to do about it, if that is known.
pub fn advise(error: anyhow::Error) -> anyhow::Error {
    let is_forbidden = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_forbidden)
    };
    if error.chain().any(is_forbidden) {
        error.context(
            "the MongoDB user of the configuration may not do this; `disbatch create-users` sets that right",
        )
    } else {
        error
    }
}

/// Who sits at the command line.
fn who() -> Actor {
    let id = getuid();
    let account = Account::from_uid(id).ok().flatten();
    let account = account.map_or_else(|| format!("uid {id}"), |account| account.name);
    let host =
        NodeName::of_this_host().map_or_else(|_| "an unknown host".to_owned(), |host| host.to_string());
    Actor::of_command_line(&account, &host)
}

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::Scope;

    use super::*;

    #[test]
    fn queues_without_a_name_are_known_by_their_ids() {
        let [mail, other]: [QueueId; 2] =
            ["6b0003bb686c8275d70dc2f1", "6b0003bb686c8275d70dc2f2"].map(|id| id.parse().unwrap());
        let names = QueueNames::from([(mail, "mail".to_owned()), (other, String::new())]);
        assert_eq!((names.of(mail), names.of(other)), ("mail".to_owned(), other.to_string()));
        assert_eq!(queue_value(other, &names), json!({ "queue": other.to_string(), "name": null }));
        assert_eq!(queue_text(&queue_value(mail, &names)), "mail");
        assert_eq!(queue_text(&queue_value(mail, &QueueNames::default())), mail.to_string());
    }

    #[test]
    fn the_audit_has_roles_and_no_passwords() {
        let grant = Grant { scope: Scope::Tenant("acme".to_owned()), role: Role::Viewer };
        let expected = doc! { "role": "operator", "grants": [{ "tenant": "acme", "role": "viewer" }] };
        assert_eq!(user_document(&Rights::new(Some(Role::Operator), vec![grant])), expected);
        let expected = doc! { "role": null, "grants": [] };
        assert_eq!(user_document(&Rights::default()), expected);
    }

    #[test]
    fn whoever_sits_here_has_an_account_and_a_host() {
        let words = who().words();
        let (account, rest) = words.split_once('@').unwrap();
        assert!(!account.is_empty() && rest.ends_with(" with the command line"), "{words}");
    }

    #[test]
    fn times_are_those_of_the_dci() {
        assert_eq!(time(DateTime::from_millis(1_795_163_066_819)), "2026-11-20T08:24:26");
    }
}
