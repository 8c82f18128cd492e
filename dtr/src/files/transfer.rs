//! Brings the files that a task is to have into its private folder, before its first plugin begins, and stores what it leaves
//! there as a new version of a set, when its last plugin has succeeded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;
use std::{mem, ptr, thread};

use bson::doc;
use disbatch_core::files::{
    Committed, Content, ContentId, EntryPath, EntryQuery, FileEntry, FileSet, FilesError, NewEntry, NewSet,
    Patterns,
};
use disbatch_core::model::{FileInput, FileOutput};
use disbatch_core::store::Store;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::content::HashedFile;
use super::root::{Item, walk};
use super::{Exchange, Trouble, is_own};
use crate::relay::{Notes, Relay};

const FILES_AT_ONCE: usize = 4;

const AHEAD: usize = 2;

/// So many files wait to be stored, and are open.
const WAITING: usize = 16;

const TOGETHER: usize = 64;

/// Those that are stored are added to the version at least so often, and it is touched. What nobody names for a day goes away, and
/// so does a version that nobody touches.
const ADDED: Duration = Duration::from_secs(300);

/// So often everything is looked through again if contents go away meanwhile that had long been there.
const PASSES: usize = 3;

/// Progress is not said more often than this. It is written into the task once a second at most.
const SAID_EVERY: Duration = Duration::from_millis(200);

const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];

