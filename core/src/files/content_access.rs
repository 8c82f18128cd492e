//! Who may name a content: knowing its SHA-256 is not enough.

use disbatch_operation::operation;
use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use super::upload::{DONE, PROVEN, Sender};
use super::{ContentId, ENTRIES, SETS, SetState};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// It is looked for so many contents at once.
const LOOKS_AT_ONCE: usize = 16;

/// So many entries are read at once to learn which versions have a content.
const PAGE: i64 = 64;

impl Store {
    /// Those of `contents` that a user must not name in an entry: who sends them has not sent all of it, and no version
    /// that is done has it and is of one of the tenants `readable`. `None`: that user may read every version.
    #[operation]
    pub async fn unreferable(
        &self,
        contents: &[ContentId],
        sender: &Sender,
        readable: Option<&[String]>,
    ) -> Result<Vec<ContentId>, StoreError> {
        let sent = self.all_sent(contents, sender).await?;
        let others: BTreeSet<ContentId> = contents.iter().copied().filter(|id| !sent.contains(id)).collect();
        let look = |id| async move { Ok::<_, StoreError>((id, self.is_in_readable(id, readable).await?)) };
        let looked: Vec<(ContentId, bool)> =
            stream::iter(others).map(look).buffered(LOOKS_AT_ONCE).try_collect().await?;
        Ok(looked.into_iter().filter(|(_, may)| !may).map(|(id, _)| id).collect())
    }

    /// Whether `sender` has sent all of a content that is there.
    pub(super) async fn was_sent(&self, id: ContentId, sender: &Sender) -> Result<bool, StoreError> {
        Ok(!self.all_sent(&[id], sender).await?.is_empty())
    }

    /// Those contents that are there and that `sender` has sent all of. That somebody has sent a content that was there
    /// already says nothing any more when that is gone.
    async fn all_sent(
        &self,
        contents: &[ContentId],
        sender: &Sender,
    ) -> Result<BTreeSet<ContentId>, StoreError> {
        let of_sender = doc! { "by": sender.as_str(), "state": PROVEN };
        let wanted = doc! { "filename": { "$in": contents }, "$or": [{ "state": DONE }, of_sender] };
        let only = doc! { "_id": 0, "filename": 1, "state": 1, "by": 1 };
        let mut found = self.contents_collection().find(wanted).projection(only).await?;
        let (mut there, mut sent) = (BTreeSet::new(), BTreeSet::new());
        while let Some(content) = found.try_next().await? {
            let Some(id) = content.get_str("filename").ok().and_then(|id| id.parse::<ContentId>().ok())
            else {
                continue;
            };
            if content.get_str("state").is_ok_and(|state| state == DONE) {
                there.insert(id);
            }
            if content.get_str("by").is_ok_and(|by| by == sender.as_str()) {
                sent.insert(id);
            }
        }
        Ok(sent.intersection(&there).copied().collect())
    }

    /// Whether a version that is done, and of one of these tenants, has the content. `None`: of any, or of none.
    async fn is_in_readable(&self, id: ContentId, tenants: Option<&[String]>) -> Result<bool, StoreError> {
        self.is_in_version(&id.to_string(), tenants, &[SetState::Done]).await
    }

    /// Whether a version that stands so has the content, of one of these tenants. `None`: of any, or of none. Each version is
    /// looked at once however many of its files have the content, and those of other tenants are not looked at: some contents,
    /// as the empty one, are in every folder.
    pub(super) async fn is_in_version(
        &self,
        content: &str,
        tenants: Option<&[String]>,
        states: &[SetState],
    ) -> Result<bool, StoreError> {
        let mut last: Option<Place> = None;
        loop {
            let page = versions_with(entries_with(content, tenants, last.as_ref()));
            let found: Vec<Document> = self.entries_collection().aggregate(page).await?.try_collect().await?;
            let found: Vec<Having> = found
                .into_iter()
                .map(|version| typed(ENTRIES, version))
                .collect::<Result<_, StoreError>>()?;
            if found.iter().any(|version| version.stands(states)) {
                return Ok(true);
            }
            if found.iter().map(|version| version.entries).sum::<i64>() < PAGE {
                return Ok(false);
            }
            last = found.into_iter().next_back().map(|version| version.place);
        }
    }
}

