//! How to reach the DCI (options, environment and file), what to list and how, and the options of single commands, and of what is done
//! without a DCI, by `disbatch-local`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Deserialize;

const READABLE_BY_OTHERS: u32 = 0o044;

/// How to reach the DCI. The command line wins over the environment, and that over the file, which has the same
/// keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[command(next_help_heading = "Connection")]
#[serde(default)]
pub struct ConnectionOptions {
    /// Address of the DCI [default: http://localhost:8080]
    #[arg(long, global = true, env = "DISBATCH_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// User name for HTTP basic authentication
    #[arg(long, global = true, env = "DISBATCH_USERNAME", hide_env_values = true)]
    pub username: Option<String>,
    /// Password of that user; other users of this machine can see it on the command line
    #[arg(long, global = true, env = "DISBATCH_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Token to be let in with instead; other users of this machine can see it on the command line
    #[arg(long, global = true, env = "DISBATCH_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Trust only the certificates in this PEM file
    #[arg(long = "ssl_ca_file", global = true, value_name = "FILE")]
    pub ssl_ca_file: Option<PathBuf>,
    /// Do not check the DCI's certificate
    #[arg(long = "disable_ssl_verification", global = true)]
    pub disable_ssl_verification: bool,
    /// JSON file with url, token, username, password and so on [default: ~/.config/disbatch/cli.json if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
}

impl ConnectionOptions {
    /// These options, completed from the file of `--config` or the user's own.
    pub fn with_file(self) -> anyhow::Result<Self> {
        let given = self.config.clone();
        let default = || default_path(|name| std::env::var_os(name)).filter(|path| path.exists());
        let file = match given.or_else(default) {
            Some(path) => read(&path, |warning| eprintln!("{warning}"))?,
            None => Self::default(),
        };
        Ok(self.over(file))
    }

    /// These options; those that are not given, or are empty, from `file`. A name or password that is given comes
    /// before the file's token.
    fn over(self, file: Self) -> Self {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (username, password) = (given(self.username), given(self.password));
        let is_named = username.is_some() || password.is_some();
        Self {
            url: given(self.url).or(given(file.url)),
            username: username.or(given(file.username)),
            password: password.or(given(file.password)),
            token: given(self.token).or(given(file.token).filter(|_| !is_named)),
            ssl_ca_file: self.ssl_ca_file.or(file.ssl_ca_file),
            disable_ssl_verification: self.disable_ssl_verification || file.disable_ssl_verification,
            config: self.config,
        }
    }
}

/// `$XDG_CONFIG_HOME/disbatch/cli.json`, or the same below `~/.config`.
fn default_path(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    // The XDG base directory specification ignores relative paths.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("disbatch/cli.json"))
}

fn read(path: &Path, warn: impl Fn(String)) -> anyhow::Result<ConnectionOptions> {
    let name = path.display();
    let cannot_read = || format!("cannot read {name}");
    let mut file = File::open(path).with_context(cannot_read)?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot_read)?;
    let mut parser = serde_json::Deserializer::from_str(&text);
    let unknown = |key: serde_ignored::Path<'_>| warn(format!("{name}: nobody knows the key '{key}'"));
    let options: ConnectionOptions = serde_ignored::deserialize(&mut parser, unknown)
        .and_then(|options| parser.end().map(|()| options))
        .with_context(|| format!("cannot parse {name}"))?;
    let mode = file.metadata().with_context(cannot_read)?.permissions().mode();
    let secret = match (&options.password, &options.token) {
        (Some(_), _) => Some("password"),
        (None, Some(_)) => Some("token"),
        (None, None) => None,
    };
    if let Some(secret) = secret.filter(|_| mode & READABLE_BY_OTHERS != 0) {
        warn(format!("{name} holds a {secret}, and others can read it: chmod 600 {name}"));
    }
    Ok(options)
}

const DEFAULT_BATCH: u32 = 1_000;

/// Which tasks to show, and how.
///
/// These are hidden here and shown again for the commands that take them: see [`crate::args::shape`].
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Listing")]
pub struct ListingOptions {
    /// Print only how many there are
    #[arg(long, global = true, hide = true)]
    pub count: bool,
    /// Only these fields, as a JSON array or object
    #[arg(long, global = true, hide = true, value_name = "JSON")]
    pub fields: Option<String>,
    /// At most so many; 0 for all [default: 100]
    #[arg(long, global = true, hide = true, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<i64>,
    /// Leave out so many first
    #[arg(long, global = true, hide = true, value_name = "N")]
    pub skip: Option<u64>,
    /// Limit, skip and order as a JSON object: `{"limit":5,"sort":{"_id":-1}}`
    #[arg(long, global = true, hide = true, value_name = "JSON")]
    pub options: Option<String>,
    /// Print times as seconds since 1970
    #[arg(long, global = true, hide = true)]
    pub epoch: bool,
    /// Do not print the tasks' output
    #[arg(long, global = true, hide = true, overrides_with = "noterse")]
    pub terse: bool,
    /// Print the tasks' output
    #[arg(long, global = true, hide = true, overrides_with = "terse", alias = "no-terse")]
    pub noterse: bool,
    /// Print the tasks' output even where it is in `GridFS`
    #[arg(long, global = true, hide = true)]
    pub full: bool,
    /// Print JSON for people
    #[arg(long, global = true, hide = true)]
    pub pretty: bool,
    /// How to print the list [default: table; after a JSON object: json]
    #[arg(long, global = true, hide = true, value_enum)]
    pub format: Option<Format>,
    /// Take the parameters from the documents of this collection
    #[arg(long, global = true, hide = true, value_name = "NAME", help_heading = None::<&str>)]
    pub collection: Option<String>,
}

