//! What has happened, the words for it, and where they go. A subscription may have templates for words, in the syntax of Jinja.

use disbatch_plugin::Error;
use minijinja::Environment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message, and whatever else a later release may add to it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Message {
    /// The same in each attempt to deliver it.
    pub id: String,
    pub subscription: String,
    pub count: u64,
    /// How many of these it says nothing else about.
    #[serde(default)]
    pub more: u64,
    pub events: Vec<Event>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Events of one kind about the same.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Event {
    pub event: String,
    pub queue: Option<String>,
    pub schedule: Option<String>,
    pub node: Option<String>,
    pub count: u64,
    pub first: Option<String>,
    pub last: Option<String>,
    #[serde(default)]
    pub tasks: Vec<Task>,
    pub detail: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Task {
    pub id: String,
    pub url: Option<String>,
}

#[derive(Debug)]
pub struct Words {
    pub subject: String,
    pub text: String,
}

impl Message {
    /// What it is about, in a line.
    pub fn subject(&self) -> String {
        match (&self.events[..], self.more) {
            ([event], 0) => event.headline(),
            ([first, rest @ ..], more) => {
                let others = rest.iter().map(|event| event.count).sum::<u64>() + more;
                format!("{}, and {others} {} more", first.headline(), plural(others, "event", "events"))
            }
            ([], _) => format!("{} {}", self.count, plural(self.count, "event", "events")),
        }
    }

    /// A line for each group of events, with its tasks below.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for event in &self.events {
            lines.push(format!("{}{}", event.headline(), event.when()));
            lines.extend(
                event.tasks.iter().map(|task| format!("  {}", task.url.as_ref().unwrap_or(&task.id))),
            );
        }
        if self.more > 0 {
            lines.push(format!("{} {} more", self.more, plural(self.more, "event", "events")));
        }
        lines.push(format!("Subscription: {}", self.subscription));
        lines.join("\n")
    }
}

impl Event {
    fn headline(&self) -> String {
        let tasks = format!("{} {}", self.count, plural(self.count, "task", "tasks"));
        let what = match self.event.as_str() {
            "failed" => format!("{tasks} failed"),
            "first_failure" => "first failure".to_owned(),
            "failures_in_row" => "failures".to_owned(),
            "recovered" => "recovered".to_owned(),
            "lost" => format!("{tasks} lost, as the runner died"),
            "waits_long" => "the first task waits too long".to_owned(),
            "runs_long" => format!("{tasks} {} too long", plural(self.count, "runs", "run")),
            "schedule_missed" => "missed its time".to_owned(),
            "node_dead" => "the node is dead".to_owned(),
            "canary_returned" => "the canary was taken back".to_owned(),
            "missed_events" => "events were missed".to_owned(),
            "test" => "a test, messages arrive".to_owned(),
            other => format!("{} {}", self.count, other.replace('_', " ")),
        };
        let detail = self.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        match (&self.schedule, &self.queue, &self.node) {
            (Some(schedule), _, _) => format!("schedule {schedule}: {what}{detail}"),
            (None, Some(queue), _) => format!("queue {queue}: {what}{detail}"),
            (None, None, Some(node)) => format!("node {node}: {what}{detail}"),
            (None, None, None) => format!("{what}{detail}"),
        }
    }

    fn when(&self) -> String {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) if first == last => format!(", at {first}"),
            (Some(first), Some(last)) => format!(", from {first} to {last}"),
            _ => String::new(),
        }
    }
}

fn plural(number: u64, one: &'static str, several: &'static str) -> &'static str {
    if number == 1 { one } else { several }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Channel {
    Webhook { url: String },
    Slack,
    Teams,
    Mail(Mail),
}

/// A mail server, and whose mail it is.
#[derive(Debug, Deserialize)]
pub struct Mail {
    pub server: String,
    pub user: Option<String>,
    pub from: String,
    pub to: Vec<String>,
}

/// So much may a template do: enough for the largest message, and over at once for a loop that does not end.
const FUEL: u64 = 500_000;

/// A subject has so many characters at most, as mail and chats show no more.
const LONGEST_SUBJECT: usize = 200;

/// A text has so many characters at most: chats refuse longer ones.
const LONGEST_TEXT: usize = 12_000;

#[derive(Debug, Default, Deserialize)]
pub struct Templates {
    subject: Option<String>,
    text: Option<String>,
}

impl Templates {
    pub fn subject(&self, message: &Message) -> Result<String, Error> {
        let subject = rendered("subject", self.subject.as_deref(), message, Message::subject)?;
        // A line break would begin another header of a mail.
        Ok(cut(subject.split_whitespace().collect::<Vec<_>>().join(" "), LONGEST_SUBJECT))
    }

