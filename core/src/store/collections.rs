//! The collections of Disbatch: each is declared here once. Indexes, the privileges of MongoDB users, sizes on the page
//! about the server, and whether tasks may be made of documents, follow from that.

use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};

use super::indexes::{self, Index};
use super::{Store, Stored};
use crate::config::Role;
use crate::notifications::Subscription;
use crate::task::{aside, commit};
use crate::{arrays, fair, inbox, live, rate, secrets, series};

/// How long it is remembered that a task was deleted, for movers that had read it before.
const TOMBSTONES_KEPT: Duration = Duration::from_secs(3600);

/// How long an idempotency key is remembered.
const SUBMISSIONS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long it is remembered that there was a version of a file set, so that its number does not come again at once.
const FILE_SETS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// What MongoDB lets a user do with a collection.
type Actions = &'static [&'static str];

/// Whether tasks may be made of the documents of a collection: whoever does so sees all that is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// They have what not everybody may see who may make tasks of collections.
    Refused,
    /// They have nothing else.
    Allowed,
    /// They have nothing else but this field.
    Without(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub struct Collection {
    pub name: &'static str,
    /// What it holds, for the documentation.
    pub holds: &'static str,
    source: Source,
    indexes: fn() -> Vec<Index>,
    actions: [Actions; Role::ALL.len()],
}

impl Collection {
    /// One that is nobody's source of tasks, has no indexes, and that nobody may change.
    const fn new(name: &'static str, holds: &'static str) -> Self {
        Self { name, holds, source: Source::Refused, indexes: Vec::new, actions: [&[]; Role::ALL.len()] }
    }

    const fn source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    const fn indexed(self, indexes: fn() -> Vec<Index>) -> Self {
        Self { indexes, ..self }
    }

    const fn allowing(mut self, role: Role, actions: Actions) -> Self {
        self.actions[role as usize] = actions;
        self
    }

    const fn den(self, actions: Actions) -> Self {
        self.allowing(Role::Disbatchd, actions)
    }

    const fn web(self, actions: Actions) -> Self {
        self.allowing(Role::DisbatchWeb, actions)
    }

    const fn runner(self, actions: Actions) -> Self {
        self.allowing(Role::TaskRunner, actions)
    }

    const fn balance(self, actions: Actions) -> Self {
        self.allowing(Role::QueueBalance, actions)
    }

    const fn plugin(self, actions: Actions) -> Self {
        self.allowing(Role::Plugin, actions)
    }

    /// What the operations of `role` do with it, besides what [`of_all`] has.
    pub const fn actions(&self, role: Role) -> Actions {
        self.actions[role as usize]
    }

    pub(super) fn indexes(&self) -> Vec<Index> {
        (self.indexes)()
    }
}

/// What `role` does with every collection of the database, also with those that are not ours. A change stream of the
/// database needs the right to read it all, and tasks may be made of documents of any collection.
pub const fn of_all(role: Role) -> &'static [&'static str] {
    match role {
        Role::Disbatchd => &["changeStream", "find"],
        // One page tells how large collections are.
        Role::DisbatchWeb => &["changeStream", "collStats", "find"],
        Role::TaskRunner | Role::QueueBalance | Role::Plugin => &[],
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("tasks cannot be made of the collection '{0}', which is Disbatch's own")]
    Ours(String),
    /// MongoDB has no such collections, or keeps them for itself.
    #[error("'{0}' is not the name of a collection that tasks can be made of")]
    Name(String),
}

/// A collection that tasks may be made of. There is no other way to make tasks of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSource {
    name: String,
    hidden: Option<&'static str>,
}

