//! A moment of the past, for operators: what ran and waited, what limits held, and what happened around it. Nothing is written for that: it is told from
//! the histories of tasks, the changes in the audit, the numbers over time and the documents of nodes. Every read has a bound on its rows and its time;
//! where one is met, [`Past::gaps`] says so.

mod events;
mod read;

use std::time::Duration;

use bson::{DateTime, Document};

use crate::accounts::Reach;
use crate::model::{NodeName, QueueId, Status, TaskId};
use crate::store::millis;

pub use events::{Event, Kind};

/// For how long before and after the moment, unless told otherwise.
pub const AROUND: Duration = Duration::from_secs(5 * 60);

/// At most for so long.
pub const MOST_AROUND: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub at: DateTime,
    /// For how long before and after it events are told.
    pub around: Duration,
    pub queue: Option<QueueId>,
    pub node: Option<NodeName>,
    /// What who asks may see: of nodes only those who see all.
    pub reach: Reach,
    /// Of which queues they may know what people have changed.
    pub changes: Reach,
}

impl Question {
    fn around_ms(&self) -> i64 {
        millis(self.around.min(MOST_AROUND))
    }

    pub fn from(&self) -> DateTime {
        self.at.saturating_add_millis(-self.around_ms())
    }

    pub fn to(&self) -> DateTime {
        self.at.saturating_add_millis(self.around_ms())
    }

    fn has_nodes(&self) -> bool {
        self.queue.is_none() && self.reach == Reach::All
    }

    fn is_about(&self, node: Option<&str>) -> bool {
        self.node.as_ref().is_none_or(|asked| node == Some(asked.as_str()))
    }

    fn spans(&self, at: DateTime) -> bool {
        self.from() <= at && at <= self.to()
    }
}

/// An attempt that ran within the span.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    pub task: TaskId,
    pub queue: Option<QueueId>,
    pub node: Option<String>,
    pub attempt: Option<i64>,
    pub since: DateTime,
    /// When it was over. `None`: it still runs.
    pub until: Option<DateTime>,
    /// What its task was then: one that was tried again waited.
    pub then: Option<Status>,
    /// What the history says of that.
    pub note: String,
}

impl Ran {
    pub fn ran_at(&self, at: DateTime) -> bool {
        self.since <= at && self.until.is_none_or(|until| until > at)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    pub of_node: bool,
    pub name: String,
    pub settings: Document,
    /// Whether the audit reaches back to the moment. If not, these are those of the oldest time that it tells of.
    pub known: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// The attempts that ran within the span, those that began first the first.
    pub ran: Vec<Ran>,
    /// How many tasks waited at the moment. `None`: of a node, as tasks wait in queues. It is the least where [`Past::gaps`] says that
    /// not all were read.
    pub waiting: Option<u64>,
    pub limits: Vec<Limits>,
    /// In the order of their times.
    pub events: Vec<Event>,
    /// What is not told, in words.
    pub gaps: Vec<String>,
}

impl Past {
    pub fn running(&self, at: DateTime) -> impl Iterator<Item = &Ran> {
        self.ran.iter().filter(move |ran| ran.ran_at(at))
    }
}
