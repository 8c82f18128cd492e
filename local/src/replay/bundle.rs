//! Reads a bundle.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use disbatch_cli::input::is_stdin;
use disbatch_core::model::{FILES, PluginName, STEPS, Version};
use disbatch_dtr::local::{GivenFile, GivenFiles};
use disbatch_wire::bundles::{
    self, BUNDLE, Bundle, BundledFile, LARGEST_FILES, LARGEST_STREAM, RECORDING, RecordedPlugin, Recording,
    STDIN, VERSION,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Its JSON files have so many bytes at most: a task has 16 MiB, and more as JSON.
const LARGEST_FILE: u64 = 128 * 1024 * 1024;

const NO_TAR: &str = "it is no tar archive, or only a part of one";

/// What a bundle has.
#[derive(Debug, Default)]
pub struct Run {
    pub bundle: Bundle,
    /// What the plugin was given on standard input.
    pub task: Map<String, Value>,
    pub recording: Option<Recording>,
    /// Standard output and standard error, or the first part of them.
    pub output: [Vec<u8>; 2],
    /// What is in input files, by their SHA-256 sums.
    pub contents: HashMap<String, Vec<u8>>,
}

impl Run {
    /// The names of all plugins that it needs: that of its queue, or those of its steps.
    pub fn plugins(&self) -> anyhow::Result<Vec<PluginName>> {
        let steps = self.task.get(STEPS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let of_queue = self.bundle.plugin.as_str();
        let of_steps =
            steps.iter().map(|step| step.get("plugin").and_then(Value::as_str).unwrap_or(of_queue));
        let mut names: Vec<&str> = of_steps.collect();
        if names.is_empty() {
            names.push(of_queue);
        }
        let mut all: Vec<PluginName> = Vec::new();
        for name in names {
            let name = name.parse().with_context(|| format!("the bundle names no plugin: {name:?}"))?;
            if !all.contains(&name) {
                all.push(name);
            }
        }
        Ok(all)
    }

    pub fn recorded(&self, plugin: &PluginName) -> Option<&RecordedPlugin> {
        self.recording.as_ref()?.of_plugin(plugin.as_str())
    }

    /// The version of a plugin that ran, if that is known.
    pub fn version(&self, plugin: &PluginName) -> Option<Version> {
        let of_queue = self.bundle.version.as_deref().filter(|_| plugin.as_str() == self.bundle.plugin);
        of_queue.or_else(|| Some(self.recorded(plugin)?.version.as_str()))?.parse().ok()
    }

    /// What the task gets and leaves.
    pub fn files(&self) -> anyhow::Result<Option<GivenFiles>> {
        let is_asked = self.task.get(FILES).is_some_and(|files| !files.is_null());
        let Some(files) = &self.bundle.files else {
            if is_asked {
                bail!("the task takes or leaves file sets, which are not in the bundle");
            }
            return Ok(None);
        };
        let mut input = Vec::new();
        if let Some(set) = &files.input {
            let Some(files) = &set.files else {
                bail!("the task takes files of the file set {}, which are not in the bundle", set.name)
            };
            for BundledFile { path, sha256, mode, mtime, size, .. } in files {
                let bytes = self.contents.get(sha256).cloned();
                let bytes = bytes.with_context(|| {
                    format!("the input file {path}, of {size} bytes, is not in the bundle")
                })?;
                input.push(GivenFile { path: path.clone(), mode: *mode, mtime: *mtime, bytes });
            }
        }
        Ok(Some(GivenFiles { input, output: files.output.as_ref().map(|set| set.patterns.clone()) }))
    }
}

/// Reads it from a file or from standard input. Files that it has besides are of no interest.
pub fn read(path: &Path) -> anyhow::Result<Run> {
    let name = path.display();
    let source: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?)
    };
    from(source).with_context(|| format!("{name} is no bundle that can be replayed"))
}

/// Reads only which run it is of.
pub fn about(path: &Path) -> anyhow::Result<Bundle> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut archive = tar::Archive::new(file);
    let mut found = || -> anyhow::Result<Bundle> {
        for file in archive.entries().map_err(no_tar)? {
            let mut file = file.map_err(no_tar)?;
            if file.path()?.as_os_str() == BUNDLE && file.size() <= LARGEST_FILE {
                let size = file.size();
                return versioned(&whole(&mut file, size)?);
            }
        }
        bail!("it has no {BUNDLE}")
    };
    found().with_context(|| format!("{name} is no bundle that can be replayed"))
}