impl Exchange<'_> {
    /// Brings the files, and tells the task of which version they are.
    pub async fn bring(&self, relay: &Relay) -> Result<(), Trouble> {
        let Some(input) = &self.wanted.input else { return self.record(None).await };
        let patterns = Patterns::new(input.patterns.iter().map(String::as_str))?;
        let set = self.find_input(input).await?;
        let set = self.taken.get_or_init(|| set);
        self.record(None).await?;
        let meter = Meter::new(relay, "bringing input files");
        let mut after: Option<String> = None;
        loop {
            let query = EntryQuery { after: after.as_deref(), ..EntryQuery::ALL };
            let list = async |store: &Store| store.fileset_entries(set, query).await;
            let page = self.ask("listing the input files", list).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.path.clone());
            let wanted: Vec<&FileEntry> = page.iter().filter(|entry| patterns.matches(&entry.path)).collect();
            let ids: Vec<ContentId> = wanted.iter().map(|entry| entry.file).collect();
            let find = async |store: &Store| store.find_contents(&ids).await;
            let contents = self.ask("looking for input files", find).await?;
            let mut placed = stream::iter(wanted)
                .map(|entry| self.place(entry, contents.get(&entry.file).copied(), &meter))
                .buffer_unordered(FILES_AT_ONCE);
            while let Some(done) = placed.next().await {
                done?;
            }
        }
    }

    async fn find_input(&self, input: &FileInput) -> Result<FileSet, Trouble> {
        let name = &input.name;
        let find = async |store: &Store| match input.version {
            Some(version) => store.fileset_version(name, version).await,
            None => store.fileset_latest(name).await,
        };
        let Some(set) = self.ask("looking for the input files", find).await? else {
            let name = name.clone();
            return Err(match input.version {
                Some(version) => Trouble::NoVersion { name, version },
                None => Trouble::NoSet(name),
            });
        };
        // Who may submit tasks for a tenant reads what they print, and so what they get.
        if set.tenant != self.tenant {
            return Err(Trouble::OtherTenant(name.clone()));
        }
        Ok(set)
    }

    /// Places one file. What it is called and what is in it is whatever somebody has put into the database.
    async fn place(
        &self,
        entry: &FileEntry,
        content: Option<Content>,
        meter: &Meter<'_>,
    ) -> Result<(), Trouble> {
        let path: EntryPath = entry.path.parse()?;
        if path.parts().next().is_some_and(|first| is_own(first, &self.begun.task.id.to_string())) {
            return Err(Trouble::Reserved(path));
        }
        let Some(content) = content.filter(|content| content.length == entry.size) else {
            return Err(Trouble::Missing(path));
        };
        let in_writing = |source| Trouble::Write { path: path.clone(), source };
        let (root, own) = (self.root.clone(), path.clone());
        let mut writer = aside(move || root.create(&own)).await.map_err(in_writing)?;
        let mut chunks =
            stream::iter(0..content.chunks()).map(|n| self.read_input(content, n)).buffered(AHEAD);
        while let Some(bytes) = chunks.next().await {
            let bytes = bytes?;
            let length = bytes.len() as u64;
            writer = aside(move || writer.write(&bytes)).await.map_err(in_writing)?;
            meter.add_bytes(length);
        }
        let (mode, mtime) = (entry.mode, entry.mtime);
        let placed = aside(move || writer.finish(mode, mtime)).await.map_err(in_writing)?;
        if placed != entry.file {
            return Err(Trouble::Damaged(path));
        }
        meter.add_file();
        Ok(())
    }

    async fn read_input(&self, content: Content, n: u64) -> Result<Vec<u8>, Trouble> {
        let read = async |store: &Store| store.content_chunk(content, n).await;
        self.ask("reading an input file", read).await
    }

    /// Stores the files, and makes the version done that has them. Returns lines about what was left out.
    pub async fn leave(&self, relay: &Relay) -> Result<Vec<String>, Trouble> {
        let Some(output) = &self.wanted.output else { return Ok(Vec::new()) };
        let meter = Meter::new(relay, "storing output files");
        let run = &self.begun.run;
        let new = NewSet {
            by: self.begun.task.rest.get_str("owner").ok().map(str::to_owned),
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
        // On a thread of its own: it waits for what is done with its files on those of the runtime.
        let walk_all = move || {
            let tell = |item| match items.blocking_send(item) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            walk(&root, &patterns, |name| is_own(name, &task), tell)
        };
        let walker = thread::Builder::new().spawn(walk_all).map_err(Trouble::Walk)?;
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
        let walked = walker.join().map_err(|_| Trouble::Walk(io::Error::other("the walk was broken off")))?;
        walked.map_err(Trouble::Walk)?;
        Ok(notes)
    }

    /// Those that the task did not get as they are.
    async fn without_unchanged(&self, mut known: Vec<HashedFile>) -> Result<Vec<HashedFile>, Trouble> {
        let Some(taken) = self.taken.get().filter(|_| !known.is_empty()) else { return Ok(known) };
        let paths: Vec<&str> = known.iter().map(|known| known.entry.path.as_str()).collect();
        let look = async |store: &Store| store.fileset_entries_at(taken, &paths).await;
        let before = self.ask("looking what has changed", look).await?;
        let before: BTreeMap<&str, &FileEntry> =
            before.iter().map(|entry| (entry.path.as_str(), entry)).collect();
        known.retain(|HashedFile { entry, .. }| {
            let before = before.get(entry.path.as_str());
            before.is_none_or(|before| before.file != entry.file || before.mode != entry.mode)
        });
        Ok(known)
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

/// Does what takes the disk a while, without holding up what else there is to do.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[derive(Debug)]
pub struct Meter<'a> {
    relay: &'a Relay,
    what: &'static str,
    files: Cell<u64>,
    bytes: Cell<u64>,
    said: Cell<Option<Instant>>,
}

impl<'a> Meter<'a> {
    pub fn new(relay: &'a Relay, what: &'static str) -> Self {
        let meter =
            Self { relay, what, files: Cell::default(), bytes: Cell::default(), said: Cell::default() };
        meter.say();
        meter
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.say();
    }

    pub fn add_file(&self) {
        self.files.set(self.files.get().saturating_add(1));
        self.say();
    }

    fn say(&self) {
        if self.said.get().is_some_and(|said| said.elapsed() < SAID_EVERY) {
            return;
        }
        self.said.set(Some(Instant::now()));
        let (files, bytes) = (self.files.get(), shown(self.bytes.get()));
        let message = format!("{}: {files} files, {bytes}", self.what);
        self.relay.progress(doc! { "message": message });
    }
}

/// A number of bytes with one digit after the point.
fn shown(bytes: u64) -> String {
    let mut unit = 0;
    let (mut whole, mut rest) = (bytes, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{whole} {name}") } else { format!("{whole}.{} {name}", rest * 10 / 1024) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay;

    #[test]
    fn bytes_are_shown_in_units_that_fit() {
        let all: Vec<String> = [0, 1023, 1024, 1536, 300 << 20, 10 << 30, 1 << 50].map(shown).into();
        assert_eq!(
            all,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "300.0 MiB", "10.0 GiB", "1024.0 TiB"]
        );
    }

    #[test]
    fn the_task_is_told_at_once_that_something_is_going_on() {
        let (relay, _inbox) = relay::channel();
        let meter = Meter::new(&relay, "bringing input files");
        meter.add_bytes(5);
        meter.add_file();
        assert_eq!((meter.files.get(), meter.bytes.get()), (1, 5));
        assert!(meter.said.get().is_some());
    }
}
