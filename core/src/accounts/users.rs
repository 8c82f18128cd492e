//! The people who may log in, in `accounts.users`.

use disbatch_operation::operation;
use std::fmt;

use bson::{Bson, DateTime, Document, doc};
use disbatch_values::text::UserName;

use super::{Grant, PasswordHash, Rights, Role};
use crate::store::{Store, StoreError, collect, put};

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
    pub(super) fn stored(document: &Document) -> Option<Self> {
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
