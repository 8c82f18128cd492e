//! Who is let in: browsers that somebody has logged in with, in `accounts.sessions`, and programs that act for somebody with no
//! more rights than they need, in `accounts.tokens`.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use sha2::{Digest, Sha256};

use super::{Key, Role, User, UserName};
use crate::config::SessionLimits;
use crate::model::QueueId;
use crate::store::collections::USERS;
use crate::store::{Store, StoreError, collect, put};
use crate::text::hex;

/// Use of a session or a token is written down once in so many milliseconds.
const NOTED: i64 = 60_000;

/// What every token begins with, by which tools find those that were left lying about.
const PREFIX: &str = "disbatch_";

#[derive(Debug, Clone, Copy)]
pub struct Visitor<'a> {
    /// The user, with the password that was compared.
    pub user: &'a User,
    /// The address, for the list of sessions.
    pub from: &'a str,
    /// What the browser calls itself, for the list of sessions.
    pub agent: &'a str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub id: ObjectId,
    pub created: Option<DateTime>,
    /// When it was used, to the minute.
    pub seen: Option<DateTime>,
    pub expires: Option<DateTime>,
    /// The address that it began from.
    pub from: String,
    pub agent: String,
}

impl Session {
    fn stored(document: &Document) -> Option<Self> {
        let at = |name: &str| document.get_datetime(name).ok().copied();
        let text = |name: &str| document.get_str(name).unwrap_or_default().to_owned();
        Some(Self {
            id: document.get_object_id("_id").ok()?,
            created: at("created"),
            seen: at("seen"),
            expires: at("expires"),
            from: text("from"),
            agent: text("agent"),
        })
    }
}

impl Store {
    /// Begins a session. The key is for the browser alone.
    #[operation]
    pub async fn begin_session(
        &self,
        visitor: Visitor<'_>,
        limits: SessionLimits,
    ) -> Result<Key, StoreError> {
        let key = Key::new().map_err(StoreError::Spool)?;
        let session = doc! {
            "user": { "$literal": visitor.user.name.as_str() },
            "password": of_password(visitor.user),
            "fingerprint": key.fingerprint(),
            "from": { "$literal": visitor.from },
            "agent": { "$literal": visitor.agent },
            "created": "$$NOW",
            "seen": "$$NOW",
            "idle_until": later(limits.idle),
            "expires": later(limits.whole),
        };
        // An update, because an insertion cannot ask for the server's time.
        self.sessions()
            .update_one(doc! { "_id": key.id }, vec![doc! { "$set": session }])
            .upsert(true)
            .await?;
        Ok(key)
    }

    /// Who has the session of this key, unless it has ended, they are gone, or they have another password than when it
    /// began: however these two meet, no session outlives its password. Being asked for keeps it alive for the time
    /// that it may be idle.
    #[operation]
    pub async fn session_user(&self, key: &Key, limits: SessionLimits) -> Result<Option<User>, StoreError> {
        let stale = doc! { "$lt": ["$seen", { "$subtract": ["$$NOW", NOTED] }] };
        let pipeline = [
            doc! { "$match": { "_id": key.id, "$expr": alive() } },
            with_user(),
            doc! { "$project": { "fingerprint": 1, "password": 1, "users": 1, "stale": stale } },
        ];
        let Some(found) = self.sessions().aggregate(pipeline).await?.try_next().await? else {
            return Ok(None);
        };
        if !key.matches(found.get("fingerprint")) {
            return Ok(None);
        }
        let Some(user) = joined(&found).filter(|user| found.get("password") == Some(&of_password(user)))
        else {
            return Ok(None);
        };
        if found.get_bool("stale").unwrap_or(false) {
            let used = vec![doc! { "$set": { "seen": "$$NOW", "idle_until": later(limits.idle) } }];
            self.sessions().update_one(doc! { "_id": key.id }, used).await?;
        }
        Ok(Some(user))
    }

    /// Whether the session of this key has not ended. Being asked for does not keep it alive.
    #[operation]
    pub async fn is_session_alive(&self, key: &Key) -> Result<bool, StoreError> {
        let filter = doc! { "_id": key.id, "fingerprint": key.fingerprint(), "$expr": alive() };
        Ok(self.sessions().find_one(filter).projection(doc! { "_id": 1 }).await?.is_some())
    }

    #[operation]
    pub async fn end_session(&self, key: &Key) -> Result<(), StoreError> {
        self.sessions().delete_one(doc! { "_id": key.id, "fingerprint": key.fingerprint() }).await?;
        Ok(())
    }

