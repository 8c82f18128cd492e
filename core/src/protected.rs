//! Collections whose documents are not to be made tasks of: who may submit tasks would see what only others may see.

/// Those of Disbatch itself that tell who may log in, or who has done what; and those whose names go on with a dot:
/// `accounts.users` and others.
pub const COLLECTIONS: [&str; 2] = ["accounts", "audit"];

/// Whether this is the name of one of them.
pub fn is_protected(collection: &str) -> bool {
    collection.split('.').next().is_some_and(|name| COLLECTIONS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_of_others_are_not_protected() {
        for protected in
            COLLECTIONS.iter().chain(&["accounts.users", "accounts.sessions", "accounts.tokens", "audit.old"])
        {
            assert!(is_protected(protected), "{protected}");
        }
        for other in ["", "queues", "users", "tasks", "my.accounts", "Accounts", "accounts2"] {
            assert!(!is_protected(other), "{other}");
        }
    }
}
