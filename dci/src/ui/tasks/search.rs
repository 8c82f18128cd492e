//! What is looked for: read from an address, and written into others, so that an address is all that there is to keep.

use bson::oid::ObjectId;
use bson::{DateTime, Document};
use disbatch_core::tags::{ANY_TAGS, TAGS, stored};
use disbatch_core::task::Created;
use serde_json::{Value, json};

use super::columns::Column;
use super::statuses::{given, word, words};
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::query;
use crate::ui::names::{QueueNames, address};
use crate::ui::{text, zone};
use crate::values::{CREATED, tag_line, tag_list};

pub const DEFAULT_LIMIT: i64 = 100;

pub const MOST: i64 = 1_000;

/// The order of the oldest first, as the REST API names it.
const OLDEST: &str = "id";

#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// A queue's id.
    pub queue: String,
    pub statuses: Vec<String>,
    pub node: String,
    /// Those that tasks must have, as text.
    pub tags: String,
    /// Those of which they must have one.
    pub any_tags: String,
    pub id: String,
    pub others: Vec<(String, String)>,
    pub created: Asked,
    pub text: String,
    pub archive: bool,
    pub oldest: bool,
    pub limit: i64,
    pub columns: Vec<Column>,
}

/// A restriction that applies, and the address without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    pub what: String,
    pub value: String,
    pub without: String,
}

impl Search {
    pub fn of(params: &Params) -> Self {
        let field = |name: &str| text(params.fields.get(name)).trim().to_owned();
        let tags = |name: &str| params.fields.get(name).and_then(tag_list).map(|tags| tag_line(&tags));
        let others = params.fields.iter().filter(|(name, _)| !is_usual(name));
        let others = others.map(|(name, value)| (name.clone(), text(Some(value))));
        let limit = params.integer("limit").ok().flatten().filter(|limit| *limit != 0);
        let statuses = given(params.fields.get("status"));
        Self {
            queue: field("queue"),
            node: field("node"),
            tags: tags(TAGS).unwrap_or_default(),
            any_tags: tags(ANY_TAGS).unwrap_or_default(),
            id: field("id"),
            others: others.filter(|(_, value)| !value.is_empty()).collect(),
            created: Asked::of(params),
            text: text(params.options.get("text")).trim().to_owned(),
            archive: params.is_on("archive"),
            limit: limit.map_or(DEFAULT_LIMIT, i64::saturating_abs).min(MOST),
            oldest: params.options.get("order").is_some_and(|order| order == OLDEST),
            columns: Column::chosen(params.options.get("columns"), &statuses),
            statuses,
        }
    }

    /// The same as programs would ask for it: without what only pages know, and with a limit.
    pub fn params(&self, params: &Params, now: DateTime) -> Params {
        let mut plain = params.clone();
        for name in ["queue", "node", "id"] {
            if let Some(value) = plain.fields.get_mut(name).filter(|value| value.is_string()) {
                *value = text(Some(value)).trim().into();
            }
        }
        if let Some(status) = plain.fields.get_mut("status").filter(|value| !value.is_object()) {
            *status = match &self.statuses[..] {
                [] => json!(""),
                [one] => json!(one),
                several => json!(several),
            };
        }
        plain.options.insert("limit".to_owned(), self.limit.into());
        plain.options.remove("count");
        self.created.put_into(&mut plain, now);
        plain
    }

