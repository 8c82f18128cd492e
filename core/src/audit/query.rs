//! Finds entries, the latest first, a page at a time.

use disbatch_operation::operation;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::{ObjectKind, Verb};
use crate::model::QueueId;
use crate::paging::{Page, Position};
use crate::store::{Store, StoreError, all_of, collect, integer};

/// How long a search may take. What is seldom found is found by reading all entries.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Where an entry is among all: they are in the order of their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditKey {
    pub at: DateTime,
    pub id: ObjectId,
}

impl AuditKey {
    pub fn of(entry: &Document) -> Option<Self> {
        Some(Self { at: *entry.get_datetime("at").ok()?, id: entry.get_object_id("_id").ok()? })
    }
}

impl fmt::Display for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.timestamp_millis(), self.id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place in the audit: expected milliseconds, a hyphen, and 24 hexadecimal digits")]
pub struct AuditKeyError;

impl FromStr for AuditKey {
    type Err = AuditKeyError;

    fn from_str(text: &str) -> Result<Self, AuditKeyError> {
        let (at, id) = text.rsplit_once('-').ok_or(AuditKeyError)?;
        let at = DateTime::from_millis(at.parse().map_err(|_| AuditKeyError)?);
        Ok(Self { at, id: ObjectId::parse_str(id).map_err(|_| AuditKeyError)? })
    }
}

/// What asks for all that changes something.
pub const CHANGES: &str = "changes";

/// A page of entries to be found. All that is given must be so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only what begins with these words: `bulk cancel` finds `bulk cancel ended` too, and `queue` all that is done to
    /// queues. [`CHANGES`] finds all but [`Verb::WITHOUT_CHANGE`].
    pub what: Option<String>,
    /// Only of those whose words have this text.
    pub by: Option<String>,
    pub user: Option<String>,
    pub queue: Option<ObjectId>,
    pub within: Option<Vec<ObjectId>>,
    pub kind: Option<ObjectKind>,
    pub name: Option<String>,
    /// Only about what has this id.
    pub about: Option<ObjectId>,
    pub from: Option<DateTime>,
    /// Only until before this time.
    pub to: Option<DateTime>,
    /// The latest entry is the first.
    pub position: Position<AuditKey>,
    pub limit: usize,
}

/// A page of entries that was found, as stored, the latest first.
pub type AuditPage = Page<Document, AuditKey>;

impl AuditQuery {
    fn filter(&self) -> Document {
        let mut all = self.conditions();
        match self.position {
            Position::First => {}
            Position::After(key) => all.extend(beyond(key, "$lte", "$lt")),
            Position::Before(key) => all.extend(beyond(key, "$gte", "$gt")),
        }
        all_of(all)
    }

    fn conditions(&self) -> Vec<Document> {
        let mut all = Vec::new();
        all.extend(self.from.map(|from| doc! { "at": { "$gte": from } }));
        all.extend(self.to.map(|to| doc! { "at": { "$lt": to } }));
        all.extend(self.what.as_deref().map(|what| match what {
            CHANGES => doc! { "what": { "$nin": Verb::WITHOUT_CHANGE.map(Verb::words).to_vec() } },
            what => doc! { "what": { "$regex": format!("^{}( |$)", literal(what)) } },
        }));
        let by = |by: &String| doc! { "by": { "$regex": literal(by), "$options": "i" } };
        all.extend(self.by.as_ref().map(by));
        all.extend(self.user.as_ref().map(|user| doc! { "user": user }));
        // Entries of older releases, which are of bulk jobs, have neither `queue` nor `object`.
        let about = |queue: Bson| doc! { "$or": [{ "queue": &queue }, { "filter.queue": &queue }] };
        all.extend(self.queue.map(|id| about(id.into())));
        all.extend(self.within.clone().map(|ids| about(doc! { "$in": ids }.into())));
        all.extend(self.kind.map(|kind| match kind {
            ObjectKind::Bulk => doc! { "job": { "$exists": true } },
            kind => doc! { "object.kind": kind.as_str() }, // No older release has any of these.
        }));
        all.extend(self.name.as_ref().map(|name| doc! { "object.name": name }));
        all.extend(self.about.map(|id| {
            let places = ["object.id", "queue", "filter.queue", "job", "tasks"];
            let at: Vec<Document> = places.into_iter().map(|place| doc! { place: id }).collect();
            doc! { "$or": at }
        }));
        all
    }

