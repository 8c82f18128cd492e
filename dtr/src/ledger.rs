//! Where a run is recorded: everything that a runner writes about its task goes through here.
//!
//! A runner that is linked to its DEN asks it to write. Otherwise, and as soon as the DEN does not do so in time, the
//! runner writes by itself, with the same values: the DEN may have written them already, or may still do so. Each
//! operation is fenced by the run, and recognises what it finds done.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::config::{Config, Role};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::link::{Answer, Ask};
use disbatch_core::live::Piece;
use disbatch_core::model::{Status, Task};
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::recordings::CommonPart;
use disbatch_core::store::{Store, StoreError, millis, of_millis};
use disbatch_core::task::{Finish, Finished, Renewed, Run, STORAGE, Start, Started, Wishes};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::capture::Capture;
use crate::custody::Asked;
use crate::link::Link;
use crate::retry::{PAUSES, Patience, retry};
use crate::setup::Failure;

/// How long the DEN may take to write something.
const ANSWER_TAKES: Duration = Duration::from_secs(10);

/// Larger files of output are not passed through the DEN.
const LARGEST_UPLOAD: u64 = 1024 * 1024;

/// How long a runner looks for the database before it leaves its task to be given back.
const START_PATIENCE: Patience = Patience::Until(Duration::from_secs(60));

/// How long the end waits for what this process has noted to be written.
const NOTING: Duration = Duration::from_secs(1);

/// How long it is tried to remove output that nothing refers to. The database may be changing its primary.
const REMOVAL: Patience = Patience::Until(Duration::from_secs(30));

/// Whether a run still has its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Held {
        /// Until when the plugin may live, by [`boot_time`](disbatch_core::clock::boot_time).
        until: Duration,
        wishes: Wishes,
    },
    Lost,
}

/// Writes about one run. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<Config>,
    lifecycle: Lifecycle,
    /// And the number of the assignment.
    link: Option<(Link, i64)>,
    connection: Connection,
    /// That by which reports are stored.
    reporter: OnceCell<Store>,
    saved: AtomicI64,
}

/// The runner's own connection, once it has been made. Clones share it, and so do the tasks that a runner has at the same time.
#[derive(Debug, Clone, Default)]
pub struct Connection(Arc<OnceCell<Store>>);

impl Ledger {
    /// One that asks the DEN at the other end of `link`, which has made that assignment, as long as there is any.
    pub fn new(
        config: Arc<Config>,
        lifecycle: Lifecycle,
        link: Option<(Link, i64)>,
        connection: Connection,
    ) -> Self {
        let (reporter, saved) = (OnceCell::new(), AtomicI64::new(0));
        Self(Arc::new(Inner { config, lifecycle, link, connection, reporter, saved }))
    }

    /// The runner's own connection, which is made when it is needed first.
    pub async fn store(&self) -> Result<&Store, StoreError> {
        self.0.connection.0.get_or_try_init(|| Store::connect(&self.0.config, Role::TaskRunner)).await
    }

