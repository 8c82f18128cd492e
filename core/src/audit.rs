//! Who did what to which object, when and from where, and what it was before and after: the entries of `audit`.
//!
//! | field | |
//! | --- | --- |
//! | `at` | when it was done, by the clock of the host that has recorded it |
//! | `by` | who did it and from where, in words |
//! | `user`, `via`, `token_name`, `from` | the same in parts ([`Actor`]) |
//! | `what` | what was done, in words ([`Verb`]) |
//! | `object` | what it was done to: `kind`, `id`, `name` ([`Object`]) |
//! | `queue` | the queue that it is about |
//! | `before`, `after` | the fields that have changed, without secrets ([`AuditEntry`]) |
//!
//! There are others for some verbs: `reason`, `count`, and what bulk jobs have. Entries are only ever added: the MongoDB
//! user of the web server can neither change nor remove them. The server removes them when they are as old as
//! configured ([`Store::keep_audit`](crate::store::Store::keep_audit)).

mod query;
mod verb;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

pub use query::{AuditKey, AuditKeyError, AuditPage, AuditQuery, CHANGES, Changed, PATIENCE};
pub use verb::{Object, ObjectKind, Verb};

use crate::model::{QueueId, extended};
use crate::store::{Store, StoreError, Stored, put, with};

/// A value that is longer, as text, is cut: bytes.
const LONGEST_VALUE: usize = 2_048;

/// No more fields of a document are in an entry.
const MOST_FIELDS: usize = 100;

/// No more of a name is in an entry, in characters.
const LONGEST_NAME: usize = 200;

/// Says how many fields are not in an entry.
const LEFT_OUT: &str = "(left out)";

/// Fields whose values are nobody's business, at any depth.
const SECRETS: [&str; 4] = ["password", "secure_params", "token", "fingerprint"];

/// What somebody has done, for an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub who: Actor,
    pub what: Verb,
    pub object: Object,
    pub queue: Option<QueueId>,
    /// The object as it was. Of it and of `after` only the fields that have changed are stored: none that are called
    /// `password`, `secure_params`, `token` or `fingerprint`, at any depth, and no more than 2 KiB of a value.
    pub before: Option<Document>,
    pub after: Option<Document>,
    /// What else there is to say. It is stored beside the other fields, with the same limits.
    pub more: Document,
}

impl AuditEntry {
    pub fn new(who: Actor, what: Verb, object: Object) -> Self {
        Self { who, what, object, queue: None, before: None, after: None, more: Document::new() }
    }

    fn document(&self, id: ObjectId, at: DateTime) -> Document {
        let mut entry = with(doc! { "_id": id, "at": at }, Document::from(&self.who));
        entry.insert("what", self.what.words());
        entry.insert("object", self.object.document());
        put(&mut entry, "queue", self.queue);
        let (before, after) = (self.before.as_ref(), self.after.as_ref());
        for (name, fields) in [("before", changed(before, after)), ("after", changed(after, before))] {
            put(&mut entry, name, Some(fields).filter(|fields| !fields.is_empty()));
        }
        for (name, value) in trimmed(&self.more) {
            entry.entry(name).or_insert(value);
        }
        entry
    }
}

impl Store {
    /// Adds an entry, with this host's time as `at`. Nothing that there is already is changed, so that nobody who makes
    /// entries needs the right to.
    #[operation]
    pub async fn record_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.audit().insert_one(Stored(entry.document(ObjectId::new(), self.now()))).await?;
        Ok(())
    }

    /// The same for what has been done already, and stays done: if it cannot be recorded, the log says what it was.
    #[operation]
    pub async fn note_audit(&self, entry: &AuditEntry) {
        if let Err(error) = self.record_audit(entry).await {
            let object = &entry.object;
            tracing::error!(
                %error, what = entry.what.words(), by = entry.who.words(), kind = object.kind.as_str(),
                id = object.id.map(tracing::field::display), name = object.name,
                "this was done, and has no entry in the audit"
            );
        }
    }
}

/// Who did something, how they were recognised, and from where they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the user. None: nobody was asked, or it was no user of the web server.
    pub name: Option<String>,
    pub via: Via,
    /// Where they came from: an address, or for the command line an account and a host.
    pub from: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// Not at all: nobody is asked.
    OpenDoor,
    Session,
    Password,
    /// By a token of this name.
    Token(String),
    Proxy,
    /// By the host that they worked on.
    CommandLine,
    /// They were not: what they have shown was wrong.
    Refused,
    /// They were, and only these words have been left of it, by an older release.
    Words(String),
}

