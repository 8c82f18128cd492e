//! When tasks were made, as a search for people has it: a word as `today`, or from one time to another.

use bson::DateTime;
use disbatch_core::task::Created;
use serde_json::Value;

use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::query;
use crate::ui::{text, zone};

/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// The words, and what people read.
const WORDS: [(&str, &str); 4] =
    [("hour", "last hour"), ("today", "today"), ("yesterday", "yesterday"), ("week", "7 days")];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// One of [`WORDS`], or nothing.
    pub word: String,
    /// As fields of forms have times, or as programs write them.
    pub since: String,
    pub until: String,
}

/// A choice, and the address with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub title: &'static str,
    pub address: String,
    pub is_on: bool,
}

impl Asked {
    /// As the parameters of a request have it. Times are more than a word.
    pub fn of(params: &Params) -> Self {
        let option = |name: &str| text(params.options.get(name)).trim().to_owned();
        let (since, until, word) = (option("created_since"), option("created_until"), option("created"));
        if !since.is_empty() || !until.is_empty() {
            return Self { word: String::new(), since, until };
        }
        // What is none of the words is a time, or wrong. It is not left out: more tasks would be found than are meant.
        let is_known = word.is_empty() || WORDS.iter().any(|(known, _)| *known == word);
        if is_known { Self::word(&word) } else { Self { since: word, ..Self::default() } }
    }

    /// With this word and no times.
    pub fn word(word: &str) -> Self {
        Self { word: word.to_owned(), ..Self::default() }
    }

    /// Whether any time is meant.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// The words, each as what it makes of this search.
    pub fn choices(&self, address: impl Fn(Self) -> String) -> Vec<Choice> {
        let any = [("", "any time")];
        let choice = |(word, title): (&'static str, &'static str)| {
            let asked = Self::word(word);
            Choice { title, is_on: *self == asked, address: address(asked) }
        };
        any.into_iter().chain(WORDS).map(choice).collect()
    }

    /// As addresses have it.
    pub fn pairs(&self) -> [(String, String); 3] {
        let pair = |name: &str, value: &String| (name.to_owned(), value.clone());
        [
            pair(".created", &self.word),
            pair(".created_since", &self.since),
            pair(".created_until", &self.until),
        ]
    }

    /// The options of the REST API that ask for the same.
    pub fn put_into(&self, params: &mut Params, now: DateTime) {
        params.options.remove("created");
        let (since, until) = match self.word.as_str() {
            "hour" => (Some(before(now, DAY / 24)), None),
            "today" => (Some(midnight(now)), None),
            "yesterday" => {
                let today = midnight(now);
                (Some(midnight(before(today, DAY / 2))), Some(today))
            }
            "week" => (Some(before(now, 7 * DAY)), None),
            _ => {
                for (name, value) in [("created_since", &self.since), ("created_until", &self.until)] {
                    // What is no time of the reader's is an age, or wrong.
                    let at = time(name, value).and_then(date_text).map(|text| format!("{text}Z"));
                    params.options.insert(name.to_owned(), at.unwrap_or_else(|| value.clone()).into());
                }
                return;
            }
        };
        for (name, at) in [("created_since", since), ("created_until", until)] {
            let at = at.and_then(date_text).map_or(Value::Null, |text| format!("{text}Z").into());
            params.options.insert(name.to_owned(), at);
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
            (None, since, "") => format!("created since {}", plain(since)),
            (None, "", until) => format!("created before {}", plain(until)),
            (None, since, until) => format!("created {} to {}", plain(since), plain(until)),
        }
    }
}

fn before(at: DateTime, millis: i64) -> DateTime {
    DateTime::from_millis(at.timestamp_millis().saturating_sub(millis))
}

/// The beginning of a day in the zone of the reader.
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
pub fn field(given: &str) -> String {
    time("created", given).map(|at| zone::clock(at).replace(' ', "T")).unwrap_or_default()
}

/// A time for people.
pub fn plain(given: &str) -> String {
    time("created", given).map_or_else(|| given.to_owned(), zone::clock)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344); // 2026-11-20T08:24:27.344Z

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
