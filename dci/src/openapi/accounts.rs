//! What accounts send. These types are never made: they only describe.

use disbatch_wire::roles::Role;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Who somebody is.
#[derive(ToSchema)]
#[schema(example = json!({"name": "alice", "password": "correct horse battery"}))]
pub struct Credentials {
    name: String,
    password: String,
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