impl ListingOptions {
    pub fn format(&self) -> Format {
        self.format.unwrap_or_default()
    }
}

/// How to print a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    #[default]
    Table,
    /// JSON as the DCI sends it, on one line unless `--pretty` is given
    Json,
    /// YAML
    Yaml,
}

/// Tasks from a file (`create-tasks --file`).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Many tasks from a file")]
pub struct FileOptions {
    /// File with a JSON object of parameters on each line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "collection"])]
    pub file: Option<PathBuf>,
    /// Lines for each request
    #[arg(long, value_name = "N", requires = "file", default_value_t = DEFAULT_BATCH,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Leave out so many lines first, to go on where an earlier run stopped
    #[arg(long, value_name = "N", requires = "file", default_value_t = 0)]
    pub skip_lines: u64,
    /// Print the ids of the new tasks
    #[arg(long, requires = "file")]
    pub ids: bool,
}

/// A shell that completion scripts can be written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// What `create-users` takes, beside `--config` with the configuration of Disbatch.
#[derive(Debug, Args)]
pub struct CreateUsers {
    /// The MongoDB user who may create others
    #[arg(long = "root_user", value_name = "NAME", default_value = "root")]
    pub root_user: String,
    /// What plugins may do, as JSON: {"COLLECTION": ["ACTION", ..]} [default: insert into reports]
    #[arg(long = "plugin_perms", value_name = "FILE")]
    pub plugin_perms: Option<PathBuf>,
    /// What users may do besides, as JSON: {"USER": {"COLLECTION": ["ACTION", ..]}}
    #[arg(long = "additional_perms", value_name = "FILE")]
    pub additional_perms: Option<PathBuf>,
    /// Create the root user first; only a server without any users lets you
    #[arg(long = "create_root")]
    pub create_root: bool,
    /// Remove the users and roles before they are created
    #[arg(long = "drop_roles")]
    pub drop_roles: bool,
}

#[derive(Debug, Args)]
pub struct DevOptions {
    /// Folder of the data, the logs and the configuration [default: ~/.local/share/disbatch/dev]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Port of the DCI on 127.0.0.1
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Port of MongoDB on 127.0.0.1 [default: the one before, else any that is free]
    #[arg(long, value_name = "N")]
    pub mongo_port: Option<u16>,
    /// Folder of plugins, or of one, that can be used beside the shipped ones; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugins: Vec<PathBuf>,
    /// Create two queues, run 20 tasks in them and show what comes out
    #[arg(long)]
    pub demo: bool,
    /// Stop after the demo; the exit status is 0 only if all went as expected
    #[arg(long, requires = "demo")]
    pub exit: bool,
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn options(url: &str, username: &str) -> ConnectionOptions {
        let option = |text: &str| (text != "-").then(|| text.to_owned());
        ConnectionOptions { url: option(url), username: option(username), ..Default::default() }
    }

    #[test]
    fn the_file_completes_what_is_not_given() {
        assert_eq!(options("a", "-").over(options("b", "c")), options("a", "c"));
        assert_eq!(options("", "-").over(options("b", "")), options("b", "-"));
    }

    #[test]
    fn a_name_that_is_given_comes_before_the_token_of_the_file() {
        let file = || ConnectionOptions { token: Some("t".into()), ..options("-", "-") };
        assert_eq!(options("-", "-").over(file()).token.as_deref(), Some("t"));
        assert_eq!(options("-", "").over(file()).token.as_deref(), Some("t"));
        assert_eq!(options("-", "u").over(file()).token, None);
        let given = ConnectionOptions { token: Some("own".into()), ..options("-", "u") };
        assert_eq!(given.over(file()).token.as_deref(), Some("own"));
    }

    #[test]
    fn the_users_own_file_is_where_such_files_are() {
        let path = |xdg: &str, home: &str| {
            default_path(|name| Some(if name == "HOME" { home.into() } else { xdg.into() }))
        };
        assert_eq!(path("/x", "/h"), Some(PathBuf::from("/x/disbatch/cli.json")));
        assert_eq!(path("", "/h"), Some(PathBuf::from("/h/.config/disbatch/cli.json")));
        assert_eq!(path("relative", ""), None);
    }

    #[test]
    fn a_secret_that_others_can_read_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cli.json");
        let write = |secret: &str| {
            std::fs::write(&path, format!(r#"{{"username":"u","{secret}":"p","colour":1}}"#)).unwrap();
        };
        let warnings = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let warnings = RefCell::new(Vec::new());
            assert_eq!(read(&path, |text| warnings.borrow_mut().push(text)).unwrap().username.unwrap(), "u");
            warnings.into_inner().join("\n")
        };
        for secret in ["password", "token"] {
            write(secret);
            assert!(warnings(0o644).contains(&format!("holds a {secret}, and others can read it")));
            assert!(!warnings(0o600).contains("others"));
        }
        assert!(warnings(0o600).contains("nobody knows the key 'colour'"));
    }

    #[test]
    fn a_wrong_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cli.json");
        std::fs::write(&path, "[1").unwrap();
        assert!(read(&path, |_| ()).unwrap_err().to_string().contains("cli.json"));
    }
}
