//! MongoDB users: one for each kind of process, with no more privileges than its operations need.
//!
//! Roles and users have the same names, and are kept in the database that they are for.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use mongodb::{Client, Database};

use crate::config::{Config, Role};
use crate::json::to_strict;
use crate::store::collections::{self, INBOX, REPORTS};
use crate::store::{StoreError, client_options, credential};

/// Where users are kept who may do anything.
const ADMIN: &str = "admin";

/// The role of applications that put tasks into the inbox.
pub const PRODUCER: &str = "disbatchProducer";

/// Error codes of MongoDB.
const USER_NOT_FOUND: i32 = 11;

const ROLE_NOT_FOUND: i32 = 31;

const ROLE_EXISTS: i32 = 51_002;

const USER_EXISTS: i32 = 51_003;

/// Stands for every collection of the database.
const ANY: &str = "";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was not.
    Created,
    /// It was, and now has these privileges and this password.
    Updated,
}

#[derive(Debug, Clone)]
pub struct Administrator {
    database: Database,
}

impl Administrator {
    /// Connects as `user`, who is kept in the database `admin`.
    pub async fn connect(config: &Config, user: &str, password: &str) -> Result<Self, StoreError> {
        let mut options = client_options(config).await?;
        options.credential = Some(credential(user, password, ADMIN));
        let database = Client::with_options(options)?.database(&config.database);
        database.run_command(doc! { "ping": 1 }).await?;
        Ok(Self { database })
    }

    /// Creates the first user of a server, who may do anything. MongoDB lets a client on the same host do
    /// so as long as it has no users.
    pub async fn create_root(config: &Config, user: &str, password: &str) -> Result<(), StoreError> {
        let mut options = client_options(config).await?;
        options.credential = None;
        let admin = Client::with_options(options)?.database(ADMIN);
        let roles = vec![doc! { "role": "root", "db": ADMIN }];
        admin.run_command(doc! { "createUser": user, "pwd": password, "roles": roles }).await?;
        Ok(())
    }

    /// Sees to it that the user of `role` exists, with this password and exactly these privileges.
    pub async fn put_user(
        &self,
        role: Role,
        password: &str,
        privileges: &Privileges,
    ) -> Result<Put, StoreError> {
        let name = role.as_str();
        self.put_role(name, privileges).await?;
        let roles = vec![doc! { "role": name, "db": self.database.name() }];
        let enter = |command: &str| doc! { command: name, "pwd": password, "roles": &roles };
        if self.done_unless(enter("createUser"), USER_EXISTS).await? {
            return Ok(Put::Created);
        }
        self.database.run_command(enter("updateUser")).await?;
        Ok(Put::Updated)
    }

    /// Sees to it that there is the role of producers, who put tasks into the inbox: for users that others make.
    pub async fn put_producer_role(&self) -> Result<Put, StoreError> {
        self.put_role(PRODUCER, &Privileges::of_producer()).await
    }

    async fn put_role(&self, name: &str, privileges: &Privileges) -> Result<Put, StoreError> {
        let privileges = privileges.documents(self.database.name());
        let define = |command: &str| doc! { command: name, "privileges": &privileges, "roles": [] };
        if self.done_unless(define("createRole"), ROLE_EXISTS).await? {
            return Ok(Put::Created);
        }
        self.database.run_command(define("updateRole")).await?;
        Ok(Put::Updated)
    }

    pub async fn drop_user(&self, role: Role) -> Result<(), StoreError> {
        self.done_unless(doc! { "dropUser": role.as_str() }, USER_NOT_FOUND).await?;
        self.done_unless(doc! { "dropRole": role.as_str() }, ROLE_NOT_FOUND).await?;
        Ok(())
    }

    /// Runs a command; false if it fails with `code`.
    async fn done_unless(&self, command: Document, code: i32) -> Result<bool, StoreError> {
        match self.database.run_command(command).await.map_err(StoreError::from) {
            Ok(_) => Ok(true),
            Err(error) if error.write_failure().is_some_and(|failure| failure.code == code) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Actions of MongoDB by collection.
pub type Permissions = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, thiserror::Error)]
pub enum PermissionsError {
    #[error("{0}")]
    Parse(#[from] serde_json::Error),
    #[error(
        "'{0}' is no user of Disbatch: expected disbatchd, disbatch_web, task_runner, queuebalance or plugin"
    )]
    NoSuchUser(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privileges(Permissions);

impl Privileges {
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

    pub fn of_producer() -> Self {
        Self::only([(INBOX.name.to_owned(), BTreeSet::from(["insert".to_owned()]))].into())
    }

    pub fn only(permissions: Permissions) -> Self {
        Self(permissions)
    }

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
    Ok(serde_json::from_str(&to_strict(text))?)
}

/// Reads a file of additional permissions, `{user: {collection: [action, ...]}}`, in relaxed JSON.
pub fn additional_permissions(text: &str) -> Result<BTreeMap<String, Permissions>, PermissionsError> {
    let by_user: BTreeMap<String, Permissions> = serde_json::from_str(&to_strict(text))?;
    match by_user.keys().find(|name| !Role::ALL.iter().any(|role| role.as_str() == **name)) {
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
