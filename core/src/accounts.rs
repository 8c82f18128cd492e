//! People and programs that use the web server: who they are, and what they may do.
//!
//! | collection | a document |
//! | --- | --- |
//! | `accounts.users` | somebody, by name, with a role, grants, and an Argon2id hash of the password |
//! | `accounts.sessions` | a browser that somebody has logged in with |
//! | `accounts.tokens` | a program that acts for somebody, with no more rights than it needs |
//!
//! Applications may have collections of their own called `users`; these are not theirs.
//!
//! Of sessions and tokens only a fingerprint is stored: whoever reads the database cannot use them. Their times are
//! compared with the server's clock, so that it does not matter which host is asked.

mod access;
mod rights;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::store::{Store, StoreError, collect, put};

pub use access::{Bearer, NewToken, Session, Token, Visitor, is_token};
pub use disbatch_values::text::{NameError, UserName};
pub use disbatch_wire::accounts::Role;
pub use rights::{Grant, Reach, Rights, Scope, tasks_within};

/// The secret's length in bytes.
const LENGTH: usize = 32;

/// The length of an id as text.
const ID_LENGTH: usize = 24;

/// So many characters a password has. Longer ones only take time.
const LENGTHS: RangeInclusive<usize> = 10..=1024;

/// An id and a secret of 256 random bits. As text they are 67 letters, digits, hyphens and underscores.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub id: ObjectId,
    secret: [u8; LENGTH],
}

impl Key {
    pub fn new() -> std::io::Result<Self> {
        let mut secret = [0; LENGTH];
        getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
        Ok(Self { id: ObjectId::new(), secret })
    }

    /// Reads what [`Key::text`] has written. `None`: it is no key.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_at_checked(ID_LENGTH)?;
        let secret = URL_SAFE_NO_PAD.decode(secret).ok()?;
        Some(Self { id: ObjectId::parse_str(id).ok()?, secret: secret.try_into().ok()? })
    }

    /// The whole of it, for whom it is made.
    pub fn text(&self) -> String {
        format!("{}{}", self.id, URL_SAFE_NO_PAD.encode(self.secret))
    }

    /// By which forms of a session's pages are known. It does not tell the secret, and looks different each time, so that
    /// the length of compressed pages does not tell it either.
    pub fn form_token(&self) -> String {
        let mut mask = [0; LENGTH];
        // Without random numbers it is the same each time, and as good otherwise.
        let _unmasked = getrandom::fill(&mut mask);
        let masked = self.of_forms().into_iter().zip(mask).map(|(byte, mask)| byte ^ mask);
        URL_SAFE_NO_PAD.encode(mask.into_iter().chain(masked).collect::<Vec<u8>>())
    }

    /// Whether `given` is a [`Key::form_token`]. The time that it takes does not tell how much of it is right.
    pub fn is_form_token(&self, given: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(given) else { return false };
        let Some((mask, masked)) = bytes.split_at_checked(LENGTH) else { return false };
        let token: Vec<u8> = masked.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        masked.len() == LENGTH && bool::from(token.ct_eq(&self.of_forms()))
    }

    fn of_forms(&self) -> [u8; LENGTH] {
        Sha256::new().chain_update(b"disbatch form\0").chain_update(self.secret).finalize().into()
    }

    /// What is stored of the secret. It is random, so that nobody finds it by trying.
    fn fingerprint(&self) -> Bson {
        let bytes = Sha256::digest(self.secret).to_vec();
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
    }

    /// Whether `stored` is the fingerprint. The time that it takes does not tell how much of it is right.
    fn matches(&self, stored: Option<&Bson>) -> bool {
        let (Some(Bson::Binary(stored)), Bson::Binary(ours)) = (stored, self.fingerprint()) else {
            return false;
        };
        stored.bytes.ct_eq(&ours.bytes).into()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("a password has {} to {} characters, this one has {length}", LENGTHS.start(), LENGTHS.end(), length = .0)]
    Length(usize),
    /// The system has no memory or no random numbers for it.
    #[error("the password cannot be hashed")]
    Hash,
}

/// An Argon2id hash in the PHC string format, which names how it was made.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// That of no password, to be compared with where there is no user.
static NOBODY: LazyLock<Option<PasswordHash>> =
    LazyLock::new(|| PasswordHash::of("nobody has this password").ok());