    pub fn address(&self, place: Option<(&str, String)>) -> String {
        let place = place.map(|(option, value)| (format!(".{option}"), value));
        address("/tasks", self.pairs().into_iter().chain(place))
    }

    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.restrictions();
        if self.limit != DEFAULT_LIMIT {
            pairs.push((".limit".to_owned(), self.limit.to_string()));
        }
        if self.oldest {
            pairs.push((".order".to_owned(), OLDEST.to_owned()));
        }
        if self.columns != Column::usual(&self.statuses) {
            let names: Vec<String> = self.columns.iter().map(|column| column.name()).collect();
            pairs.push((".columns".to_owned(), names.join(",")));
        }
        pairs
    }

    pub fn restrictions(&self) -> Vec<(String, String)> {
        let one = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut all = vec![one("queue", &self.queue)];
        all.extend(self.statuses.iter().map(|status| one("status", status)));
        all.extend([one("node", &self.node), one(TAGS, &self.tags), one(ANY_TAGS, &self.any_tags)]);
        all.push(one("id", &self.id));
        all.extend(self.others.iter().cloned());
        all.extend(self.created.pairs());
        all.push(one(".text", &self.text));
        all.push(one(".archive", if self.archive { "1" } else { "" }));
        all.retain(|(_, value)| !value.is_empty());
        all
    }

    /// With other statuses. Columns that go with the statuses go on with those.
    pub fn with_statuses(&self, statuses: Vec<String>) -> Self {
        let is_usual = self.columns == Column::usual(&self.statuses);
        let columns = if is_usual { Column::usual(&statuses) } else { self.columns.clone() };
        Self { statuses, columns, ..self.clone() }
    }

    pub fn toggled(&self, status: &str) -> Self {
        let mut statuses: Vec<String> =
            self.statuses.iter().filter(|other| *other != status).cloned().collect();
        if statuses.len() == self.statuses.len() {
            statuses.push(status.to_owned());
        }
        self.with_statuses(statuses)
    }

    /// Searches that are asked for again and again, within the queue of this one.
    pub fn views(&self) -> [(&'static str, String); 3] {
        let view = |created: &str, status: &str, oldest: bool| {
            let of_queue = Self { queue: self.queue.clone(), ..Self::of(&Params::default()) };
            let of_status = of_queue.with_statuses(words(status));
            Self { created: Asked::word(created), oldest, ..of_status }.address(None)
        };
        [
            ("Failed, made today", view("today", "2", false)),
            ("Oldest running", view("", "0", true)),
            ("Waiting longest", view("", "-2", true)),
        ]
    }

    /// Which tasks are found, in words. `names` are those of queues.
    pub fn scope(&self, names: &QueueNames) -> String {
        let statuses: Vec<String> = self.statuses.iter().map(|status| word(status)).collect();
        let queue = ObjectId::parse_str(&self.queue).ok().and_then(|id| names.get(&id).cloned());
        let queue = queue.unwrap_or_else(|| {
            if self.queue.is_empty() { "all queues" } else { self.queue.as_str() }.to_owned()
        });
        let named = |what: &str, value: &String| {
            if value.is_empty() { String::new() } else { format!("{what} {value}") }
        };
        let all = [
            statuses.join(" or "),
            queue,
            named("node", &self.node),
            named("tags", &self.tags),
            named("any of the tags", &self.any_tags),
            named("id", &self.id),
            self.created.words(),
        ];
        all.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    pub fn has_more(&self) -> bool {
        let rare = [&self.node, &self.id, &self.any_tags, &self.created.since, &self.created.until];
        self.archive || !self.others.is_empty() || rare.iter().any(|given| !given.is_empty())
    }

    pub fn is_everything(&self) -> bool {
        self.restrictions().is_empty()
    }

    /// The restrictions for people, save statuses and words for times, which have a place of their own. `names` are those of queues.
    pub fn chips(&self, names: &QueueNames) -> Vec<Chip> {
        let all = self.pairs();
        let chip = |(place, (name, value)): (usize, &(String, String))| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != place);
            let (what, value) = match name.as_str() {
                "status" | ".created" => return None,
                "queue" => {
                    let name = ObjectId::parse_str(value).ok().and_then(|id| names.get(&id).cloned());
                    ("Queue", name.unwrap_or_else(|| value.clone()))
                }
                "node" => ("Node", value.clone()),
                TAGS => ("Tags", value.clone()),
                ANY_TAGS => ("Any of the tags", value.clone()),
                "id" => ("Id", value.clone()),
                ".created_since" => ("Created since", plain_time(value)),
                ".created_until" => ("Created before", plain_time(value)),
                ".text" => ("Params contain", value.clone()),
                ".archive" => ("Archived", "too".to_owned()),
                other => (other, value.clone()),
            };
            let without = address("/tasks", others.map(|(_, pair)| pair.clone()));
            Some(Chip { what: what.to_owned(), value, without })
        };
        all.iter().enumerate().take(self.restrictions().len()).filter_map(chip).collect()
    }
}

