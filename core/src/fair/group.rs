//! Groups: whose tasks are whose. A group is a text of parts with `/` between them; the first part is its tenant.

use bson::RawDocument;

/// A group's name has so many characters at most.
pub const LONGEST_GROUP: usize = 200;

/// The group of tasks that have none.
pub const NO_GROUP: &str = "";

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("text of 1 to {most} characters", most = LONGEST_GROUP)]
    Length,
    #[error("text without control characters")]
    Control,
    #[error("parts with a slash between them, none of them empty")]
    EmptyPart,
}

pub fn check_group(name: &str) -> Result<(), GroupError> {
    if !(1..=LONGEST_GROUP).contains(&name.chars().count()) {
        return Err(GroupError::Length);
    }
    if name.chars().any(char::is_control) {
        return Err(GroupError::Control);
    }
    if name.split('/').any(str::is_empty) { Err(GroupError::EmptyPart) } else { Ok(()) }
}

/// The first part of a group's name.
pub fn tenant_of(group: &str) -> &str {
    group.split('/').next().unwrap_or(group)
}

/// Under which name it is kept what the groups of a tenant have used together, save one that is called as the tenant. No
/// group has such a name.
pub(super) fn total_of(tenant: &str) -> String {
    format!("{tenant}/")
}

/// The group of a task as it is stored. What is no text is none.
pub(crate) fn group_of(task: &RawDocument) -> &str {
    task.get_str("group").unwrap_or(NO_GROUP)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn groups_are_parts_with_slashes_between_them() {
        for good in ["a", "acme/ann", "a/b/c", "ann@example.com", "\u{e9}".repeat(200).as_str()] {
            assert_eq!(check_group(good), Ok(()), "{good}");
        }
        for (wrong, why) in [
            ("", GroupError::Length),
            ("x".repeat(201).as_str(), GroupError::Length),
            ("a\nb", GroupError::Control),
            ("/", GroupError::EmptyPart),
            ("a/", GroupError::EmptyPart),
            ("a//b", GroupError::EmptyPart),
        ] {
            assert_eq!(check_group(wrong), Err(why), "{wrong}");
        }
        assert!(check_group(&total_of("a")).is_err(), "a total is no group");
        assert_eq!((tenant_of("acme/ann"), tenant_of("ann"), tenant_of(NO_GROUP)), ("acme", "ann", ""));
    }

    #[test]
    fn a_task_without_a_group_is_in_the_one_without_a_name() {
        let group = |task| group_of(&RawDocumentBuf::try_from(&task).unwrap()).to_owned();
        assert_eq!(group(doc! { "group": "a" }), "a");
        assert_eq!(group(doc! { "group": 5 }), NO_GROUP);
        assert_eq!(group(doc! {}), NO_GROUP);
    }
}
