//! What each process may do, by the operations that it calls.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};

use crate::balance::lease;
use crate::config::{Config, Role, relaxed};

/// Stands for every collection of the database.
const ANY: &str = "";

/// Collections, and what may be done with each.
type Needed = &'static [(&'static str, &'static [&'static str])];

/// Actions of MongoDB by collection.
pub type Permissions = BTreeMap<String, BTreeSet<String>>;

/// A file of permissions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PermissionsError {
    /// It is no JSON of this shape.
    #[error("{0}")]
    Parse(#[from] serde_json::Error),
    /// There is no such user.
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
        for (collection, actions) in needed(role) {
            privileges.allow(collection, actions.iter().copied());
        }
        // A runner writes reports with its own user where plugins have none.
        if role == Role::TaskRunner && config.auth.password(Role::Plugin).is_none() {
            privileges.allow("reports", ["insert"]);
        }
        privileges
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
        let known = self.0.entry(collection.to_owned()).or_default();
        known.extend(actions.into_iter().map(str::to_owned));
    }

    /// As the commands of MongoDB take them.
    pub(super) fn documents(&self, database: &str) -> Vec<Document> {
        let privilege = |(collection, actions): (&String, &BTreeSet<String>)| {
            let actions: Vec<&String> = actions.iter().collect();
            doc! { "resource": { "db": database, "collection": collection }, "actions": actions }
        };
        self.0.iter().map(privilege).collect()
    }
}

/// Reads a file of a plugin's permissions, `{collection: [action, ...]}`, in relaxed JSON.
///
/// # Errors
/// It is no JSON of this shape.
pub fn plugin_permissions(text: &str) -> Result<Permissions, PermissionsError> {
    Ok(serde_json::from_str(&relaxed::to_strict(text))?)
}

/// Reads a file of additional permissions, `{user: {collection: [action, ...]}}`, in relaxed JSON.
///
/// # Errors
/// It is no JSON of this shape, or names a user that is none.
pub fn additional_permissions(text: &str) -> Result<BTreeMap<String, Permissions>, PermissionsError> {
    let by_user: BTreeMap<String, Permissions> = serde_json::from_str(&relaxed::to_strict(text))?;
    match by_user.keys().find(|name| !Role::ALL.iter().any(|role| role.user() == **name)) {
        Some(stranger) => Err(PermissionsError::NoSuchUser(stranger.clone())),
        None => Ok(by_user),
    }
}

/// What a DEN needs. A change stream of the database needs the right to read it all.
const OF_DEN: Needed = &[
    (ANY, &["changeStream", "find"]),
    // It inserts elements of arrays that are missing, and ends arrays.
    (crate::arrays::COLLECTION, &["createIndex", "update"]),
    // The server removes entries when they are as old as the DEN tells it.
    (crate::audit::COLLECTION, &["collMod", "createIndex"]),
    ("bulk", &["createIndex"]),
    // It ends tasks whose web services are silent, with what these have logged.
    (crate::callbacks::LOG, &["createIndex", "remove"]),
    (crate::counters::COLLECTION, &["insert", "update"]),
    (crate::lease::COLLECTION, &["insert", "update"]),
    (crate::gates::LOCKS, &["createIndex", "insert", "remove", "update"]),
    ("nodes", &["createIndex", "insert", "update"]),
    ("queues", &["createIndex"]),
    (crate::rate::COLLECTION, &["createIndex", "insert", "update"]),
    // The janitor sweeps file sets, and versions of runs that have died are taken back.
    (crate::files::SETS, &["createIndex", "update"]),
    (crate::files::ENTRIES, &["createIndex", "remove"]),
    (crate::files::CONTENTS, &["createIndex", "remove", "update"]),
    (crate::files::CHUNKS, &["createIndex", "remove"]),
    (crate::fair::TURNS, &["createIndex", "insert", "update"]),
    (crate::fair::GROUPS, &["createIndex", "insert", "update"]),
    // It makes the tasks of schedules, and tells these how they have ended.
    (crate::schedules::COLLECTION, &["createIndex", "update"]),
    (crate::accounts::SESSIONS, &["createIndex"]),
    (crate::series::COLLECTION, &["createIndex", "insert", "update"]),
    ("submissions", &["createIndex"]),
    ("tasks", &["createIndex", "insert", "remove", "update"]),
    // The janitor archives and deletes by the policy of queues.
    ("tasks.archive", &["createIndex", "insert", "remove", "update"]),
    ("tasks.deleting", &["createIndex", "insert", "remove", "update"]),
    // It writes for its runners, and keeps what is left of one that died.
    ("tasks.attempts", &["createIndex", "insert", "remove", "update"]),
    ("tasks.chunks", &["createIndex", "insert", "remove"]),
    ("tasks.files", &["createIndex", "insert", "remove"]),
    ("tasks.live", &["createIndex", "insert", "remove", "update"]),
    (crate::accounts::TOKENS, &["createIndex"]),
];

