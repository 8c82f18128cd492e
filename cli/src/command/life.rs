//! The commands about a task's life, and those that steer queues and nodes.

mod act;
mod bulk;
mod events;
mod follow;
mod history;
mod locks;
mod run;
mod show;
pub(super) mod steer;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use crate::api::{ApiError, Client, given};
use crate::args::{BulkAction, LifeCommand};
use crate::command::{Session, admission, create_tasks, queues};
use crate::output::say;
pub(super) use bulk::{agreed, carry_out};

pub async fn run(session: &Session, command: LifeCommand) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        LifeCommand::Run(options) => return run::run(client, *options).await,
        LifeCommand::Wait(options) => return run::wait(client, &options).await,
        LifeCommand::Logs(options) => follow::logs(client, &options).await?,
        LifeCommand::Bundle(options) => history::bundle(client, &options).await?,
        LifeCommand::Cancel(tasks) => {
            return act::run(client, BulkAction::Cancel, &tasks, act::cancelled).await;
        }
        LifeCommand::Retry(tasks) => return act::run(client, BulkAction::Retry, &tasks, act::retried).await,
        LifeCommand::Rerun(options) => return act::rerun(client, &options).await,
        LifeCommand::Answer(options) => act::answer(client, &options).await?,
        LifeCommand::Explain(which) => show::explain(session, &which).await?,
        LifeCommand::Show(task) => show::run(session, &task.id).await?,
        LifeCommand::Attempts(task) => history::attempts(session, &task.id).await?,
        LifeCommand::History(task) => history::statuses(session, &task.id).await?,
        LifeCommand::Bulk(options) => return bulk::run(client, options.action, &options.which).await,
        LifeCommand::Archive(options) if options.ids.is_empty() => {
            return bulk::run(client, BulkAction::Archive, &options.which).await;
        }
        LifeCommand::Archive(options) => return act::archive(client, &options.ids).await,
        LifeCommand::Events(options) => events::run(session, options).await?,
        LifeCommand::Locks(options) => locks::run(session, &options).await?,
        LifeCommand::Graph(options) => locks::graph(session, &options).await?,
        LifeCommand::Audit(options) => history::audit(session, &options).await?,
        LifeCommand::Batch(options) => return create_tasks::run_batch(session, &options.file).await,
        LifeCommand::SetTask(options) => return steer::set_task(client, &options).await,
        LifeCommand::BulkJobs { cancel } => bulk::jobs(session, cancel).await?,
        LifeCommand::Pause(which) => steer::pause(client, &which).await?,
        LifeCommand::Resume(which) => steer::resume(client, &which.queue).await?,
        LifeCommand::Close(which) => steer::close(client, &which).await?,
        LifeCommand::Open(which) => steer::open(client, &which.queue).await?,
        LifeCommand::SetQueue { queue, fields } => steer::set_queue(client, &queue, &fields).await?,
        LifeCommand::Groups(options) => queues::groups(session, &options).await?,
        LifeCommand::At(options) => history::at(session, &options).await?,
        LifeCommand::Shadow(options) => queues::shadow(session, &options).await?,
        LifeCommand::Drain(options) => admission::drain(client, &options).await?,
        LifeCommand::Undrain(what) => admission::undrain(client, &what).await?,
        LifeCommand::Admission => admission::run(session).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn details(client: &Client, id: &str) -> Result<Value, ApiError> {
    client.get(&format!("/tasks/{id}?.details=1"), None).await
}

pub(super) fn with_reason(reason: Option<&str>) -> Value {
    Value::Object(given([("reason", reason.map(Value::from))]))
}

/// The pause after the first failure. Each further one is twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_millis(250);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How much later than it was asked to, the DCI may answer.
const LATE: Duration = Duration::from_secs(30);

/// A connection that several requests share, and that may be lost for a while. Only the first of them must be answered: the DCI may be
/// started again.
#[derive(Debug)]
pub struct Connection<'a> {
    pub client: &'a Client,
    /// Whether an address that takes connections is enough for the first one.
    patient: bool,
    reached: Cell<bool>,
    lost: Cell<bool>,
}

impl<'a> Connection<'a> {
    /// A connection on which nothing has been answered yet.
    pub fn new(client: &'a Client) -> Self {
        Self { client, patient: false, reached: Cell::new(false), lost: Cell::new(false) }
    }

    /// The same for what waits long: it is enough that there is a server, also if it does not answer the first request, or has
    /// no database just then.
    pub fn patient(client: &'a Client) -> Self {
        Self { patient: true, ..Self::new(client) }
    }

    /// Sends a request until it is answered.
    pub async fn persist<T>(&self, request: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, ApiError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match request().await {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(error) => self.pause(error, &mut pause).await?,
            }
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.persist(async || self.client.get(path, None).await).await
    }

    pub fn answered(&self) {
        self.reached.set(true);
        if self.lost.replace(false) {
            eprintln!("disbatch: the connection is back");
        }
    }

    /// Waits until it is time to try again: for `pause`, which is longer then.
    pub async fn pause(&self, error: ApiError, pause: &mut Duration) -> Result<(), ApiError> {
        let reached = self.reached.get() || (self.patient && error.has_reached());
        if !reached || !error.is_transient() {
            return Err(error);
        }
        if !self.lost.replace(true) {
            say(&format!("disbatch: {error}\ndisbatch: trying again until it is back"));
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Where the task stands when its status is another one than `since`, or after `time`. Without `since`: when it has
    /// ended.
    pub async fn state(&self, id: &str, since: Option<i64>, time: Duration) -> Result<Value, ApiError> {
        let seconds = time.as_millis().div_ceil(1_000);
        let since = since.map(|status| format!("&.since={status}")).unwrap_or_default();
        let path = format!("/tasks/{id}/wait?.timeout={seconds}{since}");
        self.persist(async || self.client.get_within(&path, time + LATE).await).await
    }
}
