//! The next times of a schedule: as a picture, where changes of the clock are marked, and as a table.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::schedules::{Occurrence, Spec};

use super::words::{clock, utc};
use crate::schedules::offset;
use crate::ui::parts::When;

/// Where the picture begins and ends, in its own units.
const ENDS: (i64, i64) = (8, 992);

/// Texts are at least so far apart.
const APART: i64 = 150;

/// Behind this a text ends where it would begin.
const LATE: i64 = 860;

/// So many changes of the clock are marked. There are two in a year at most, where the clock is changed for summer.
const MOST_CHANGES: usize = 60;

/// The picture, and the table.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "schedules/timeline.html")]
pub struct Timeline {
    zone: String,
    /// The picture in words.
    words: String,
    marks: Vec<Mark>,
    changes: Vec<ChangeMark>,
    rows: Vec<Row>,
}

impl HtmlSafe for Timeline {}

/// A time in the picture.
#[derive(Debug, Clone, PartialEq)]
struct Mark {
    left: i64,
    title: String,
    /// What stands below it, where there is room.
    text: Option<String>,
    at_end: bool,
}

/// A change of the clock in the picture.
#[derive(Debug, Clone, PartialEq)]
struct ChangeMark {
    left: i64,
    /// From what to what, where there is room.
    text: Option<String>,
    at_end: bool,
}

/// A time in the table.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    when: When,
    local: String,
    offset: String,
    utc: String,
    /// What the clock has to do with it.
    notes: Vec<&'static str>,
}

/// Puts times into the picture, which begins now.
struct Scale {
    now: i64,
    span: i64,
    /// Where the last text stands.
    last: Option<i64>,
}

impl Timeline {
    /// That of the next times, as of now.
    pub fn of(spec: &Spec, times: &[Occurrence], now: DateTime) -> Self {
        let zone = spec.zone.name().to_owned();
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            let words = "It makes no more tasks by itself: no time is left.".to_owned();
            return Self { zone, words, ..Self::default() };
        };
        let changes = spec.zone.changes(now, last.time, MOST_CHANGES);
        let mut scale = Scale::of(now, first.time, last.time);
        let marks = times.iter().map(|time| mark(time, &mut scale)).collect();
        scale.last = None;
        let marked = changes.iter().map(|change| {
            let left = scale.place(change.at);
            let text = format!("clock {} → {}", offset(change.before), offset(change.after));
            ChangeMark { left, text: scale.has_room(left).then_some(text), at_end: left > LATE }
        });
        let changes: Vec<ChangeMark> = marked.collect();
        let mut before = offset(spec.zone.offset(now));
        Self {
            words: words(spec, times, changes.len()),
            marks,
            changes,
            rows: times.iter().map(|time| row(time, &mut before)).collect(),
            zone,
        }
    }
}

impl Scale {
    fn of(now: DateTime, first: DateTime, last: DateTime) -> Self {
        let [now, first, last] = [now, first, last].map(DateTime::timestamp_millis);
        // The page is told of a picture that has changed, which it is not to be each second.
        let step = (last.saturating_sub(first) / 50).max(1_000);
        let now = now - now.rem_euclid(step);
        Self { now, span: last.saturating_sub(now).max(1), last: None }
    }

    fn place(&self, at: DateTime) -> i64 {
        let (begin, end) = ENDS;
        let since = at.timestamp_millis().saturating_sub(self.now).clamp(0, self.span);
        let left = i128::from(since) * i128::from(end - begin) / i128::from(self.span);
        begin + i64::try_from(left).unwrap_or(end - begin)
    }

    /// Whether there is room for a text, which stands there then.
    fn has_room(&mut self, left: i64) -> bool {
        let has = self.last.is_none_or(|last| left - last >= APART);
        if has {
            self.last = Some(left);
        }
        has
    }
}

fn mark(time: &Occurrence, scale: &mut Scale) -> Mark {
    let left = scale.place(time.time);
    let local = clock(&time.local);
    let text = local.get(5..).unwrap_or_default().to_owned();
    Mark {
        left,
        title: format!("{local}, {} UTC", utc(time.time)),
        text: scale.has_room(left).then_some(text),
        at_end: left > LATE,
    }
}

