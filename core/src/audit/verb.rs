//! What can be done, and what it is done to.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::short;
use crate::bulk::Action;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    QueueCreate,
    QueueUpdate,
    QueueDelete,
    NodeUpdate,
    /// A node that is gone was removed.
    NodeDelete,
    BalanceUpdate,
    /// `QueueBalance` was told to do nothing for a while, or to go on.
    BalancePause,
    TasksSubmit,
    TaskCancel,
    /// A task was queued again.
    TaskRetry,
    /// A task that waits got another priority.
    TaskPriority,
    TaskAnswer,
    /// A link by which that can be answered was made.
    TaskAnswerLink,
    /// A task was moved to the archive.
    TaskArchive,
    Bulk(Action),
    BulkCancelled(Action),
    BulkEnded(Action),
    /// A session was begun.
    Login,
    /// Somebody has shown a wrong name or password.
    LoginRefused,
    /// A session was ended by whom it was of.
    Logout,
    /// Somebody has changed their password.
    PasswordChange,
    TokenCreate,
    TokenRevoke,
    /// Another session was ended.
    SessionEnd,
    UserAdd,
    /// What a user may do, or their password, was changed.
    UserChange,
    UserRemove,
    /// An audit of the counters was asked for.
    CountersAudit,
    ScheduleCreate,
    ScheduleUpdate,
    ScheduleDelete,
    /// A schedule was told to make no tasks by itself.
    SchedulePause,
    /// A schedule was told to make tasks by itself again.
    ScheduleResume,
    /// A schedule was told to make a task at once.
    ScheduleRun,
    /// A schedule was told to make the tasks of a stretch of time.
    ScheduleBackfill,
    /// A calendar was made, or its days were changed.
    CalendarSet,
    CalendarDelete,
    /// A subscription was made, or its settings were changed.
    SubscriptionSet,
    SubscriptionDelete,
    /// A rule that says whose tasks are taken was made or changed.
    AdmissionSet,
    /// Such a rule was lifted.
    AdmissionLift,
    TenantSet,
    TenantDelete,
    WorkerCreate,
    WorkerUpdate,
    WorkerDelete,
    FilesCommit,
    /// A version of a file set was removed, or all of them.
    FilesDelete,
}

impl Verb {
    /// All of them, in the order in which people look for them.
    pub fn all() -> Vec<Self> {
        let one_task = [Self::TasksSubmit, Self::TaskCancel, Self::TaskRetry];
        let one_task = one_task.into_iter().chain([Self::TaskPriority, Self::TaskArchive]);
        let one_task = one_task.chain([Self::TaskAnswer, Self::TaskAnswerLink]);
        let many = |action| [Self::Bulk(action), Self::BulkCancelled(action), Self::BulkEnded(action)];
        let mut all = vec![Self::QueueCreate, Self::QueueUpdate, Self::QueueDelete];
        all.extend(one_task);
        all.extend(Action::ALL.into_iter().flat_map(many));
        all.extend([Self::NodeUpdate, Self::NodeDelete, Self::BalanceUpdate, Self::BalancePause]);
        all.extend([Self::ScheduleCreate, Self::ScheduleUpdate, Self::ScheduleDelete]);
        all.extend([Self::SchedulePause, Self::ScheduleResume, Self::ScheduleRun, Self::ScheduleBackfill]);
        all.extend([Self::CalendarSet, Self::CalendarDelete]);
        all.extend([Self::SubscriptionSet, Self::SubscriptionDelete]);
        all.extend([Self::AdmissionSet, Self::AdmissionLift, Self::TenantSet, Self::TenantDelete]);
        all.extend([Self::WorkerCreate, Self::WorkerUpdate, Self::WorkerDelete]);
        all.extend([Self::FilesCommit, Self::FilesDelete]);
        all.extend([Self::Login, Self::LoginRefused, Self::Logout, Self::PasswordChange, Self::SessionEnd]);
        all.extend([Self::TokenCreate, Self::TokenRevoke, Self::UserAdd, Self::UserChange, Self::UserRemove]);
        all.push(Self::CountersAudit);
        all
    }

