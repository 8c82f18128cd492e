//! MongoDB users: one for each kind of process, with no more privileges than its operations need.
//!
//! Roles and users have the same names, and are kept in the database that they are for.

mod privileges;

use bson::{Document, doc};
use mongodb::options::Credential;
use mongodb::{Client, Database};

pub use privileges::{Permissions, PermissionsError, Privileges, additional_permissions, plugin_permissions};

use crate::config::{Config, Role};
use crate::store::{StoreError, client_options};

/// Where users are kept who may do anything.
const ADMIN: &str = "admin";

/// The role of applications that put tasks into the inbox.
pub const PRODUCER: &str = "disbatchProducer";

/// Error codes of MongoDB.
const USER_NOT_FOUND: i32 = 11;
const ROLE_NOT_FOUND: i32 = 31;
const ROLE_EXISTS: i32 = 51_002;
const USER_EXISTS: i32 = 51_003;

/// Whether a user was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was not.
    Created,
    /// It was, and now has these privileges and this password.
    Updated,
}

/// A connection of somebody who may create users.
#[derive(Debug, Clone)]
pub struct Administrator {
    database: Database,
}

impl Administrator {
    /// Connects as `user`, who is kept in the database `admin`.
    pub async fn connect(config: &Config, user: &str, password: &str) -> Result<Self, StoreError> {
        let mut options = client_options(config).await?;
        let mut credential = Credential::default();
        credential.username = Some(user.to_owned());
        credential.password = Some(password.to_owned());
        credential.source = Some(ADMIN.to_owned());
        options.credential = Some(credential);
        let database = Client::with_options(options)?.database(&config.database);
        database.run_command(doc! { "ping": 1 }).await?;
        Ok(Self { database })
    }

    /// Creates the first user of a server, who may do anything. MongoDB lets a client on the same host do
    /// so as long as it has no users.
    ///
    /// # Errors
    /// The database cannot be reached, or has users already.
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
        let name = role.user();
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

    /// Removes the user and the role of `role`, as far as they exist.
    pub async fn drop_user(&self, role: Role) -> Result<(), StoreError> {
        self.done_unless(doc! { "dropUser": role.user() }, USER_NOT_FOUND).await?;
        self.done_unless(doc! { "dropRole": role.user() }, ROLE_NOT_FOUND).await?;
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
