//! The queues of the overview.

use askama::Template;
use askama::filters::HtmlSafe;

use super::facts::QueueFacts;
use crate::error::HttpError;
use crate::ui::live::Part;

/// All of them.
#[derive(Debug, Template)]
#[template(path = "overview/queues.html")]
pub struct QueueTable<'a> {
    pub rows: &'a [QueueFacts],
}

impl HtmlSafe for QueueTable<'_> {}

impl QueueTable<'_> {
    /// The table, whenever there are others, and each of them.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Part::table("queues", self, self.rows, |row| format!("queue-{}", row.queue.id))
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document, doc};
    use disbatch_core::counters::count::Amount;
    use disbatch_core::series::Ended;

    use super::*;
    use crate::ui::tally::Tally;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn facts(fields: Document) -> QueueFacts {
        let mut document = doc! { "_id": bson::oid::ObjectId::parse_str(ID).unwrap() };
        document.extend(fields);
        QueueFacts {
            queue: bson::deserialize_from_document(document).unwrap(),
            waiting: Tally::new(vec![-2, -7], Amount::Exactly(17_000)),
            running: 2,
            finished: Tally::new(vec![1, 2, 17], Amount::MoreThan(1_000)),
            failed: Tally::new(vec![2], Amount::Exactly(5)),
            hour: vec![Ended { succeeded: 1200, failed: 3, other: 0 }; 60],
            oldest: Some(DateTime::from_millis(1_795_163_067_344)),
        }
    }

    #[test]
    fn a_row_shows_a_queue_and_what_can_be_changed() {
        let fields = doc! {
            "name": "<mail>", "plugin": "My::\"Plugin\"", "threads": "3", "paused": true, "reason": "a <move>",
        };
        let html = QueueTable { rows: &[facts(fields)] }.render().unwrap();
        for part in [
            "<tr id=\"queue-6b0003bb686c8275d70dc2f1\">",
            "<a class=\"name\" href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "My::&#34;Plugin&#34;",
            "name=\"threads\" value=\"3\"",
            "/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=-2&#38;status=-7\">17,000<",
            "&#38;status=1&#38;status=2&#38;status=17\">1,000+<",
            "class=\"tone-bad\" href=\"/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=2\">5<",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "<span class=\"status paused\">paused</span>",
            "value=\"a &#60;move&#62;\"",
            "aria-checked=\"false\" name=\"paused\" value=\"\">Run<",
            "aria-checked=\"true\" name=\"accepting\" value=\"false\">Accept<",
            "72,180 ended within the last hour, 180 failed.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains("accepts no tasks"), "{html}");
    }

    #[test]
    fn odd_queues_are_shown_too() {
        let nasty = "<script>alert('1')</script>\"".repeat(400);
        let html = QueueTable { rows: &[facts(doc! { "name": &nasty, "plugin": 5, "accepting": false })] };
        let html = html.render().unwrap();
        assert!(!html.contains("<script") && html.contains("&#60;script&#62;"), "it is text");
        assert!(
            html.len() < 3 * nasty.len() * "&#60;".len(),
            "the name is there in full once: {}",
            html.len()
        );
        assert!(html.contains("<span class=\"status closed\">accepts no tasks</span>"), "{html}");
        let mut bare = facts(doc! {});
        (bare.failed, bare.oldest, bare.hour) = (Tally::default(), None, Vec::new());
        let html = QueueTable { rows: &[bare] }.render().unwrap();
        assert!(html.contains(&format!(">{ID}</a>")), "a queue without a name has its id: {html}");
        assert!(html.contains("No task ended within the last hour.") && !html.contains("–"), "{html}");
    }

    #[test]
    fn the_table_is_sent_again_when_there_are_others_only() {
        let parts = |queues: &[QueueFacts]| {
            QueueTable { rows: queues }.parts().unwrap().iter().map(Part::stamp).collect::<Vec<_>>()
        };
        let one = parts(&[facts(doc! { "name": "a" })]);
        let renamed = parts(&[facts(doc! { "name": "b" })]);
        assert_eq!((one.len(), one[0] == renamed[0], one[1] == renamed[1]), (2, true, false));
        assert_ne!(parts(&[])[0], one[0]);
        assert!(QueueTable { rows: &[] }.render().unwrap().contains("There are no queues yet."));
    }
}
