//! What something was done to.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::difference::short;

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
    use super::*;

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