    pub fn text(&self, message: &Message) -> Result<String, Error> {
        Ok(cut(rendered("text", self.text.as_deref(), message, Message::text)?, LONGEST_TEXT))
    }
}

fn rendered(
    name: &'static str,
    template: Option<&str>,
    message: &Message,
    usual: impl Fn(&Message) -> String,
) -> Result<String, Error> {
    let Some(template) = template.filter(|template| !template.trim().is_empty()) else {
        return Ok(usual(message));
    };
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment
        .render_named_str(name, template, minijinja::value::Serde(message))
        .map_err(|error| Error::failed(format_args!("the template of the subscription is wrong: {error:#}")))
}

fn cut(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    pub fn of(events: Value) -> Message {
        let message = json!({
            "id": "6b0004f4686c827f5a609575", "subscription": "nights", "number": 3, "at": "2026-11-24T03:12:10Z",
            "count": 12, "more": 0, "url": "https://d.example", "events": events,
        });
        serde_json::from_value(message).unwrap()
    }

    pub fn failures() -> Message {
        of(json!([{
            "event": "failed", "queue": "imports", "schedule": null, "node": null, "count": 12,
            "first": "2026-11-24T03:11:00Z", "last": "2026-11-24T03:12:00Z", "detail": null,
            "tasks": [{ "id": "6b00", "url": "https://d.example/tasks/6b00" }, { "id": "6b01", "url": null }],
        }]))
    }

    #[test]
    fn a_message_says_what_has_happened_and_where() {
        assert_eq!(failures().subject(), "queue imports: 12 tasks failed");
        assert_eq!(
            failures().text(),
            "queue imports: 12 tasks failed, from 2026-11-24T03:11:00Z to 2026-11-24T03:12:00Z\n  \
             https://d.example/tasks/6b00\n  6b01\nSubscription: nights"
        );
        let mut several = of(json!([
            { "event": "failures_in_row", "queue": "q", "schedule": "nightly", "count": 1, "detail": "3 in a row" },
            { "event": "node_dead", "node": "n1", "count": 1, "first": "a", "last": "a" },
            { "event": "lost", "queue": "q", "count": 1 },
        ]));
        several.more = 2;
        assert_eq!(several.subject(), "schedule nightly: failures (3 in a row), and 4 events more");
        let text = several.text();
        for line in ["node n1: the node is dead, at a\n", "queue q: 1 task lost", "\n2 events more\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(of(json!([])).subject(), "12 events");
        assert_eq!(of(json!([{ "event": "of_tomorrow", "count": 2 }])).subject(), "2 of tomorrow");
    }

    #[test]
    fn what_is_not_known_goes_on() {
        let message = of(json!([{ "event": "failed", "count": 1, "new": [1] }]));
        let json = serde_json::to_value(message).unwrap();
        assert_eq!((&json["number"], &json["events"][0]["new"]), (&json!(3), &json!([1])));
    }

    fn templates(subject: &str, text: &str) -> Templates {
        Templates { subject: Some(subject.to_owned()), text: Some(text.to_owned()) }
    }

    #[test]
    fn templates_know_all_of_the_message() {
        let templates = templates(
            "{{ count }} in {{ events[0].queue|upper }}\nBcc: x",
            "{% for event in events %}{{ event.event }} {{ event.tasks|length }} {{ number }}{% endfor %}",
        );
        assert_eq!(templates.subject(&failures()).unwrap(), "12 in IMPORTS Bcc: x");
        assert_eq!(templates.text(&failures()).unwrap(), "failed 2 3");
    }

    #[test]
    fn without_templates_the_usual_words_are_used() {
        for templates in [Templates::default(), templates(" ", "\n")] {
            assert_eq!(templates.subject(&failures()).unwrap(), failures().subject());
            assert_eq!(templates.text(&failures()).unwrap(), failures().text());
        }
    }

    #[test]
    fn a_wrong_template_is_an_error_with_its_place() {
        let error = templates("", "a\n{{ count").text(&failures()).unwrap_err().to_string();
        assert!(error.contains("syntax error") && error.contains("text:2"), "{error}");
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        let error = templates("", endless).text(&failures()).unwrap_err().to_string();
        assert!(error.contains("wrong"), "{error}");
    }

    #[test]
    fn long_words_are_cut() {
        let long = templates(&"é".repeat(300), &"x".repeat(20_000));
        assert_eq!(long.subject(&failures()).unwrap().chars().count(), 201);
        assert!(long.text(&failures()).unwrap().ends_with("x…"));
    }
}
