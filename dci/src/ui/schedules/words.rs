//! Times and outcomes of schedules for people.

use bson::DateTime;
use disbatch_core::model::Status;
use disbatch_core::schedules::{CronExpr, Last, LastSuccess, Schedule, Spec, Zone};

use crate::json::date_text;
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

/// A time that is near as the clocks of a zone show it: `Mon 23 Nov 03:30`.
pub fn soon(zone: &Zone, at: DateTime, now: DateTime) -> String {
    zone.day_and_time(at, now)
}

/// What its expressions mean. `None`: words are no easier to read.
pub fn meaning(spec: &Spec) -> Option<String> {
    let words: Vec<String> = spec.cron.iter().map(CronExpr::words).collect::<Option<_>>()?;
    Some(words.join("; ")).filter(|words| !words.is_empty())
}

pub fn when(at: Option<DateTime>) -> When {
    at.map(When::at).unwrap_or_default()
}

/// A number that is not below 0.
pub fn count(number: &i64) -> u64 {
    u64::try_from(*number).unwrap_or(0)
}

/// When it was decided what becomes of a time.
pub fn decided(last: &Last) -> When {
    When::at(last.at)
}

/// When a run ended that succeeded.
pub fn succeeded(success: &LastSuccess) -> When {
    When::at(success.finish)
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
    schedule.next.map(|next| format!("{} {}", soon(zone, next, *now), zone.name())).unwrap_or_default()
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
    const WORDS: [(&str, &str); 12] = [
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("terminated", "terminated"),
        ("orphaned", "orphaned"),
        ("finished", "finished"),
        // Its task is on its way.
        ("fired", "info"),
        ("skipped", "held"),
        ("missed", "bad"),
        ("no queue", "bad"),
        ("refused", "bad"),
        ("wrong params", "bad"),
    ];
    let known = WORDS.into_iter().find(|(word, _)| *word == outcome);
    known.map_or(Pill { tone: "ended", word: "ended" }, |(word, tone)| {
        let status = [Status::Terminated, Status::Orphaned].into_iter().find(|status| status.word() == word);
        Pill { tone, word: status.map_or(word, ui::word) }
    })
}

#[cfg(test)]
mod tests {
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
}
