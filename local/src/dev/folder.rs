//! The folder of a `disbatch dev`: `config.json`, `logs/`, `mongodb/`, and a lock.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;

pub const DATABASE: &str = "disbatch";

/// A folder that nobody else uses while this value lives.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder at `told`, or the default one; creates it if it is missing.
    pub fn open(told: Option<&Path>) -> anyhow::Result<Self> {
        let root = match told {
            Some(path) => std::path::absolute(path)?,
            None => default_root(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))?,
        };
        let cannot_write = || format!("cannot write to the data folder {}", root.display());
        fs::create_dir_all(root.join("logs")).with_context(cannot_write)?;
        let lock = File::create(root.join("lock")).with_context(cannot_write)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("another disbatch dev uses {}; choose a folder with --data", root.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(cannot_write),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration of DEN and DCI.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// The log of the process `name`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// The data of MongoDB.
    pub fn mongodb(&self) -> PathBuf {
        self.root.join("mongodb")
    }

    /// Writes the configuration. Every plugin that is found is allowed.
    pub fn write_config(&self, mongodb: &str, plugins: &[PathBuf]) -> anyhow::Result<()> {
        let mut config = json!({ "mongohost": mongodb, "database": DATABASE });
        if !plugins.is_empty() {
            let found = |path: &PathBuf| {
                path.canonicalize().with_context(|| format!("cannot find the plugins in {}", path.display()))
            };
            config["plugin_dirs"] = json!(plugins.iter().map(found).collect::<anyhow::Result<Vec<_>>>()?);
        }
        fs::write(self.config(), format!("{config:#}\n"))
            .with_context(|| format!("cannot write {}", self.config().display()))
    }
}

fn default_root(
    data_home: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> anyhow::Result<PathBuf> {
    let set = |value: Option<std::ffi::OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set(data_home).or_else(|| Some(set(home)?.join(".local/share")));
    Ok(base
        .context("neither XDG_DATA_HOME nor HOME is set; choose a folder with --data")?
        .join("disbatch/dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_xdg() {
        let root = |data: Option<&str>, home: Option<&str>| {
            default_root(data.map(Into::into), home.map(Into::into)).ok()
        };
        assert_eq!(root(Some("/data"), Some("/home/me")), Some("/data/disbatch/dev".into()));
        assert_eq!(root(Some(""), Some("/home/me")), Some("/home/me/.local/share/disbatch/dev".into()));
        assert_eq!(root(None, None), None);
    }

    #[test]
    fn one_folder_serves_one_process() {
        let path = std::env::temp_dir().join(format!("disbatch-dev-{}", std::process::id()));
        let first = Folder::open(Some(&path)).unwrap();
        let written = |plugins: &[PathBuf]| {
            first.write_config("mongodb://h/", plugins).unwrap();
            let text = fs::read_to_string(first.config()).unwrap();
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        };
        let here = path.canonicalize().unwrap();
        let config = json!({ "mongohost": "mongodb://h/", "database": "disbatch" });
        assert_eq!(written(&[]), config);
        assert_eq!(written(&[path.join("logs/..")])["plugin_dirs"], json!([here]));
        let error = first.write_config("mongodb://h/", &[path.join("nosuch")]).unwrap_err().to_string();
        assert!(error.starts_with("cannot find the plugins in /"), "{error}");
        let error = Folder::open(Some(&path)).unwrap_err().to_string();
        assert!(error.starts_with("another disbatch dev uses /"), "{error}");
        drop(first);
        Folder::open(Some(&path)).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }
}