impl Via {
    /// As it is stored. None: nothing is.
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::OpenDoor => "open",
            Self::Session => "session",
            Self::Password => "password",
            Self::Token(_) => "token",
            Self::Proxy => "proxy",
            Self::CommandLine => "command line",
            Self::Refused => "refused",
            Self::Words(_) => return None,
        })
    }
}

impl Actor {
    pub fn new(name: Option<String>, via: Via, from: impl Into<String>) -> Self {
        Self { name, via, from: from.into() }
    }

    /// Somebody who administers Disbatch with an account of a host.
    pub fn of_command_line(account: &str, host: &str) -> Self {
        Self::new(None, Via::CommandLine, format!("{account}@{host}"))
    }

    pub fn refused(from: impl Into<String>) -> Self {
        Self::new(None, Via::Refused, from)
    }

    /// For people: who, and from where.
    pub fn words(&self) -> String {
        let from = &self.from;
        match (&self.name, &self.via) {
            (_, Via::Words(words)) => words.clone(),
            (Some(name), Via::Token(token)) => format!("{name} with the token {token:?} from {from}"),
            (Some(name), _) => format!("{name} from {from}"),
            (None, Via::CommandLine) => format!("{from} with the command line"),
            (None, Via::Refused) => format!("somebody unknown from {from}"),
            (None, _) => format!("the REST API from {from}"), // They have no name.
        }
    }

    /// As entries and bulk jobs have it.
    pub(crate) fn document(&self) -> Document {
        let mut document = Document::new();
        put(&mut document, "user", self.name.as_deref().map(short));
        let Some(via) = self.via.name() else { return document };
        document.insert("via", via);
        if let Via::Token(token) = &self.via {
            document.insert("token_name", short(token));
        }
        document.insert("from", short(&self.from));
        document
    }

    /// Reads what [`Actor::document`] has written, where `words` were stored beside it.
    pub(crate) fn stored(document: &Document, words: &str) -> Self {
        let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
        let token = Via::Token(text("token_name").unwrap_or_default());
        let (open, command_line) = (Via::OpenDoor, Via::CommandLine);
        let known = [open, Via::Session, Via::Password, token, Via::Proxy, command_line, Via::Refused];
        let via = known.into_iter().find(|via| via.name() == document.get_str("via").ok());
        // Nothing is stored, or by a newer release.
        let via = via.unwrap_or_else(|| Via::Words(words.to_owned()));
        Self { name: text("user"), via, from: text("from").unwrap_or_default() }
    }
}

impl From<&Actor> for Document {
    fn from(actor: &Actor) -> Self {
        with(doc! { "by": actor.words() }, actor.document())
    }
}