    /// Does something with the database, and keeps trying while that is away.
    pub async fn insist<T>(
        &self,
        what: &str,
        patience: Patience,
        operation: impl AsyncFn(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let operation = &operation;
        let once = |_| async move { operation(self.store().await?).await };
        retry(PAUSES, what, patience, &self.0.lifecycle, once).await
    }

    /// Repeats what asks the DEN or the database until it works. It is told whether an earlier attempt may have come through.
    pub async fn keep_trying<T, Fut: Future<Output = Result<T, StoreError>>>(
        &self,
        what: &str,
        operation: impl FnMut(bool) -> Fut,
    ) -> Result<T, StoreError> {
        retry(PAUSES, what, Patience::Endless, &self.0.lifecycle, operation).await
    }

    pub async fn start(&self, start: &Start) -> Result<(Task, Run), Failure> {
        let begin = async |store: &Store| store.start_task(start).await;
        match self.insist("starting the task", START_PATIENCE, begin).await? {
            Started::Running(task, run) => Ok((*task, run)),
            Started::NotClaimed => Err(Failure::NotClaimed { task: start.task, node: start.node.clone() }),
        }
    }

    /// Renews the lease of `run` through the DEN. `None`: without it, see [`Ledger::renew`].
    pub async fn ask_to_renew(&self, lease: Duration) -> Option<Hold> {
        Some(match self.ask(&Ask::Renew, lease / 3).await? {
            Answer::Held { until_ms, wishes } => Hold::Held { until: of_millis(until_ms), wishes },
            _ => Hold::Lost, // There is no other answer to that.
        })
    }

    pub async fn renew(&self, run: &Run, lease: Duration) -> Result<Hold, StoreError> {
        let asked = Asked::now();
        Ok(match self.store().await?.renew_lease(run, lease).await? {
            Renewed::Held(wishes) => Hold::Held { until: asked.plugin_until(lease), wishes },
            Renewed::Lost => Hold::Lost,
        })
    }

    pub async fn progress(&self, run: &Run, progress: Document) -> Result<(), StoreError> {
        self.carry_out(run, &Ask::Progress(progress)).await.map(drop)
    }

    pub async fn save_storage(&self, run: &Run, storage: Bson) -> Result<(), StoreError> {
        let (saved, number) = (doc! { STORAGE: storage }.into(), self.next_number());
        self.carry_out(run, &Ask::Storage { saved, number }).await.map(drop)
    }

    pub async fn record_steps(&self, run: &Run, states: &[Document]) -> Result<(), StoreError> {
        let ask = Ask::Steps { states: states.to_vec(), number: self.next_number() };
        self.carry_out(run, &ask).await.map(drop)
    }

    /// Stores a report, as the user `plugin` where there is one: the runner's own may lack the privilege. Keeps trying.
    pub async fn store_report(&self, mut report: Document) -> Result<(), StoreError> {
        let connect = || async {
            match self.0.config.auth.password(Role::Plugin) {
                Some(_) => Store::connect(&self.0.config, Role::Plugin).await,
                None => self.store().await.cloned(),
            }
        };
        // With an id of its own, a repeated insert is recognised.
        if !report.contains_key("_id") {
            report.insert("_id", ObjectId::new());
        }
        let report = &report;
        self.keep_trying("storing a report", |again| async move {
            match self.0.reporter.get_or_try_init(connect).await?.insert_report(report.clone()).await {
                Err(error) if again && error.is_duplicate_key() => Ok(()),
                other => other,
            }
        })
        .await
    }

    /// Writes live output, and removes what is too old of it.
    pub async fn write_live(&self, run: &Run, stream: StreamName, piece: &Piece) -> Result<(), StoreError> {
        let offset = i64::try_from(piece.offset).unwrap_or(i64::MAX);
        let ask = Ask::Live { stream, offset, bytes: piece.bytes.clone() };
        self.carry_out(run, &ask).await.map(drop)
    }

    /// Removes the live output of `run`. Keeps trying for a while.
    pub async fn remove_live(&self, run: &Run) -> Result<(), StoreError> {
        let ask = Ask::RemoveLive { task: run.task, attempt: run.attempt };
        self.insist_on(run, &ask, "removing the live output", REMOVAL).await.map(drop)
    }

    /// Whether a file of this length is stored through the DEN, if it is there.
    pub fn takes(&self, length: u64) -> bool {
        length <= LARGEST_UPLOAD && self.0.link.as_ref().is_some_and(|(link, _)| link.is_up())
    }

    /// Stores a small file through the DEN. Tells whether it has; if not, it still may.
    pub async fn ask_to_store(
        &self,
        (file, stream): (ObjectId, StreamName),
        from: &Capture,
    ) -> Result<bool, StoreError> {
        let (mut bytes, mut source) = (Vec::new(), from.reader().map_err(StoreError::Spool)?);
        source.read_to_end(&mut bytes).await.map_err(StoreError::Spool)?;
        let ask = Ask::Upload { file, stream, encoding: from.shape().encoding(), bytes };
        Ok(self.ask(&ask, ANSWER_TAKES).await.is_some())
    }

    /// Stores the file `id` from what `open` gives, each time from its start. Keeps trying.
    pub async fn store_from<R: AsyncRead + Unpin>(
        &self,
        run: &Run,
        (id, stream): (ObjectId, StreamName),
        open: impl Fn() -> io::Result<(Encoding, R)>,
    ) -> Result<(), StoreError> {
        let open = &open;
        self.keep_trying("storing output", |again| async move {
            let store = self.store().await?;
            if again {
                store.delete_output(id).await?;
            }
            store.announce_upload(run, id).await?;
            let (encoding, source) = open().map_err(StoreError::Spool)?;
            store.put_output(id, (run.task, stream), encoding, source).await
        })
        .await
    }

    /// Removes files. Keeps trying for a while.
    pub async fn remove_files(&self, files: &[ObjectId]) {
        for file in files {
            let remove = async |store: &Store| store.delete_output(*file).await;
            if let Err(error) = self.insist("removing output", REMOVAL, remove).await {
                tracing::warn!(%error, %file, "cannot remove output that nothing refers to");
            }
        }
    }

    /// Keeps what recordings have in common. Tells whether they may name it: nothing depends on that.
    pub async fn keep_common(&self, part: &CommonPart, text: &str) -> bool {
        let ask = Ask::KeepCommon { part: part.clone(), text: text.to_owned() };
        if let Some(answer) = self.ask(&ask, ANSWER_TAKES).await {
            return answer == Answer::Done;
        }
        let keep = async { Ok::<_, StoreError>(self.store().await?.keep_common(part, text).await) };
        matches!(timeout(ANSWER_TAKES, keep).await, Ok(Ok(true)))
    }

    /// Ends the task of `run`, or this attempt, if it is to be tried `again` after a pause. Keeps trying.
    pub async fn finish(
        &self,
        run: &Run,
        finish: Finish,
        again: Option<Duration>,
    ) -> Result<Finished, StoreError> {
        let finish = Box::new(finish);
        let ask = match again {
            None => Ask::Finish(finish),
            Some(pause) => Ask::RetryLater { finish, pause_ms: millis(pause) },
        };
        let answer = self.insist_on(run, &ask, "storing the result", Patience::Endless).await?;
        Ok(if answer == Answer::Stored { Finished::Stored } else { Finished::NotRunning })
    }

    /// Whether what the plugin commits can be seen, so that it may be started.
    pub async fn sees_commits(&self, run: &Run) -> Result<bool, StoreError> {
        let look = async |store: &Store| store.sees_commits(run).await;
        Box::pin(self.insist("looking whether commits can be seen", Patience::Endless, look)).await
    }

    /// Decides what the attempt comes to: the status with which the plugin, which has ended, has ended its task in a transaction of its own. Keeps
    /// trying, also while such a transaction has not ended.
    pub async fn settle_commit(&self, run: &Run) -> Result<Option<Status>, StoreError> {
        loop {
            let answer = self.insist_on(run, &Ask::Settle, "settling the commit", Patience::Endless).await?;
            if let Answer::Committed(status) = answer {
                return Ok(status);
            }
            // A transaction of the plugin has not ended, which has been waited for.
        }
    }

    /// Tells the DEN that a task that was taken away is over here.
    pub async fn let_go(&self) {
        self.ask(&Ask::LetGo, ANSWER_TAKES).await;
    }

    /// Writes what this process has noted for the counters and for numbers over time, if it has moved tasks by itself. What
    /// cannot be written is lost: an audit mends the counters, and the other numbers are for pictures.
    pub async fn flush(&self) {
        let Some(store) = self.0.connection.0.get() else { return };
        if timeout(NOTING, store.flush()).await.is_err() {
            tracing::warn!("counters and numbers over time could not be written in time");
        }
    }

    /// The next number of what is saved. Should the DEN write what it was asked for after this runner has written something
    /// newer by itself, it is known by that.
    fn next_number(&self) -> i64 {
        self.0.saved.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub async fn unlinked(&self) {
        if let Some((link, _)) = &self.0.link {
            link.down().await;
        }
    }

    /// Has the DEN do what is asked for about `run`, or does it without it.
    async fn carry_out(&self, run: &Run, ask: &Ask) -> Result<Answer, StoreError> {
        match self.ask(ask, ANSWER_TAKES).await {
            Some(answer) => Ok(answer),
            None => self.store().await?.carry_out(run, ask).await,
        }
    }

    /// The same, and keeps trying.
    async fn insist_on(
        &self,
        run: &Run,
        ask: &Ask,
        what: &str,
        patience: Patience,
    ) -> Result<Answer, StoreError> {
        if let Some(answer) = self.ask(ask, ANSWER_TAKES).await {
            return Ok(answer);
        }
        let carry_out = async |store: &Store| store.carry_out(run, ask).await;
        Box::pin(self.insist(what, patience, carry_out)).await
    }

    /// What the DEN answers. `None`: there is no DEN any more, or it makes no sense.
    async fn ask(&self, ask: &Ask, patience: Duration) -> Option<Answer> {
        let (link, of) = self.0.link.as_ref()?;
        let answer = link.ask(*of, ask, patience).await?;
        if ask.is_answered_by(&answer) {
            return Some(answer);
        }
        tracing::error!(?answer, "the DEN gives an answer that makes no sense");
        link.close();
        None
    }
}

/// About plugins whose work goes on, or whose answer comes, outside of the runner.
impl Ledger {
    /// Notes that the plugin of `run` is about to give the task to a web service, which will show a token with this
    /// `fingerprint`, and of which nothing may be heard for so long. Tells whether the run still has the task. Keeps trying
    /// for a while.
    pub async fn register(
        &self,
        run: &Run,
        fingerprint: &str,
        silence: Duration,
    ) -> Result<bool, StoreError> {
        let ask = Ask::Register { token: fingerprint.to_owned(), timeout_ms: millis(silence) };
        let registering = "registering the task for its web service";
        Ok(self.insist_on(run, &ask, registering, START_PATIENCE).await? == Answer::Done)
    }

    /// Takes the task of `run` back from its web service, so that it can be ended here. Tells whether that is so: a service that
    /// has called back keeps it. Keeps trying.
    pub async fn withdraw(&self, run: &Run) -> Result<bool, StoreError> {
        let withdraw = async |store: &Store| store.withdraw_external(run).await;
        self.insist("taking the task back from its web service", Patience::Endless, withdraw).await
    }

    /// Ends the task of `run` as failed, with what its web service has logged: it has called back, and has refused the task
    /// since. Keeps trying.
    pub async fn fail_external(&self, run: &Run, why: &str) -> Result<(), StoreError> {
        let fail = async |store: &Store| store.fail_external(run, why).await;
        self.insist("ending a task that was refused", Patience::Endless, fail).await
    }

    /// Hands the task of `run` over to the web service that has taken it. Tells whether it is the service's, or over. Keeps
    /// trying.
    pub async fn detach(&self, run: &Run) -> Result<bool, StoreError> {
        let answer = self.insist_on(run, &Ask::Detach, "handing the task over", Patience::Endless).await?;
        Ok(answer == Answer::Stored)
    }

    /// What a program has answered in the database. Keeps trying.
    pub async fn answer(&self, run: &Run) -> Result<Option<Document>, StoreError> {
        let find = async |store: &Store| store.find_result(run.task).await;
        self.insist("reading the answer", Patience::Endless, find).await
    }

    /// Removes what the program of an earlier attempt has answered there. Keeps trying for a while.
    pub async fn forget_answer(&self, run: &Run) -> Result<(), StoreError> {
        let remove = async |store: &Store| store.remove_result(run.task).await;
        self.insist("removing an earlier answer", START_PATIENCE, remove).await
    }
}
