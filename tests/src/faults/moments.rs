//! Which plugins of a queue were alive at once, and whether that was allowed. See [`super::limits`] for the
//! rule.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document};
use disbatch_core::model::TaskId;

use super::limits::Limits;
use super::records::Run;

/// Where the history of a task does not tell when it was claimed, its claim may have been so long before its
/// plugin started. A history holds the last 50 entries.
const UNKNOWN: Duration = Duration::from_secs(60);

/// A change of a limit holds for what is claimed so long after it.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// When each attempt was claimed, by the server's clock, which in these tests is this machine's.
#[derive(Debug, Default)]
pub struct Claims(HashMap<(TaskId, i64), Duration>);

impl Claims {
    /// From the history of tasks.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a Document>) -> Self {
        let mut claims = HashMap::new();
        for task in tasks {
            let Ok(id) = task.get_object_id("_id") else { continue };
            let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
            for (attempt, at) in history.iter().filter_map(Bson::as_document).filter_map(claim) {
                // A start is the claim, too, where there was none before it.
                claims.entry((TaskId(id), attempt)).or_insert(at);
            }
        }
        Self(claims)
    }

    /// When the task of `run` was claimed for it, at the earliest.
    pub fn at(&self, run: &Run) -> Duration {
        let known = self.0.get(&(run.task, run.attempt)).copied();
        known.unwrap_or_else(|| run.started_wall.saturating_sub(UNKNOWN))
    }
}

fn claim(entry: &Document) -> Option<(i64, Duration)> {
    let at = entry.get_datetime("at").ok()?;
    let at = Duration::from_millis(u64::try_from(at.timestamp_millis()).ok()?);
    let claimed = matches!(whole(entry, "status"), Some(-1 | 0));
    whole(entry, "attempt").filter(|_| claimed).map(|attempt| (attempt, at))
}

fn whole(document: &Document, field: &str) -> Option<i64> {
    document.get(field).and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)))
}

/// The start of a plugin, seen from its queue.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The plugins that were alive then.
    pub alive: Vec<&'a Run>,
    /// How many there might have been.
    pub limit: u64,
}

impl<'a> Moment<'a> {
    /// All starts. `runs` are those of one queue, in order of their start.
    pub fn all(runs: impl IntoIterator<Item = &'a Run>, claims: &Claims, limits: &Limits) -> Vec<Self> {
        let mut alive: Vec<&Run> = Vec::new();
        let mut moments = Vec::new();
        for run in runs {
            alive.retain(|other| other.last > run.started);
            alive.push(run);
            let last = alive.iter().max_by_key(|run| claims.at(run));
            let heard = |last| claims.at(last).saturating_sub(HEARD_WITHIN);
            let limit = last.map_or(0, |last| limits.largest(heard(last), last.started_wall));
            moments.push(Self { alive: alive.clone(), limit });
        }
        moments
    }

    /// Whether there were more.
    pub fn is_over(&self) -> bool {
        self.alive.len() as u64 > self.limit
    }

    /// For messages.
    pub fn describe(&self) -> String {
        let alive: Vec<String> =
            self.alive.iter().map(|run| format!("{} ({})", run.task, run.describe())).collect();
        format!("{} at once with a limit of {}: {}", self.alive.len(), self.limit, alive.join("; "))
    }
}
