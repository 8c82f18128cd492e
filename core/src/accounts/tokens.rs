//! What programs are let in with, in `accounts.tokens`: each acts for somebody, with no more rights than it needs.

use disbatch_operation::operation;
use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;
use mongodb::Collection;

use super::sessions::{joined, later};
use super::users::COLLECTION as USERS;
use super::{Key, Role, User, UserName};
use crate::model::QueueId;
use crate::store::collections;
use crate::store::{Store, StoreError};

pub(crate) const COLLECTION: &str = collections::TOKENS.name;

/// What every token begins with, by which tools find those that were left lying about.
const PREFIX: &str = "disbatch_";

/// Use of a token is written down once in so many milliseconds.
const NOTED: i64 = 60_000;

/// Whether the text is a token, or was one once. A password may begin like one.
pub fn is_token(text: &str) -> bool {
    text.strip_prefix(PREFIX).and_then(Key::parse).is_some()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub user: UserName,
    /// What it is for, in its owner's words.
    pub name: String,
    /// The highest role that it has anywhere.
    pub role: Role,
    /// The only queues that it is good for, if not for all.
    pub queues: Option<BTreeSet<QueueId>>,
    /// After which time it is good for nothing, if ever.
    pub lasts: Option<Duration>,
}

/// A token, for the list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub id: ObjectId,
    pub user: String,
    /// What it is for, in its owner's words.
    pub name: String,
    /// The highest role that it has anywhere.
    pub role: Role,
    /// The only queues that it is good for, if not for all.
    pub queues: Option<BTreeSet<QueueId>>,
    pub created: Option<DateTime>,
    pub expires: Option<DateTime>,
    /// When it was used last, to the minute.
    pub used: Option<DateTime>,
    /// The address that it was used from last.
    pub from: Option<String>,
    /// Whether it has ended by the server's clock.
    pub is_over: bool,
}

impl Token {
    fn stored(document: &Document) -> Option<Self> {
        let at = |name: &str| document.get_datetime(name).ok().copied();
        let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
        let ids = |queues: &bson::Array| {
            queues.iter().filter_map(Bson::as_object_id).map(QueueId).collect::<BTreeSet<QueueId>>()
        };
        Some(Self {
            id: document.get_object_id("_id").ok()?,
            user: text("user")?,
            name: text("name").unwrap_or_default(),
            role: document.get_str("role").ok()?.parse().ok()?,
            // What is there and cannot be understood is good for no queue.
            queues: document.get("queues").map(|queues| queues.as_array().map(ids).unwrap_or_default()),
            created: at("created"),
            expires: at("expires"),
            used: at("used"),
            from: text("from"),
            is_over: document.get_bool("is_over").unwrap_or(false),
        })
    }
}

/// Whom a token lets in.
#[derive(Debug, Clone, PartialEq)]
pub struct Bearer {
    /// Its owner, with the rights that the token leaves them.
    pub user: User,
    /// The token's name.
    pub token: String,
}

impl Store {
    /// Makes a token, and returns its text, which nobody can read again.
    #[operation]
    pub async fn create_token(&self, new: &NewToken) -> Result<String, StoreError> {
        let key = Key::new().map_err(StoreError::Spool)?;
        let mut token = doc! {
            "user": { "$literal": new.user.as_str() },
            "name": { "$literal": &new.name },
            "fingerprint": key.fingerprint(),
            "role": new.role.name(),
            "created": "$$NOW",
        };
        if let Some(queues) = &new.queues {
            token.insert("queues", queues.iter().map(|queue| queue.0).collect::<Vec<_>>());
        }
        if let Some(lasts) = new.lasts {
            token.insert("expires", later(lasts));
        }
        self.tokens().update_one(doc! { "_id": key.id }, vec![doc! { "$set": token }]).upsert(true).await?;
        Ok(format!("{PREFIX}{}", key.text()))
    }

    /// Whom this token lets in. `None`: it is none, has ended, or its owner is gone.
    #[operation]
    pub async fn token_bearer(&self, text: &str, from: &str) -> Result<Option<Bearer>, StoreError> {
        let Some(key) = text.strip_prefix(PREFIX).and_then(Key::parse) else { return Ok(None) };
        let pipeline = [
            doc! { "$match": { "_id": key.id } },
            doc! { "$lookup": { "from": USERS, "localField": "user", "foreignField": "_id", "as": "users" } },
            doc! { "$addFields": { "is_over": is_over(), "stale": stale() } },
        ];
        let Some(found) = self.tokens().aggregate(pipeline).await?.try_next().await? else { return Ok(None) };
        let (Some(token), Some(mut user)) = (Token::stored(&found), joined(&found)) else { return Ok(None) };
        if token.is_over || !key.matches(found.get("fingerprint")) {
            return Ok(None);
        }
        if found.get_bool("stale").unwrap_or(true) {
            let used = vec![doc! { "$set": { "used": "$$NOW", "from": { "$literal": from } } }];
            self.tokens().update_one(doc! { "_id": key.id }, used).await?;
        }
        user.rights = user.rights.narrowed(token.role, token.queues);
        Ok(Some(Bearer { user, token: token.name }))
    }

    /// The tokens of somebody, or of everybody, the latest first.
    #[operation]
    pub async fn list_tokens(&self, user: Option<&UserName>) -> Result<Vec<Token>, StoreError> {
        let pipeline = [
            doc! { "$match": user.map(|user| doc! { "user": user.as_str() }).unwrap_or_default() },
            doc! { "$sort": { "_id": -1 } },
            doc! { "$addFields": { "is_over": is_over() } },
            doc! { "$unset": "fingerprint" },
        ];
        let found: Vec<Document> = self.tokens().aggregate(pipeline).await?.try_collect().await?;
        Ok(found.iter().filter_map(Token::stored).collect())
    }

    /// Removes a token: of this user, or whoever has it. Returns false if there is none.
    #[operation]
    pub async fn revoke_token(&self, id: ObjectId, user: Option<&UserName>) -> Result<bool, StoreError> {
        let mut filter = doc! { "_id": id };
        if let Some(user) = user {
            filter.insert("user", user.as_str());
        }
        Ok(self.tokens().delete_one(filter).await?.deleted_count == 1)
    }

    /// Removes all tokens of somebody.
    pub(super) async fn revoke_tokens(&self, user: &UserName) -> Result<(), StoreError> {
        self.tokens().delete_many(doc! { "user": user.as_str() }).await?;
        Ok(())
    }

    fn tokens(&self) -> Collection<Document> {
        self.database().collection(COLLECTION)
    }
}

/// Whether it has ended. One without an end is compared with null, which is before every time.
fn is_over() -> Document {
    doc! { "$and": [{ "$ne": [{ "$type": "$expires" }, "missing"] }, { "$lte": ["$expires", "$$NOW"] }] }
}

fn stale() -> Document {
    doc! { "$lt": [{ "$ifNull": ["$used", DateTime::from_millis(0)] }, { "$subtract": ["$$NOW", NOTED] }] }
}
