//! The user whom plugins run as, as the system knows it.

use std::ffi::CString;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use serde::{Deserialize, Serialize};

use crate::config::{Config, ConfigError, RunAs};

/// A user with a group, and all other groups of that user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The numbers of all groups of the user, with that one.
    pub groups: Vec<u32>,
    /// The user's home folder, which need not be there.
    pub home: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("there is no user '{0}' on this host")]
    NoUser(String),
    #[error("there is no group '{0}' on this host")]
    NoGroup(String),
    #[error("cannot look up '{name}': {source}")]
    Unknown { name: String, source: io::Error },
    #[error("only root can run plugins as '{0}', and this process is not root")]
    NotRoot(String),
}

impl IdentityError {
    fn in_config(&self, config: &Config) -> ConfigError {
        let (path, key, message) = (config.path.clone(), "run_as".to_owned(), self.to_string());
        match self {
            Self::NoUser(_) | Self::NoGroup(_) | Self::NotRoot(_) => {
                ConfigError::Invalid { path, key, message }
            }
            Self::Unknown { .. } => ConfigError::Unknown { path, key, message },
        }
    }
}

impl Identity {
    pub fn of(config: &Config) -> Result<Option<Self>, ConfigError> {
        let Some(run_as) = &config.run_as else { return Ok(None) };
        let found = Self::find(run_as).and_then(|found| {
            if Uid::effective().is_root() { Ok(found) } else { Err(IdentityError::NotRoot(found.name)) }
        });
        found.map(Some).map_err(|error| error.in_config(config))
    }

    pub fn find(run_as: &RunAs) -> Result<Self, IdentityError> {
        let name = &run_as.user;
        let unknown = |name: &str| {
            let name = name.to_owned();
            move |errno: Errno| IdentityError::Unknown { name, source: errno.into() }
        };
        let user = User::from_name(name).map_err(unknown(name))?;
        let user = user.ok_or_else(|| IdentityError::NoUser(name.clone()))?;
        let gid = match &run_as.group {
            None => user.gid,
            Some(group) => {
                let found = Group::from_name(group).map_err(unknown(group))?;
                found.ok_or_else(|| IdentityError::NoGroup(group.clone()))?.gid
            }
        };
        // A name with a null character has not been found.
        let c_name = CString::new(name.as_str()).map_err(|_| IdentityError::NoUser(name.clone()))?;
        let groups = getgrouplist(&c_name, gid).map_err(unknown(name))?;
        Ok(Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            home: user.dir,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn find(user: &str, group: Option<&str>) -> Result<Identity, String> {
        let run_as = RunAs { user: user.to_owned(), group: group.map(str::to_owned) };
        Identity::find(&run_as).map_err(|error| error.to_string())
    }

    #[test]
    fn a_user_has_a_number_groups_and_a_home() {
        let root = find("root", None).unwrap();
        assert_eq!((root.name.as_str(), root.uid, root.gid), ("root", 0, 0));
        assert!(root.groups.contains(&0) && root.home.is_absolute(), "{root:?}");
        let daemon = Group::from_name("daemon").unwrap().unwrap();
        let other = find("root", Some("daemon")).unwrap();
        assert_eq!((other.uid, other.gid), (0, daemon.gid.as_raw()));
        assert!(other.groups.contains(&daemon.gid.as_raw()), "{other:?}");
    }

    #[test]
    fn who_is_unknown_is_named() {
        let error = find("no-such-user", None).unwrap_err();
        assert_eq!(error, "there is no user 'no-such-user' on this host");
        let error = find("root", Some("no-such-group")).unwrap_err();
        assert_eq!(error, "there is no group 'no-such-group' on this host");
        assert_eq!(find("a\0b", None).unwrap_err(), "there is no user 'a\0b' on this host");
    }

    #[test]
    fn who_cannot_be_looked_up_now_makes_no_configuration_wrong() {
        let text = r#"{"mongohost":"h","database":"d"}"#;
        let config = Config::parse(text, Path::new("/etc/d.json")).unwrap();
        let unknown = IdentityError::Unknown { name: "ann".to_owned(), source: Errno::EIO.into() };
        let error = unknown.in_config(&config);
        assert!(matches!(error, ConfigError::Unknown { .. }), "{error}");
        let error = IdentityError::NoUser("ann".to_owned()).in_config(&config);
        assert!(matches!(error, ConfigError::Invalid { .. }), "{error}");
    }

    #[test]
    fn only_root_becomes_somebody_else() {
        let identity = |run_as: &str| {
            let text = format!(r#"{{"mongohost":"h","database":"d","run_as":{run_as}}}"#);
            let config = Config::parse(&text, Path::new("/etc/d.json")).unwrap();
            Identity::of(&config).map_err(|error| error.to_string())
        };
        assert_eq!(identity("null"), Ok(None));
        let wrong = "invalid configuration /etc/d.json: run_as: there is no user 'no-such-user' on this host";
        assert_eq!(identity(r#""no-such-user""#), Err(wrong.to_owned()));
        let daemon = identity(r#""daemon""#);
        if Uid::effective().is_root() {
            assert_eq!(daemon.unwrap().unwrap().name, "daemon");
        } else {
            let error = daemon.unwrap_err();
            assert!(error.contains("run_as: only root can run plugins as 'daemon'"), "{error}");
        }
    }
}
