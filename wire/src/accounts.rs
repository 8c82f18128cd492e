//! Who somebody is, what they may do, and how else they get in.

use std::fmt;
use std::str::FromStr;

use disbatch_values::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::liberal::{Set, given};

words! {
    /// What somebody may do. Each may do what those before it may.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum Role {
        /// May look at queues, tasks and their output.
        Viewer = "viewer",
        /// May submit tasks.
        Submitter = "submitter",
        /// May change queues, nodes and the balance, and cancel, retry and delete tasks.
        Operator = "operator",
        /// May see what everybody has done, and what users there are.
        Admin = "admin",
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no role: expected viewer, submitter, operator or admin");
        Self::named(text).ok_or_else(wrong)
    }
}

/// Who somebody is.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "alice", "password": "correct horse battery"})))]
pub struct Credentials {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Option<Value>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub password: Option<Value>,
}

/// Another password.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"old": "correct horse battery", "new": "another horse battery"})))]
pub struct PasswordChange {
    /// The password as it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub old: Option<Value>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 10, max_length = 1024))]
    pub new: Option<Value>,
    /// The new one once more.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub again: Option<Value>,
}

/// A token that is to be made.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "nightly", "role": "submitter", "queues": ["mail"], "days": 90})))]
pub struct NewToken {
    /// What it is for.
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 200))]
    pub name: Option<Value>,
    /// The highest role that it is to have anywhere, one's own at most.
    #[cfg_attr(feature = "openapi", schema(value_type = Role))]
    pub role: Option<Value>,
    /// Names or ids of the only queues that it is to be good for, if not for all.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub queues: Option<Value>,
    /// How long it is to last: 90 unless given, null for ever.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1, maximum = 3650))]
    pub days: Option<Set<Value>>,
}

/// Who asks, what they may do, and how else they get in.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "name": "alice", "via": "password", "role": "viewer",
    "grants": [{"queue": "6b0003bb686c8275d70dc2f1", "name": "mail", "role": "operator"}],
    "sessions": [{
        "id": "6b0003bb686c8275d8016666", "created": "2026-11-20T08:24:27", "seen": "2026-11-20T09:12:00",
        "expires": "2026-11-27T08:24:27", "from": "192.0.2.7", "agent": "Mozilla/5.0", "own": false,
    }],
    "tokens": [{
        "id": "6b0003bb686c8275d8017777", "name": "nightly", "role": "submitter",
        "queues": ["6b0003bb686c8275d70dc2f1"], "created": "2026-11-20T08:24:27",
        "expires": "2027-02-18T08:24:27", "used": null, "from": null, "over": false,
    }],
})))]
pub struct Account {
    /// Null if nobody is asked who they are.
    pub name: Option<String>,
    /// How they were recognised: `session`, `password`, `token`, `proxy`, or `open` if nobody is asked.
    pub via: String,
    /// What they may do on all queues and on what belongs to none.
    pub role: Option<Role>,
    /// What they may do on some queues.
    pub grants: Vec<Grant>,
    /// The browsers that they are logged in with. A token is not told.
    pub sessions: Vec<AccountSession>,
    /// The programs that act for them. A token is not told.
    pub tokens: Vec<AccountToken>,
}

/// A role on one queue, or on the queues of a tenant.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The queue's id.
    pub queue: Option<String>,
    /// The queue's name; null if it is not there.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub name: Option<Option<String>>,
    pub tenant: Option<String>,
    pub role: Role,
}

/// A browser that somebody is logged in with. Times are UTC.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccountSession {
    pub id: String,
    pub created: Option<String>,
    /// When it was used, to the minute.
    pub seen: Option<String>,
    pub expires: Option<String>,
    /// The address that it began from.
    pub from: String,
    /// What the browser calls itself.
    pub agent: String,
    /// Whether the request came with it.
    pub own: bool,
}

/// What a program is let in with. Times are UTC.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccountToken {
    pub id: String,
    /// What it is for.
    pub name: String,
    /// The highest role that it has anywhere.
    pub role: Role,
    /// The ids of the only queues that it is good for; null if it is good for all of its owner's.
    pub queues: Option<Vec<String>>,
    pub created: Option<String>,
    /// Null: never.
    pub expires: Option<String>,
    /// When it was used last, to the minute.
    pub used: Option<String>,
    /// The address that it was used from last.
    pub from: Option<String>,
    /// Whether it has ended.
    pub over: bool,
}

/// The new token.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"token": "disbatch_6b0003bb686c8275d8017777.."})))]
pub struct CreatedToken {
    /// Its text, which nobody can read again.
    pub token: String,
}

/// Somebody who may log in.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "name": "alice", "role": "viewer", "grants": [{"tenant": "acme", "role": "operator"}], "password": true,
    "tokens": 1, "created": "2026-11-20T08:24:27",
})))]
pub struct User {
    pub name: String,
    /// What they may do on all queues and on what belongs to none.
    pub role: Option<Role>,
    /// What they may do on some queues.
    pub grants: Vec<Grant>,
    /// Whether they have one. Without it they come through a proxy.
    pub password: bool,
    /// How many they have that have not ended.
    pub tokens: u64,
    /// UTC.
    pub created: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_an_order_and_names() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert_eq!(
            "root".parse::<Role>().unwrap_err(),
            "'root' is no role: expected viewer, submitter, operator or admin"
        );
    }
}
