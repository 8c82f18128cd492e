//! `GET /audit` for people: who did what to many tasks at once, and when.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use askama::Template;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::audit::{self, AuditKey, AuditPosition, AuditQuery};
use disbatch_core::bulk::Action;
use disbatch_core::model::Queue;

use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::parts::{When, grouped};
use crate::ui::{self, Rendered, plain, text};

/// So many entries are on a page.
const LIMIT: usize = 100;

/// The longest text that is looked for in a name.
const LONGEST: usize = 200;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    form: Form,
    rows: Vec<Row>,
    /// Whether the search was broken off, as it took too long.
    too_long: bool,
    /// Whether there is something to look for.
    narrowed: bool,
    previous: String,
    next: String,
}

/// What is looked for.
#[derive(Debug, Default)]
struct Form {
    actions: Vec<(&'static str, bool)>,
    by: String,
    queues: Vec<Choice>,
    about: String,
}

#[derive(Debug)]
struct Choice {
    id: String,
    name: String,
    chosen: bool,
}

/// An entry.
struct Row {
    at: When,
    by: String,
    what: String,
    job: Option<String>,
    about: Vec<About>,
    reason: String,
    result: String,
}

/// A part of what an entry is about.
#[derive(Debug, PartialEq, Eq)]
struct About {
    what: String,
    value: String,
    address: Option<String>,
}

/// The page.
///
/// # Errors
/// What is looked for makes no sense, or the database cannot be reached.
pub async fn render(state: &State, params: &Params) -> Rendered {
    let query = query(params)?;
    let (found, queues) = futures::try_join!(state.store.find_audit(&query), state.store.list_queues())?;
    let names: HashMap<ObjectId, String> =
        queues.iter().map(|queue| (queue.id.0, queue.display_name())).collect();
    ui::render(StatusCode::OK, &page(&query, form(params, queues), found, &names))
}

fn page(
    query: &AuditQuery,
    form: Form,
    found: Option<audit::AuditPage>,
    names: &HashMap<ObjectId, String>,
) -> AuditPage {
    let too_long = found.is_none();
    let found = found.unwrap_or_default();
    let what_and_whom = query.what.is_some() || query.by.is_some();
    AuditPage {
        rows: found.entries.iter().map(|entry| row(entry, names)).collect(),
        too_long,
        narrowed: what_and_whom || query.queue.is_some() || query.about.is_some(),
        previous: found.previous.map(|key| address(&form, "before", key)).unwrap_or_default(),
        next: found.next.map(|key| address(&form, "after", key)).unwrap_or_default(),
        form,
    }
}

fn query(params: &Params) -> Result<AuditQuery, HttpError> {
    let given = |name: &str| Some(field(params, name)).filter(|text| !text.is_empty());
    let key = |name: &str| {
        let key = given(name).map(|text| text.parse::<AuditKey>());
        key.transpose().map_err(|error| HttpError::bad_request(format!("{name}: {error}")))
    };
    let id = |name: &str, of: &str| {
        let wrong =
            || HttpError::bad_request(format!("{name} must be the id of {of}: 24 hexadecimal digits"));
        given(name).map(|text| ObjectId::parse_str(&text).map_err(|_| wrong())).transpose()
    };
    let by = given("by");
    if by.as_ref().is_some_and(|text| text.chars().count() > LONGEST) {
        return Err(HttpError::bad_request(format!("by must not be longer than {LONGEST} characters")));
    }
    Ok(AuditQuery {
        what: given("action").map(|action| format!("bulk {action}")),
        by,
        queue: id("queue", "a queue")?,
        about: id("about", "a queue or of a bulk job")?,
        position: match (key("after")?, key("before")?) {
            (Some(key), _) => AuditPosition::After(key),
            (None, Some(key)) => AuditPosition::Before(key),
            (None, None) => AuditPosition::First,
        },
        limit: LIMIT,
    })
}

fn field(params: &Params, name: &str) -> String {
    text(params.fields.get(name)).trim().to_owned()
}

fn form(params: &Params, mut queues: Vec<Queue>) -> Form {
    let (action, queue) = (field(params, "action"), field(params, "queue"));
    queues.sort_by_cached_key(Queue::display_name);
    let choice = |found: &Queue| {
        let id = found.id.to_string();
        Choice { name: found.display_name(), chosen: id == queue, id }
    };
    Form {
        actions: Action::ALL.map(|known| (known.as_str(), known.as_str() == action)).to_vec(),
        by: field(params, "by"),
        queues: queues.iter().map(choice).collect(),
        about: field(params, "about"),
    }
}

/// The address of another page of the same.
fn address(form: &Form, way: &str, key: AuditKey) -> String {
    let chosen = form.actions.iter().find(|(_, chosen)| *chosen).map(|(name, _)| *name);
    let queue = form.queues.iter().find(|choice| choice.chosen).map(|choice| choice.id.as_str());
    let fields = [
        ("action", chosen.unwrap_or_default()),
        ("by", form.by.as_str()),
        ("queue", queue.unwrap_or_default()),
        ("about", form.about.as_str()),
    ];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let pairs = fields.map(|(name, value)| format!("{name}={}", encoded(value)));
    let pairs: Vec<String> = pairs.chain([format!("{way}={key}")]).collect();
    format!("/audit?{}", pairs.join("&"))
}

fn row(entry: &Document, names: &HashMap<ObjectId, String>) -> Row {
    let number = |field: &str| entry.get(field).and_then(disbatch_core::model::whole_number);
    let tasks = |count: i64| grouped(u64::try_from(count).unwrap_or(0));
    let mut result = Vec::new();
    result.extend(number("count").map(|count| format!("{} found", tasks(count))));
    result.extend(number("done").map(|done| format!("{} done", tasks(done))));
    result.extend(
        number("skipped").filter(|skipped| *skipped > 0).map(|skipped| format!("{} skipped", tasks(skipped))),
    );
    result.extend(entry.get_str("state").ok().map(str::to_owned));
    Row {
        at: When::of(entry.get("at")),
        by: plain(entry.get("by")),
        what: plain(entry.get("what")),
        job: entry.get_object_id("job").ok().map(|id| id.to_hex()),
        about: entry.get_document("filter").map(|filter| about(filter, names)).unwrap_or_default(),
        reason: plain(entry.get("reason")),
        result: result.join(", "),
    }
}

/// A filter for people.
fn about(filter: &Document, names: &HashMap<ObjectId, String>) -> Vec<About> {
    let part = |(name, value): (&String, &Bson)| match (name.as_str(), value) {
        ("queue", Bson::ObjectId(id)) => About {
            what: "queue".into(),
            value: names.get(id).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| id.to_hex()),
            // What is gone has no page.
            address: names.contains_key(id).then(|| format!("/queues/{id}")),
        },
        ("queue", Bson::String(all)) if all == "*" => {
            About { what: "queue".into(), value: "all".into(), address: None }
        }
        ("older_than", seconds) => About {
            what: "unchanged for".into(),
            value: format!("{} s", plain(Some(seconds))),
            address: None,
        },
        (other, value) => About { what: other.to_owned(), value: plain(Some(value)), address: None },
    };
    filter.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use serde_json::{Value, json};

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn params(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn queue() -> Queue {
        let id = ObjectId::parse_str(QUEUE).unwrap();
        bson::deserialize_from_document(doc! { "_id": id, "name": "<mail>" }).unwrap()
    }

    fn html(params: &Params, entries: &[Document]) -> String {
        let names = [(queue().id.0, "<mail>".to_owned())].into();
        let key = AuditKey { at: DateTime::from_millis(5), id: queue().id.0 };
        let found = audit::AuditPage { entries: entries.to_vec(), next: Some(key), previous: None };
        let form = form(params, vec![queue()]);
        page(&query(params).unwrap(), form, Some(found), &names).render().unwrap()
    }

    #[test]
    fn a_search_that_takes_too_long_says_so_and_keeps_what_was_asked() {
        let params = params(json!({"by": "<nobody>"}));
        let page = page(&query(&params).unwrap(), form(&params, vec![]), None, &HashMap::new());
        let html = page.render().unwrap();
        for part in ["It took too long", "value=\"&#60;nobody&#62;\"", "maxlength=\"200\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("No entry matches."), "nobody knows that");
    }

    #[test]
    fn entries_say_who_did_what_to_what() {
        let entry = doc! {
            "at": DateTime::from_millis(1_795_163_067_344), "by": "someone <x>", "what": "bulk cancel ended",
            "filter": { "queue": queue().id.0, "status": [-2], "older_than": 60.0 }, "count": 5000_i64,
            "job": queue().id.0, "reason": "a \"b\"", "state": "done", "done": 4_999_i64, "skipped": 1_i64,
        };
        let html = html(&params(json!({"action": "cancel", "by": "some one", "queue": QUEUE})), &[entry]);
        for part in [
            "<a href=\"/audit\" aria-current=\"page\">Audit</a>",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "someone &#60;x&#62;",
            "bulk cancel ended",
            "<a href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "unchanged for 60 s",
            "status [-2]",
            "a &#34;b&#34;",
            "5,000 found, 4,999 done, 1 skipped, done",
            "<option value=\"cancel\" selected>",
            "/audit?action=cancel&#38;by=some%20one&#38;queue=6b0003bb686c8275d70dc2f1&#38;after=5-6b0003bb686c8275d70dc2f1",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn odd_entries_are_shown_as_far_as_they_go() {
        let nasty = "<script>'\"".repeat(1000);
        let odd =
            doc! { "at": "soon", "by": &nasty, "what": 5, "filter": { &nasty: &nasty }, "count": "many" };
        let html = html(&Params::default(), &[odd, doc! {}]);
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
        assert!(self::html(&Params::default(), &[]).contains("Nothing has been done yet."));
        assert!(self::html(&params(json!({"by": "x"})), &[]).contains("No entry matches."));
    }

    #[test]
    fn what_is_looked_for_is_checked() {
        let asked = query(&params(
            json!({"action": "retry", "by": " a ", "about": QUEUE, "before": "5-6b0003bb686c8275d70dc2f1"}),
        ));
        let asked = asked.unwrap();
        assert_eq!((asked.what.as_deref(), asked.by.as_deref()), (Some("bulk retry"), Some("a")));
        assert!(matches!(asked.position, AuditPosition::Before(_)) && asked.about.is_some());
        let other = "6b0003bb686c8275d70dc2f2";
        let both = query(&params(json!({"queue": QUEUE, "about": other}))).unwrap();
        let hex = |id: Option<ObjectId>| id.map(|id| id.to_hex());
        assert_eq!((hex(both.queue).as_deref(), hex(both.about).as_deref()), (Some(QUEUE), Some(other)));
        assert!(query(&params(json!({"by": "é".repeat(200)}))).is_ok());
        assert_eq!(
            query(&params(json!({"by": "", "queue": ""}))).unwrap(),
            AuditQuery { limit: LIMIT, ..AuditQuery::default() }
        );
        let long = json!({"by": "x".repeat(201)});
        let places = [json!({"after": "x"}), json!({"before": "5"})];
        for wrong in [json!({"about": "mail"}), json!({"queue": "mail"}), long].into_iter().chain(places) {
            assert_eq!(query(&params(wrong.clone())).unwrap_err().status(), 400, "{wrong}");
        }
    }
}