/// Tasks may be created for the documents of any collection, and waiting follows a change stream.
/// And one page tells how large collections are.
const OF_WEB: Needed = &[
    (ANY, &["changeStream", "collStats", "find"]),
    // Nobody can change or remove what is there.
    (crate::audit::COLLECTION, &["insert"]),
    (crate::admission::COLLECTION, &["insert", "remove", "update"]),
    (crate::arrays::COLLECTION, &["insert", "update"]),
    ("balance", &["insert", "update"]),
    ("bulk", &["insert", "update"]),
    // It takes callbacks of web services, and ends their tasks.
    (crate::callbacks::LOG, &["insert", "remove", "update"]),
    (crate::schedules::CALENDARS, &["insert", "remove", "update"]),
    (crate::schedules::COLLECTION, &["insert", "remove", "update"]),
    (crate::counters::COLLECTION, &["insert", "update"]),
    (crate::files::SETS, &["insert", "update"]),
    (crate::files::ENTRIES, &["insert", "remove"]),
    (crate::files::CONTENTS, &["insert", "remove", "update"]),
    (crate::files::CHUNKS, &["insert", "remove"]),
    // What groups have had whose tasks web services worked on.
    (crate::fair::GROUPS, &["insert", "update"]),
    (crate::gates::LOCKS, &["insert", "update"]),
    // Nodes that are gone are removed.
    ("nodes", &["update", "remove"]),
    ("queues", &["insert", "remove", "update"]),
    // `disbatch user` and `disbatch token` work with these rights, too.
    (crate::accounts::SESSIONS, &["insert", "remove", "update"]),
    (crate::accounts::TOKENS, &["insert", "remove", "update"]),
    (crate::accounts::USERS, &["insert", "remove", "update"]),
    (crate::series::COLLECTION, &["insert", "update"]),
    ("submissions", &["insert", "remove", "update"]),
    ("tasks", &["insert", "listIndexes", "remove", "update"]),
    ("tasks.archive", &["insert", "remove", "update"]),
    ("tasks.attempts", &["insert", "remove", "update"]),
    ("tasks.chunks", &["insert", "remove"]),
    ("tasks.deleting", &["insert", "remove", "update"]),
    ("tasks.files", &["insert", "remove"]),
    ("tasks.live", &["insert", "remove", "update"]),
    (crate::tenants::COLLECTION, &["insert", "remove", "update"]),
    (crate::workers::COLLECTION, &["insert", "remove", "update"]),
];

fn needed(role: Role) -> Needed {
    match role {
        Role::Disbatchd => OF_DEN,
        Role::DisbatchWeb => OF_WEB,
        Role::TaskRunner => &[
            // A task that was cancelled while its web service took it ends with its log.
            (crate::callbacks::LOG, &["find", "remove"]),
            (crate::counters::COLLECTION, &["find", "insert", "update"]),
            (crate::fair::GROUPS, &["insert", "update"]),
            (crate::files::SETS, &["find", "insert", "update"]),
            (crate::files::ENTRIES, &["find", "insert", "remove"]),
            (crate::files::CONTENTS, &["find", "insert", "remove", "update"]),
            (crate::files::CHUNKS, &["find", "insert", "remove"]),
            ("queues", &["find"]),
            // Some programs answer there.
            (crate::task::RESULTS, &["find", "remove"]),
            (crate::schedules::COLLECTION, &["find"]),
            (crate::series::COLLECTION, &["insert", "update"]),
            ("tasks", &["find", "update"]),
            // Where a result is whose confirmation was lost, if the janitor was faster.
            ("tasks.archive", &["find"]),
            ("tasks.attempts", &["find", "insert", "remove", "update"]),
            ("tasks.chunks", &["insert", "remove"]),
            ("tasks.files", &["insert", "remove"]),
            ("tasks.live", &["find", "insert", "remove", "update"]),
            (crate::workers::COLLECTION, &["find"]),
        ],
        Role::QueueBalance => &[
            ("balance", &["find", "insert", "update"]),
            (lease::COLLECTION, &["find", "insert", "update"]),
            ("queues", &["find", "update"]),
            ("tasks", &["find"]),
        ],
        Role::Plugin => &[("reports", &["insert"])],
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
            assert_eq!(may("audit", "insert"), role == Role::DisbatchWeb, "{role:?}");
            for action in ["insert", "update", "remove"] {
                // Whoever may define what nodes do is the DCI alone.
                assert_eq!(may("workers", action), role == Role::DisbatchWeb, "{role:?} {action}");
            }
            for collection in [crate::accounts::USERS, crate::accounts::SESSIONS, crate::accounts::TOKENS] {
                for action in ["insert", "update", "remove"] {
                    assert_eq!(may(collection, action), role == Role::DisbatchWeb, "{role:?} {collection}");
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
        let expected = doc! { "resource": { "db": "d", "collection": "reports" }, "actions": ["insert"] };
        assert_eq!(plugin.documents("d"), [expected]);
    }
}
