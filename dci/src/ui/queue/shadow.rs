//! `GET /queues/:queue/shadow` for people.

use actix_web::http::StatusCode;
use askama::Template;
use askama::filters::HtmlSafeOutput;
use disbatch_compare::Text;
use disbatch_compare::diff::{self, Row};
use disbatch_core::canary::percent;
use disbatch_core::model::{Queue, Status};

use crate::access::viewer;
use crate::api::shadows::Comparisons;
use crate::shadows::{Compared, Verdict};
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "shadow.html")]
struct ShadowPage<'a> {
    queue: &'a Queue,
    other: Option<&'a Queue>,
    share: String,
    counts: Vec<(&'static str, usize)>,
    pairs: Vec<Pair<'a>>,
}

struct Pair<'a> {
    task: String,
    shadow: String,
    verdict: Verdict,
    different: String,
    was: String,
    is: String,
    change: String,
    facts: Vec<(&'static str, String, String)>,
    texts: Vec<(&'a Text, Vec<Row>)>,
}

impl ShadowPage<'_> {
    /// Attributes of the body of the page.
    fn roles(&self) -> HtmlSafeOutput<String> {
        viewer::roles_with(viewer::role_on(self.queue))
    }
}

pub fn render(found: Comparisons) -> Rendered {
    let mut counts: Vec<(&'static str, usize)> =
        Verdict::ALL.map(|verdict| (verdict.word(), found.count(verdict))).to_vec();
    let [task_failed, shadow_failed] = found.failed();
    counts.extend([("only the task failed", task_failed), ("only the shadow failed", shadow_failed)]);
    let shadow = found.shadow.as_ref();
    let html = ui::html(&ShadowPage {
        queue: &found.queue,
        other: shadow.map(|(_, other)| other),
        share: shadow.map(|(shadow, _)| percent(shadow.share)).unwrap_or_default(),
        counts,
        pairs: found.all.iter().map(pair).collect(),
    })?;
    Ok((StatusCode::OK, html))
}

fn pair(compared: &Compared) -> Pair<'_> {
    let comparison = &compared.comparison;
    let seconds = |time: Option<f64>| time.map_or_else(String::new, |time| format!("{time:.2} s"));
    let mut facts = Vec::new();
    if !comparison.status.same {
        let word = |code: i64| format!("{code} {}", Status::from_code(code).word());
        facts.push(("status", word(comparison.status.was), word(comparison.status.is)));
    }
    if !comparison.exit.same {
        facts.push(("exit", comparison.exit.was.to_string(), comparison.exit.is.to_string()));
    }
    let differ = comparison.texts.iter().filter(|text| !text.same && !text.difference.is_empty());
    let texts: Vec<(&Text, Vec<Row>)> = differ.map(|text| (text, diff::rows(&text.difference))).collect();
    Pair {
        task: compared.task.to_hex(),
        shadow: compared.shadow.to_hex(),
        verdict: compared.verdict(),
        different: comparison.different().join(", "),
        was: seconds(comparison.duration.was),
        is: seconds(comparison.duration.is),
        change: comparison.duration.change(),
        facts,
        texts,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use disbatch_core::model::{QueueId, Shadow};
    use serde_json::json;

    use super::*;

    #[test]
    fn pairs_are_links_and_what_differs_stands_side_by_side() {
        let comparison = json!({
            "status": { "was": 1, "is": 2, "same": false }, "exit": { "was": {}, "is": {}, "same": true },
            "texts": [{
                "name": "stdout", "same": false, "was_bytes": 4, "is_bytes": 4,
                "difference": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n <x>\n-is 1\n+is <2>\n",
            }],
            "duration": { "was": 0.1, "is": 2.0 }, "memory": { "was": null, "is": null }, "changed_files": null, "note": null,
        });
        let ids = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let queue = || Queue::without_document(QueueId(ids[0]));
        let compared = Compared {
            task: ids[0],
            shadow: ids[1],
            comparison: serde_json::from_value(comparison).unwrap(),
        };
        let shadow = Some((Shadow { queue: "next".to_owned(), share: 0.25 }, queue()));
        let html = render(Comparisons { queue: queue(), shadow, all: vec![compared] }).unwrap().1;
        for part in [
            "25 %",
            "1 different",
            "/tasks/010101010101010101010101",
            "/tasks/020202020202020202020202",
            "+1900 %",
            "1 succeeded",
            "2 failed",
            "<mark>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<x>") && !html.contains("<2>"), "{html}");
        let none = render(Comparisons { queue: queue(), shadow: None, all: vec![] }).unwrap().1;
        assert!(none.contains("This queue has no shadow."), "{none}");
    }
}
