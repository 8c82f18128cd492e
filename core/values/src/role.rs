//! Roles of those who use the DCI.

use std::fmt;
use std::str::FromStr;

use bson::Bson;

/// What somebody may do. Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May look at queues, tasks and their output.
    Viewer,
    /// May submit tasks.
    Submitter,
    /// May change queues, nodes and the balance, and cancel, retry and delete tasks.
    Operator,
    /// May see what everybody has done, and what users there are.
    Admin,
}

/// The text names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no role: expected viewer, submitter, operator or admin")]
pub struct RoleError(String);

impl Role {
    /// From the least to the most.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Submitter, Self::Operator, Self::Admin];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// What is stored. What cannot be understood is none.
    pub fn stored(value: Option<&Bson>) -> Option<Self> {
        value.and_then(Bson::as_str)?.parse().ok()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| RoleError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_an_order_and_names() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert_eq!(
            "root".parse::<Role>().unwrap_err().to_string(),
            "'root' is no role: expected viewer, submitter, operator or admin"
        );
    }
}
