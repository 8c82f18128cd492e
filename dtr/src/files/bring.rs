//! Brings the files that a task is to have into its private folder, before its first plugin begins.

use std::collections::BTreeMap;
use std::io;

use disbatch_core::files::{
    Content, ContentId, EntryPath, EntryQuery, FileEntry, FileSet, FilesError, Patterns,
};
use disbatch_core::model::FileInput;
use disbatch_core::store::Store;
use futures::{StreamExt, stream};

use super::meter::Meter;
use super::{Exchange, FILES_AT_ONCE, Trouble};
use crate::relay::Relay;

/// So many chunks of a file are read ahead.
const AHEAD: usize = 2;

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
            let page = self.page_after(set, after.as_deref()).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.path.clone());
            let wanted: Vec<&FileEntry> = page.iter().filter(|entry| patterns.matches(&entry.path)).collect();
            let contents = self.contents_of(&wanted).await?;
            let mut placed = stream::iter(wanted)
                .map(|entry| self.place(entry, contents.get(&entry.file).copied(), &meter))
                .buffer_unordered(FILES_AT_ONCE);
            while let Some(done) = placed.next().await {
                done?;
            }
        }
    }

    /// The version that files are taken from.
    async fn find_input(&self, input: &FileInput) -> Result<FileSet, Trouble> {
        let name = &input.name;
        let find = async |store: &Store| {
            let found = match input.version {
                Some(version) => store.fileset_version(name, version).await,
                None => store.fileset_latest(name).await,
            };
            found.map_err(FilesError::from)
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

    async fn page_after(&self, set: &FileSet, after: Option<&str>) -> Result<Vec<FileEntry>, Trouble> {
        let query = EntryQuery { after, ..EntryQuery::ALL };
        let list = async |store: &Store| store.fileset_entries(set, query).await.map_err(FilesError::from);
        self.ask("listing the input files", list).await
    }

    async fn contents_of(&self, entries: &[&FileEntry]) -> Result<BTreeMap<ContentId, Content>, Trouble> {
        let ids: Vec<ContentId> = entries.iter().map(|entry| entry.file).collect();
        let find = async |store: &Store| store.find_contents(&ids).await.map_err(FilesError::from);
        self.ask("looking for input files", find).await
    }

    /// Places one file. What it is called and what is in it is whatever somebody has put into the database.
    async fn place(
        &self,
        entry: &FileEntry,
        content: Option<Content>,
        meter: &Meter<'_>,
    ) -> Result<(), Trouble> {
        let path: EntryPath = entry.path.parse()?;
        if path.parts().next().is_some_and(|first| self.is_own(first)) {
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
        let read = async |store: &Store| store.content_chunk(content, n).await.map_err(FilesError::from);
        self.ask("reading an input file", read).await
    }
}

/// Does what takes the disk a while, without holding up what else there is to do.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
