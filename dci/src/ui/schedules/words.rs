//! Times and outcomes of schedules for people, and the next times of one, each on a line, with what the clocks have to do with it.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::model::Status;
use disbatch_core::schedules::{CronExpr, Occurrence, Schedule, Spec, Zone};

use crate::json::date_text;
use crate::schedules::offset;
use crate::ui;
use crate::ui::parts::{Pill, When};

/// What a clock shows, of a time with its offset: `2026-03-29 03:00:00`.
pub fn clock(local: &str) -> String {
    local.get(..19).unwrap_or(local).replace('T', " ")
}

/// A time in UTC: `2026-03-29 01:00:00`.
pub fn utc(at: DateTime) -> String {
    date_text(at).map_or_else(|| at.to_string(), |text| text.replace('T', " "))
}

/// A time as the clocks of a zone show it, with the name of the zone.
pub fn there(zone: &Zone, at: DateTime) -> String {
    format!("{} {}", clock(&zone.local(at)), zone.name())
}

/// What its expressions mean. `None`: words are no easier to read.
pub fn meaning(spec: &Spec) -> Option<String> {
    let words: Vec<String> = spec.cron.iter().map(CronExpr::words).collect::<Option<_>>()?;
    Some(words.join("; ")).filter(|words| !words.is_empty())
}

/// Whether a schedule makes tasks by itself.
pub fn state(schedule: &Schedule) -> Pill {
    match (schedule.paused, schedule.next) {
        _ if schedule.settings.spec.is_manual() => Pill { tone: "held", word: "manual" },
        (true, _) => Pill { tone: "paused", word: "paused" },
        (false, Some(_)) => Pill { tone: "alive", word: "active" },
        (false, None) => Pill { tone: "ended", word: "over" },
    }
}

/// When its next time comes, on the clocks of its zone.
pub fn next_there(schedule: &Schedule, now: &DateTime) -> String {
    let zone = &schedule.settings.spec.zone;
    let there = |next| format!("{} {}", zone.day_and_time(next, *now), zone.name());
    schedule.next.map(there).unwrap_or_default()
}

/// Its expressions on one line.
pub fn cron(schedule: &Schedule) -> String {
    let spec = &schedule.settings.spec;
    if spec.is_manual() {
        return "only when somebody asks".to_owned();
    }
    spec.cron.iter().map(CronExpr::text).collect::<Vec<_>>().join("; ")
}

/// What became of a time, as a symbol and a word.
pub fn outcome(outcome: &str) -> Pill {
    const WORDS: [(&str, &str); 7] = [
        ("finished", "finished"),
        // Its task is on its way.
        ("fired", "info"),
        ("skipped", "held"),
        ("missed", "bad"),
        ("no queue", "bad"),
        ("refused", "bad"),
        ("wrong params", "bad"),
    ];
    if let Some(status) = Status::from_word(outcome).filter(|status| status.has_ended()) {
        return Pill { tone: status.word(), word: ui::word(status) };
    }
    let known = WORDS.into_iter().find(|(word, _)| *word == outcome);
    known.map_or(Pill { tone: "ended", word: "ended" }, |(word, tone)| Pill { tone, word })
}

/// So many times are shown; the others are folded.
const FIRST: usize = 8;

/// So many changes of the clock are counted. There are two in a year at most, where the clock is changed for summer.
const MOST_CHANGES: usize = 60;

/// The times, and what they mean together.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "schedules/timeline.html")]
pub struct Timeline {
    meaning: String,
    words: String,
    rows: Vec<Row>,
}

impl HtmlSafe for Timeline {}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    when: When,
    /// What the clocks of the zone show.
    local: String,
    /// What the clocks have to do with it.
    notes: Vec<String>,
}

impl Timeline {
    /// That of the next times, as of now.
    pub fn of(spec: &Spec, times: &[Occurrence], now: DateTime) -> Self {
        let Some(last) = times.last() else {
            let words = "It makes no more tasks by itself: no time is left.".to_owned();
            return Self { words, ..Self::default() };
        };
        let changes = spec.zone.changes(now, last.time, MOST_CHANGES).len();
        let mut before = offset(spec.zone.offset(now));
        let rows = times.iter().map(|time| {
            let offset = time.local.get(19..).unwrap_or_default().to_owned();
            let is_other = offset != before;
            let notes = [
                is_other.then(|| format!("clocks changed: UTC{before} → UTC{offset}")),
                time.moved.then(|| "DST gap: moved".to_owned()),
                time.twice.then(|| "DST overlap: comes twice".to_owned()),
            ];
            before = offset;
            Row {
                when: When::at(time.time),
                local: spec.zone.day_and_time(time.time, now),
                notes: notes.into_iter().flatten().collect(),
            }
        });
        let rows = rows.collect();
        Self { meaning: meaning(spec).unwrap_or_default(), words: told(spec, times, now, changes), rows }
    }

