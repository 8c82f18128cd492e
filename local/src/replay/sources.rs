//! The bundles of many runs: files, folders of them, or what a DCI has of the last runs of a queue.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use disbatch_cli::api::{self, ApiError, Client, segment};
use disbatch_cli::args::{ConnectionOptions, ManyRuns, ReplayOptions};
use disbatch_cli::input::is_stdin;
use disbatch_cli::output::say;
use disbatch_wire::bundles::{Bundle, RecordedAttempt};
use futures::{StreamExt, stream};
use tempfile::TempDir;

use super::bundle;

/// So many bundles are fetched at once.
const AT_ONCE: usize = 4;

/// What the names of bundles in a folder end with.
const EXTENSION: &str = "tar";

/// The bundle of a run, or why there is none.
#[derive(Debug)]
pub struct Source {
    /// The task's id and attempt, as far as that is known.
    pub task: String,
    pub attempt: i64,
    pub bundle: Result<(PathBuf, Bundle), String>,
}

/// Those of many runs.
#[derive(Debug)]
pub struct Sources {
    pub all: Vec<Source>,
    /// Where they are as long as they are needed.
    pub folder: Option<TempDir>,
}

impl Sources {
    /// What there is of what the options name.
    pub async fn of(options: &ReplayOptions, connection: ConnectionOptions) -> anyhow::Result<Self> {
        let ManyRuns { last, queue, save, .. } = &options.many;
        let sources = match (last, queue) {
            (Some(last), Some(queue)) => fetch((*last, queue), save.as_deref(), connection).await?,
            _ => Self { all: local(&options.bundles)?, folder: None },
        };
        if sources.all.is_empty() {
            bail!("there is no bundle to be replayed");
        }
        Ok(sources)
    }

    /// Names of what is secret and one of them needs.
    pub fn secrets(&self) -> Vec<String> {
        let bundles = self.all.iter().filter_map(|source| source.bundle.as_ref().ok());
        let mut names: Vec<String> = bundles.flat_map(|(_, bundle)| bundle.secrets.iter().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn local(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let mut all = Vec::new();
    for path in paths {
        if is_stdin(path) && paths.len() > 1 {
            bail!("standard input can be one bundle, and not one of many");
        }
        if !path.is_dir() {
            all.push(source(path.clone()));
            continue;
        }
        let cannot_read = || format!("cannot read {}", path.display());
        let entries = path.read_dir().with_context(cannot_read)?.collect::<Result<Vec<_>, _>>();
        let mut bundles: Vec<PathBuf> =
            entries.with_context(cannot_read)?.iter().map(|entry| entry.path()).collect();
        bundles.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        bundles.sort();
        all.extend(bundles.into_iter().map(source));
    }
    Ok(all)
}

fn source(path: PathBuf) -> Source {
    match bundle::about(&path) {
        Ok(bundle) => {
            Source { task: bundle.task.clone(), attempt: bundle.attempt, bundle: Ok((path, bundle)) }
        }
        Err(error) => {
            Source { task: path.display().to_string(), attempt: 0, bundle: Err(format!("{error:#}")) }
        }
    }
}

/// Those of the last runs of a queue.
async fn fetch(
    (last, queue): (u32, &str),
    save: Option<&Path>,
    connection: ConnectionOptions,
) -> anyhow::Result<Sources> {
    // A file that is named is the configuration of a node.
    let client = Client::new(&ConnectionOptions { config: None, ..connection }.with_file()?)?;
    let path = format!("/queues/{}/recordings?.limit={last}", segment(queue));
    let answer = client.get(&path, None).await?;
    let recorded: Vec<RecordedAttempt> = serde_json::from_value(answer)
        .with_context(|| format!("cannot understand the answer of {}", client.address(&path)))?;
    if recorded.is_empty() {
        bail!(
            "no run of the queue {queue} is recorded: disbatch set-queue {queue} record.share=0.1 has one in ten recorded"
        );
    }
    let (folder, own) = match save {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            (folder.to_owned(), None)
        }
        None => {
            let own = tempfile::tempdir().context("cannot make a folder for bundles")?;
            (own.path().to_owned(), Some(own))
        }
    };
    say(&format!("fetching {} bundles from {}", recorded.len(), client.address("")));
    let fetched = stream::iter(recorded).map(|recorded| one(&client, recorded, &folder));
    Ok(Sources { all: fetched.buffered(AT_ONCE).collect().await, folder: own })
}

async fn one(client: &Client, recorded: RecordedAttempt, folder: &Path) -> Source {
    let RecordedAttempt { task, attempt, .. } = recorded;
    match Box::pin(get(client, (&task, attempt), folder)).await {
        Ok(path) => Source { task, attempt, ..source(path) },
        Err(error) => {
            let said = error.downcast_ref::<ApiError>().map(ApiError::reason);
            Source { task, attempt, bundle: Err(said.unwrap_or_else(|| format!("{error:#}"))) }
        }
    }
}

async fn get(client: &Client, (task, attempt): (&str, i64), folder: &Path) -> anyhow::Result<PathBuf> {
    // It becomes a name here.
    if task.is_empty() || !task.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("{task:?} is no id of a task");
    }
    let path = format!("/tasks/{task}/bundle{}", api::query([(".attempt", Some(attempt.to_string()))]));
    let file = folder.join(format!("disbatch-{task}-{attempt}.{EXTENSION}"));
    let cannot_write = || format!("cannot write {}", file.display());
    let mut answer = client.stream(&path, 0).await?;
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
    let mut target = open.with_context(cannot_write)?;
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| ApiError::broken_off("getting", client.address(&path), &error))?
    {
        target.write_all(&bytes).with_context(cannot_write)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_folder_the_archives_are_taken_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar", "readme.txt"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = local(&[folder.path().to_owned(), folder.path().join("gone.tar")]).unwrap();
        let names: Vec<&str> = found.iter().map(|source| source.task.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["a.tar", "b.tar", "gone.tar"]);
        let why = found[0].bundle.as_ref().unwrap_err();
        assert!(why.contains("is no bundle that can be replayed: it is no tar archive"), "{why}");
        assert!(local(&["-".into(), "a.tar".into()]).unwrap_err().to_string().contains("standard input"));
    }
}