impl PasswordHash {
    /// The hash of a password that somebody chooses. It takes tens of milliseconds of a processor and 19 MiB.
    pub fn of(password: &str) -> Result<Self, PasswordError> {
        let length = password.chars().count();
        if !LENGTHS.contains(&length) {
            return Err(PasswordError::Length(length));
        }
        let hash = Argon2::default().hash_password(password.as_bytes());
        hash.map(|hash| Self(hash.to_string())).map_err(|_| PasswordError::Hash)
    }

    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// Whether it is the hash of `password`. It takes as long as [`PasswordHash::of`].
    pub fn is_of(&self, password: &str) -> bool {
        password.len() <= 4 * LENGTHS.end()
            && Argon2::default().verify_password(password.as_bytes(), self.0.as_str()).is_ok()
    }

    /// Takes the time that it takes to compare a password, where there is none to compare with: who tries names is not
    /// to learn which there are.
    pub fn of_nobody(password: &str) {
        if let Some(hash) = NOBODY.as_ref() {
            let _never = hash.is_of(password);
        }
    }
}

disbatch_values::not_shown!(PasswordHash, _this => "PasswordHash");

/// How often a change of rights is tried where others change them at the same moment. Each time one of these is done, so
/// that this is enough for as many at once.
const TRIES: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub name: UserName,
    pub rights: Rights,
    /// What their password is compared with. None: they have none, and come through a proxy.
    pub password: Option<PasswordHash>,
    pub created: Option<DateTime>,
}