    /// Those that change nothing: somebody comes or goes, or has something looked at.
    pub const WITHOUT_CHANGE: [Self; 4] =
        [Self::Login, Self::LoginRefused, Self::Logout, Self::CountersAudit];

    /// As entries have it.
    pub fn words(self) -> String {
        let plain = match self {
            Self::Bulk(action) => return format!("bulk {}", action.as_str()),
            Self::BulkCancelled(action) => return format!("bulk {} cancelled", action.as_str()),
            Self::BulkEnded(action) => return format!("bulk {} ended", action.as_str()),
            Self::QueueCreate => "queue create",
            Self::QueueUpdate => "queue update",
            Self::QueueDelete => "queue delete",
            Self::NodeUpdate => "node update",
            Self::NodeDelete => "node delete",
            Self::BalanceUpdate => "balance update",
            Self::BalancePause => "balance pause",
            Self::TasksSubmit => "tasks submit",
            Self::TaskCancel => "task cancel",
            Self::TaskRetry => "task retry",
            Self::TaskPriority => "task priority",
            Self::TaskArchive => "task archive",
            Self::TaskAnswer => "task answer",
            Self::TaskAnswerLink => "task link to answer",
            Self::Login => "login",
            Self::LoginRefused => "login refused",
            Self::Logout => "logout",
            Self::PasswordChange => "password change",
            Self::TokenCreate => "token create",
            Self::TokenRevoke => "token revoke",
            Self::SessionEnd => "session end",
            Self::UserAdd => "user add",
            Self::UserChange => "user change",
            Self::UserRemove => "user remove",
            Self::CountersAudit => "counters audit",
            Self::ScheduleCreate => "schedule create",
            Self::ScheduleUpdate => "schedule update",
            Self::ScheduleDelete => "schedule delete",
            Self::SchedulePause => "schedule pause",
            Self::ScheduleResume => "schedule resume",
            Self::ScheduleRun => "schedule run",
            Self::ScheduleBackfill => "schedule backfill",
            Self::CalendarSet => "calendar set",
            Self::CalendarDelete => "calendar delete",
            Self::SubscriptionSet => "subscription set",
            Self::SubscriptionDelete => "subscription delete",
            Self::AdmissionSet => "admission set",
            Self::AdmissionLift => "admission lift",
            Self::TenantSet => "tenant set",
            Self::TenantDelete => "tenant delete",
            Self::WorkerCreate => "worker create",
            Self::WorkerUpdate => "worker update",
            Self::WorkerDelete => "worker delete",
            Self::FilesCommit => "files commit",
            Self::FilesDelete => "files delete",
        };
        plain.to_owned()
    }

    /// Whether people look for it by other words: those of the bulk job find how it ended, too.
    pub const fn is_found_with_another(self) -> bool {
        matches!(self, Self::BulkCancelled(_) | Self::BulkEnded(_))
    }
}

/// What something was done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: ObjectKind,
    pub id: Option<ObjectId>,
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A queue; for submissions that whose tasks they are.
    Queue,
    Node,
    /// What `QueueBalance` goes by.
    Balance,
    Task,
    Bulk,
    /// Somebody who may log in.
    User,
    /// What a program is let in with.
    Token,
    /// A browser that somebody has logged in with.
    Session,
    Counters,
    Schedule,
    /// Days that schedules go by.
    Calendar,
    /// A rule that says whose tasks are taken.
    Admission,
    /// Who is told what happens.
    Subscription,
    Tenant,
    /// A plugin that the database defines.
    Worker,
    Files,
}

