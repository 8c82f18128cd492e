//! A choice of statuses: by their names, those that plugins have invented by number; and as links, with how many tasks of each a search
//! would find.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document, doc};
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Queue, Status};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::Created;
use serde_json::Value;

use super::search::Search;
use crate::ui::queue_state::{self, beyond};
use crate::ui::{self, StatusView, text};

/// Statuses that have names, in the order in which tasks come to them.
const NAMED: [i64; 10] = [-7, -4, -2, -1, 0, 1, 2, -5, -3, -6];

#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "tasks/statuses.html")]
pub struct Statuses {
    choices: Vec<(StatusView, bool)>,
    others: String,
}

impl HtmlSafe for Statuses {}

impl Statuses {
    pub fn of(chosen: &[String]) -> Self {
        let choice = |code: i64| {
            let status = StatusView::from_code(code);
            let is_ticked = chosen.contains(&status.code);
            (status, is_ticked)
        };
        let choices = NAMED.map(choice).to_vec();
        let is_other = |code: &&String| !choices.iter().any(|(status, _)| status.code == **code);
        let others: Vec<&str> = chosen.iter().filter(is_other).map(String::as_str).collect();
        Self { others: others.join(" "), choices }
    }
}

/// The statuses that a parameter names: one, several, or text with commas or spaces between them.
pub fn given(value: Option<&Value>) -> Vec<String> {
    let all = match value {
        Some(Value::Array(values)) => values.iter().flat_map(|value| given(Some(value))).collect(),
        value => words(&text(value)),
    };
    all.into_iter().fold(Vec::new(), |mut once, status| {
        if !once.contains(&status) {
            once.push(status);
        }
        once
    })
}

pub fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

pub fn word(status: &str) -> String {
    match status.parse().map(Status::from_code) {
        Ok(Status::Other(code)) => format!("{} ({code})", Status::Other(code).word()),
        Ok(status) => ui::word(status).to_owned(),
        Err(_) => status.to_owned(),
    }
}

const BOUND: u64 = 1_000;

const MOST_QUEUES: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "tasks/tally.html")]
pub struct Tally {
    choices: Vec<TallyChoice>,
}

impl HtmlSafe for Tally {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TallyChoice {
    status: StatusView,
    /// For people; nothing where that is not known.
    count: String,
    address: String,
    is_on: bool,
}

impl Tally {
    /// The choice for a search among `queues`, which are all that its visitor may see.
    pub async fn find(
        store: &Store,
        search: &Search,
        created: Created,
        queues: &[Queue],
    ) -> Result<Self, StoreError> {
        let Some(base) = base(search, created, queues) else { return Ok(Self::of(search, &[])) };
        let filter = |code: i64| {
            let mut filter = base.clone();
            filter.insert("status", code);
            (filter, BOUND)
        };
        let amounts = store.count_each_up_to(&NAMED.map(filter)).await?;
        let is_known = created.is_any() && search.node.is_empty();
        let has_many = amounts.iter().any(|amount| matches!(amount, Amount::MoreThan(_)));
        let totals = if is_known && has_many { store.read_counters().await? } else { None };
        let words = |(amount, code): (&Amount, i64)| {
            let known = totals.as_ref().and_then(|totals| counted(totals, search, queues, code));
            queue_state::Tally::new(Vec::new(), beyond(*amount, known)).words()
        };
        let counts: Vec<String> = amounts.iter().zip(NAMED).map(words).collect();
        Ok(Self::of(search, &counts))
    }