impl User {
    /// A document of `accounts.users`. `None`: it has no name.
    fn stored(document: &Document) -> Option<Self> {
        Some(Self {
            name: document.get_str("_id").ok()?.parse().ok()?,
            rights: Rights::stored(document),
            password: document.get_str("password").ok().map(|hash| PasswordHash(hash.to_owned())),
            created: document.get_datetime("created").ok().copied(),
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum RightsChange {
    Made {
        before: Rights,
        after: Rights,
    },
    Nobody,
    /// Others have changed them again and again meanwhile. Nothing was changed.
    Overtaken,
}

impl Store {
    #[operation]
    pub async fn has_users(&self) -> Result<bool, StoreError> {
        Ok(self.users().find_one(doc! {}).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// Adds somebody. Returns false if there is somebody of that name, who stays as they are.
    #[operation]
    pub async fn add_user(
        &self,
        name: &UserName,
        role: Option<Role>,
        grants: &[Grant],
        password: Option<&PasswordHash>,
    ) -> Result<bool, StoreError> {
        let mut user = fields(role, grants);
        user.insert("_id", name.as_str());
        user.insert("created", self.now());
        put(&mut user, "password", password.map(PasswordHash::as_stored));
        Ok(StoreError::unless_duplicate(self.users().insert_one(user).await)?.is_some())
    }

    #[operation]
    pub async fn find_user(&self, name: &UserName) -> Result<Option<User>, StoreError> {
        let found = self.users().find_one(doc! { "_id": name.as_str() }).await?;
        Ok(found.as_ref().and_then(User::stored))
    }

    #[operation]
    pub async fn list_users(&self) -> Result<Vec<User>, StoreError> {
        let found = collect(self.users().find(doc! {}).sort(doc! { "_id": 1 })).await?;
        Ok(found.iter().filter_map(User::stored).collect())
    }

    /// Gives somebody the role and the grants that `change` makes of those that they have. What others change at the same
    /// moment is not lost: then `change` is asked again.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn change_rights<E: From<StoreError> + fmt::Display>(
        &self,
        name: &UserName,
        change: impl Fn(&Rights) -> Result<Rights, E>,
    ) -> Result<RightsChange, E> {
        for _ in 0..TRIES {
            let found =
                self.users().find_one(doc! { "_id": name.as_str() }).await.map_err(StoreError::from)?;
            let Some(found) = found else { return Ok(RightsChange::Nobody) };
            let before = Rights::stored(&found);
            let after = change(&before)?;
            let update = match after.everywhere() {
                role @ Some(_) => doc! { "$set": fields(role, after.grants()) },
                None => doc! { "$set": fields(None, after.grants()), "$unset": { "role": "" } },
            };
            let changed = self.users().update_one(unchanged(name, &found), update).await;
            if changed.map_err(StoreError::from)?.matched_count == 1 {
                return Ok(RightsChange::Made { before, after });
            }
        }
        Ok(RightsChange::Overtaken)
    }

    /// Gives somebody another password, and ends their sessions. Returns false if there is nobody of that name.
    #[operation]
    pub async fn set_password(&self, name: &UserName, password: &PasswordHash) -> Result<bool, StoreError> {
        let change = doc! { "$set": { "password": password.as_stored() } };
        let changed = self.users().update_one(doc! { "_id": name.as_str() }, change).await?;
        self.end_sessions(name).await?;
        Ok(changed.matched_count == 1)
    }

    /// Removes somebody with their sessions and tokens, which are of no use without them even if this is cut short.
    /// Returns false if there is nobody of that name.
    #[operation]
    pub async fn remove_user(&self, name: &UserName) -> Result<bool, StoreError> {
        // Before, so that nothing is left for the next user of that name if this is cut short; and again for what was made
        // meanwhile.
        self.end_sessions(name).await?;
        self.revoke_tokens(name).await?;
        let removed = self.users().delete_one(doc! { "_id": name.as_str() }).await?;
        self.end_sessions(name).await?;
        self.revoke_tokens(name).await?;
        Ok(removed.deleted_count == 1)
    }
}

/// What finds a user whose rights are still stored as they were found, also those that nobody understands.
fn unchanged(name: &UserName, found: &Document) -> Document {
    let mut filter = doc! { "_id": name.as_str() };
    for field in ["role", "grants"] {
        // What is missing is equal to null.
        let value = found.get(field).cloned().unwrap_or(Bson::Null);
        filter.insert(field, doc! { "$eq": value });
    }
    filter
}

fn fields(role: Option<Role>, grants: &[Grant]) -> Document {
    let mut fields = doc! { "grants": grants.iter().map(Grant::document).collect::<Vec<_>>() };
    put(&mut fields, "role", role.map(Role::as_str));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_and_read() {
        let key = Key::new().unwrap();
        assert_eq!(key.text().len(), 67);
        assert_eq!(Key::parse(&key.text()), Some(key.clone()));
        assert!(key.matches(Some(&key.fingerprint())));
        let other = Key::new().unwrap();
        assert!(!other.matches(Some(&key.fingerprint())) && !key.matches(None));
        assert!(key.is_form_token(&key.form_token()));
        assert!(!key.is_form_token(&other.form_token()) && !key.is_form_token(""));
        assert_ne!(key.form_token(), key.form_token());
        assert!(!key.is_form_token(&format!("{}aaaa", key.form_token())), "nothing may follow");
        for secret in [key.text().get(24..).unwrap(), &key.form_token()] {
            assert!(!format!("{key:?}").contains(secret));
        }
        assert!(!key.form_token().contains(key.text().get(24..).unwrap()));
    }

    #[test]
    fn anything_else_is_no_key() {
        let text = Key::new().unwrap().text();
        let wrong = ["", "x", &text[1..], &text[..66], &format!("{text}a"), &format!("g{}", &text[1..])];
        for wrong in wrong {
            assert_eq!(Key::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Key::parse("ééééééééééééééé"), None);
    }

    #[test]
    fn a_password_is_known_by_its_hash() {
        let hash = PasswordHash::of("correct horse").unwrap();
        assert!(hash.as_stored().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.as_stored());
        assert!(hash.is_of("correct horse"));
        assert!(!hash.is_of("correct hors") && !hash.is_of("") && !hash.is_of(&"x".repeat(5000)));
        assert_ne!(hash, PasswordHash::of("correct horse").unwrap(), "each has a salt of its own");
        assert!(!PasswordHash("rubbish".to_owned()).is_of("correct horse"));
        assert!(!format!("{hash:?}").contains("argon2"));
    }

    #[test]
    fn lengths_are_limited() {
        assert_eq!(PasswordHash::of("short").unwrap_err(), PasswordError::Length(5));
        let error = PasswordHash::of(&"x".repeat(1025)).unwrap_err();
        assert_eq!(error.to_string(), "a password has 10 to 1024 characters, this one has 1025");
    }

    #[test]
    fn a_change_is_for_rights_that_are_as_they_were_found() {
        let name: UserName = "alice".parse().unwrap();
        let found = doc! { "_id": "alice", "password": "$x", "grants": [{ "tenant": "acme", "role": 4 }] };
        let expected = doc! {
            "_id": "alice", "role": { "$eq": null }, "grants": { "$eq": [{ "tenant": "acme", "role": 4 }] },
        };
        assert_eq!(unchanged(&name, &found), expected);
    }

    #[test]
    fn users_are_read_as_far_as_they_are_some() {
        let user = User::stored(&doc! { "_id": "alice", "role": "admin", "password": "$x" }).unwrap();
        assert_eq!((user.name.as_str(), user.rights), ("alice", Rights::all()));
        assert!(user.password.is_some());
        assert_eq!(User::stored(&doc! { "_id": 5 }), None);
    }
}
