//! File sets: what a task gets into its private folder before its plugin begins, and what is kept of the folder when it has
//! succeeded.
//!
//! Files are put there and taken from there below a descriptor of the folder, part of a path by part, and no link is
//! followed (`root.rs`): neither a path that somebody has put into the database nor what a plugin has left leads
//! anywhere else. What is in memory is a few chunks, however large and however many the files are. While files are
//! transferred the lease is renewed as ever, the task's progress says how far it is, and whatever ends a plugin ends it.

pub mod content;
pub mod root;
mod transfer;

use std::io;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use disbatch_core::files::{
    EntryPath, FileSet, FilesError, LONGEST, PathError, PatternError, RESERVED_PREFIX, SetName,
};
use disbatch_core::identity::Identity;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{Queue, TaskFiles};
use disbatch_core::store::{Store, StoreError};
use tokio::sync::Semaphore;

use crate::deliver::Delivered;
use crate::ledger::Ledger;
use crate::retry::Patience;
use crate::supervision::{Reason, Supervision};
use crate::work::{Begun, Work};
use root::Root;

/// So many chunks of all files are in memory at once when they are stored.
const CHUNKS_AT_ONCE: usize = 6;

/// How long it is tried to take back a version that is not to stay. Nobody sees it, and it goes all the same.
const WITHDRAWAL: Patience = Patience::Until(Duration::from_secs(30));

#[derive(Debug)]
pub struct Exchange<'a> {
    ledger: &'a Ledger,
    begun: &'a Begun,
    wanted: TaskFiles,
    /// Whose sets it may take and make.
    tenant: Option<String>,
    root: Root,
    /// The version that its files were taken from.
    taken: OnceLock<FileSet>,
    room: Semaphore,
}

impl<'a> Exchange<'a> {
    /// That of the task that `work` is about. `None`: neither it nor its queue says anything of files.
    pub fn of(work: &Work<'a>, queue: &Queue) -> Result<Option<Self>, String> {
        let task = &work.begun.task;
        let wanted = TaskFiles::of(task, Some(queue)).map_err(|why| format!("its files: {why}"))?;
        let Some(wanted) = wanted else { return Ok(None) };
        let owner = Identity::of(&work.setup.config).map_err(|error| error.to_string())?;
        let root = Root::open(work.folder.path().map_err(|error| error.to_string())?, owner.as_ref())
            .map_err(|error| format!("cannot open the private folder: {error}"))?;
        let tenant = task.rest.get_str("tenant").ok().or(queue.tenant()).map(str::to_owned);
        Ok(Some(Self {
            ledger: work.ledger,
            begun: work.begun,
            wanted,
            tenant,
            root,
            taken: OnceLock::new(),
            room: Semaphore::new(CHUNKS_AT_ONCE),
        }))
    }

    /// Takes back what this run has made, as the task does not end well.
    pub async fn give_up(&self) {
        if self.wanted.output.is_some() {
            take_back(self.ledger, self.begun).await;
        }
    }

    /// Does something with the database, however long that is away.
    async fn ask<T, E: Into<FilesError>>(
        &self,
        what: &str,
        operation: impl AsyncFn(&Store) -> Result<T, E>,
    ) -> Result<T, Trouble> {
        let operation = async |store: &Store| FilesError::apart(operation(store).await.map_err(Into::into));
        Ok(self.ledger.insist(what, Patience::Endless, operation).await??)
    }

    /// Tells the task which version its files are of, and which version it makes.
    async fn record(&self, made: Option<i64>) -> Result<(), Trouble> {
        let taken = self.taken.get().map(|set| set.version);
        let files = self.wanted.document_of_run(&self.begun.task, taken, made);
        let record = async |store: &Store| store.record_files(&self.begun.run, files.clone()).await;
        if self.ask("recording the files of the task", record).await? {
            Ok(())
        } else {
            Err(Trouble::NotOurs)
        }
    }
}

/// Waits for something unless the task has to end meanwhile.
pub async fn unless_ended<T>(
    work: impl Future<Output = T>,
    supervision: &mut Supervision,
    lifecycle: &Lifecycle,
) -> Result<T, Reason> {
    let mut work = pin!(work);
    loop {
        if let Some(end) = supervision.so_far().end {
            return Err(end.reason);
        }
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = supervision.next() => {}
            () = lifecycle.ending() => return Err(Reason::Runner),
        }
    }
}

