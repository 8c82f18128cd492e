//! Stores what a task leaves in its private folder as a new version of a set, when its last plugin has succeeded.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;
use std::{mem, ptr};

use disbatch_core::files::{Committed, FileEntry, FileSet, FilesError, NewEntry, NewSet, Patterns};
use disbatch_core::model::FileOutput;
use disbatch_core::store::Store;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::content::HashedFile;
use super::meter::Meter;
use super::walk::{Item, walk};
use super::{Exchange, FILES_AT_ONCE, Trouble, text};
use crate::notes::Notes;
use crate::relay::Relay;

/// So many files wait to be stored, and are open.
const WAITING: usize = 16;

/// So many files are stored together at most.
const TOGETHER: usize = 64;

/// Those that are stored are added to the version at least so often, and it is touched. What nobody names for a day goes away, and
/// so does a version that nobody touches.
const ADDED: Duration = Duration::from_secs(300);

/// So often everything is looked through again if contents go away meanwhile that had long been there.
const PASSES: usize = 3;

impl Exchange<'_> {
    /// Stores the files, and makes the version done that has them. Returns lines about what was left out.
    pub async fn leave(&self, relay: &Relay) -> Result<Vec<String>, Trouble> {
        let Some(output) = &self.wanted.output else { return Ok(Vec::new()) };
        let meter = Meter::new(relay, "storing output files");
        let run = &self.begun.run;
        let new = NewSet {
            by: text(&self.begun.task, "owner").map(str::to_owned),
            tenant: self.tenant.clone(),
            task: Some((run.task, run.attempt)),
            expires: None,
        };
        let open = async |store: &Store| store.fileset_open(&output.name, &new).await;
        let set = self.ask("opening a version of the output files", open).await?;
        for _ in 0..PASSES {
            let notes = Box::pin(self.store_all(&set, output, &meter)).await?;
            // The fence: from here on the version is known as this run's, and a run that has lost its task ends here.
            self.record(Some(set.version)).await?;
            let commit = async |store: &Store| store.fileset_commit(set.id).await;
            if let Committed::Done(done) = self.ask("completing the output files", commit).await? {
                let (files, bytes) = (done.count, done.bytes);
                tracing::info!(set = %output.name, version = done.version, files, bytes, "output files are stored");
                let mut lines: Vec<String> = notes.lines("things that are not stored").collect();
                if files == 0 && !output.patterns.is_empty() {
                    let patterns = output.patterns.join(", ");
                    let (name, version) = (&output.name, done.version);
                    lines.push(format!(
                        "disbatch: no file matches {patterns}: version {version} of the file set {name} is empty\n"
                    ));
                }
                return Ok(lines);
            }
        }
        Err(Trouble::Busy)
    }

    /// Stores all files that match, and adds them to the version.
    async fn store_all(
        &self,
        set: &FileSet,
        output: &FileOutput,
        meter: &Meter<'_>,
    ) -> Result<Notes, Trouble> {
        let patterns = Patterns::new(output.patterns.iter().map(String::as_str))?;
        let all_that_is_new = output.patterns.is_empty();
        let (items, mut inbox) = mpsc::channel(WAITING);
        let (root, task) = (self.root.clone(), self.begun.task.id.to_string());
        let walker = tokio::task::spawn_blocking(move || {
            let tell = |item| match items.blocking_send(item) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            walk(&root, &patterns, |name| super::is_own(name, &task), tell)
        });
        let mut notes = Notes::default();
        let mut batch = Vec::new();
        let mut touched = Instant::now();
        while inbox.recv_many(&mut batch, TOGETHER).await > 0 {
            let mut known = Vec::new();
            for item in batch.drain(..) {
                match item {
                    Item::File(found) => {
                        known.push(self.look_through(found).await?);
                        if touched.elapsed() >= ADDED {
                            self.add(set, &[]).await?;
                            touched = Instant::now();
                        }
                    }
                    Item::Skipped(why) => {
                        notes.add(&why);
                    }
                }
            }
            if all_that_is_new {
                known = self.without_unchanged(known).await?;
            }
            Box::pin(self.store_batch(set, known, meter)).await?;
        }
        walker.await.map_err(|broken| Trouble::Walk(io::Error::other(broken)))?.map_err(Trouble::Walk)?;
        Ok(notes)
    }

    /// Those that the task did not get as they are.
    async fn without_unchanged(&self, known: Vec<HashedFile>) -> Result<Vec<HashedFile>, Trouble> {
        let Some(taken) = self.taken.get().filter(|_| !known.is_empty()) else { return Ok(known) };
        let paths: Vec<&str> = known.iter().map(|known| known.entry.path.as_str()).collect();
        let look =
            async |store: &Store| store.fileset_entries_at(taken, &paths).await.map_err(FilesError::from);
        let before = self.ask("looking what has changed", look).await?;
        let before: BTreeMap<&str, &FileEntry> =
            before.iter().map(|entry| (entry.path.as_str(), entry)).collect();
        let is_new = |entry: &NewEntry| {
            let before = before.get(entry.path.as_str());
            before.is_none_or(|before| before.file != entry.file || before.mode != entry.mode)
        };
        let is_new: Vec<bool> = known.iter().map(|known| is_new(&known.entry)).collect();
        Ok(known.into_iter().zip(is_new).filter_map(|(known, is_new)| is_new.then_some(known)).collect())
    }

    async fn store_batch(
        &self,
        set: &FileSet,
        known: Vec<HashedFile>,
        meter: &Meter<'_>,
    ) -> Result<(), Trouble> {
        let left = self.store_small(&known, meter).await?;
        let is_stored = |one: &&HashedFile| !left.iter().any(|left| ptr::eq(*left, *one));
        let mut waiting: Vec<NewEntry> =
            known.iter().filter(is_stored).map(|one| one.entry.clone()).collect();
        let left = stream::iter(left).map(|one| async move {
            self.store(one, meter).await?;
            Ok::<NewEntry, Trouble>(one.entry.clone())
        });
        let mut stored = left.buffer_unordered(FILES_AT_ONCE);
        let mut ticks = interval_at(Instant::now() + ADDED, ADDED);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                one = stored.next() => match one {
                    Some(one) => waiting.push(one?),
                    None => break,
                },
                _ = ticks.tick() => self.add(set, &mem::take(&mut waiting)).await?,
            }
        }
        if waiting.is_empty() { Ok(()) } else { self.add(set, &waiting).await }
    }

    /// Adds files to the version, which is touched even if there are none.
    async fn add(&self, set: &FileSet, entries: &[NewEntry]) -> Result<(), Trouble> {
        let add = async |store: &Store| store.fileset_add(set.id, entries).await;
        match self.ask("adding output files", &add).await {
            // An addition of ours whose answer was lost is in the way no more.
            Err(Trouble::Files(FilesError::Overtaken)) => self.ask("adding output files", &add).await,
            added => added,
        }
    }
}