    fn page(&self, found: Vec<Document>) -> AuditPage {
        self.position.page(self.limit, found, AuditKey::of)
    }
}

/// What is on one side of a key: first by the index on times, then precisely.
fn beyond(key: AuditKey, not_before: &str, after: &str) -> [Document; 2] {
    let precisely = doc! { "$or": [{ "at": { after: key.at } }, { "at": key.at, "_id": { after: key.id } }] };
    [doc! { "at": { not_before: key.at } }, precisely]
}

/// Text in a regular expression that finds just this text.
fn literal(text: &str) -> String {
    let known = |c: char| c.is_alphanumeric() || c == ' ' || !c.is_ascii();
    text.chars().filter(|c| *c != '\0').fold(String::new(), |mut out, c| {
        if !known(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

impl Store {
    /// A page of the entries that are asked for. `None`: that would take longer than [`PATIENCE`].
    #[operation]
    pub async fn find_audit(&self, query: &AuditQuery) -> Result<Option<AuditPage>, StoreError> {
        let way = if query.position.is_backwards() { 1 } else { -1 };
        let one_more = integer(query.limit).saturating_add(1);
        let audit = self.audit();
        let find = audit.find(query.filter()).sort(doc! { "at": way, "_id": way }).limit(one_more);
        let found = StoreError::unless_out_of_time(collect(find.max_time(PATIENCE)).await)?;
        Ok(found.map(|entries| query.page(entries)))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    pub at: DateTime,
    /// The fields that differ, as they were and as they are.
    pub before: Document,
    pub after: Document,
}

impl Changed {
    pub(crate) fn of(entry: &Document) -> Option<Self> {
        let part = |name| entry.get_document(name).cloned().unwrap_or_default();
        Some(Self { at: *entry.get_datetime("at").ok()?, before: part("before"), after: part("after") })
    }
}

impl Store {
    pub(crate) async fn audit_since(&self) -> Result<Option<DateTime>, StoreError> {
        let entries = self.audit();
        let oldest = entries.find_one(doc! {}).sort(doc! { "at": 1, "_id": 1 }).projection(doc! { "at": 1 });
        let oldest = oldest.max_time(PATIENCE).await?;
        Ok(oldest.and_then(|entry| entry.get_datetime("at").ok().copied()))
    }

    /// The latest changes of the settings of a queue since a time, at most so many. Found by an index.
    #[operation]
    pub async fn changes_of_queue(
        &self,
        queue: QueueId,
        since: DateTime,
        limit: i64,
    ) -> Result<Vec<Changed>, StoreError> {
        let these = doc! {
            "queue": queue, "at": { "$gte": since }, "before": { "$exists": true }, "what": Verb::QueueUpdate.words(),
        };
        let audit = self.audit();
        let found = audit.find(these).projection(doc! { "at": 1, "before": 1, "after": 1 });
        let found = collect(found.sort(doc! { "at": -1 }).limit(limit)).await?;
        Ok(found.iter().filter_map(Changed::of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: i64) -> Document {
        doc! { "_id": ObjectId::from_bytes([7; 12]), "at": DateTime::from_millis(at) }
    }

    fn key(at: i64) -> AuditKey {
        AuditKey::of(&entry(at)).unwrap()
    }

    #[test]
    fn a_place_is_told_as_text() {
        for at in [1_795_163_067_344, 0, -5] {
            assert_eq!(key(at).to_string().parse(), Ok(key(at)));
        }
        for wrong in ["", "5", "-", "x-6b0003bb686c8275d8013333", "5-6b0003", "5-6b0003bb686c8275d801333g"] {
            assert_eq!(wrong.parse::<AuditKey>(), Err(AuditKeyError), "{wrong}");
        }
        assert_eq!(AuditKey::of(&doc! { "at": "yesterday" }), None);
    }

    #[test]
    fn there_are_pages_on_both_sides_where_there_are_entries() {
        let page = |position, entries: &[i64]| {
            let query = AuditQuery { position, limit: 2, ..AuditQuery::default() };
            let page = query.page(entries.iter().map(|at| entry(*at)).collect());
            let times: Vec<i64> =
                page.rows.iter().filter_map(AuditKey::of).map(|key| key.at.timestamp_millis()).collect();
            (times, page.next, page.previous)
        };
        assert_eq!(page(Position::First, &[]), (vec![], None, None));
        assert_eq!(page(Position::First, &[9, 8]), (vec![9, 8], None, None));
        assert_eq!(page(Position::First, &[9, 8, 7]), (vec![9, 8], Some(key(8)), None));
        assert_eq!(page(Position::After(key(9)), &[8, 7]), (vec![8, 7], None, Some(key(8))));
        let before = Position::Before(key(3));
        assert_eq!(page(before, &[4, 5, 6]), (vec![5, 4], Some(key(4)), Some(key(5))));
        assert_eq!(page(before, &[4]), (vec![4], Some(key(4)), None));
    }

    #[test]
    fn what_is_looked_for_is_text() {
        assert_eq!(literal("a.b (c)\0"), "a\\.b \\(c\\)");
        assert_eq!(literal("é☃ 7"), "é☃ 7");
        let query = AuditQuery {
            what: Some("bulk retry".into()),
            by: Some("10.0.".into()),
            user: Some("alice".into()),
            position: Position::After(key(5)),
            ..AuditQuery::default()
        };
        let filter = query.filter();
        let all = filter.get_array("$and").unwrap();
        assert_eq!(all[0], doc! { "what": { "$regex": "^bulk retry( |$)" } }.into());
        assert_eq!(all[1], doc! { "by": { "$regex": "10\\.0\\.", "$options": "i" } }.into());
        assert_eq!(all[2], doc! { "user": "alice" }.into());
        assert_eq!(all[3], doc! { "at": { "$lte": DateTime::from_millis(5) } }.into());
        assert_eq!(AuditQuery::default().filter(), doc! {});
    }

    #[test]
    fn a_queue_and_an_id_are_both_looked_for() {
        let [queue, about] = [[1; 12], [2; 12]].map(ObjectId::from_bytes);
        let query = AuditQuery { queue: Some(queue), about: Some(about), ..AuditQuery::default() };
        let of_queue = doc! { "$or": [{ "queue": queue }, { "filter.queue": queue }] };
        let of_about = doc! { "$or": [
            { "object.id": about }, { "queue": about }, { "filter.queue": about }, { "job": about },
            { "tasks": about },
        ] };
        assert_eq!(query.filter(), doc! { "$and": [of_queue, of_about] });
    }

    #[test]
    fn objects_and_times_are_looked_for() {
        let [from, to] = [5, 9].map(DateTime::from_millis);
        let query = AuditQuery {
            kind: Some(ObjectKind::User),
            name: Some("alice".into()),
            from: Some(from),
            to: Some(to),
            ..AuditQuery::default()
        };
        let expected = doc! { "$and": [
            { "at": { "$gte": from } }, { "at": { "$lt": to } }, { "object.kind": "user" },
            { "object.name": "alice" },
        ] };
        assert_eq!(query.filter(), expected);
        let jobs = AuditQuery { kind: Some(ObjectKind::Bulk), ..AuditQuery::default() };
        assert_eq!(jobs.filter(), doc! { "$and": [{ "job": { "$exists": true } }] });
    }
}