    fn first(&self) -> &[Row] {
        self.rows.get(..FIRST).unwrap_or(&self.rows)
    }

    fn further(&self) -> &[Row] {
        self.rows.get(FIRST..).unwrap_or_default()
    }
}

fn told(spec: &Spec, times: &[Occurrence], now: DateTime, changes: usize) -> String {
    let zone = spec.zone.name();
    let at = |time: &Occurrence| spec.zone.day_and_time(time.time, now);
    let mut words = match times {
        [] => String::new(),
        [one] => format!("The next time, and the last one, is {} in {zone}.", at(one)),
        [first, .., last] => {
            format!("The next {} times are from {} to {} in {zone}.", times.len(), at(first), at(last))
        }
    };
    match changes {
        0 => {}
        1 => words.push_str(" The clock is changed once meanwhile."),
        changes => words.push_str(&format!(" The clock is changed {changes} times meanwhile.")),
    }
    if !spec.jitter.is_zero() {
        words.push_str(&format!(" Each may be up to {} s later.", spec.jitter.as_secs()));
    }
    words
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::schedules::Calendars;

    use super::*;

    #[test]
    fn times_are_told_as_clocks_show_them() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(utc(at), "2026-11-20 08:24:27");
        assert_eq!(there(&berlin, at), "2026-11-20 09:24:27 Europe/Berlin");
        assert_eq!(clock("soon"), "soon");
    }

    #[test]
    fn outcomes_have_words_and_what_is_not_known_has_ended() {
        assert_eq!((outcome("failed").word, outcome("failed").tone), ("failed", "failed"));
        assert_eq!((outcome("missed").word, outcome("missed").tone), ("missed", "bad"));
        assert_eq!((outcome("no queue").word, outcome("refused").tone), ("no queue", "bad"));
        assert_eq!([outcome("orphaned").word, outcome("terminated").word], ["lost", "ended early"]);
        assert_eq!(outcome("<odd>").word, "ended");
    }

    fn at(text: &str) -> DateTime {
        DateTime::parse_rfc3339_str(text).unwrap()
    }

    fn of(fields: bson::Document, now: &str, limit: usize) -> Timeline {
        let spec = Spec::read(&fields).unwrap();
        let times = spec.preview(None, &Calendars::default(), at(now), limit);
        Timeline::of(&spec, &times, at(now))
    }

    #[test]
    fn changes_of_the_clock_are_told() {
        let berlin = doc! { "cron": "30 2 * * *", "zone": "Europe/Berlin" };
        let timeline = of(berlin, "2027-03-27T00:00:00Z", 3);
        let rows: Vec<(&str, String)> =
            timeline.rows.iter().map(|row| (row.local.as_str(), row.notes.join(", "))).collect();
        assert_eq!(
            rows,
            [
                ("Sat 27 Mar 02:30", String::new()),
                ("Sun 28 Mar 03:00", "clocks changed: UTC+01:00 → UTC+02:00, DST gap: moved".to_owned()),
                ("Mon 29 Mar 02:30", String::new()),
            ]
        );
        assert_eq!(timeline.meaning, "At 02:30 every day");
        assert_eq!(
            timeline.words,
            "The next 3 times are from Sat 27 Mar 02:30 to Mon 29 Mar 02:30 in Europe/Berlin. \
             The clock is changed once meanwhile."
        );
        let html = timeline.render().unwrap();
        for part in ["At 02:30 every day", "Sat 27 Mar 02:30", "DST gap", "datetime=\"2027-03-28T01:00:00Z\""]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<details"), "{html}");
        let fold = doc! { "cron": "30 2 * * *", "zone": "Europe/Berlin", "fold": "both" };
        let html = of(fold, "2026-10-24T12:00:00Z", 2).render().unwrap();
        assert_eq!(html.matches("DST overlap").count(), 2, "{html}");
    }

    #[test]
    fn further_times_are_folded() {
        let often = of(doc! { "cron": "* * * * *", "jitter": 5 }, "2026-11-20T08:24:27Z", 20);
        let html = often.render().unwrap();
        assert!(html.contains("<summary>12 more</summary>") && html.matches("<li").count() == 20, "{html}");
        assert!(often.words.ends_with("Each may be up to 5 s later."), "{}", often.words);
    }

    #[test]
    fn what_is_over_says_so() {
        let over = doc! { "cron": "@daily", "end": at("2026-11-20T00:00:00Z") };
        let html = of(over, "2026-11-20T08:24:27Z", 20).render().unwrap();
        assert!(html.contains("no time is left") && !html.contains("<ol"), "{html}");
        let last = doc! { "cron": "@daily", "end": at("2026-11-21T00:00:00Z") };
        let words = of(last, "2026-11-20T08:24:27Z", 20).words;
        assert_eq!(words, "The next time, and the last one, is Sat 21 Nov 00:00 in UTC.");
    }
}
