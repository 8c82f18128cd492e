//! What plugins of other engines are started with besides what every plugin gets.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use disbatch_core::config::Role;
use disbatch_core::files::ContentId;
use disbatch_core::json::to_strict;
use disbatch_core::model::TaskId;
use disbatch_core::plugin::{Engine, Plugin, ProgramType};
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use serde_json::{Map, Value};

use super::{Job, task_line};
use crate::answer;
use crate::folder::{remove_file, write_file};
use crate::isolation::Isolation;

pub const PERL_CONFIG: &str = "DISBATCH_PERL_CONFIG";

/// The program in Perl that runs Perl modules: it is part of this program, and is written to a file where an interpreter can
/// read it.
///
/// All runners of a user share the file, whose name says whose it is and what is in it. Others may write where it is; so one
/// that is not exactly as it should be, or belongs to somebody else, is not used. Then each task has its own, in its private
/// folder.
const HARNESS: &str = include_str!("../../../plugins/perl/disbatch-perl.pl");

/// Everybody can read the harness: plugins may run as another user.
const HARNESS_MODE: u32 = 0o644;

const HASH_DIGITS: usize = 24;

/// Keys of the configuration whose values are given as they are, unless they are objects.
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

/// Makes the arguments of a plugin for a job, and the files that it needs in the private folder. Returns besides what
/// [`PERL_CONFIG`] is to say.
pub fn prepare(
    plugin: &Plugin,
    job: &Job<'_>,
    isolation: &Isolation,
) -> io::Result<(Vec<OsString>, Option<PathBuf>)> {
    if plugin.answers && job.folder_is_used {
        // What an earlier plugin has put there is not this one's.
        remove_file(job.folder, &answer::file_name(job.task.id))?;
    }
    let own = plugin.arguments.iter().map(OsString::from);
    Ok(match plugin.manifest.engine {
        Engine::Perl => {
            let config = config_file(job, isolation)?;
            let harness = match harness_in(&std::env::temp_dir())? {
                Some(shared) => shared,
                None => own_file(job, harness_name(job.task.id), HARNESS.as_bytes(), isolation)?,
            };
            ([OsString::from(harness)].into_iter().chain(own).collect(), Some(config))
        }
        Engine::Program => {
            let kind = plugin.manifest.program_type().unwrap_or_default();
            (own.chain(of_program(kind, job, isolation)?).collect(), None)
        }
        Engine::Exec | Engine::Container | Engine::Http | Engine::Kubernetes => (own.collect(), None),
    })
}

/// Removes the files that were made for a plugin that has ended, and its answer: others have nothing to do with them.
pub fn clear_away(folder: &Path, task: TaskId) {
    for name in [task_name(task), config_name(task), harness_name(task), answer::file_name(task)] {
        if let Err(error) = remove_file(folder, &name) {
            tracing::debug!(%error, name, "cannot remove a file of the plugin's");
        }
    }
}

fn task_name(task: TaskId) -> String {
    format!("{task}.json")
}

fn config_name(task: TaskId) -> String {
    format!("{task}-config.json")
}

fn harness_name(task: TaskId) -> String {
    format!("{task}-harness.pl")
}

fn own_file(job: &Job<'_>, name: String, bytes: &[u8], isolation: &Isolation) -> io::Result<PathBuf> {
    write_file(job.folder, &name, bytes, isolation.user())?;
    Ok(job.folder.join(name))
}

fn of_program(kind: ProgramType, job: &Job<'_>, isolation: &Isolation) -> io::Result<Vec<OsString>> {
    let task: OsString = match kind {
        // Secure parameters are on standard input only.
        ProgramType::Default | ProgramType::Nomongo => {
            own_file(job, task_name(job.task.id), &task_line(job, None, None)?, isolation)?.into()
        }
        ProgramType::Mongo => job.task.id.to_string().into(),
        ProgramType::Handoff => {
            return Err(io::Error::other("it is a runner itself, and only a DEN starts it"));
        }
    };
    let mut arguments: Vec<OsString> = vec!["--task".into(), task];
    if kind != ProgramType::Nomongo {
        arguments.extend(["--config".into(), config_file(job, isolation)?.into()]);
    }
    Ok(arguments)
}

/// A configuration that the plugin can read: that of the runner where it runs as the same user, else what of it is for
/// plugins.
fn config_file(job: &Job<'_>, isolation: &Isolation) -> io::Result<PathBuf> {
    let config = &job.about.config;
    if isolation.user().is_none() {
        return Ok(config.clone());
    }
    own_file(job, config_name(job.task.id), of_plugins(config)?.as_bytes(), isolation)
}