impl TaskSource {
    /// The collection with this name: one of ours if it is declared as a source, and any that is not ours. A name that
    /// goes on with a dot after that of one that is no source is as good as ours.
    pub fn named(name: &str) -> Result<Self, SourceError> {
        if name.is_empty() || name.contains(['$', '\0']) || name.starts_with("system.") {
            return Err(SourceError::Name(name.to_owned()));
        }
        let found = ALL.iter().find(|collection| collection.name == name).map(|collection| collection.source);
        match found {
            Some(Source::Allowed) => Ok(Self { name: name.to_owned(), hidden: None }),
            Some(Source::Without(field)) => Ok(Self { name: name.to_owned(), hidden: Some(field) }),
            Some(Source::Refused) => Err(SourceError::Ours(name.to_owned())),
            None if is_of_a_family(name) => Err(SourceError::Ours(name.to_owned())),
            None => Ok(Self { name: name.to_owned(), hidden: None }),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The field of its documents that no task may get or be chosen by.
    pub const fn hidden(&self) -> Option<&'static str> {
        self.hidden
    }
}

/// Whether the name begins like that of a collection of ours that is no source, up to a dot.
fn is_of_a_family(name: &str) -> bool {
    fn family(name: &str) -> &str {
        name.split('.').next().unwrap_or(name)
    }
    ALL.iter()
        .any(|collection| collection.source == Source::Refused && family(collection.name) == family(name))
}

/// What MongoDB calls what users may do.
const INDEX: &str = "createIndex";
const FIND: &str = "find";
const INSERT: &str = "insert";
const LIST_INDEXES: &str = "listIndexes";
const REMOVE: &str = "remove";
const UPDATE: &str = "update";

/// Declares each as a constant, and all of them as [`ALL`]; and what a [`Store`] calls it, and has its documents as.
macro_rules! collections {
    ($($(#[$attribute:meta])* $constant:ident $(as $name:ident: $document:ty)? = $declared:expr;)*) => {
        $($(#[$attribute])* pub const $constant: Collection = $declared;)*

        /// All of them, in the order in which the documentation and the page about the server have them.
        pub const ALL: &[Collection] = &[$($constant),*];

        impl Store {
            $($(pub(crate) fn $name(&self) -> mongodb::Collection<$document> {
                self.database.collection($constant.name)
            })?)*
        }
    };
}

collections! {
    /// Disbatch 4 design, Database Collections.
    TASKS as tasks: Stored = Collection::new("tasks", "tasks that are not archived")
        .source(Source::Without(secrets::FIELD))
        .indexed(indexes::of_tasks)
        .den(&[INDEX, INSERT, LIST_INDEXES, REMOVE, UPDATE])
        .web(&[INSERT, LIST_INDEXES, REMOVE, UPDATE])
        .runner(&[FIND, UPDATE])
        .balance(&[FIND]);
    /// The janitor archives and deletes by the policy of queues. A runner looks there for a result whose confirmation was
    /// lost, if the janitor was faster.
    ARCHIVE as archive: Stored = Collection::new("tasks.archive", "archived tasks")
        .indexed(indexes::of_archive)
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND]);
    /// A DEN writes for its runners, and keeps what is left of one that died.
    ATTEMPTS as attempts: Stored = Collection::new("tasks.attempts", "earlier attempts")
        .indexed(|| vec![Index::on(doc! { "task": 1, "attempt": 1 }).unique()])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND, INSERT, REMOVE, UPDATE]);
    KEYS as keys: Document = Collection::new("tasks.keys", "what only one task may have: unique keys, times of schedules")
        .den(&[INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE]);
    /// Disbatch 4 design, GridFS.
    FILES as files: Document = Collection::new("tasks.files", "large output")
        .indexed(|| vec![Index::of_disbatch(doc! { "filename": 1, "metadata.task_id": 1 })])
        .den(&[INDEX, INSERT, REMOVE])
        .web(&[INSERT, REMOVE])
        .runner(&[INSERT, REMOVE]);
    /// Disbatch 4 design, GridFS.
    CHUNKS as chunks: Document = Collection::new("tasks.chunks", "large output, in pieces")
        .indexed(|| vec![Index::of_disbatch(doc! { "files_id": 1, "n": 1 }).unique()])
        .den(&[INDEX, INSERT, REMOVE])
        .web(&[INSERT, REMOVE])
        .runner(&[INSERT, REMOVE]);
    LIVE as live: Document = Collection::new("tasks.live", "the newest output of running tasks")
        // A stream of which nothing was written for a while belongs to nobody.
        .indexed(|| vec![
            Index::on(doc! { "task": 1, "attempt": 1, "stream": 1, "offset": 1 }),
            Index::on(doc! { "at": 1 }).expire(live::FORGOTTEN_AFTER),
        ])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND, INSERT, REMOVE, UPDATE]);
    /// See [`crate::task`].
    TOMBSTONES as tombstones: Document = Collection::new("tasks.deleting", "tasks that are being deleted, and lately were")
        .indexed(|| vec![Index::on(doc! { "done": 1 }).expire(TOMBSTONES_KEPT)])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE]);
    /// See [`crate::task::aside`].
    ASIDE as asides: Document = Collection::new("tasks.aside", "tasks with which nothing can be done")
        .indexed(|| vec![Index::on(doc! { "at": 1 }).expire(aside::KEPT)])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE]);
    /// Plugins insert there and do nothing else, in transactions of theirs. See [`crate::task::commit`].
    COMMITS as commits: Document =
        Collection::new("tasks.commits", "what attempts come to that a plugin ends in its own transaction, and those that died")
        .indexed(|| vec![Index::on(doc! { commit::SETTLED: 1 }).expire(commit::KEPT)])
        .den(&[INDEX, INSERT, UPDATE])
        .web(&[INSERT, UPDATE])
        .runner(&[FIND, INSERT, UPDATE])
        .plugin(&[INSERT]);
    RECORDINGS as recordings: Document =
        Collection::new("tasks.recordings", "what attempts were given and what they did, for bundles")
        .indexed(|| vec![
            Index::on(doc! { "queue": 1, "at": -1 }),
            Index::on(doc! { "expires": 1 }).expire(Duration::ZERO),
        ])
        .den(&[INDEX, INSERT, REMOVE])
        .web(&[REMOVE])
        .runner(&[INSERT]);
    /// Disbatch 4 design, Database Collections.
    QUEUES as queues: Stored = Collection::new("queues", "queues")
        .source(Source::Allowed)
        .indexed(|| vec![Index::of_disbatch(doc! { "name": 1 }).unique()])
        .den(&[INDEX, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND])
        .balance(&[FIND, UPDATE]);
    /// Disbatch 4 design, Database Collections.
    NODES as nodes: Stored = Collection::new("nodes", "nodes, and what they say of themselves")
        .source(Source::Allowed)
        .indexed(|| vec![
            Index::of_disbatch(doc! { "node": 1 }).unique(),
            Index::on(doc! { "state": 1, "seen": 1 }).only(doc! { "seen": { "$type": "date" } }),
        ])
        .den(&[INDEX, INSERT, UPDATE])
        .web(&[REMOVE, UPDATE]);
    /// Disbatch 4 design, Balance.
    BALANCE as balance: Stored = Collection::new("balance", "what QueueBalance goes by")
        .web(&[INSERT, UPDATE])
        .balance(&[FIND, INSERT, UPDATE]);
    BALANCE_LEASE = Collection::new("balance.lease", "which QueueBalance works")
        .balance(&[FIND, INSERT, UPDATE]);
    BULK as bulk: Document = Collection::new("bulk", "bulk jobs")
        .indexed(|| vec![Index::on(doc! { "state": 1, "lease_until": 1 })])
        .den(&[INDEX])
        .web(&[INSERT, UPDATE]);
    /// Nobody can change or remove what is there. The server removes entries when they are as old as the DEN tells it.
    AUDIT as audit: Stored = Collection::new("audit", "who has changed what")
        // The one by which the server removes entries is `Store::keep_audit`'s.
        .indexed(|| vec![
            Index::on(doc! { "at": 1, "_id": 1 }),
            Index::on(doc! { "user": 1, "at": 1, "_id": 1 }),
            // What was changed of queues, which is little beside what was submitted.
            Index::on(doc! { "queue": 1, "at": 1 }).only(doc! { "before": { "$exists": true } }),
        ])
        .den(&["collMod", INDEX, INSERT])
        .web(&[INSERT]);
    COUNTERS = Collection::new("counters", "how many tasks of a queue have which status")
        .den(&[INSERT, UPDATE])
        .web(&[INSERT, UPDATE])
        .runner(&[FIND, INSERT, UPDATE]);
    SERIES as series_documents: Document = Collection::new("series", "what happened in each minute")
        .indexed(|| vec![Index::on(doc! { "at": 1 }).expire(series::KEPT)])
        .den(&[INDEX, INSERT, UPDATE])
        .web(&[INSERT, UPDATE])
        .runner(&[INSERT, UPDATE]);
    LEASES = Collection::new("leases", "which DEN does what one does for all")
        .den(&[INSERT, UPDATE]);
    /// A DEN makes the tasks of schedules, and tells these how they have ended.
    SCHEDULES as schedules: Stored = Collection::new("schedules", "schedules")
        .indexed(|| vec![
            Index::on(doc! { "tenant": 1 }).only(doc! { "tenant": { "$exists": true } }),
            Index::on(doc! { "name": 1 }).unique(),
            Index::on(doc! { "next": 1 }).only(doc! { "next": { "$type": "date" } }),
            Index::on(doc! { "firing_at": 1 }).only(doc! { "firing_at": { "$type": "date" } }),
        ])
        .den(&[INDEX, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND]);
    /// See [`crate::schedules`].
    CALENDARS as calendars: Document = Collection::new("calendars", "days that schedules leave out or keep to")
        .web(&[INSERT, REMOVE, UPDATE]);
    /// A DEN notes there what is to be told, and what was.
    SUBSCRIPTIONS as subscriptions: Subscription =
        Collection::new("subscriptions", "who is told what happens, and what is to be told")
        .den(&[UPDATE])
        .web(&[INSERT, REMOVE, UPDATE]);
    ADMISSION as admission: Document = Collection::new("admission", "what is refused or held, and until when")
        .web(&[INSERT, REMOVE, UPDATE]);
    TENANTS as tenants: Document = Collection::new("tenants", "tenants and their limits")
        .web(&[INSERT, REMOVE, UPDATE]);
    /// See [`crate::gates`].
    LOCKS as locks: Document = Collection::new("locks", "locks that tasks hold")
        .indexed(|| vec![Index::on(doc! { "dirty": 1 }).only(doc! { "dirty": true })])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, UPDATE]);
    /// A DEN inserts elements of arrays that are missing, and ends arrays.
    ARRAYS as arrays: Stored = Collection::new("arrays", "arrays of tasks")
        // Arrays that are open, and those that are done.
        .indexed(|| vec![
            Index::on(doc! { "work": 1 }).only(doc! { "work": true }),
            Index::on(doc! { "looked": 1 }).only(doc! { "state": "done" }),
            Index::on(doc! { "gone": 1 }).expire(arrays::KEPT).only(doc! { "state": "done" }),
        ])
        .den(&[INDEX, UPDATE])
        .web(&[INSERT, UPDATE]);
    RATES as rates: Document = Collection::new("rates", "how many tasks of a queue or group started lately")
        .indexed(|| vec![Index::on(doc! { "full": 1 }).expire(rate::KEPT)])
        .den(&[INDEX, INSERT, UPDATE]);
    SLOTS as slots: Document = Collection::new("slots", "which slots of queues which DENs hold")
        .indexed(|| vec![Index::on(doc! { "queue": 1 }), Index::on(doc! { "holder": 1 })])
        .den(&[INDEX, INSERT, REMOVE, UPDATE]);
    /// See [`crate::fair`].
    TURNS = Collection::new("queue_turns", "whose turn it is in fair queues")
        .indexed(|| vec![Index::on(doc! { "at": 1 }).expire(fair::KEPT)])
        .den(&[INDEX, INSERT, UPDATE]);
    /// What groups have had, also those whose tasks web services work on.
    GROUPS = Collection::new("queue_groups", "what groups of fair queues have had")
        .indexed(|| vec![Index::on(doc! { "at": 1 }).expire(fair::KEPT)])
        .den(&[INDEX, INSERT, UPDATE])
        .web(&[INSERT, UPDATE])
        .runner(&[INSERT, UPDATE]);
    /// See [`crate::task`].
    SUBMISSIONS as submissions: Document = Collection::new("submissions", "submissions with an idempotency key")
        // Those that are not done: a few.
        .indexed(|| vec![
            Index::on(doc! { "at": 1 }).expire(SUBMISSIONS_KEPT),
            Index::on(doc! { "state": 1 }).only(doc! { "state": "pending" }),
        ])
        .den(&[INDEX, INSERT, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE]);
    /// Producers insert there and do nothing else, see [`crate::users`]. A DEN leaves what it does not understand, and moves the rest. Whoever removes
    /// a task sees to it that its document has gone.
    INBOX as inbox: Document = Collection::new("inbox", "tasks that applications submit with their own transactions")
        // What was not left, in its order. The collection is there because of it: applications may not make it.
        .indexed(|| vec![Index::on(doc! { inbox::LEFT: 1, "_id": 1 })])
        .den(&[INDEX, REMOVE, UPDATE])
        .web(&[REMOVE]);
    /// A DCI takes callbacks of web services and ends their tasks. A DEN ends those whose services are silent, with what these
    /// have logged, and a runner one that was cancelled while its service took it.
    CALLBACKS_LOG as sheets: Document = Collection::new("callbacks.log", "what web services log")
        // What web services log, in its order, and what was left behind of it.
        .indexed(|| vec![
            Index::on(doc! { "task": 1, "attempt": 1, "n": 1 }).unique(),
            Index::on(doc! { "at": 1, "task": 1, "attempt": 1 }),
        ])
        .den(&[INDEX, REMOVE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND, REMOVE]);
    /// Programs of Disbatch 4.4 that work on the database themselves answer there. Such a document has the `_id` of its task.
    RESULTS as results: Stored = Collection::new("results", "results that programs leave for their runner")
        .runner(&[FIND, REMOVE]);
    /// Only the DCI may define what nodes do.
    WORKERS as worker_collection: Stored = Collection::new("workers", "plugins that the database defines")
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND]);
    /// The janitor sweeps file sets, and versions of runs that have died are taken back.
    FILE_SETS as filesets_collection: Document = Collection::new("filesets", "versions of file sets")
        .indexed(|| vec![
            // Of several who open a version of a set, each gets another number.
            Index::on(doc! { "name": 1, "version": -1 }).unique(),
            Index::on(doc! { "state": 1, "touched": 1 }),
            // What there is of a set is found, listed and summed up by this one, without those that are gone.
            Index::on(doc! { "state": 1, "name": 1, "version": -1, "tenant": 1, "bytes": 1, "_id": 1 }),
            // Those that are gone and still have entries.
            Index::on(doc! { "state": 1, "emptied": 1 }).only(doc! { "state": "gone" }),
            Index::on(doc! { "task": 1 }).only(doc! { "task": { "$exists": true } }),
            Index::on(doc! { "expires": 1 }).only(doc! { "expires": { "$type": "date" } }),
            Index::on(doc! { "emptied": 1 }).expire(FILE_SETS_KEPT),
        ])
        .den(&[INDEX, UPDATE])
        .web(&[INSERT, UPDATE])
        .runner(&[FIND, INSERT, UPDATE]);
    FILE_ENTRIES as entries_collection: Document = Collection::new("filesets.entries", "the files of these versions")
        .indexed(|| vec![
            Index::on(doc! { "set": 1, "path": 1 }).unique(),
            // Which versions have a content, whose they are before anything else: `files/contents.rs` steps from one to the next.
            Index::on(doc! { "file": 1, "tenant": 1, "set": 1 }),
        ])
        .den(&[INDEX, REMOVE])
        .web(&[INSERT, REMOVE])
        .runner(&[FIND, INSERT, REMOVE]);
    FILE_CONTENTS as contents_collection: Document = Collection::new("filesets.files", "contents of files")
        .indexed(|| vec![
            // Equal files are stored once, and of each who sends one, it is one upload that goes on.
            Index::on(doc! { "filename": 1 }).unique().only(doc! { "state": "done" }),
            Index::on(doc! { "filename": 1, "by": 1 }).unique().only(doc! { "state": "open" }),
            Index::on(doc! { "filename": 1, "state": 1 }),
            Index::on(doc! { "loose": 1 }).only(doc! { "loose": { "$type": "date" } }),
        ])
        .den(&[INDEX, REMOVE, UPDATE])
        .web(&[INSERT, REMOVE, UPDATE])
        .runner(&[FIND, INSERT, REMOVE, UPDATE]);
    FILE_CHUNKS as content_chunks: RawDocumentBuf = Collection::new("filesets.chunks", "these contents, in pieces")
        .indexed(|| vec![Index::on(doc! { "files_id": 1, "n": 1 }).unique()])
        .den(&[INDEX, REMOVE])
        .web(&[INSERT, REMOVE])
        .runner(&[FIND, INSERT, REMOVE]);
    /// `disbatch user` and `disbatch token` work with the rights of the DCI, too.
    USERS as users: Document = Collection::new("accounts.users", "who may use the DCI")
        .web(&[INSERT, REMOVE, UPDATE]);
    SESSIONS as sessions: Document = Collection::new("accounts.sessions", "who has logged in")
        .indexed(|| vec![
            Index::on(doc! { "user": 1 }),
            // Sessions are of no use after that; this only tidies up.
            Index::on(doc! { "expires": 1 }).expire(Duration::ZERO),
        ])
        .den(&[INDEX])
        .web(&[INSERT, REMOVE, UPDATE]);
    TOKENS as tokens: Document = Collection::new("accounts.tokens", "API tokens")
        .indexed(|| vec![Index::on(doc! { "user": 1 })])
        .den(&[INDEX])
        .web(&[INSERT, REMOVE, UPDATE]);
    /// What plugins write. A runner does so with its own user where plugins have none.
    REPORTS = Collection::new("reports", "what plugins report")
        .source(Source::Allowed)
        .plugin(&[INSERT]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn no_name_is_declared_twice() {
        let names: BTreeSet<&str> = ALL.iter().map(|collection| collection.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_source_of_tasks_is_one_that_is_declared_so_or_nobody_of_ours() {
        for collection in ALL {
            let is_source = collection.source != Source::Refused;
            assert_eq!(TaskSource::named(collection.name).is_ok(), is_source, "{collection:?}");
        }
        let ours = |name: &str| matches!(TaskSource::named(name), Err(SourceError::Ours(_)));
        for name in [
            "accounts",
            "accounts.old",
            "audit.2026",
            "tasks.mine",
            "workers.x",
            "schedules.",
            "filesets.a.b",
        ] {
            assert!(ours(name), "{name}");
        }
        for name in ["people", "my.accounts", "Accounts", "accounts2", "reports.2026", "queues2", "x.workers"]
        {
            assert_eq!(TaskSource::named(name).map(|source| source.hidden), Ok(None), "{name}");
        }
        for name in ["", "system.users", "system.profile", "a$b", "a\0b"] {
            assert!(matches!(TaskSource::named(name), Err(SourceError::Name(_))), "{name}");
        }
        assert_eq!(TaskSource::named("tasks").unwrap().hidden(), Some("secure_params"));
    }

    /// The table of docs/operators.md.
    fn table() -> String {
        let users = Role::ALL.map(|role| format!("`{}`", role.as_str())).join(" | ");
        let mut table = format!("| collection | what it holds | tasks may be made of it | {users} |\n");
        table.push_str(&format!("|{}\n", " --- |".repeat(3 + Role::ALL.len())));
        let every = ("every collection".to_owned(), "", String::new(), Role::ALL.map(of_all));
        let each = ALL.iter().map(|collection| {
            let source = match collection.source {
                Source::Refused => "no".to_owned(),
                Source::Allowed => "yes".to_owned(),
                Source::Without(field) => format!("yes, without `{field}`"),
            };
            let actions = Role::ALL.map(|role| collection.actions(role));
            (format!("`{}`", collection.name), collection.holds, source, actions)
        });
        for (name, holds, source, actions) in std::iter::once(every).chain(each) {
            let cells = [name, holds.to_owned(), source];
            let cells = cells.into_iter().chain(actions.map(|actions| actions.join(", ")));
            let cells: Vec<String> = cells.map(|cell| format!(" {cell} ").replace("  ", " ")).collect();
            table.push_str(&format!("|{}|\n", cells.join("|")));
        }
        table
    }

    #[test]
    fn the_documentation_has_all_of_them() {
        const MARKS: [&str; 2] = ["<!-- collections -->\n", "<!-- /collections -->"];
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(MARKS[0]).unwrap();
        let (documented, after) = rest.split_once(MARKS[1]).unwrap();
        if std::env::var_os("DISBATCH_RENEW").is_some() {
            std::fs::write(path, format!("{before}{}{}{}{after}", MARKS[0], table(), MARKS[1])).unwrap();
        } else {
            assert_eq!(documented, table(), "docs/operators.md: run this test with DISBATCH_RENEW=1");
        }
    }
}