/// A version that has a content.
#[derive(Debug, Deserialize)]
struct Having {
    #[serde(rename = "_id")]
    place: Place,
    /// How many of the entries that were read are its own.
    entries: i64,
    /// How it stands; nothing if it is not there.
    state: Vec<SetState>,
}

/// Where it is in the order in which versions are looked at.
#[derive(Debug, Deserialize)]
struct Place {
    #[serde(default)]
    tenant: Option<String>,
    set: ObjectId,
}

impl Having {
    fn stands(&self, states: &[SetState]) -> bool {
        self.state.iter().any(|state| states.contains(state))
    }
}

/// The entries that have a content, of versions of these tenants, and behind all those of a version and the ones before it.
fn entries_with(content: &str, tenants: Option<&[String]>, after: Option<&Place>) -> Document {
    let of_tenants = tenants.map(|tenants| doc! { "$in": tenants });
    let Some(Place { tenant, set }) = after else {
        let mut first = doc! { "file": content };
        if let Some(of_tenants) = of_tenants {
            first.insert("tenant", of_tenants);
        }
        return first;
    };
    let mut others = of_tenants.unwrap_or_default();
    match tenant {
        Some(tenant) => others.insert("$gt", tenant),
        // What is of no tenant comes before all that is of one.
        None => others.insert("$gte", ""),
    };
    let same = tenant.as_deref().map_or(Bson::Null, Bson::from);
    doc! { "$or": [
        { "file": content, "tenant": same, "set": { "$gt": *set } },
        { "file": content, "tenant": others },
    ] }
}

/// The versions of the first of these entries, with how many of the entries each has, and how it stands. All of it is in the
/// index but how it stands.
fn versions_with(entries: Document) -> Vec<Document> {
    vec![
        doc! { "$match": entries },
        doc! { "$sort": { "tenant": 1, "set": 1 } },
        doc! { "$limit": PAGE },
        doc! { "$group": { "_id": { "tenant": "$tenant", "set": "$set" }, "entries": { "$sum": 1 } } },
        doc! { "$lookup": {
            "from": SETS, "localField": "_id.set", "foreignField": "_id", "as": "set",
        } },
        doc! { "$project": { "entries": 1, "state": "$set.state" } },
        doc! { "$sort": { "_id": 1 } },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn having(place: Document, state: &[&str]) -> Having {
        typed(ENTRIES, doc! { "_id": place, "entries": 64, "state": state }).unwrap()
    }

    #[test]
    fn versions_are_looked_at_one_after_the_other_and_only_those_of_the_tenants() {
        let tenants = ["b".to_owned(), "c".to_owned()];
        assert_eq!(entries_with("x", None, None), doc! { "file": "x" });
        let named = doc! { "file": "x", "tenant": { "$in": ["b", "c"] } };
        assert_eq!(entries_with("x", Some(&tenants), None), named);
        let nobody = doc! { "file": "x", "tenant": { "$in": Vec::<&str>::new() } };
        assert_eq!(entries_with("x", Some(&[]), None), nobody);
        let set = ObjectId::from_bytes([7; 12]);
        let behind = |place: Document, tenants: Option<&[String]>| {
            entries_with("x", tenants, Some(&having(place, &["open"]).place))
        };
        let expected = doc! { "$or": [
            { "file": "x", "tenant": "b", "set": { "$gt": set } },
            { "file": "x", "tenant": { "$in": ["b", "c"], "$gt": "b" } },
        ] };
        assert_eq!(behind(doc! { "tenant": "b", "set": set }, Some(&tenants)), expected);
        let expected = doc! { "$or": [
            { "file": "x", "tenant": Bson::Null, "set": { "$gt": set } },
            { "file": "x", "tenant": { "$gte": "" } },
        ] };
        assert_eq!(behind(doc! { "tenant": Bson::Null, "set": set }, None), expected);
        assert_eq!(behind(doc! { "set": set }, None), expected, "one of no tenant may not say so");
    }

    #[test]
    fn a_version_that_is_not_there_stands_nowhere() {
        let place = || doc! { "tenant": "b", "set": ObjectId::from_bytes([7; 12]) };
        let open = having(place(), &["open"]);
        assert!(open.stands(&[SetState::Done, SetState::Open]) && !open.stands(&[SetState::Done]));
        assert!(!having(place(), &[]).stands(&[SetState::Open, SetState::Done, SetState::Gone]));
    }
}