fn row(time: &Occurrence, before: &mut String) -> Row {
    let offset = time.local.get(19..).unwrap_or_default().to_owned();
    let is_other = offset != *before;
    before.clone_from(&offset);
    let notes =
        [(is_other, "clock changed"), (time.moved, "moved by the clock"), (time.twice, "comes twice")];
    Row {
        when: When::at(time.time),
        local: clock(&time.local),
        offset,
        utc: utc(time.time),
        notes: notes.into_iter().filter(|(is, _)| *is).map(|(_, note)| note).collect(),
    }
}

fn words(spec: &Spec, times: &[Occurrence], changes: usize) -> String {
    let zone = spec.zone.name();
    let mut words = match times {
        [] => String::new(),
        [one] => format!("The next time, and the last one, is {} in {zone}.", clock(&one.local)),
        [first, .., last] => {
            let count = times.len();
            format!(
                "The next {count} times are from {} to {} in {zone}.",
                clock(&first.local),
                clock(&last.local)
            )
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

    fn at(text: &str) -> DateTime {
        DateTime::parse_rfc3339_str(text).unwrap()
    }

    fn of(fields: bson::Document, now: &str, limit: usize) -> Timeline {
        let spec = Spec::read(&fields).unwrap();
        let times = spec.preview(None, &Calendars::default(), at(now), limit);
        Timeline::of(&spec, &times, at(now))
    }

    fn rows(timeline: &Timeline) -> Vec<(&str, &str, &[&str])> {
        timeline
            .rows
            .iter()
            .map(|row| (row.local.as_str(), row.offset.as_str(), row.notes.as_slice()))
            .collect()
    }

    #[test]
    fn changes_of_the_clock_are_marked() {
        let berlin = doc! { "cron": "30 2 * * *", "zone": "Europe/Berlin" };
        let timeline = of(berlin, "2027-03-27T00:00:00Z", 3);
        assert_eq!(
            rows(&timeline),
            [
                ("2027-03-27 02:30:00", "+01:00", &[][..]),
                ("2027-03-28 03:00:00", "+02:00", &["clock changed", "moved by the clock"]),
                ("2027-03-29 02:30:00", "+02:00", &[]),
            ]
        );
        assert_eq!(timeline.changes.len(), 1);
        assert_eq!(timeline.changes[0].text.as_deref(), Some("clock +01:00 → +02:00"));
        assert_eq!(
            timeline.words,
            "The next 3 times are from 2027-03-27 02:30:00 to 2027-03-29 02:30:00 in Europe/Berlin. \
             The clock is changed once meanwhile."
        );
        let html = timeline.render().unwrap();
        for part in [
            "aria-label=\"The next 3 times",
            "<circle",
            "<th scope=\"col\">In Europe/Berlin</th>",
            "clock changed",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("<circle").count(), 3, "{html}");
    }

    #[test]
    fn everything_is_within_the_picture_and_texts_are_apart() {
        let often = of(doc! { "cron": "* * * * *", "jitter": 5 }, "2026-11-20T08:24:27Z", 20);
        assert!(often.marks.iter().all(|mark| (ENDS.0..=ENDS.1).contains(&mark.left)), "{often:?}");
        let told: Vec<i64> =
            often.marks.iter().filter(|mark| mark.text.is_some()).map(|mark| mark.left).collect();
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= APART), "{told:?}");
        assert!(often.words.ends_with("Each may be up to 5 s later."), "{}", often.words);
        let rare = of(doc! { "cron": "@yearly", "zone": "America/New_York" }, "2026-11-20T08:24:27Z", 20);
        assert!(rare.changes.len() > 30 && rare.changes.iter().all(|change| change.left <= ENDS.1));
    }

    #[test]
    fn the_picture_does_not_change_each_second() {
        let of = |now: &str| of(doc! { "cron": "0 * * * *" }, now, 20).marks;
        assert_eq!(of("2026-11-20T08:24:27Z"), of("2026-11-20T08:24:29Z"));
        assert_ne!(of("2026-11-20T08:24:27Z"), of("2026-11-20T08:54:27Z"));
    }

    #[test]
    fn what_is_over_says_so() {
        let over = doc! { "cron": "@daily", "end": at("2026-11-20T00:00:00Z") };
        let timeline = of(over, "2026-11-20T08:24:27Z", 20);
        let html = timeline.render().unwrap();
        assert!(html.contains("no time is left") && !html.contains("<svg"), "{html}");
        let last = doc! { "cron": "@daily", "end": at("2026-11-21T00:00:00Z") };
        let words = of(last, "2026-11-20T08:24:27Z", 20).words;
        assert_eq!(words, "The next time, and the last one, is 2026-11-21 00:00:00 in UTC.");
    }
}
