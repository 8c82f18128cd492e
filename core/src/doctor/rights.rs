//! What a user of MongoDB would have to be allowed to do, and is not.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use crate::config::Role;
use crate::store::collections::{self, of_all};
use crate::store::{Store, StoreError};

/// What is not allowed on a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name; none for all collections of the database.
    pub collection: Option<&'static str>,
    /// As MongoDB calls them: `find`, `createIndex`.
    pub actions: Vec<&'static str>,
}

impl Store {
    /// Which rights of `role` the user of this connection lacks. `None`: it is nobody, as the server asks nobody who they are.
    #[operation]
    pub async fn missing_rights(&self, role: Role) -> Result<Option<Vec<Missing>>, StoreError> {
        let status =
            self.database().run_command(doc! { "connectionStatus": 1, "showPrivileges": true }).await?;
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        let array = |name: &str| info.get_array(name).map(Vec::as_slice).unwrap_or_default();
        if array("authenticatedUsers").is_empty() {
            return Ok(None);
        }
        let privileges: Vec<&Document> =
            array("authenticatedUserPrivileges").iter().filter_map(Bson::as_document).collect();
        Ok(Some(missing(&privileges, self.database_name(), role)))
    }
}

fn missing(privileges: &[&Document], database: &str, role: Role) -> Vec<Missing> {
    let lacking = |collection: Option<&'static str>, actions: &[&'static str]| {
        let allowed = |action: &&&'static str| {
            privileges.iter().any(|privilege| allows(privilege, (database, collection), action))
        };
        let actions: Vec<&'static str> = actions.iter().filter(|action| !allowed(action)).copied().collect();
        (!actions.is_empty()).then_some(Missing { collection, actions })
    };
    let of_all = lacking(None, of_all(role));
    let each = collections::ALL
        .iter()
        .filter_map(|collection| lacking(Some(collection.name), collection.actions(role)));
    of_all.into_iter().chain(each).collect()
}

/// Whether a privilege allows an action on a collection, or on all of the database.
fn allows(privilege: &Document, (database, collection): (&str, Option<&str>), action: &str) -> bool {
    let Ok(resource) = privilege.get_document("resource") else { return false };
    let covers = |name: &str, wanted: Option<&str>| match resource.get_str(name) {
        // Which stands for all of them.
        Ok("") => true,
        Ok(found) => wanted == Some(found),
        Err(_) => false,
    };
    let is_any = resource.get_bool("anyResource").is_ok_and(|any| any);
    let covers = is_any || (covers("db", Some(database)) && covers("collection", collection));
    covers
        && privilege
            .get_array("actions")
            .is_ok_and(|actions| actions.iter().any(|one| one.as_str() == Some(action)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_database_of_a_collection_or_of_all() {
        let on = |db: &str, collection: &str, actions: &[&str]| {
            doc! { "resource": { "db": db, "collection": collection }, "actions": actions.to_vec() }
        };
        let all = doc! { "resource": { "anyResource": true }, "actions": ["find"] };
        for (privilege, of, allowed) in [
            (on("d", "", &["find", "update"]), ("d", Some("tasks")), true),
            (on("d", "", &["find"]), ("d", None), true),
            (on("", "", &["find"]), ("d", None), true),
            (on("d", "tasks", &["find"]), ("d", Some("tasks")), true),
            (on("d", "tasks", &["find"]), ("d", Some("nodes")), false),
            (on("d", "tasks", &["find"]), ("d", None), false),
            (on("e", "", &["find"]), ("d", Some("tasks")), false),
            (on("d", "", &["update"]), ("d", Some("tasks")), false),
            (doc! { "resource": { "cluster": true }, "actions": ["find"] }, ("d", None), false),
            (all, ("d", None), true),
            (doc! { "actions": 5 }, ("d", None), false),
        ] {
            assert_eq!(allows(&privilege, of, "find"), allowed, "{privilege} {of:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named_by_collection() {
        let read = doc! { "resource": { "db": "d", "collection": "" }, "actions": ["changeStream", "collStats", "find"] };
        let missing = missing(&[&read], "d", Role::DisbatchWeb);
        assert!(missing.iter().all(|missing| missing.collection.is_some()), "{missing:?}");
        let of_tasks = missing.iter().find(|missing| missing.collection == Some("tasks")).unwrap();
        assert!(of_tasks.actions.contains(&"insert") && !of_tasks.actions.contains(&"find"), "{of_tasks:?}");
        let nobody = super::missing(&[], "d", Role::DisbatchWeb);
        assert_eq!((nobody[0].collection, &nobody[0].actions[..]), (None, of_all(Role::DisbatchWeb)));
    }
}
