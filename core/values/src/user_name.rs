//! Names of those who log in.

use std::str::FromStr;

/// No name is longer, in characters.
const LONGEST: usize = 64;

/// The name of somebody: 1 to 64 characters, none of them white space, a control character or a colon, which ends the
/// name in HTTP Basic authentication.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the name of a user: expected 1 to 64 characters without white space and colons")]
pub struct NameError(String);

crate::shown_as_text!(UserName);

impl FromStr for UserName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let odd = |c: char| c == ':' || c.is_whitespace() || c.is_control();
        let length = text.chars().count();
        if (1..=LONGEST).contains(&length) && !text.contains(odd) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_sent_in_a_header() {
        for name in ["alice", "a", "Ünal", "a.b@example.org", &"x".repeat(64)] {
            assert_eq!(name.parse::<UserName>().unwrap().to_string(), name);
        }
        for wrong in ["", " ", "a b", "a:b", "a\n", "\0", &"x".repeat(65)] {
            let error = wrong.parse::<UserName>().unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a user"), "{error}");
        }
    }
}
