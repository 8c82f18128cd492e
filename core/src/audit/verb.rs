//! What can be done, and what it is done to.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::short;
use crate::bulk::Action;
use crate::store::put;

/// Declares the verbs in the order in which people look for them, with their words. Those of bulk jobs come in between.
macro_rules! verbs {
    (
        { $($(#[$doc:meta])* $verb:ident = $words:literal,)+ }
        bulk jobs
        { $($(#[$other_doc:meta])* $other:ident = $other_words:literal,)+ }
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb {
            $($(#[$doc])* $verb,)+
            Bulk(Action),
            BulkCancelled(Action),
            BulkEnded(Action),
            $($(#[$other_doc])* $other,)+
        }

        impl Verb {
            /// All of them, in the order in which people look for them.
            pub fn all() -> Vec<Self> {
                let bulk = |action| [Self::Bulk(action), Self::BulkCancelled(action), Self::BulkEnded(action)];
                let bulk = Action::ALL.into_iter().flat_map(bulk);
                [$(Self::$verb),+].into_iter().chain(bulk).chain([$(Self::$other),+]).collect()
            }

            pub fn words(self) -> String {
                match self {
                    $(Self::$verb => $words.to_owned(),)+
                    Self::Bulk(action) => format!("bulk {}", action.as_str()),
                    Self::BulkCancelled(action) => format!("bulk {} cancelled", action.as_str()),
                    Self::BulkEnded(action) => format!("bulk {} ended", action.as_str()),
                    $(Self::$other => $other_words.to_owned(),)+
                }
            }
        }
    };
}

verbs! {
    {
        QueueCreate = "queue create",
        QueueUpdate = "queue update",
        QueueDelete = "queue delete",
        TasksSubmit = "tasks submit",
        TaskCancel = "task cancel",
        TaskRetry = "task retry",
        TaskPriority = "task priority",
        TaskArchive = "task archive",
        TaskAnswer = "task answer",
        /// A link by which that can be answered was made.
        TaskAnswerLink = "task link to answer",
    }
    bulk jobs
    {
        NodeUpdate = "node update",
        NodeDelete = "node delete",
        BalanceUpdate = "balance update",
        /// `QueueBalance` was told to do nothing for a while, or to go on.
        BalancePause = "balance pause",
        ScheduleCreate = "schedule create",
        ScheduleUpdate = "schedule update",
        ScheduleDelete = "schedule delete",
        SchedulePause = "schedule pause",
        ScheduleResume = "schedule resume",
        ScheduleRun = "schedule run",
        ScheduleBackfill = "schedule backfill",
        /// A calendar was made, or its days were changed.
        CalendarSet = "calendar set",
        CalendarDelete = "calendar delete",
        /// A subscription was made, or its settings were changed.
        SubscriptionSet = "subscription set",
        SubscriptionDelete = "subscription delete",
        /// A rule that says whose tasks are taken was made or changed.
        AdmissionSet = "admission set",
        AdmissionLift = "admission lift",
        TenantSet = "tenant set",
        TenantDelete = "tenant delete",
        WorkerCreate = "worker create",
        WorkerUpdate = "worker update",
        WorkerDelete = "worker delete",
        FilesCommit = "files commit",
        /// A version of a file set was removed, or all of them.
        FilesDelete = "files delete",
        Login = "login",
        LoginRefused = "login refused",
        Logout = "logout",
        PasswordChange = "password change",
        SessionEnd = "session end",
        TokenCreate = "token create",
        TokenRevoke = "token revoke",
        UserAdd = "user add",
        /// What a user may do, or their password, was changed.
        UserChange = "user change",
        UserRemove = "user remove",
        CountersAudit = "counters audit",
    }
}

impl Verb {
    /// Those that change nothing: somebody comes or goes, or has something looked at.
    pub const WITHOUT_CHANGE: [Self; 4] =
        [Self::Login, Self::LoginRefused, Self::Logout, Self::CountersAudit];

    /// Whether people look for it by other words: those of the bulk job find how it ended, too.
    pub const fn is_found_with_another(self) -> bool {
        matches!(self, Self::BulkCancelled(_) | Self::BulkEnded(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: ObjectKind,
    pub id: Option<ObjectId>,
    pub name: Option<String>,
}

disbatch_values::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ObjectKind {
        /// A queue; for submissions that whose tasks they are.
        Queue = "queue",
        Node = "node",
        /// What `QueueBalance` goes by.
        Balance = "balance",
        Task = "task",
        Bulk = "bulk",
        User = "user",
        Token = "token",
        Session = "session",
        Counters = "counters",
        Schedule = "schedule",
        Calendar = "calendar",
        Admission = "admission",
        Subscription = "subscription",
        Tenant = "tenant",
        /// A plugin that the database defines.
        Worker = "worker",
        Files = "files",
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

    pub fn of_entry(entry: &Document) -> Option<Self> {
        let object = entry.get_document("object").ok()?;
        let kind = ObjectKind::named(object.get_str("kind").ok()?)?;
        let name = object.get_str("name").ok().map(str::to_owned);
        Some(Self { kind, id: object.get_object_id("id").ok(), name })
    }

    pub(super) fn document(&self) -> Document {
        let mut document = doc! { "kind": self.kind.as_str() };
        put(&mut document, "id", self.id);
        put(&mut document, "name", self.name.as_deref().map(short));
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
