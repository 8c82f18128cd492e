//! What somebody may do, for people and for programs.

use std::collections::HashMap;

use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, Role, Scope};
use serde_json::{Value, json};

/// A role, and where it is good for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct May {
    /// Where.
    pub place: String,
    /// The address of the queue that it is good for, if it is for one that is still there.
    pub address: Option<String>,
    /// Its name.
    pub role: &'static str,
    /// What it is good for.
    pub words: &'static str,
}

/// What somebody with this role may do.
pub const fn words(role: Role) -> &'static str {
    match role {
        Role::Viewer => "look at queues, tasks and their output",
        Role::Submitter => "the same, and submit tasks",
        Role::Operator => "the same, change settings, and cancel, retry and delete tasks",
        Role::Admin => "the same, and see what everybody has done, and which users there are",
    }
}

/// Somebody's roles: the one that is good everywhere, and those on some queues, whose names are by id.
pub fn rows(everywhere: Option<Role>, grants: &[Grant], names: &HashMap<ObjectId, String>) -> Vec<May> {
    let row =
        |place: String, address, role: Role| May { place, address, role: role.name(), words: words(role) };
    let all = everywhere.map(|role| row("Everywhere".to_owned(), None, role));
    let some = grants.iter().map(|grant| match &grant.scope {
        Scope::Queue(queue) => match names.get(&queue.0) {
            Some(name) => row(format!("Queue {name}"), Some(format!("/queues/{queue}")), grant.role),
            None => row(format!("Queue {queue}, which is not there"), None, grant.role),
        },
        Scope::Tenant(tenant) => row(format!("Queues of {tenant}"), None, grant.role),
    });
    all.into_iter().chain(some).collect()
}

/// The roles on some queues, for programs.
pub fn grants_json(grants: &[Grant], names: &HashMap<ObjectId, String>) -> Value {
    let grant = |grant: &Grant| match &grant.scope {
        Scope::Queue(queue) => json!({
            "queue": queue.to_string(), "name": names.get(&queue.0), "role": grant.role.name(),
        }),
        Scope::Tenant(tenant) => json!({ "tenant": tenant, "role": grant.role.name() }),
    };
    grants.iter().map(grant).collect()
}

#[cfg(test)]
mod tests {
    use disbatch_core::model::QueueId;

    use super::*;

    #[test]
    fn roles_are_told_with_where_they_are_good() {
        let [known, gone] = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let names = HashMap::from([(known, "<mail>".to_owned())]);
        let grants = [
            Grant { scope: Scope::Queue(QueueId(known)), role: Role::Operator },
            Grant { scope: Scope::Queue(QueueId(gone)), role: Role::Viewer },
            Grant { scope: Scope::Tenant("acme".into()), role: Role::Submitter },
        ];
        let rows = rows(Some(Role::Viewer), &grants, &names);
        let told: Vec<_> = rows.iter().map(|row| (row.place.as_str(), row.role)).collect();
        let of_gone = format!("Queue {gone}, which is not there");
        let expected = [
            ("Everywhere", "viewer"),
            ("Queue <mail>", "operator"),
            (of_gone.as_str(), "viewer"),
            ("Queues of acme", "submitter"),
        ];
        assert_eq!(told, expected);
        assert_eq!(rows[1].address, Some(format!("/queues/{known}")));
        assert_eq!(rows[2].address, None);
        assert_eq!(
            grants_json(&grants, &names),
            json!([
                { "queue": known.to_hex(), "name": "<mail>", "role": "operator" },
                { "queue": gone.to_hex(), "name": null, "role": "viewer" },
                { "tenant": "acme", "role": "submitter" },
            ])
        );
        assert!(super::rows(None, &[], &names).is_empty());
    }
}
