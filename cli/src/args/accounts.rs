//! The commands about who may use the DCI. Like `create-users` they work on the database itself.

use bson::oid::ObjectId;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use disbatch_values::text::UserName;
use disbatch_wire::accounts::Role;

/// A token's name has no more characters.
const LONGEST_NAME: usize = 100;

/// So many days a token is good for unless told otherwise, as on the page.
const DAYS: u32 = 90;

/// No token lasts longer, in days, unless it does not end.
const MOST_DAYS: i64 = 3_650;

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add somebody who may log in
    Add(NewUser),
    /// Show everybody, and what they may do
    List,
    /// Give somebody another password, and end their sessions
    Passwd(OneUser),
    /// Remove somebody, with their sessions and tokens
    Remove(OneUser),
    /// Change what somebody may do
    Grant(Changes),
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a program, and print it: nobody can read it again
    Create(TokenOptions),
    /// Show tokens, without what makes them valid
    List {
        /// Only those of this user
        #[arg(long, value_name = "NAME")]
        user: Option<UserName>,
    },
    /// Make a token useless, at once
    Revoke {
        /// The token's id, as `token list` prints it
        #[arg(value_parser = token_id)]
        id: ObjectId,
    },
}

#[derive(Debug, Args)]
pub struct OneUser {
    /// The name
    pub name: UserName,
}

#[derive(Debug, Args)]
pub struct NewUser {
    /// The name
    pub name: UserName,
    #[command(flatten)]
    pub rights: GivenRights,
    /// No password: a proxy asks who they are
    #[arg(long)]
    pub no_password: bool,
}

/// What somebody may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What they may do")]
pub struct GivenRights {
    /// Their role on all queues, and for what belongs to no queue
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub role: Option<Role>,
    /// The same as --role admin
    #[arg(long, conflicts_with = "role")]
    pub admin: bool,
    /// Their role on one queue, by its name or id; repeated for others
    #[arg(long, value_name = "QUEUE=ROLE", value_parser = role_on)]
    pub queue: Vec<RoleOn>,
    /// Their role on all queues of a tenant; repeated for others
    #[arg(long, value_name = "TENANT=ROLE", value_parser = role_on)]
    pub tenant: Vec<RoleOn>,
}

impl GivenRights {
    pub fn everywhere(&self) -> Option<Role> {
        if self.admin { Some(Role::Admin) } else { self.role }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What is changed of what somebody may do. All else stays.
#[derive(Debug, Args)]
pub struct Changes {
    /// The name
    pub name: UserName,
    /// What they may do from now on. A role on a queue or tenant replaces the one that they had there.
    #[command(flatten)]
    pub rights: GivenRights,
    /// No role on all queues any more
    #[arg(long, conflicts_with_all = ["role", "admin"])]
    pub no_role: bool,
    /// No role of its own on this queue any more
    #[arg(long, value_name = "QUEUE")]
    pub revoke_queue: Vec<String>,
    /// No role on the queues of this tenant any more
    #[arg(long, value_name = "TENANT")]
    pub revoke_tenant: Vec<String>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        let revoked = self.revoke_queue.len() + self.revoke_tenant.len();
        self.rights.is_empty() && !self.no_role && revoked == 0
    }
}

#[derive(Debug, Args)]
pub struct TokenOptions {
    /// What it is for, for the list of tokens
    #[arg(value_parser = token_name)]
    pub name: String,
    /// Whom it acts for. It never has more rights than they have
    #[arg(long, value_name = "NAME")]
    pub user: UserName,
    /// No more rights than this role has [default: the highest that the user has now]
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub role: Option<Role>,
    /// Good for this queue alone, by its name or id; repeated for others
    #[arg(long, value_name = "QUEUE")]
    pub queue: Vec<String>,
    /// Good for so many days
    #[arg(long, value_name = "N", default_value_t = DAYS,
        value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
    pub days: u32,
    /// Good until it is revoked
    #[arg(long, conflicts_with = "days")]
    pub endless: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleOn {
    /// The name or id of the queue, or the tenant.
    pub name: String,
    pub role: Role,
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|name| name.parse::<Role>())
}

fn role_on(text: &str) -> Result<RoleOn, String> {
    let (name, role) = text
        .rsplit_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| "expected a name, an equals sign and a role, such as mail=operator".to_owned())?;
    Ok(RoleOn { name: name.to_owned(), role: role.parse()? })
}

fn token_name(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if (1..=LONGEST_NAME).contains(&length) && !text.contains(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("a name has 1 to {LONGEST_NAME} characters, and no control characters"))
    }
}

fn token_id(text: &str) -> Result<ObjectId, String> {
    ObjectId::parse_str(text)
        .map_err(|_| "a token's id has 24 hexadecimal digits, as `disbatch token list` prints it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::subcommand;

    #[test]
    fn rights_are_read() {
        let words =
            ["add", "alice", "--queue", "a=b=viewer", "--queue=mail=operator", "--tenant", "acme=admin"];
        let UserCommand::Add(new) = subcommand(&words).unwrap() else { panic!() };
        let on = |name: &str, role| RoleOn { name: name.to_owned(), role };
        assert_eq!(new.rights.queue, [on("a=b", Role::Viewer), on("mail", Role::Operator)]);
        assert_eq!(new.rights.tenant, [on("acme", Role::Admin)]);
        assert_eq!((new.rights.everywhere(), new.rights.is_empty()), (None, false));
        for (words, role) in
            [(["--role", "submitter"].as_slice(), Role::Submitter), (&["--admin"], Role::Admin)]
        {
            let words = [&["add", "alice"], words].concat();
            let UserCommand::Add(new) = subcommand(&words).unwrap() else { panic!() };
            assert_eq!(new.rights.everywhere(), Some(role));
        }
        let UserCommand::Add(new) = subcommand(&["add", "alice"]).unwrap() else { panic!() };
        assert!(new.rights.is_empty() && !new.no_password);
    }

    #[test]
    fn what_is_no_right_is_refused() {
        for (words, message) in [
            (["add", "a:b", "--admin"].as_slice(), "cannot be the name of a user"),
            (&["add", "a", "--role", "root"], "[possible values: viewer, submitter, operator, admin]"),
            (&["add", "a", "--queue", "mail"], "such as mail=operator"),
            (&["add", "a", "--queue", "=viewer"], "such as mail=operator"),
            (&["add", "a", "--queue", "mail=root"], "'root' is no role"),
            (&["add", "a", "--role", "viewer", "--admin"], "cannot be used with"),
            (&["grant", "a", "--role", "viewer", "--no-role"], "cannot be used with"),
            (&["grant", "a", "--admin", "--no-role"], "cannot be used with"),
        ] {
            let error = subcommand::<UserCommand>(words).unwrap_err();
            assert!(error.contains(message), "{words:?}: {error}");
        }
    }

    #[test]
    fn names_and_ids_of_tokens_are_checked() {
        assert_eq!(token_name("nightly import").as_deref(), Ok("nightly import"));
        for wrong in ["", "a\nb", &"x".repeat(101)] {
            assert!(token_name(wrong).is_err(), "{wrong}");
        }
        assert!(token_id("6b0003bb686c8275d8013333").is_ok());
        assert!(token_id("6b").unwrap_err().contains("disbatch token list"));
    }
}