    /// The choice with these counts, in the order of the statuses that have names.
    pub fn of(search: &Search, counts: &[String]) -> Self {
        let others =
            search.statuses.iter().filter(|code| !NAMED.iter().any(|known| known.to_string() == **code));
        let all = NAMED.into_iter().map(|code| code.to_string()).chain(others.cloned());
        let choice = |(place, code): (usize, String)| TallyChoice {
            status: code.parse().map_or_else(|_| StatusView::named(&*code, "unknown"), StatusView::from_code),
            count: counts.get(place).cloned().unwrap_or_default(),
            address: search.toggled(&code).address(None),
            is_on: search.statuses.contains(&code),
        };
        Self { choices: all.enumerate().map(choice).collect() }
    }
}

/// What is looked for besides the status, where an index has that together with it. `None`: counting would read tasks.
fn base(search: &Search, created: Created, queues: &[Queue]) -> Option<Document> {
    let others = [&search.id, &search.tags, &search.any_tags, &search.text];
    if search.archive || !search.others.is_empty() || others.iter().any(|other| !other.is_empty()) {
        return None;
    }
    let asked: Vec<Bson> =
        queues.iter().filter(|queue| is_asked(search, queue)).map(|queue| queue.id.into()).collect();
    if asked.is_empty() || asked.len() > MOST_QUEUES {
        return None;
    }
    let mut base = doc! { "queue": { "$in": asked } };
    if !search.node.is_empty() {
        base.insert("node", &search.node);
    }
    let ids = created.ids();
    if !ids.is_empty() {
        base.insert("_id", ids);
    }
    Some(base)
}

fn is_asked(search: &Search, queue: &Queue) -> bool {
    search.queue.is_empty() || queue.id.to_string() == search.queue
}

/// What the counters say. `None`: they do not know.
fn counted(totals: &Totals, search: &Search, queues: &[Queue], code: i64) -> Option<u64> {
    let asked = queues.iter().filter(|queue| is_asked(search, queue));
    let is_running = matches!(code, -1 | 0); // These have no counters.
    if is_running { None } else { asked.map(|queue| totals.of_statuses(queue.id, &[code])).sum() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::params::Params;

    #[test]
    fn statuses_come_one_by_one_and_together() {
        for value in [json!(["-2", "17"]), json!("-2, 17 -2"), json!([-2, "17", ""])] {
            assert_eq!(given(Some(&value)), ["-2", "17"], "{value}");
        }
        assert!(given(None).is_empty() && given(Some(&json!({"$gt": 1}))).is_empty());
        assert_eq!(["-2", "17", "<x>"].map(word), ["queued", "finished (17)", "<x>"]);
    }

    #[test]
    fn those_without_a_name_are_written() {
        let html = Statuses::of(&["-2".into(), "17".into(), "\"<x>".into()]).render().unwrap();
        assert!(
            html.contains("value=\"-2\" checked") && html.contains("value=\"17 &#34;&#60;x&#62;\""),
            "{html}"
        );
        assert_eq!(html.matches(" checked").count(), 1, "{html}");
    }

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn search(fields: Value, options: Value) -> Search {
        let map = |value: Value| value.as_object().unwrap().clone();
        Search::of(&Params { fields: map(fields), options: map(options) })
    }

    fn queues() -> [Queue; 2] {
        [QUEUE, "6b0003bb686c8275d70dc2f2"].map(|id| {
            let id = bson::oid::ObjectId::parse_str(id).unwrap();
            bson::deserialize_from_document(doc! { "_id": id, "name": "q" }).unwrap()
        })
    }

    #[test]
    fn each_status_is_a_link_with_its_count() {
        let counts: Vec<String> = (0..10).map(|n| format!("{n},000")).collect();
        let tally = Tally::of(&search(json!({"status": ["2", "17"]}), json!({"created": "today"})), &counts);
        let html = tally.render().unwrap();
        for part in [
            "id=\"statuses\"",
            "href=\"/tasks?status=17&#38;.created=today\" aria-current=\"true\"",
            "href=\"/tasks?status=2&#38;status=17&#38;status=-2&#38;.created=today\"",
            "6,000",
            "finished",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("aria-current").count(), 2, "{html}");
    }

    #[test]
    fn only_what_an_index_has_is_counted() {
        let base =
            |fields: Value, options: Value| base(&search(fields, options), Created::default(), &queues());
        let one = base(json!({"queue": QUEUE, "node": "n"}), json!({})).unwrap();
        let id = bson::oid::ObjectId::parse_str(QUEUE).unwrap();
        assert_eq!(one, doc! { "queue": { "$in": [id] }, "node": "n" });
        assert_eq!(base(json!({}), json!({})).unwrap().len(), 1);
        for (fields, options) in [
            (json!({"tags": "a"}), json!({})),
            (json!({"params.a": "b"}), json!({})),
            (json!({}), json!({"text": "x"})),
            (json!({}), json!({"archive": "1"})),
            (json!({"queue": "6b0003bb686c8275d70dc2ff"}), json!({})),
        ] {
            assert_eq!(base(fields.clone(), options), None, "{fields}");
        }
    }
}
