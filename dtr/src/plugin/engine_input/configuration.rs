//! The configuration as a plugin gets it that runs as another user: what it takes to reach the database as a plugin, and what
//! says nothing to anybody. What is not known to be harmless is left out: others read the same file, and may have put what is
//! secret under any key.

use std::fs;
use std::io;
use std::path::Path;

use disbatch_core::config::{Role, relaxed};
use serde_json::{Map, Value};

/// Keys whose values are given as they are, unless they are objects.
const GIVEN: [&str; 8] =
    ["activequeues", "database", "gfs", "ignorequeues", "lease", "monitoring", "quiet", "testing"];

/// Options of connections that are given, in small letters and without underscores: those of addresses, and Perl's in
/// `attributes`. Who connects, and with what, is not among them.
const OPTIONS: [&str; 34] = [
    "appname",
    "compressors",
    "connecttimeoutms",
    "directconnection",
    "heartbeatfrequencyms",
    "j",
    "journal",
    "loadbalanced",
    "localthresholdms",
    "maxpoolsize",
    "maxtimems",
    "minpoolsize",
    "readconcernlevel",
    "readpreference",
    "readpreferencetags",
    "readprefmode",
    "replicaset",
    "replicasetname",
    "retryreads",
    "retrywrites",
    "serverselectiontimeoutms",
    "serverselectiontryonce",
    "socketcheckintervalms",
    "sockettimeoutms",
    "ssl",
    "tls",
    "tlsallowinvalidcertificates",
    "tlsallowinvalidhostnames",
    "tlscafile",
    "tlsinsecure",
    "w",
    "wtimeout",
    "wtimeoutms",
    "zlibcompressionlevel",
];

/// Options of TLS that are given: whom to trust, and not who one is.
const OF_TLS: [&str; 2] = ["SSL_ca_file", "SSL_verify_mode"];

