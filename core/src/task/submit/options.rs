//! What may be asked for when a task is submitted.

use std::time::Duration;

use bson::{Bson, DateTime, Document};

use crate::secrets::{self, Sealed};
use crate::task::transition::millis;

/// When a task may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// Not before this time.
    At(DateTime),
    /// Not before so long from now, by the server's clock.
    In(Duration),
}

impl StartAt {
    pub(super) fn time(self, now: DateTime) -> DateTime {
        match self {
            Self::At(at) => at,
            Self::In(delay) => DateTime::from_millis(now.timestamp_millis().saturating_add(millis(delay))),
        }
    }
}

/// What applies to all tasks of a submission. By default, nothing does: they are queued at once, and what their
/// queue says applies. The caller has validated the values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskOptions {
    /// When they may start.
    pub start: Option<StartAt>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// When they must have ended.
    pub deadline: Option<DateTime>,
    /// How long their plugins have between SIGTERM and SIGKILL.
    pub grace: Option<Duration>,
    /// How often each may be tried at most.
    pub max_attempts: Option<i64>,
    /// How long to wait between attempts: what of [`crate::model::Backoff`] is not to be the default.
    pub backoff: Option<Document>,
    /// A key that no other task of the queue may have until this one has ended.
    pub unique: Option<String>,
    /// What their plugins get and nobody else sees, encrypted for the queue.
    pub secure_params: Option<Sealed>,
}

impl TaskOptions {
    /// The fields of a task, but for those that depend on the time.
    pub(super) fn fields(&self) -> Document {
        let mut fields = Document::new();
        let values = [
            ("timeout", self.timeout.map(seconds)),
            ("deadline", self.deadline.map(Bson::from)),
            ("grace", self.grace.map(seconds)),
            ("max_attempts", self.max_attempts.map(Bson::from)),
            ("backoff", self.backoff.clone().map(Bson::from)),
            ("unique", self.unique.clone().map(Bson::from)),
            (secrets::FIELD, self.secure_params.as_ref().map(Sealed::field)),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
        fields
    }
}

/// Whole seconds as an integer, others as a double.
fn seconds(duration: Duration) -> Bson {
    match i64::try_from(duration.as_secs()) {
        Ok(whole) if duration.subsec_nanos() == 0 => Bson::Int64(whole),
        _ => Bson::Double(duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn only_what_was_asked_for_is_stored() {
        assert_eq!(TaskOptions::default().fields(), doc! {});
        let options = TaskOptions {
            timeout: Some(Duration::from_secs(90)),
            grace: Some(Duration::from_millis(1500)),
            unique: Some("k".to_owned()),
            ..TaskOptions::default()
        };
        assert_eq!(options.fields(), doc! { "timeout": 90_i64, "grace": 1.5, "unique": "k" });
    }

    #[test]
    fn a_delay_counts_from_the_time_of_the_server() {
        let now = DateTime::from_millis(1_795_163_067_344);
        let later = DateTime::from_millis(1_795_163_068_844);
        assert_eq!(StartAt::In(Duration::from_millis(1500)).time(now), later);
        assert_eq!(StartAt::At(now).time(later), now);
    }
}
