//! What accounts look like. These types are never made: they only describe.

use serde_json::{Value, json};
use utoipa::ToSchema;

/// Who somebody is.
#[derive(ToSchema)]
#[schema(example = json!({"name": "alice", "password": "correct horse battery"}))]
pub struct Credentials {
    name: String,
    password: String,
}

/// Who asks, what they may do, and how else they get in.
#[derive(ToSchema)]
#[schema(example = json!({
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
}))]
pub struct Account {
    /// Null if nobody is asked who they are.
    name: Option<String>,
    /// How they were recognised: `session`, `password`, `token`, `proxy`, or `open` if nobody is asked.
    via: String,
    /// What they may do on all queues and on what belongs to none.
    role: Option<Role>,
    /// What they may do on some queues.
    grants: Vec<Grant>,
    /// The browsers that they are logged in with. A token is not told.
    sessions: Vec<AccountSession>,
    /// The programs that act for them. A token is not told.
    tokens: Vec<AccountToken>,
}

/// What somebody may do. Each may do what those before it may.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Submitter,
    Operator,
    Admin,
}

/// A role on one queue, or on the queues of a tenant.
#[derive(ToSchema)]
pub struct Grant {
    /// The queue's id.
    queue: Option<String>,
    /// The queue's name; null if it is not there.
    name: Option<String>,
    tenant: Option<String>,
    role: Role,
}

/// A browser that somebody is logged in with. Times are UTC.
#[derive(ToSchema)]
pub struct AccountSession {
    id: String,
    created: Option<String>,
    /// When it was used, to the minute.
    seen: Option<String>,
    expires: Option<String>,
    /// The address that it began from.
    from: String,
    /// What the browser calls itself.
    agent: String,
    /// Whether the request came with it.
    own: bool,
}

/// What a program is let in with. Times are UTC.
#[derive(ToSchema)]
pub struct AccountToken {
    id: String,
    /// What it is for.
    name: String,
    /// The highest role that it has anywhere.
    role: Role,
    /// The ids of the only queues that it is good for; null if it is good for all of its owner's.
    queues: Option<Vec<String>>,
    created: Option<String>,
    /// Null: never.
    expires: Option<String>,
    /// When it was used last, to the minute.
    used: Option<String>,
    /// The address that it was used from last.
    from: Option<String>,
    /// Whether it has ended.
    over: bool,
}

/// Another password.
#[derive(ToSchema)]
#[schema(example = json!({"old": "correct horse battery", "new": "another horse battery"}))]
pub struct PasswordChange {
    /// The password as it is.
    old: String,
    #[schema(min_length = 10, max_length = 1024)]
    new: String,
    /// The new one once more.
    again: Option<String>,
}

/// A token that is to be made.
#[derive(ToSchema)]
#[schema(example = json!({"name": "nightly", "role": "submitter", "queues": ["mail"], "days": 90}))]
pub struct NewToken {
    /// What it is for.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// The highest role that it is to have anywhere, one's own at most.
    role: Role,
    /// Names or ids of the only queues that it is to be good for, if not for all.
    queues: Option<Vec<String>>,
    /// How long it is to last: 90 unless given, null for ever.
    #[schema(minimum = 1, maximum = 3650)]
    days: Option<u32>,
}

/// The new token.
#[derive(ToSchema)]
#[schema(example = json!({"token": "disbatch_6b0003bb686c8275d8017777.."}))]
pub struct CreatedToken {
    /// Its text, which nobody can read again.
    token: String,
}

/// Somebody who may log in.
#[derive(ToSchema)]
#[schema(example = json!({
    "name": "alice", "role": "viewer", "grants": [{"tenant": "acme", "role": "operator"}], "password": true,
    "tokens": 1, "created": "2026-11-20T08:24:27",
}))]
pub struct User {
    name: String,
    /// What they may do on all queues and on what belongs to none.
    role: Option<Role>,
    /// What they may do on some queues.
    grants: Vec<Grant>,
    /// Whether they have one. Without it they come through a proxy.
    password: bool,
    /// How many they have that have not ended.
    tokens: u64,
    /// UTC.
    created: Option<String>,
}

/// Adds it to the description: a password or a token, with each request. Browsers have sessions. Where nobody is asked, none
/// of them is needed.
pub fn tell(description: &mut Value) {
    description["components"]["securitySchemes"] = json!({
        "password": {
            "type": "http", "scheme": "basic", "description": "The name and the password of a user.",
        },
        "token": {
            "type": "http", "scheme": "bearer",
            "description": "A token, which `POST /account/tokens` makes. It may also be sent in place of a password.",
        },
        "session": {
            "type": "apiKey", "in": "cookie", "name": "disbatch",
            "description": "The session of a browser, which `POST /login` begins; over TLS it is called \
                `__Host-disbatch`. What changes something needs the form token of the session's pages, too, in the \
                header `X-Disbatch-Form-Token` or as the first field `.form_token` of a form.",
        },
    });
    description["security"] = json!([{}, { "password": [] }, { "token": [] }, { "session": [] }]);
}

#[cfg(test)]
mod tests {
    use crate::openapi::description;

    #[test]
    fn every_way_in_is_described() {
        let description = description();
        let schemes = description["components"]["securitySchemes"].as_object().unwrap();
        let required = description["security"].as_array().unwrap();
        let named: Vec<&String> = required.iter().flat_map(|one| one.as_object().unwrap().keys()).collect();
        assert_eq!((schemes.len(), named.len(), required.len()), (3, 3, 4));
        assert!(named.iter().all(|name| schemes.contains_key(*name)), "{named:?}");
        for (path, refusals) in
            [("/tasks", true), ("/users", true), ("/login", false), ("/assets/{asset}", false)]
        {
            let responses = &description["paths"][path]["get"]["responses"];
            for status in ["401", "403", "429"] {
                assert_eq!(responses.get(status).is_some(), refusals, "{path}: {status}");
            }
        }
    }
}