/// The fields of one document that another one does not have like that. One that is none has no fields.
fn changed(one: Option<&Document>, other: Option<&Document>) -> Document {
    let is_other = |(name, value): &(&String, &Bson)| {
        *name != "_id" && !is_same(Some(*value), other.and_then(|other| other.get(name)))
    };
    let fields = one.into_iter().flatten().filter(is_other);
    trimmed(&fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Whether the database takes two values for the same.
pub(crate) fn is_same(one: Option<&Bson>, other: Option<&Bson>) -> bool {
    let bytes = |value: &Bson| bson::serialize_to_vec(&doc! { "value": value.clone() }).ok();
    match (one, other) {
        (Some(one), Some(other)) => bytes(one) == bytes(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A document without secrets, and with long values cut.
fn trimmed(document: &Document) -> Document {
    let (kept, rest) = (document.iter().take(MOST_FIELDS), document.len().saturating_sub(MOST_FIELDS));
    let public = kept.filter(|(name, _)| !is_secret(name));
    let mut trimmed: Document = public.map(|(name, value)| (short(name), bounded(value))).collect();
    if rest > 0 {
        trimmed.insert(LEFT_OUT, format!("{rest} more fields"));
    }
    trimmed
}

fn short(name: &str) -> String {
    crate::text::cut(name, LONGEST_NAME, "…")
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

fn bounded(value: &Bson) -> Bson {
    let public = public(value);
    let text = match &public {
        Bson::String(text) => text.clone(),
        Bson::Document(_)
        | Bson::Array(_)
        | Bson::Binary(_)
        | Bson::JavaScriptCode(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::RegularExpression(_)
        | Bson::Symbol(_) => extended(&public),
        _ => return public, // Nothing else can be long.
    };
    if text.len() <= LONGEST_VALUE {
        return public;
    }
    let end = (0..=LONGEST_VALUE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… (cut: {} bytes in all)", text.get(..end).unwrap_or_default(), text.len()).into()
}

/// A value without secrets in it.
fn public(value: &Bson) -> Bson {
    match value {
        Bson::Document(document) => {
            let fields = document.iter().filter(|(name, _)| !is_secret(name));
            Bson::Document(fields.map(|(name, value)| (name.clone(), public(value))).collect())
        }
        Bson::Array(values) => Bson::Array(values.iter().map(public).collect()),
        simple => simple.clone(), // It has nothing in it.
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bulk::Action;

    #[test]
    fn an_entry_says_who_did_what_to_what() {
        let [id, queue] = [[1; 12], [2; 12]].map(ObjectId::from_bytes);
        let who = Actor::new(Some("alice".to_owned()), Via::Session, "10.0.0.1");
        let object = Object { name: Some("mail".to_owned()), ..Object::with_id(ObjectKind::Queue, queue) };
        let entry = AuditEntry {
            queue: Some(QueueId(queue)),
            before: Some(doc! { "name": "mail", "threads": 1 }),
            after: Some(doc! { "name": "mail", "threads": 2 }),
            more: doc! { "reason": "more work", "password": "x", "by": "somebody else" },
            ..AuditEntry::new(who, Verb::QueueUpdate, object)
        };
        let at = DateTime::from_millis(1_795_163_067_344);
        let expected = doc! {
            "_id": id, "at": at, "by": "alice from 10.0.0.1", "user": "alice", "via": "session", "from": "10.0.0.1",
            "what": "queue update", "object": { "kind": "queue", "id": queue, "name": "mail" }, "queue": queue,
            "before": { "threads": 1 }, "after": { "threads": 2 }, "reason": "more work",
        };
        assert_eq!(entry.document(id, at), expected);
    }

    #[test]
    fn what_is_not_known_is_not_stored() {
        let who = Actor::new(None, Via::Words("the REST API from 10.0.0.1".to_owned()), "");
        let object = Object::new(ObjectKind::Bulk);
        let entry = AuditEntry::new(who, Verb::BulkEnded(Action::Retry), object);
        let id = ObjectId::new();
        let expected = doc! {
            "_id": id, "at": DateTime::from_millis(5), "by": "the REST API from 10.0.0.1", "what": "bulk retry ended",
            "object": { "kind": "bulk" },
        };
        assert_eq!(entry.document(id, DateTime::from_millis(5)), expected);
    }

    fn all() -> Vec<Actor> {
        let token = Via::Token("nightly".to_owned());
        let mut all: Vec<Actor> = [Via::Session, Via::Password, token, Via::Proxy]
            .map(|via| Actor::new(Some("alice".to_owned()), via, "10.0.0.1"))
            .into();
        all.push(Actor::new(None, Via::OpenDoor, "10.0.0.1"));
        all.push(Actor::of_command_line("root", "db1"));
        all.push(Actor::refused("10.0.0.1"));
        all
    }

    #[test]
    fn it_is_told_who_it_was() {
        let words: Vec<String> = all().iter().map(Actor::words).collect();
        let expected = [
            "alice from 10.0.0.1",
            "alice from 10.0.0.1",
            "alice with the token \"nightly\" from 10.0.0.1",
            "alice from 10.0.0.1",
            "the REST API from 10.0.0.1",
            "root@db1 with the command line",
            "somebody unknown from 10.0.0.1",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn they_are_stored_and_read_again() {
        for actor in all() {
            assert_eq!(Actor::stored(&actor.document(), "other words"), actor);
        }
        let old = Actor::stored(&Document::new(), "the REST API from 10.0.0.1");
        assert_eq!(old.words(), "the REST API from 10.0.0.1");
        assert_eq!(Document::from(&old), doc! { "by": "the REST API from 10.0.0.1" });
        let newer = doc! { "user": "alice", "via": "telepathy", "from": "afar" };
        assert_eq!(Actor::stored(&newer, "alice by telepathy").words(), "alice by telepathy");
    }

    fn between(before: Document, after: Document) -> (Document, Document) {
        (changed(Some(&before), Some(&after)), changed(Some(&after), Some(&before)))
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let before = doc! { "_id": 1, "name": "mail", "threads": 2, "paused": true, "sort": "fifo" };
        let after = doc! { "_id": 2, "name": "mail", "threads": 3, "sort": "fifo", "reason": "x" };
        let expected = (doc! { "threads": 2, "paused": true }, doc! { "threads": 3, "reason": "x" });
        assert_eq!(between(before.clone(), after), expected);
        assert_eq!(between(before.clone(), before.clone()), (doc! {}, doc! {}));
        assert_eq!((changed(None, Some(&before)), changed(Some(&before), None).len()), (doc! {}, 4));
        let gone = doc! { "name": "mail" };
        assert_eq!((changed(Some(&gone), None), changed(None, Some(&gone))), (gone, doc! {}));
    }

    #[test]
    fn values_are_compared_as_the_database_does() {
        let same = |one: Bson, other: Bson| is_same(Some(&one), Some(&other));
        assert!(same(5.into(), 5.into()) && same(f64::NAN.into(), f64::NAN.into()));
        assert!(!same(5.into(), 5_i64.into()) && !same(Bson::Null, "".into()));
        assert!(!same(doc! { "a": 1, "b": 2 }.into(), doc! { "b": 2, "a": 1 }.into()));
        assert!(is_same(None, None) && !is_same(None, Some(&Bson::Null)));
    }

    #[test]
    fn long_values_are_cut_and_say_so() {
        let told = trimmed(&doc! {
            "short": "x".repeat(LONGEST_VALUE), "long": "é".repeat(LONGEST_VALUE),
            "list": vec![12_345_i32; 1_000], "number": 1,
        });
        assert_eq!(told.get_str("short").unwrap().len(), LONGEST_VALUE);
        assert!(told.get_str("long").unwrap().ends_with("é… (cut: 4096 bytes in all)"));
        let list = told.get_str("list").unwrap();
        assert!(list.starts_with("[12345,12345,") && list.contains("… (cut: 6001 bytes in all)"), "{list}");
        assert_eq!(told.get("number"), Some(&Bson::from(1)));
        let many: Document = (0..150).map(|n| (format!("field{n}"), Bson::from(n))).collect();
        let told = trimmed(&many);
        assert_eq!((told.len(), told.get(LEFT_OUT)), (101, Some(&Bson::from("50 more fields"))));
        assert_eq!([short("é"), short(&"é".repeat(201))], ["é".to_owned(), format!("{}…", "é".repeat(200))]);
    }

    /// Text that is in what must not be told, and nowhere else.
    const MARKER: &str = "zyxw-secret-9173";

    /// A document whose secret fields have the marker, at any depth, and whose other fields have anything else.
    fn documents() -> impl Strategy<Value = Document> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Bson::from),
            any::<bool>().prop_map(Bson::from),
            "[a-z]{0,300}".prop_map(Bson::from),
            Just(Bson::Null),
        ];
        let value = leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
                fields(inner).prop_map(Bson::Document),
            ]
        });
        fields(value.boxed())
    }

    fn fields(value: BoxedStrategy<Bson>) -> impl Strategy<Value = Document> {
        let secret = prop::sample::select(vec!["password", "secure_params", "Token", "FINGERPRINT"]);
        let hidden = prop_oneof![
            Just(Bson::from(MARKER)),
            Just(Bson::from(doc! { "deeper": MARKER })),
            Just(Bson::Array(vec![MARKER.into()])),
        ];
        let public = ("[a-z$.]{1,6}".prop_map(|name| format!("p{name}")), value);
        let secret = (secret.prop_map(str::to_owned), hidden);
        let public = prop::collection::vec(public, 0..5);
        (public, prop::collection::vec(secret, 0..3))
            .prop_map(|(public, secret)| public.into_iter().chain(secret).collect::<Document>())
    }

    proptest! {
        #[test]
        fn secrets_are_never_told(before in documents(), after in documents()) {
            let told = between(before.clone(), after.clone());
            let whole = trimmed(&doc! { "nested": before, "list": [after] });
            let text = format!("{told:?} {whole:?}");
            prop_assert!(!text.contains(MARKER), "{}", text);
        }

        #[test]
        fn what_is_told_is_bounded(document in documents(), long in "\\PC{0,5000}") {
            let mut document = document;
            document.insert("long", long);
            let told = trimmed(&document);
            for (_, value) in &told {
                let length = match value {
                    Bson::String(text) => text.len(),
                    other => extended(other).len(),
                };
                prop_assert!(length <= LONGEST_VALUE + 60, "{length}");
            }
        }
    }
}