pub fn is_usual(name: &str) -> bool {
    matches!(name, "queue" | "status" | "node" | "id" | TAGS | ANY_TAGS)
}

/// The tags of a task, each with the address of all tasks that have it.
pub fn tags_of(task: &Document) -> Vec<(String, String)> {
    let link = |tag: String| {
        let line = tag_line(std::slice::from_ref(&tag));
        (tag, address("/tasks", [(TAGS.to_owned(), line)]))
    };
    stored(task.get(TAGS)).into_iter().map(link).collect()
}

const WORDS: [(&str, &str); 4] =
    [("hour", "last hour"), ("today", "today"), ("yesterday", "yesterday"), ("week", "7 days")];

/// When tasks were made, as a search for people has it: a word as `today`, or from one time to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// One of [`WORDS`], or nothing.
    pub word: String,
    /// As fields of forms have times, or as programs write them.
    pub since: String,
    pub until: String,
}

pub type CreatedChoice = (&'static str, String, bool);

impl Asked {
    /// As the parameters of a request have it. Times are more than a word.
    pub fn of(params: &Params) -> Self {
        let option = |name: &str| text(params.options.get(name)).trim().to_owned();
        let (since, until, word) = (option(CREATED[0]), option(CREATED[1]), option("created"));
        if !since.is_empty() || !until.is_empty() {
            return Self { word: String::new(), since, until };
        }
        // What is none of the words is a time, or wrong. It is not left out: more tasks would be found than are meant.
        let is_known = word.is_empty() || WORDS.iter().any(|(known, _)| *known == word);
        if is_known { Self::word(&word) } else { Self { since: word, ..Self::default() } }
    }

    pub fn word(word: &str) -> Self {
        Self { word: word.to_owned(), ..Self::default() }
    }

    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// The words, each as what it makes of this search.
    pub fn choices(&self, address: impl Fn(Self) -> String) -> Vec<CreatedChoice> {
        let any = [("", "any time")];
        let choice = |(word, title): (&'static str, &'static str)| {
            let asked = Self::word(word);
            let is_on = *self == asked;
            (title, address(asked), is_on)
        };
        any.into_iter().chain(WORDS).map(choice).collect()
    }

    pub fn pairs(&self) -> [(String, String); 3] {
        let all =
            [(".created", &self.word), (".created_since", &self.since), (".created_until", &self.until)];
        all.map(|(name, value)| (name.to_owned(), value.clone()))
    }

    /// The options of the REST API that ask for the same.
    pub fn put_into(&self, params: &mut Params, now: DateTime) {
        params.options.remove("created");
        let utc = |at: DateTime| date_text(at).map(|text| Value::from(format!("{text}Z")));
        let between = |since, until: Option<DateTime>| {
            [Some(since), until].map(|at| at.and_then(utc).unwrap_or_default())
        };
        // What is no time of the reader's is an age, or wrong.
        let given =
            |name, value: &String| time(name, value).and_then(utc).unwrap_or_else(|| value.clone().into());
        let values = match self.word.as_str() {
            "hour" => between(now.saturating_add_millis(-zone::DAY / 24), None),
            "today" => between(midnight(now), None),
            "yesterday" => {
                let today = midnight(now);
                between(midnight(today.saturating_add_millis(-zone::DAY / 2)), Some(today))
            }
            "week" => between(now.saturating_add_millis(-7 * zone::DAY), None),
            _ => [given(CREATED[0], &self.since), given(CREATED[1], &self.until)],
        };
        for (name, value) in CREATED.into_iter().zip(values) {
            params.options.insert(name.to_owned(), value);
        }
    }

    pub fn between(&self, now: DateTime) -> Result<Created, HttpError> {
        let mut params = Params::default();
        self.put_into(&mut params, now);
        query::created(&params, now)
    }

    /// For people; nothing if any time is meant.
    pub fn words(&self) -> String {
        let known = WORDS.iter().find(|(word, _)| *word == self.word).map(|(_, title)| *title);
        match (known, self.since.as_str(), self.until.as_str()) {
            (Some(title @ ("today" | "yesterday")), ..) => format!("created {title} ({})", zone::name()),
            (Some("last hour"), ..) => "created in the last hour".to_owned(),
            (Some(title), ..) => format!("created in the last {title}"),
            (None, "", "") => String::new(),
            (None, since, "") => format!("created since {}", plain_time(since)),
            (None, "", until) => format!("created before {}", plain_time(until)),
            (None, since, until) => format!("created {} to {}", plain_time(since), plain_time(until)),
        }
    }
}

fn midnight(at: DateTime) -> DateTime {
    let day = zone::clock(at);
    let day = day.get(..10).unwrap_or_default();
    zone::day(&zone::now(), "created", day).map_or(at, |day| day.start)
}

/// The time in a field of a form, or as programs write it.
fn time(name: &str, given: &str) -> Option<DateTime> {
    zone::time(&zone::now(), name, given).ok()
}

/// A time as a field of a form has it.
pub fn time_field(given: &str) -> String {
    time("created", given).map(|at| zone::clock(at).replace(' ', "T")).unwrap_or_default()
}

pub fn plain_time(given: &str) -> String {
    time("created", given).map_or_else(|| given.to_owned(), zone::clock)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn params(fields: Value, options: Value) -> Params {
        let map = |value: Value| value.as_object().unwrap().clone();
        Params { fields: map(fields), options: map(options) }
    }

    fn search(fields: Value, options: Value) -> Search {
        Search::of(&params(fields, options))
    }

    #[test]
    fn an_address_is_all_that_there_is_to_keep() {
        let fields = json!({"queue": QUEUE, "status": ["-2", "17"], "node": "a&b", "params.to": "é x"});
        let options = json!({"text": "<you>", "archive": "1", "limit": "7", "columns": "ran,queue"});
        let found = search(fields, options);
        let kept = found.address(Some(("after", "6b0003bb686c8275d8013333".into())));
        assert_eq!(
            kept,
            format!(
                "/tasks?queue={QUEUE}&status=-2&status=17&node=a%26b&params.to=%C3%A9%20x&.text=%3Cyou%3E\
                 &.archive=1&.limit=7&.columns=queue%2Cran&.after=6b0003bb686c8275d8013333"
            )
        );
        assert_eq!(search(json!({}), json!({})).address(None), "/tasks");
        let tagged = search(json!({"tags": ["a=1", "b"], "any_tags": "Smith"}), json!({}));
        assert_eq!(tagged.address(None), "/tasks?tags=a%3D1%2Cb&any_tags=Smith");
        let odd = tags_of(&bson::doc! { "tags": ["Smith, Ann"] });
        assert_eq!(odd[0].1, "/tasks?tags=%5B%22Smith%2C%20Ann%22%5D", "it is one");
        let timed = search(json!({}), json!({"created": "today", "order": "id", "limit": "7"}));
        assert_eq!(timed.address(None), "/tasks?.created=today&.limit=7&.order=id");
        let nothing = search(json!({"queue": "", "status": ["", " "]}), json!({"text": " "}));
        assert_eq!(nothing.address(None), "/tasks");
    }

    #[test]
    fn each_restriction_can_be_taken_away() {
        let names = HashMap::from([(ObjectId::parse_str(QUEUE).unwrap(), "<mail>".to_owned())]);
        let found = search(json!({"queue": QUEUE, "status": "2 -2"}), json!({"text": "x", "limit": 5}));
        let chips = found.chips(&names);
        let shown: Vec<(&str, &str)> = chips.iter().map(|c| (c.what.as_str(), c.value.as_str())).collect();
        assert_eq!(shown, [("Queue", "<mail>"), ("Params contain", "x")]);
        assert_eq!(chips[0].without, "/tasks?status=2&status=-2&.text=x&.limit=5");
        assert_eq!(
            found.toggled("-2").address(None),
            format!("/tasks?queue={QUEUE}&status=2&.text=x&.limit=5")
        );
        assert_eq!(found.toggled("0").statuses, ["2", "-2", "0"]);
        assert_eq!(found.scope(&names), "failed or queued, <mail>");
        assert_eq!(found.views()[0].1, format!("/tasks?queue={QUEUE}&status=2&.created=today"));
        // One that was made before and has failed today is not found.
        assert_eq!(found.views()[0].0, "Failed, made today");
        assert_eq!(found.views()[2].1, format!("/tasks?queue={QUEUE}&status=-2&.order=id"));
    }

    #[test]
    fn programs_would_ask_for_the_same() {
        let given = params(json!({"queue": " q ", "status": ["2", ""], "node": ""}), json!({"count": "1"}));
        let plain = Search::of(&given).params(&given, NOW);
        assert_eq!((&plain.fields["queue"], &plain.fields["status"]), (&json!("q"), &json!("2")));
        assert_eq!((plain.options.get("count"), &plain.options["limit"]), (None, &json!(100)));
        let several = params(json!({"status": "2,-2"}), json!({"limit": "-99999"}));
        let plain = Search::of(&several).params(&several, NOW);
        assert_eq!((&plain.fields["status"], &plain.options["limit"]), (&json!(["2", "-2"]), &json!(MOST)));
        let odd = params(json!({"status": {"$gt": 1}}), json!({"limit": "x"}));
        assert_eq!(Search::of(&odd).params(&odd, NOW).fields["status"], json!({"$gt": 1}));
    }

    fn asked(options: Value) -> Asked {
        Asked::of(&Params { options: options.as_object().unwrap().clone(), ..Params::default() })
    }

    #[test]
    fn words_are_times() {
        let between = |options: Value| {
            let created = asked(options).between(NOW).unwrap();
            [created.since, created.until].map(|at| at.and_then(date_text).unwrap_or_default())
        };
        assert_eq!(between(json!({"created": "today"})), ["2026-11-20T00:00:00", ""]);
        let yesterday = ["2026-11-19T00:00:00", "2026-11-20T00:00:00"];
        assert_eq!(between(json!({"created": "yesterday"})), yesterday);
        assert_eq!(between(json!({"created": "hour"})), ["2026-11-20T07:24:27", ""]);
        assert_eq!(between(json!({"created": "week"})), ["2026-11-13T08:24:27", ""]);
        for nothing in [json!({}), json!({"created_since": " "})] {
            assert_eq!(between(nothing), ["", ""]);
        }
        let fields = json!({"created": "today", "created_since": "2026-11-20T03:00", "created_until": "2h"});
        assert_eq!(between(fields), ["2026-11-20T03:00:00", "2026-11-20T06:24:27"]);
        for wrong in [json!({"created_since": "soon"}), json!({"created": "<x>"})] {
            let wrong = asked(wrong).between(NOW).unwrap_err();
            assert!(wrong.message().starts_with(".created_since must be a time"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn days_are_those_of_the_reader() {
        let zone = disbatch_core::schedules::Zone::named("Europe/Berlin").unwrap();
        let between = |options: Value| {
            let asked = asked(options);
            zone::within(zone.clone(), async move {
                let created = asked.between(NOW).unwrap();
                [created.since, created.until].map(|at| at.and_then(date_text).unwrap_or_default())
            })
        };
        let yesterday = ["2026-11-18T23:00:00", "2026-11-19T23:00:00"];
        assert_eq!(between(json!({"created": "yesterday"})).await, yesterday);
        assert_eq!(between(json!({"created": "today"})).await, ["2026-11-19T23:00:00", ""]);
        let since = json!({"created_since": "2026-11-20T03:00", "created_until": "2026-11-20T03:00:00Z"});
        assert_eq!(between(since).await, ["2026-11-20T02:00:00", "2026-11-20T03:00:00"]);
    }

    #[test]
    fn it_is_said_in_words() {
        assert_eq!(asked(json!({"created": "today"})).words(), "created today (UTC)");
        assert_eq!(asked(json!({"created": "hour"})).words(), "created in the last hour");
        let fields = json!({"created_since": "2026-11-20T03:00", "created_until": "2026-11-20T04:00"});
        assert_eq!(asked(fields).words(), "created 2026-11-20 03:00:00 to 2026-11-20 04:00:00");
        assert_eq!(asked(json!({})).words(), "");
    }
}