    /// Ends one of somebody's sessions. Returns false if they have no such session.
    #[operation]
    pub async fn end_session_of(&self, user: &UserName, id: ObjectId) -> Result<bool, StoreError> {
        let ended = self.sessions().delete_one(doc! { "_id": id, "user": user.as_str() }).await?;
        Ok(ended.deleted_count == 1)
    }

    #[operation]
    pub async fn end_sessions(&self, user: &UserName) -> Result<u64, StoreError> {
        Ok(self.sessions().delete_many(doc! { "user": user.as_str() }).await?.deleted_count)
    }

    /// Somebody's sessions that have not ended, the latest first.
    #[operation]
    pub async fn list_sessions(&self, user: &UserName) -> Result<Vec<Session>, StoreError> {
        let filter = doc! { "user": user.as_str(), "$expr": alive() };
        let found = collect(self.sessions().find(filter).sort(doc! { "created": -1, "_id": -1 })).await?;
        Ok(found.iter().filter_map(Session::stored).collect())
    }
}

/// Tells whether somebody still has a password, and not which.
fn of_password(user: &User) -> Bson {
    let stored = user.password.as_ref().map(|password| password.as_stored()).unwrap_or_default();
    Bson::from(hex(Sha256::digest(stored)))
}

/// Has not ended, neither in all nor for not being used.
fn alive() -> Document {
    doc! { "$and": [{ "$gt": ["$expires", "$$NOW"] }, { "$gt": ["$idle_until", "$$NOW"] }] }
}

/// The server's time and this more.
fn later(length: Duration) -> Document {
    doc! { "$add": ["$$NOW", i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 2)] }
}

/// Looks the user up along with something. See [`joined`].
fn with_user() -> Document {
    doc! { "$lookup": { "from": USERS.name, "localField": "user", "foreignField": "_id", "as": "users" } }
}

/// The user that was looked up along with something.
fn joined(found: &Document) -> Option<User> {
    let users = found.get_array("users").ok()?;
    users.first().and_then(Bson::as_document).and_then(User::stored)
}

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

#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub id: ObjectId,
    pub user: String,
    pub name: String,
    pub role: Role,
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

#[derive(Debug, Clone, PartialEq)]
pub struct Bearer {
    /// Its owner, with the rights that the token leaves them.
    pub user: User,
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
            "role": new.role.as_str(),
            "created": "$$NOW",
        };
        let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(|queue| queue.0).collect::<Vec<_>>();
        put(&mut token, "queues", new.queues.as_ref().map(ids));
        put(&mut token, "expires", new.lasts.map(later));
        self.tokens().update_one(doc! { "_id": key.id }, vec![doc! { "$set": token }]).upsert(true).await?;
        Ok(format!("{PREFIX}{}", key.text()))
    }

    /// Whom this token lets in. `None`: it is none, has ended, or its owner is gone.
    #[operation]
    pub async fn token_bearer(&self, text: &str, from: &str) -> Result<Option<Bearer>, StoreError> {
        let Some(key) = text.strip_prefix(PREFIX).and_then(Key::parse) else { return Ok(None) };
        let pipeline = [
            doc! { "$match": { "_id": key.id } },
            with_user(),
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
        let found = collect(self.tokens().aggregate(pipeline)).await?;
        Ok(found.iter().filter_map(Token::stored).collect())
    }

    /// Removes a token: of this user, or whoever has it. Returns false if there is none.
    #[operation]
    pub async fn revoke_token(&self, id: ObjectId, user: Option<&UserName>) -> Result<bool, StoreError> {
        let mut filter = doc! { "_id": id };
        put(&mut filter, "user", user.map(UserName::as_str));
        Ok(self.tokens().delete_one(filter).await?.deleted_count == 1)
    }

    pub(super) async fn revoke_tokens(&self, user: &UserName) -> Result<(), StoreError> {
        self.tokens().delete_many(doc! { "user": user.as_str() }).await?;
        Ok(())
    }
}

/// Whether it has ended. One without an end is compared with null, which is before every time.
fn is_over() -> Document {
    doc! { "$and": [{ "$ne": [{ "$type": "$expires" }, "missing"] }, { "$lte": ["$expires", "$$NOW"] }] }
}

fn stale() -> Document {
    doc! { "$lt": [{ "$ifNull": ["$used", DateTime::from_millis(0)] }, { "$subtract": ["$$NOW", NOTED] }] }
}
