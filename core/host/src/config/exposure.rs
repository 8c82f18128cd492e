//! Whether others can read the passwords of a configuration file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

/// The permission of everybody to read.
const EVERYBODY_READS: u32 = 0o004;

/// Whether every user of this host can read the file, once they are in its folder.
pub(super) fn is_public(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & EVERYBODY_READS != 0)
}

/// Whether a configuration has a password of a MongoDB user. Keys of secure parameters are in a file of their own.
pub(super) fn has_passwords(config: &Value) -> bool {
    let is_set = |value: &Value| value.as_str().is_some_and(|password| !password.is_empty());
    let auth = config["auth"].as_object().is_some_and(|auth| auth.values().any(is_set));
    auth || config["mongohost"].as_str().is_some_and(has_password)
}

/// Whether a URI has a password: `mongodb://user:password@host`.
fn has_password(mongohost: &str) -> bool {
    let rest = mongohost.split_once("://").map_or(mongohost, |(_, rest)| rest);
    // What comes after the hosts may have an `@`, too.
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    #[test]
    fn passwords_are_found_wherever_they_are() {
        let cases = [
            (json!({ "mongohost": "h" }), false),
            (json!({ "mongohost": "h", "auth": {} }), false),
            (json!({ "mongohost": "h", "auth": { "plugin": null, "disbatchd": "" } }), false),
            (json!({ "mongohost": "h", "auth": { "plugin": "p" } }), true),
            (json!({ "mongohost": "h:27017,i:27017" }), false),
            (json!({ "mongohost": "mongodb://u@h:27017/?appName=a:b@c" }), false),
            (json!({ "mongohost": "mongodb://u:@h" }), false),
            (json!({ "mongohost": "mongodb://u:p@h:27017,i/?replicaSet=r" }), true),
            (json!({ "mongohost": "mongodb+srv://u:p@h" }), true),
            (json!({ "mongohost": "h", "secrets": { "key_file": "secrets.key" } }), false),
        ];
        for (config, expected) in cases {
            assert_eq!(has_passwords(&config), expected, "{config}");
        }
    }

    #[test]
    fn who_lets_everybody_read_passwords_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for (auth, mode, expected) in [
            (json!({ "disbatchd": "secret" }), 0o604, true),
            (json!({ "disbatchd": "secret" }), 0o640, false),
            (json!({ "disbatchd": "secret" }), 0o600, false),
            (json!({}), 0o644, false),
        ] {
            let config = json!({ "mongohost": "h", "database": "d", "auth": auth });
            fs::write(&path, config.to_string()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let exposure = Config::load(&path).unwrap().exposure();
            assert_eq!(exposure.is_some(), expected, "{config} {mode:o}");
            if let Some(text) = exposure {
                assert!(text.contains(path.to_str().unwrap()) && text.contains("chmod"), "{text}");
                assert!(!text.contains("secret"), "{text}");
            }
        }
    }
}