/// Where the harness is that all tasks use. It is written if need be. `None`: somebody has put something else there.
fn harness_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    let usual = usual_harness(folder);
    if is_right_harness(&usual) {
        return Ok(Some(usual));
    }
    let mut file = tempfile::Builder::new().prefix("disbatch-perl-").suffix(".pl").tempfile_in(folder)?;
    file.write_all(HARNESS.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(HARNESS_MODE))?;
    // What is refused is removed.
    Ok(file.persist(&usual).is_ok().then_some(usual))
}

fn usual_harness(folder: &Path) -> PathBuf {
    let hash = ContentId::of(HARNESS.as_bytes()).to_string();
    folder.join(format!("disbatch-perl-{}-{:.HASH_DIGITS$}.pl", Uid::effective(), hash))
}

/// Whether the harness is there as it was written, and nobody else could have changed it.
fn is_right_harness(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file: File = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        let is_ours = found.is_file()
            && found.uid() == Uid::effective().as_raw()
            && found.permissions().mode() & 0o777 == HARNESS_MODE
            && found.len() == HARNESS.len() as u64;
        let mut text = Vec::new();
        file.take(found.len()).read_to_end(&mut text)?;
        Ok(is_ours && text == HARNESS.as_bytes())
    };
    read().unwrap_or(false)
}

/// What of the configuration `path` is for plugins, as JSON, as one gets it that runs as another user: what it takes to reach the
/// database as a plugin, and what says nothing to anybody. What is not known to be harmless is left out: others read the same
/// file, and may have put what is secret under any key.
fn of_plugins(path: &Path) -> io::Result<String> {
    let config: Value = serde_json::from_str(&to_strict(&fs::read_to_string(path)?))?;
    let plain = |key: &str| config.get(key).filter(|value| !value.is_object()).cloned();
    let plain = GIVEN.into_iter().filter_map(|key| Some((key.to_owned(), plain(key)?)));
    let mut given: Map<String, Value> = plain.collect();
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
    let user = Role::Plugin.as_str();
    // Without one, it needs none, or is to have none.
    all[user].as_str().map(|password| (user.to_owned(), password.into())).into_iter().collect()
}

/// How the database is reached, as far as `attributes` says that. A path in it is one from `folder`.
fn attributes(all: &Value, folder: &Path) -> Map<String, Value> {
    let given = |(name, value): (&String, &Value)| match value {
        Value::Object(tls) if name == "ssl" => Some((name.clone(), Value::Object(of_tls(tls, folder)))),
        value if is_plain(value) && is_option(name) => Some((name.clone(), value.clone())),
        _ => None,
    };
    all.as_object().into_iter().flatten().filter_map(given).collect()
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
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_written_once_and_again_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let first = harness_in(folder.path()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&first).unwrap(), HARNESS);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, HARNESS_MODE);
        let written = fs::metadata(&first).unwrap().ino();
        assert_eq!(harness_in(folder.path()).unwrap(), Some(first.clone()));
        assert_eq!(fs::metadata(&first).unwrap().ino(), written);
        fs::write(&first, "exit").unwrap();
        assert_eq!(harness_in(folder.path()).unwrap(), Some(first.clone()));
        assert_eq!(fs::read_to_string(&first).unwrap(), HARNESS);
    }

    #[test]
    fn where_something_else_is_in_its_place_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        // As what belongs to somebody else, it cannot be replaced.
        fs::create_dir(usual_harness(folder.path())).unwrap();
        assert_eq!(harness_in(folder.path()).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn users_have_files_of_their_own() {
        let name = format!("/tmp/disbatch-perl-{}-", Uid::effective());
        assert!(usual_harness(Path::new("/tmp")).to_str().unwrap().starts_with(&name));
    }

    #[test]
    fn what_is_not_exactly_it_is_not_right() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert!(!is_right_harness(&file));
        fs::write(&file, HARNESS).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(HARNESS_MODE)).unwrap();
        assert!(is_right_harness(&file));
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(!is_right_harness(&file), "everybody could have changed it");
        fs::set_permissions(&file, Permissions::from_mode(HARNESS_MODE)).unwrap();
        symlink(&file, folder.path().join("link")).unwrap();
        assert!(!is_right_harness(&folder.path().join("link")));
        fs::write(&file, HARNESS.replacen('a', "b", 1)).unwrap();
        assert!(!is_right_harness(&file));
    }

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
