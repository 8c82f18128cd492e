//! Schedules: tasks that are made again and again, at the times of a cron expression in a time zone.
//!
//! A schedule is a document of `schedules`. It says when its next time comes (`next`, by the server's clock), and any
//! DEN that finds it due fires it. That takes three steps, and a process may die between any two of them:
//!
//! 1. One update, on the condition that `rev` and `next` are still what was read, moves `next` on and notes in `firing`
//!    which times fire, each with the id that its task will have. So of any number of DENs one decides about a time.
//! 2. The task is inserted by the server, on the condition that `firing` still has it (`tasks.rs`). A DEN that was
//!    stopped for a year and then goes on finds nothing to insert.
//! 3. The entry is removed from `firing`.
//!
//! Whatever is left in `firing` after a while is completed by any DEN, under the same id. A task of a schedule is
//! `unsettled` until its end has been told to the schedule (`tasks.rs`); only then it may leave the collection `tasks`, and
//! by then its entry is gone from `firing`. So no time is fired twice, however late anybody comes.
//!
//! When a schedule fires is pure: [`CronExpr`], [`Zone`], [`Spec`] and `occurrences.rs` know no clock and no database.

mod calendars;
mod cron;
mod document;
mod fire;
mod manage;
mod occurrences;
mod run;
mod spec;
mod tasks;
mod zone;

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::{Deserialize, Serialize};

pub use crate::model::ScheduleId;
pub use calendars::{Calendar, Calendars};
pub use cron::{CronError, CronExpr};
pub use document::{OPTIONS, options_with};
pub use fire::Fired;
pub(crate) use fire::times;
pub use manage::{ScheduleQuery, Updated};
pub use occurrences::Occurrence;
pub use run::BackfillError;
pub(crate) use spec::LONGEST_JITTER;
pub use spec::{CalendarUse, Rule, Spec, SpecError};
pub(crate) use tasks::may_be_unsettled;
pub use zone::{Change, Fold, Gap, Zone};

use crate::budget::OverBudget;
use crate::model::{QueueId, TaskId};
use crate::store::StoreError;
use crate::task::TaskOptions;
use crate::tenants::{Busy, OverQuota};
use disbatch_values::words;
use disbatch_wire::schedules::TimeCounts;

/// A name of a schedule or a calendar has so many characters at most.
pub const LONGEST_NAME: usize = 200;

pub const LONGEST_DESCRIPTION: usize = 10_000;

pub const MOST_BACKFILLED: usize = 1_000;

words! {
    /// What happens when a time comes and a task of an earlier one has not ended.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Overlap {
        /// Both run.
        Allow = "allow",
        /// The time is passed over.
        #[default]
        Skip = "skip",
        /// The new one waits until the earlier ones have ended.
        Queue = "queue",
        /// The earlier ones are cancelled, and the new one waits until they have ended.
        Cancel = "cancel",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Its name, which no other schedule has.
    pub name: String,
    /// What it is for; may be empty.
    pub description: String,
    pub queue: QueueId,
    pub params: Document,
    /// What its tasks have besides, secure parameters among it. Of [`TaskOptions`] a schedule has `timeout`, `grace`,
    /// `max_attempts`, `backoff`, `group`, `priority`, `locks` and `secure_params`; what else is set is refused.
    pub options: TaskOptions,
    pub spec: Spec,
    pub overlap: Overlap,
    /// How late a time may fire when nobody was there in time, in whole seconds. Zero: only the newest of those that
    /// were missed, if it was missed by no more than a minute.
    pub catch_up: Duration,
    pub tenant: Option<String>,
    pub owner: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// The time, without jitter: `scheduled_for` of the task.
    pub time: DateTime,
    pub task: TaskId,
}

/// What became of the newest time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Last {
    /// The time, without jitter.
    pub time: DateTime,
    /// Its task; none if it was passed over.
    pub task: Option<TaskId>,
    /// When that was decided, by the server's clock.
    pub at: DateTime,
    /// `fired`, `skipped` (an earlier task had not ended), `missed` (nobody was there in time), `wrong params`, and after the end of the task a word
    /// for its status: `succeeded`, `failed`, `cancelled` and so on.
    pub outcome: String,
    /// More about that, where there is more to say.
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSuccess {
    pub start: Option<DateTime>,
    pub finish: DateTime,
}

/// A document of `schedules`.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub id: ScheduleId,
    pub settings: Settings,
    pub paused: bool,
    /// When it fires next, with jitter. None: it is paused, or has no more times.
    pub next: Option<DateTime>,
    /// The time that this is about, without jitter.
    pub next_for: Option<DateTime>,
    /// Times that have fired, and whose tasks may not exist yet.
    pub firing: Vec<Firing>,
    pub last: Option<Last>,
    pub counts: TimeCounts,
    /// What the plugin has saved for its next run.
    pub storage: Option<Bson>,
    /// The time of the task that has saved it.
    pub stored_for: Option<DateTime>,
    pub last_success: Option<LastSuccess>,
    /// The number of its settings: it grows with each change of them.
    pub rev: i64,
    pub created: Option<DateTime>,
    /// When its settings were changed last.
    pub changed: Option<DateTime>,
    /// As it is stored. [`Schedule::shown`] is what may be shown of it.
    pub(crate) document: Document,
}

/// What a run of a task is told about its schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForRun {
    pub id: ObjectId,
    pub name: String,
    /// What the plugin has saved in an earlier run.
    #[serde(default, with = "document::kept", skip_serializing_if = "Option::is_none")]
    pub storage: Option<Bson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_start: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_finish: Option<DateTime>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error(transparent)]
    Wrong(#[from] SpecError),
    #[error("another schedule has the name '{0}'")]
    NameTaken(String),
    #[error("there is no calendar '{0}'")]
    NoSuchCalendar(String),
    #[error("schedules go by the calendar '{calendar}': {}", schedules.join(", "))]
    CalendarInUse { calendar: String, schedules: Vec<String> },
    /// Its secure parameters were encrypted for the queue that it had, and cannot be read in another.
    #[error("secure parameters have to be given again when the queue changes")]
    SealedForAnotherQueue,
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// Its tasks would have more than they have room for in their life.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Store(#[from] StoreError),
}