/// What of the configuration `path` is for plugins, as JSON.
pub fn of_plugins(path: &Path) -> io::Result<String> {
    let config: Value = serde_json::from_str(&relaxed::to_strict(&fs::read_to_string(path)?))?;
    let mut given = Map::new();
    for key in GIVEN {
        if let Some(value) = config.get(key).filter(|value| !value.is_object()) {
            given.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(mongohost) = config["mongohost"].as_str() {
        given.insert("mongohost".to_owned(), without_user(mongohost).into());
    }
    if let Some(level) = config["log4perl"]["level"].as_str() {
        given.insert("log4perl".to_owned(), serde_json::json!({ "level": level }));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    given.insert("attributes".to_owned(), Value::Object(attributes(&config["attributes"], folder)));
    given.insert("auth".to_owned(), Value::Object(auth(&config["auth"])));
    Ok(Value::Object(given).to_string())
}

/// The password of plugins and no other.
fn auth(all: &Value) -> Map<String, Value> {
    let user = Role::Plugin.user();
    // Without one, it needs none, or is to have none.
    all[user].as_str().map(|password| (user.to_owned(), password.into())).into_iter().collect()
}

/// How the database is reached, as far as `attributes` says that. A path in it is one from `folder`.
fn attributes(all: &Value, folder: &Path) -> Map<String, Value> {
    let mut given = Map::new();
    for (name, value) in all.as_object().into_iter().flatten() {
        match value {
            Value::Object(tls) if name == "ssl" => {
                given.insert(name.clone(), of_tls(tls, folder).into());
            }
            value if is_plain(value) && is_option(name) => {
                given.insert(name.clone(), value.clone());
            }
            _ => {}
        }
    }
    given
}

fn of_tls(all: &Map<String, Value>, folder: &Path) -> Map<String, Value> {
    let mut given: Map<String, Value> = all
        .iter()
        .filter(|(name, value)| OF_TLS.contains(&name.as_str()) && is_plain(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(file) = given.get_mut("SSL_ca_file")
        && let Some(path) = file.as_str()
    {
        *file = folder.join(path).to_string_lossy().into_owned().into();
    }
    given
}

/// An address without who connects, with what, and how that is shown: a plugin is somebody else.
fn without_user(mongohost: &str) -> String {
    let (scheme, rest) = mongohost.split_at(mongohost.find("://").map_or(0, |at| at + "://".len()));
    let (hosts, options) = rest.split_once('?').unwrap_or((rest, ""));
    // Also behind a slash that whoever wrote a password has not encoded.
    let hosts = hosts.rsplit('@').next().unwrap_or_default();
    let is_given = |option: &&str| option.split_once('=').is_some_and(|(name, _)| is_option(name));
    let options: Vec<&str> = options.split('&').filter(is_given).collect();
    let options = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
    format!("{scheme}{hosts}{options}")
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn is_option(name: &str) -> bool {
    let name = name.replace('_', "").to_ascii_lowercase();
    OPTIONS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What becomes of this text, in the folder.
    fn given(folder: &Path, text: &str) -> Value {
        let path = folder.join("config.json");
        fs::write(&path, text).unwrap();
        serde_json::from_str(&of_plugins(&path).unwrap()).unwrap()
    }

    #[test]
    fn a_plugin_of_another_user_gets_its_own_password_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{ "mongohost": "h", "database": "d", # two
            "auth": { "disbatchd": "secret", "plugin": "own", "task_runner": "secret", },
            "attributes": { "ssl": { "SSL_ca_file": "ca.pem" } }, "quiet": 1, }"#;
        let ca = folder.path().join("ca.pem").display().to_string();
        let expected = json!({
            "mongohost": "h", "database": "d", "auth": { "plugin": "own" },
            "attributes": { "ssl": { "SSL_ca_file": ca } }, "quiet": 1,
        });
        assert_eq!(given(folder.path(), text), expected);
        let none = json!({ "auth": {}, "attributes": {} });
        assert_eq!(given(folder.path(), r#"{ "auth": { "task_runner": "secret" } }"#), none);
    }

    /// Wherever somebody may have put something secret, it is not in there.
    #[test]
    fn what_is_secret_is_left_out_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let text = json!({
            "mongohost": "mongodb://den:SECRET@h:1,i:2/d?replicaSet=r&authSource=SECRET&tlsCertificateKeyFilePassword=SECRET",
            "database": "d",
            "auth": { "disbatchd": "SECRET", "plugin": { "password": "SECRET" } },
            "attributes": {
                "username": "SECRET", "password": "SECRET", "auth_mechanism_properties": { "a": "SECRET" },
                "connect_timeout_ms": 500, "replica_set_name": "r", "appname": ["SECRET"],
                "ssl": { "SSL_ca_file": "/ca.pem", "SSL_verify_mode": 0, "SSL_key": "SECRET",
                         "SSL_key_file": "SECRET", "SSL_passwd_cb": "SECRET" },
            },
            "plugins": { "My::Importer": { "type": "default", "args": ["--password=SECRET"] } },
            "log4perl": { "level": "INFO", "appenders": { "mail": { "args": { "password": "SECRET" } } } },
            "secrets": { "key_file": "SECRET" }, "access": { "proxy": "SECRET" }, "mine": "SECRET",
            "gfs": { "odd": "SECRET" },
        });
        let given = given(folder.path(), &text.to_string());
        let expected = json!({
            "mongohost": "mongodb://h:1,i:2/d?replicaSet=r", "database": "d", "auth": {},
            "attributes": {
                "connect_timeout_ms": 500, "replica_set_name": "r",
                "ssl": { "SSL_ca_file": "/ca.pem", "SSL_verify_mode": 0 },
            },
            "log4perl": { "level": "INFO" },
        });
        assert_eq!(given, expected);
        assert!(!given.to_string().contains("SECRET"));
    }

    #[test]
    fn an_address_loses_who_connects_and_leads_to_the_same_place() {
        for (given, expected) in [
            ("h", "h"),
            ("h:27017,i:27017", "h:27017,i:27017"),
            ("u:p@h:27017", "h:27017"),
            ("mongodb://h", "mongodb://h"),
            ("mongodb://u@h/", "mongodb://h/"),
            (
                "mongodb://u:p%40@h:1,[::1]:2/?ssl=true&w=majority",
                "mongodb://h:1,[::1]:2/?ssl=true&w=majority",
            ),
            ("mongodb+srv://u:p@h/d?authMechanism=PLAIN", "mongodb+srv://h/d"),
            ("mongodb://u:p/q@h/d", "mongodb://h/d"),
            ("mongodb://h/?connectTimeoutMS=5&password", "mongodb://h/?connectTimeoutMS=5"),
        ] {
            assert_eq!(without_user(given), expected, "{given}");
        }
    }
}