impl ObjectKind {
    pub const ALL: [Self; 16] = [
        Self::Queue,
        Self::Node,
        Self::Balance,
        Self::Task,
        Self::Bulk,
        Self::User,
        Self::Token,
        Self::Session,
        Self::Counters,
        Self::Schedule,
        Self::Calendar,
        Self::Admission,
        Self::Subscription,
        Self::Tenant,
        Self::Worker,
        Self::Files,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Node => "node",
            Self::Balance => "balance",
            Self::Task => "task",
            Self::Bulk => "bulk",
            Self::User => "user",
            Self::Token => "token",
            Self::Session => "session",
            Self::Counters => "counters",
            Self::Schedule => "schedule",
            Self::Calendar => "calendar",
            Self::Admission => "admission",
            Self::Subscription => "subscription",
            Self::Tenant => "tenant",
            Self::Worker => "worker",
            Self::Files => "files",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl Object {
    /// One of which there is only one, or of which nothing else is known.
    pub const fn new(kind: ObjectKind) -> Self {
        Self { kind, id: None, name: None }
    }

    pub const fn with_id(kind: ObjectKind, id: ObjectId) -> Self {
        Self { kind, id: Some(id), name: None }
    }

    pub fn with_name(kind: ObjectKind, name: impl Into<String>) -> Self {
        Self { kind, id: None, name: Some(name.into()) }
    }

    /// One whose document this is, with its name in the field `name`.
    pub fn of_document(kind: ObjectKind, document: &Document, name: &str) -> Self {
        let name = match document.get(name) {
            None | Some(Bson::Null) => None,
            Some(Bson::String(name)) => Some(name.clone()),
            Some(other) => Some(other.to_string()), // Clients may store anything.
        };
        Self { kind, id: document.get_object_id("_id").ok(), name }
    }

    /// That of an entry as stored.
    pub fn of_entry(entry: &Document) -> Option<Self> {
        let object = entry.get_document("object").ok()?;
        let kind = ObjectKind::named(object.get_str("kind").ok()?)?;
        let name = object.get_str("name").ok().map(str::to_owned);
        Some(Self { kind, id: object.get_object_id("id").ok(), name })
    }

    /// As entries have it.
    pub(super) fn document(&self) -> Document {
        let mut document = doc! { "kind": self.kind.as_str() };
        if let Some(id) = self.id {
            document.insert("id", id);
        }
        if let Some(name) = &self.name {
            document.insert("name", short(name));
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_tell_them_apart() {
        let words: BTreeSet<String> = Verb::all().into_iter().map(Verb::words).collect();
        assert_eq!((words.len(), Verb::all().len()), (57, 57));
        assert!(words.contains("bulk retry ended") && words.contains("queue update"), "{words:?}");
        for verb in Verb::all().into_iter().filter(|verb| verb.is_found_with_another()) {
            let words = verb.words();
            let others = Verb::all().into_iter().filter(|other| !other.is_found_with_another());
            assert_eq!(others.filter(|other| words.starts_with(&format!("{} ", other.words()))).count(), 1);
        }
    }

    #[test]
    fn kinds_are_named() {
        for kind in ObjectKind::ALL {
            assert_eq!(ObjectKind::named(kind.as_str()), Some(kind));
        }
        assert_eq!(ObjectKind::named("queues"), None);
    }

    #[test]
    fn objects_are_told_by_their_documents() {
        let id = ObjectId::new();
        let of = |document: Document| Object::of_document(ObjectKind::Queue, &document, "name").document();
        assert_eq!(
            of(doc! { "_id": id, "name": "mail" }),
            doc! { "kind": "queue", "id": id, "name": "mail" }
        );
        assert_eq!(of(doc! { "_id": id, "name": 7 }), doc! { "kind": "queue", "id": id, "name": "7" });
        assert_eq!(of(doc! { "_id": 5, "name": Bson::Null }), doc! { "kind": "queue" });
        let long = of(doc! { "name": "é".repeat(5_000) });
        assert!(long.get_str("name").unwrap().chars().count() <= 201);
        let user = Object::with_name(ObjectKind::User, "alice");
        assert_eq!(user.document(), doc! { "kind": "user", "name": "alice" });
        assert_eq!(Object::of_entry(&doc! { "object": user.document() }), Some(user));
    }
}