/// Lets what the run of `work` has left be seen, as it has ended the task, or takes it back, as it has not. Whoever looks for
/// it does the same, and nobody sees it before.
pub async fn settle(work: &Work<'_>, delivered: Delivered) {
    let Work { ledger, begun, .. } = work;
    let files = TaskFiles::of(&begun.task, begun.known_queue()).ok().flatten();
    if files.is_none_or(|files| files.output.is_none()) {
        return;
    }
    match delivered {
        Delivered::Stored | Delivered::Incomplete => {
            let settled = Box::pin(async { ledger.store().await?.settle_filesets(begun.run.task).await });
            if let Err(error) = settled.await {
                tracing::debug!(%error, "output files are seen as soon as somebody looks for them");
            }
        }
        Delivered::NotRunning => take_back(ledger, begun).await,
        Delivered::Detached => {}
    }
}

async fn take_back(ledger: &Ledger, begun: &Begun) {
    let run = &begun.run;
    let withdraw = async |store: &Store| store.withdraw_filesets(run.task, run.attempt).await;
    if let Err(error) = ledger.insist("taking back output files", WITHDRAWAL, withdraw).await {
        tracing::warn!(%error, task = %run.task, "cannot take back output files that are not to stay");
    }
}

/// Whether what is at the top of the private folder under this name is no file of the task's.
pub fn is_own(name: &str, task: &str) -> bool {
    name.starts_with(RESERVED_PREFIX) || name.starts_with(task)
}

/// Why files cannot be brought or stored. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Files(#[from] FilesError),
    #[error("there is no file set {0}")]
    NoSet(SetName),
    #[error("there is no version {version} of the file set {name}")]
    NoVersion { name: SetName, version: i64 },
    #[error("the file set {0} does not belong to the tenant of the task")]
    OtherTenant(SetName),
    /// What somebody has put into the database is no path in a set.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The same of patterns.
    #[error("{0}")]
    Pattern(#[from] PatternError),
    #[error("{0} cannot be placed: the runner uses names like this itself")]
    Reserved(EntryPath),
    /// The content is not there, or has another size.
    #[error("the content of {0} is missing")]
    Missing(EntryPath),
    #[error("the content of {0} is damaged")]
    Damaged(EntryPath),
    #[error("cannot write {path}: {source}")]
    Write { path: EntryPath, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Read { path: EntryPath, source: io::Error },
    #[error("cannot look through the private folder: {0}")]
    Walk(io::Error),
    #[error("{0} has more than {most} bytes", most = LONGEST)]
    TooLong(EntryPath),
    /// Somebody has written to the file after the plugin had ended.
    #[error("{0} was changed while it was stored")]
    Changed(EntryPath),
    /// Somebody else removes all the time what is stored.
    #[error("the files are removed as fast as they are stored")]
    Busy,
    #[error("the task is not this runner's any more")]
    NotOurs,
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::supervision::{self, End};

    #[tokio::test]
    async fn a_transfer_ends_when_the_task_has_to() {
        let lifecycle = Lifecycle::default();
        let (supervisor, mut supervision) = supervision::channel();
        assert_eq!(unless_ended(ready(7), &mut supervision, &lifecycle).await, Ok(7));
        supervisor.live_until(Duration::from_secs(9));
        supervisor.end(End { reason: Reason::Cancel, grace: Duration::ZERO });
        assert_eq!(unless_ended(pending::<()>(), &mut supervision, &lifecycle).await, Err(Reason::Cancel));
        assert_eq!(supervision.so_far().until, Some(Duration::from_secs(9)), "the next plugin is told of it");
    }

    #[test]
    fn what_is_between_runner_and_plugin_is_no_file_of_the_task() {
        let task = "6b0003bb686c8275d70dc2f1";
        for own in [
            ".disbatch-control",
            &format!("{task}-response.json"),
            &format!("{task}-config.json"),
            &format!("{task}.json"),
        ] {
            assert!(is_own(own, task), "{own}");
        }
        assert!(!is_own("result.json", task) && !is_own(".hidden", task));
    }
}
