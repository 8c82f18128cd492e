//! `QueueBalance`: the one document that says how many tasks may run when, and in which order queues get
//! them. Here it is read and saved; the loop works with it.

pub mod change;
pub mod lease;
pub mod plan;
pub mod run;

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use crate::model::Moment;
use crate::store::{Altered, Store, StoreError};

/// The document of `balance`. Each part holds what can be understood of the stored one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BalanceDocument {
    /// `"<0-6 or *> HH:MM"` and how many tasks may run from then on, in the stored order. Entries without a
    /// number are left out.
    pub max_tasks: Vec<(String, i64)>,
    /// Names of queues in tiers; see [`plan::allot`] for their order. Parts that are no lists of names are left out.
    pub queues: Vec<Vec<String>>,
    /// Until when nothing is to be balanced, in seconds since 1970.
    pub disabled: Option<i64>,
    /// `OK`, `WARNING` or `CRITICAL`, as the loop has last found it.
    pub status: Option<String>,
    /// What the loop has last said about itself.
    pub message: Option<String>,
    /// When the loop has last written.
    pub timestamp: Option<DateTime>,
    /// All other fields, and `max_tasks`, `queues`, `disabled`, `status`, `message` or `timestamp` where they
    /// could not be understood at all.
    pub rest: Document,
}

impl From<Document> for BalanceDocument {
    fn from(document: Document) -> Self {
        let mut read = Self::default();
        for (key, value) in document {
            let understood = match key.as_str() {
                "max_tasks" => max_tasks(&value).map(|entries| read.max_tasks = entries),
                "queues" => queues(&value).map(|tiers| read.queues = tiers),
                "disabled" => integer(&value).map(|until| read.disabled = Some(until)),
                "status" => value.as_str().map(|text| read.status = Some(text.to_owned())),
                "message" => value.as_str().map(|text| read.message = Some(text.to_owned())),
                "timestamp" => Moment(value.clone()).get().map(|at| read.timestamp = Some(at)),
                _ => None, // Nobody knows what it is, so it is kept as it is.
            };
            if understood.is_none() {
                read.rest.insert(key, value);
            }
        }
        read
    }
}

impl Store {
    /// The document as stored, for those who show it.
    #[operation]
    pub async fn stored_balance(&self) -> Result<Option<Document>, StoreError> {
        Ok(self.balance().find_one(doc! {}).await?.map(Document::from))
    }

    /// The document, as far as it can be understood.
    #[operation]
    pub async fn balance_document(&self) -> Result<Option<BalanceDocument>, StoreError> {
        Ok(self.stored_balance().await?.map(BalanceDocument::from))
    }

    /// Sets fields of the document, which is created if there is none. The caller has validated them.
    #[operation]
    pub async fn save_balance(&self, fields: Document) -> Result<Altered, StoreError> {
        let update = doc! { "$set": fields.clone() };
        let before = self.balance().find_one_and_update(doc! {}, update).upsert(true).await?;
        Ok(Altered::by_setting(before.map(Document::from), fields))
    }
}

fn max_tasks(value: &Bson) -> Option<Vec<(String, i64)>> {
    let entries = value.as_document()?.iter();
    Some(entries.filter_map(|(time, most)| Some((time.clone(), integer(most)?))).collect())
}

fn queues(value: &Bson) -> Option<Vec<Vec<String>>> {
    let names = |tier: &Bson| Some(tier.as_array()?.iter().filter_map(name).collect());
    Some(value.as_array()?.iter().filter_map(names).collect())
}

/// Perl takes a number for a name.
fn name(value: &Bson) -> Option<String> {
    match value {
        Bson::String(name) => Some(name.clone()),
        Bson::Int32(number) => Some(number.to_string()),
        Bson::Int64(number) => Some(number.to_string()),
        _ => None, // Nothing else names a queue.
    }
}

/// Numbers may be stored as text.
fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::String(text) => text.trim().parse().ok(),
        Bson::Boolean(flag) => Some(i64::from(*flag)),
        number => crate::model::whole_number(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_understood_is_read_and_the_rest_kept() {
        let at = DateTime::from_millis(1_795_163_068_000);
        let read = BalanceDocument::from(doc! {
            "max_tasks": { "* 07:00": 1, "1 19:00": "5", "* 20:00": "many", "* 21:00": 2.0 },
            "queues": [["q1", 7], "q2", ["q3"]],
            "disabled": Bson::Null, "status": "OK", "message": 5, "timestamp": at, "x": 1,
        });
        let entries = [("* 07:00", 1), ("1 19:00", 5), ("* 21:00", 2)];
        assert_eq!(read.max_tasks, entries.map(|(time, most)| (time.to_owned(), most)));
        assert_eq!(read.queues, [vec!["q1", "7"], vec!["q3"]]);
        assert_eq!((read.disabled, read.status.as_deref()), (None, Some("OK")));
        assert_eq!((read.message, read.timestamp), (None, Some(at)));
        assert_eq!(read.rest, doc! { "disabled": Bson::Null, "message": 5, "x": 1 });
    }
}
