//! The variables of a plugin.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;

use zeroize::Zeroize;

/// The variables of a plugin. Some may be secret, so that all values are overwritten when they are dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    pub const fn of(variables: Vec<(OsString, OsString)>) -> Self {
        Self(variables)
    }

    /// Adds a variable. Of several with one name the last counts.
    pub fn add(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds a variable in the place of those with its name.
    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl Into<OsString>) {
        let (of_name, others) =
            std::mem::take(&mut self.0).into_iter().partition(|(other, _)| other == name.as_ref());
        drop(Self(of_name));
        self.0 = others;
        self.add(name.as_ref(), value);
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for (_, value) in &mut self.0 {
            // The bytes stay where they are.
            std::mem::take(value).into_vec().zeroize();
        }
    }
}

impl Deref for Environment {
    type Target = [(OsString, OsString)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_takes_the_place_of_others_with_its_name_and_no_value_is_shown() {
        let mut environment = Environment::of(vec![("KEY".into(), "old".into())]);
        environment.add("PATH", "/bin");
        environment.set("KEY", "horse");
        let shown: Vec<_> = environment.iter().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        assert_eq!(shown, [(Some("PATH"), Some("/bin")), (Some("KEY"), Some("horse"))]);
        assert_eq!(format!("{environment:?}"), r#"{"PATH", "KEY"}"#);
    }
}
