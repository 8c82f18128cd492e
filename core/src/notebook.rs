//! What a process notes in memory, and writes a while later: [`crate::counters`], [`crate::series`] and
//! [`crate::fair`].
//!
//! What is noted first has somebody write within [`Notes::EVERY`], and go on as long as there is something to write. A
//! process that runs one task writes once, at its end.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::{Store, StoreError};

/// How long a user without the right to write something notes nothing of it.
pub(crate) const SILENCE: Duration = Duration::from_secs(600);

/// What is noted and not written.
pub(crate) trait Notes: Default + Send + 'static {
    /// How often it is written at most.
    const EVERY: Duration;

    fn book(store: &Store) -> &Notebook<Self>;

    fn is_empty(&self) -> bool;

    fn give_up(&mut self);

    fn flush(store: &Store) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The notes of one process.
#[derive(Debug, Default)]
pub(crate) struct Notebook<N> {
    /// Whether it goes on after a task, so that it can repeat a write.
    goes_on: bool,
    page: Mutex<Page<N>>,
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Page<N> {
    notes: N,
    /// Somebody will write soon.
    scheduled: bool,
    /// Until when nothing is noted, as this user may not write it.
    silent_until: Option<Instant>,
}

impl<N: Notes> Notebook<N> {
    /// Of a process that goes on until it is told to end.
    pub(crate) fn of_daemon() -> Self {
        Self { goes_on: true, ..Self::default() }
    }

    /// Of a process that runs one task.
    pub(crate) fn of_runner() -> Self {
        Self::default()
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Looks at the notes, or changes them, without having them written.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut N) -> T) -> T {
        look(&mut self.page().notes)
    }

    /// Waits until nobody else writes.
    pub(crate) async fn one_at_a_time(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// This user may not write it: gives it up, and notes nothing for a while.
    pub(crate) fn silence(&self) {
        let mut page = self.page();
        page.notes.give_up();
        page.silent_until = Some(Instant::now() + SILENCE);
    }

    /// Tells whether somebody is needed who writes.
    fn note(&self, change: impl FnOnce(&mut N)) -> bool {
        let mut page = self.page();
        if page.silent_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        change(&mut page.notes);
        self.goes_on && !page.scheduled && !page.notes.is_empty()
    }

    fn page(&self) -> MutexGuard<'_, Page<N>> {
        crate::lock(&self.page)
    }
}

impl Store {
    /// Notes something, and sees to it that it is written.
    pub(crate) fn note<N: Notes>(&self, change: impl FnOnce(&mut N)) {
        let book = N::book(self);
        if !book.note(change) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !std::mem::replace(&mut book.page().scheduled, true) {
            runtime.spawn(follow::<N>(self.clone()));
        }
    }
}

/// Writes until there is nothing left to write.
async fn follow<N: Notes>(store: Store) {
    let mut scheduled = Scheduled { book: N::book(&store), ended: false };
    while !scheduled.ended {
        sleep(N::EVERY).await;
        if let Err(error) = N::flush(&store).await {
            tracing::debug!(%error, "cannot write what was noted");
        }
        scheduled.look();
    }
}

/// Lets another take over when the one that was to write is broken off.
struct Scheduled<'a, N: Notes> {
    book: &'a Notebook<N>,
    ended: bool,
}

impl<N: Notes> Scheduled<'_, N> {
    /// Under one lock, so that what is noted from now on is written by the next one.
    fn look(&mut self) {
        let mut page = self.book.page();
        self.ended = page.notes.is_empty();
        page.scheduled = !self.ended;
    }
}

impl<N: Notes> Drop for Scheduled<'_, N> {
    fn drop(&mut self) {
        if !self.ended {
            self.book.page().scheduled = false;
        }
    }
}
