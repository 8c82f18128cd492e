//! How long a queue keeps its ended tasks.

use std::time::Duration;

use bson::{Bson, Document};
use disbatch_values::liberal::number;

use super::Queue;

/// The field `retention` of a queue. Both times count from the end of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// After so long an ended task moves to the archive.
    pub archive_after: Option<Duration>,
    /// After so long it is deleted, archived or not.
    pub delete_after: Option<Duration>,
}

impl Retention {
    /// What the queue says. Values that make no sense count as not given: nothing is deleted by mistake.
    pub fn of(queue: &Queue) -> Self {
        queue.rest.get("retention").and_then(Bson::as_document).map(Self::from_document).unwrap_or_default()
    }

    fn from_document(document: &Document) -> Self {
        let seconds = |key: &str| {
            let seconds = document.get(key).and_then(number)?;
            Duration::try_from_secs_f64(seconds).ok().filter(|after| after.as_millis() < 1 << 52)
        };
        Self { archive_after: seconds("archive_after"), delete_after: seconds("delete_after") }
    }

    /// Whether tasks are kept for ever, where they are.
    pub fn is_none(&self) -> bool {
        self.archive_after.is_none() && self.delete_after.is_none()
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn only_numbers_of_seconds_count() {
        let read = |document: Document| Retention::from_document(&document);
        let both = read(doc! { "archive_after": 60, "delete_after": 1.5 });
        assert_eq!(both.archive_after, Some(Duration::from_secs(60)));
        assert_eq!(both.delete_after, Some(Duration::from_millis(1500)));
        assert_eq!(read(doc! { "archive_after": 0 }).archive_after, Some(Duration::ZERO));
        for wrong in [Bson::from(-1), Bson::from("60"), Bson::Null, Bson::from(f64::NAN), Bson::from(1e300)] {
            assert!(read(doc! { "archive_after": &wrong, "delete_after": &wrong }).is_none(), "{wrong}");
        }
    }
}