fn from(source: impl Read) -> anyhow::Result<Run> {
    let mut archive = tar::Archive::new(source);
    let mut run = Run::default();
    let (mut has_task, mut room) = (false, LARGEST_FILES);
    for file in archive.entries().map_err(no_tar)? {
        let mut file = file.map_err(no_tar)?;
        let (name, size) = (file.path()?.to_string_lossy().into_owned(), file.size());
        let most = if name.ends_with(".json") { LARGEST_FILE } else { LARGEST_STREAM };
        if size > most {
            bail!("{name} has {size} bytes, more than {most}");
        }
        let mut bytes = || whole(&mut file, size);
        match name.as_str() {
            BUNDLE => run.bundle = versioned(&bytes()?)?,
            STDIN => (run.task, has_task) = (json(&bytes()?, STDIN)?, true),
            RECORDING => run.recording = Some(json(&bytes()?, RECORDING)?),
            "stdout" => run.output[0] = bytes()?,
            "stderr" => run.output[1] = bytes()?,
            name if name.starts_with(bundles::FILES) => {
                room = room.checked_sub(size).context("it has too many files")?;
                run.contents.insert(name[bundles::FILES.len()..].to_owned(), bytes()?);
            }
            _ => {} // Of a later release.
        }
    }
    if run.bundle.v == 0 {
        bail!("it has no {BUNDLE}");
    }
    if !has_task {
        bail!("it has no {STDIN}");
    }
    Ok(run)
}

/// What cannot be read as an archive: the errors of that quote whatever there was in its place.
fn no_tar(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => anyhow!(NO_TAR),
        _ => error.into(),
    }
}

/// All of a file that has so many bytes, as the archive has it.
fn whole(file: &mut impl Read, size: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(no_tar)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(anyhow!(NO_TAR)) }
}

/// A version that nobody knows may lack what is wanted.
fn versioned(file: &[u8]) -> anyhow::Result<Bundle> {
    let value: Value = json(file, BUNDLE)?;
    match value.get("v").and_then(Value::as_u64) {
        Some(v) if v == u64::from(VERSION) => {
            serde_json::from_value(value).with_context(|| format!("{BUNDLE} cannot be understood"))
        }
        Some(v) => bail!("its format has version {v}, and this release knows version {VERSION}"),
        None => bail!("{BUNDLE} has no version v"),
    }
}

fn json<T: DeserializeOwned>(file: &[u8], name: &str) -> anyhow::Result<T> {
    serde_json::from_slice(file).with_context(|| format!("{name} cannot be understood"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn error(files: &[(&str, &str)]) -> String {
        from(&archive(files)[..]).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_bundle_is_said() {
        let whole =
            serde_json::to_string(&Bundle { v: 1, task: "t".to_owned(), ..Bundle::default() }).unwrap();
        let run =
            from(&archive(&[(BUNDLE, &whole), (STDIN, "{\"a\":1}"), ("stdout", "x"), ("more", "")])[..])
                .unwrap();
        assert_eq!((run.bundle.task.as_str(), run.task.len(), &run.output[0][..]), ("t", 1, &b"x"[..]));
        assert_eq!(error(&[]), "it has no bundle.json");
        let all = archive(&[(BUNDLE, &whole), (STDIN, "{}"), ("stdout", &"x".repeat(2000))]);
        for odd in [&b"root:x:0:0:root:/root".repeat(40)[..], &all[..all.len() - 2048], &all[..100]] {
            let said = from(odd).unwrap_err().to_string();
            assert_eq!(said, "it is no tar archive, or only a part of one");
        }
        assert_eq!(error(&[(BUNDLE, &whole)]), "it has no stdin.json");
        assert_eq!(
            error(&[(BUNDLE, "{\"v\":2}")]),
            "its format has version 2, and this release knows version 1"
        );
        assert_eq!(error(&[(BUNDLE, "{}")]), "bundle.json has no version v");
        assert_eq!(error(&[(BUNDLE, "{\"v\":1}")]), "bundle.json cannot be understood");
        assert!(from(&b"no archive"[..]).is_err());
    }
}
