//! What each process may do, by the operations that it calls.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};

use crate::config::{Config, Role, relaxed};
use crate::store::collections::{self, INBOX, REPORTS};

/// Stands for every collection of the database.
const ANY: &str = "";

/// Actions of MongoDB by collection.
pub type Permissions = BTreeMap<String, BTreeSet<String>>;

/// A file of permissions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PermissionsError {
    #[error("{0}")]
    Parse(#[from] serde_json::Error),
    #[error(
        "'{0}' is no user of Disbatch: expected disbatchd, disbatch_web, task_runner, queuebalance or plugin"
    )]
    NoSuchUser(String),
}

/// What one user may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privileges(Permissions);

impl Privileges {
    /// What the operations of `role` need.
    pub fn of(role: Role, config: &Config) -> Self {
        let mut privileges = Self::default();
        privileges.allow(ANY, collections::of_all(role).iter().copied());
        for collection in collections::ALL {
            privileges.allow(collection.name, collection.actions(role).iter().copied());
        }
        // A runner writes reports with its own user where plugins have none.
        if role == Role::TaskRunner && config.auth.password(Role::Plugin).is_none() {
            privileges.allow(REPORTS.name, REPORTS.actions(Role::Plugin).iter().copied());
        }
        privileges
    }

    /// What producers of tasks need.
    pub fn of_producer() -> Self {
        Self::only([(INBOX.name.to_owned(), BTreeSet::from(["insert".to_owned()]))].into())
    }

    /// None but these.
    pub fn only(permissions: Permissions) -> Self {
        Self(permissions)
    }

    /// Adds to them.
    pub fn add(&mut self, permissions: &Permissions) {
        for (collection, actions) in permissions {
            self.allow(collection, actions.iter().map(String::as_str));
        }
    }

    fn allow<'a>(&mut self, collection: &str, actions: impl IntoIterator<Item = &'a str>) {
        let mut actions = actions.into_iter().map(str::to_owned).peekable();
        if actions.peek().is_some() {
            self.0.entry(collection.to_owned()).or_default().extend(actions);
        }
    }

    /// As the commands of MongoDB take them.
    pub(crate) fn documents(&self, database: &str) -> Vec<Document> {
        let privilege = |(collection, actions): (&String, &BTreeSet<String>)| {
            let actions: Vec<&String> = actions.iter().collect();
            doc! { "resource": { "db": database, "collection": collection }, "actions": actions }
        };
        self.0.iter().map(privilege).collect()
    }
}

/// Reads a file of a plugin's permissions, `{collection: [action, ...]}`, in relaxed JSON.
pub fn plugin_permissions(text: &str) -> Result<Permissions, PermissionsError> {
    Ok(serde_json::from_str(&relaxed::to_strict(text))?)
}

/// Reads a file of additional permissions, `{user: {collection: [action, ...]}}`, in relaxed JSON.
pub fn additional_permissions(text: &str) -> Result<BTreeMap<String, Permissions>, PermissionsError> {
    let by_user: BTreeMap<String, Permissions> = serde_json::from_str(&relaxed::to_strict(text))?;
    match by_user.keys().find(|name| !Role::ALL.iter().any(|role| role.user() == **name)) {
        Some(stranger) => Err(PermissionsError::NoSuchUser(stranger.clone())),
        None => Ok(by_user),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(auth: &str) -> Config {
        let text = format!(r#"{{"mongohost":"h","database":"d","auth":{auth}}}"#);
        Config::parse(&text, Path::new("/c.json")).unwrap()
    }

    #[test]
    fn only_the_dci_may_change_queues_as_a_whole_and_nobody_may_drop() {
        let config = config(r#"{"plugin":"p"}"#);
        for role in Role::ALL {
            let privileges = Privileges::of(role, &config);
            let may = |collection: &str, action: &str| {
                privileges.0.get(collection).is_some_and(|actions| actions.contains(action))
            };
            assert_eq!(may("queues", "insert"), role == Role::DisbatchWeb, "{role:?}");
            assert_eq!(may("reports", "insert"), role == Role::Plugin, "{role:?}");
            let makes_tasks = matches!(role, Role::DisbatchWeb | Role::Disbatchd);
            assert_eq!(may("tasks", "insert"), makes_tasks, "{role:?}");
            // A DEN notes that it has taken a canary back.
            let is_audited = matches!(role, Role::DisbatchWeb | Role::Disbatchd);
            assert_eq!(may("audit", "insert"), is_audited, "{role:?}");
            for action in ["insert", "update", "remove"] {
                // Whoever may define what nodes do is the DCI alone.
                assert_eq!(may("workers", action), role == Role::DisbatchWeb, "{role:?} {action}");
            }
            for collection in [collections::USERS, collections::SESSIONS, collections::TOKENS] {
                for action in ["insert", "update", "remove"] {
                    assert_eq!(
                        may(collection.name, action),
                        role == Role::DisbatchWeb,
                        "{role:?} {collection:?}"
                    );
                }
            }
            assert!(
                !may("audit", "update") && !may("audit", "remove"),
                "{role:?} could change what was recorded"
            );
            let actions: BTreeSet<&String> = privileges.0.values().flatten().collect();
            assert!(!actions.iter().any(|action| action.starts_with("drop")), "{role:?}");
        }
    }

    #[test]
    fn a_runner_writes_reports_where_plugins_have_no_user() {
        let reports = Permissions::from([("reports".to_owned(), BTreeSet::from(["insert".to_owned()]))]);
        let mut expected = Privileges::of(Role::TaskRunner, &config(r#"{"plugin":"p"}"#));
        expected.add(&reports);
        assert_eq!(Privileges::of(Role::TaskRunner, &config("{}")), expected);
    }

    #[test]
    fn files_of_permissions_are_read() {
        let plugin =
            plugin_permissions("{ \"reports\": [\"insert\"], # theirs\n \"mail\": [\"find\",], }").unwrap();
        assert_eq!(plugin.keys().collect::<Vec<_>>(), ["mail", "reports"]);
        let more = additional_permissions(r#"{"disbatch_web":{"tasks":["update"]}}"#).unwrap();
        assert!(more["disbatch_web"]["tasks"].contains("update"));
        let error = additional_permissions(r#"{"root":{"tasks":["update"]}}"#).unwrap_err();
        assert!(error.to_string().starts_with("'root' is no user of Disbatch"));
        assert!(plugin_permissions(r#"{"reports":"insert"}"#).is_err());
    }

    #[test]
    fn privileges_are_written_as_mongodb_takes_them() {
        let plugin = Privileges::of(Role::Plugin, &config("{}"));
        let inserts = |collection: &str| doc! { "resource": { "db": "d", "collection": collection }, "actions": ["insert"] };
        assert_eq!(plugin.documents("d"), ["reports", "tasks.commits"].map(inserts));
        assert_eq!(Privileges::of_producer().documents("d"), [inserts("inbox")]);
    }
}
