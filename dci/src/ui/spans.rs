//! Lengths of time as people read them, as exactly as they want to know.

use bson::Document;
use disbatch_core::model::Moment;

/// Milliseconds in at most two units: `0.02 s`, `12.3 s`, `3 min 5 s`, `2 h 5 min`, `3 d 4 h`.
pub fn precise(millis: i64) -> String {
    let millis = millis.max(0).unsigned_abs();
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3600, seconds % 3600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) if millis < 1000 => format!("0.{:02} s", millis / 10),
        (0, 0, 0) => format!("{seconds}.{} s", millis % 1000 / 100),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A limit in seconds, in its two largest units at most, as people set it: `2 h`, `90 s`.
pub fn limit(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
    let whole = seconds as u64;
    if seconds < 120.0 {
        return format!("{seconds} s");
    }
    let units = [(86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")];
    let fits = |(large, ..): &(u64, u64, &str, &str)| whole >= *large;
    let (large, small, one, other) = units.into_iter().find(fits).unwrap_or((60, 1, "min", "s"));
    match whole % large / small {
        0 => format!("{} {one}", whole / large),
        rest => format!("{} {one} {rest} {other}", whole / large),
    }
}

/// How long a task waited from when its first attempt could have started until its last one did.
pub fn waited(task: &Document) -> Option<String> {
    let at = |field: &str| task.get(field).and_then(|value| Moment(value.clone()).get());
    let ready = at("run_at").max(at("ctime"))?.timestamp_millis();
    Some(precise(at("started")?.timestamp_millis().saturating_sub(ready)))
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn a_task_waits_from_when_it_could_start() {
        let at = |ms: i64| DateTime::from_millis(1_795_163_067_344 + ms);
        let of = |task: Document| waited(&task);
        assert_eq!(of(doc! { "ctime": at(0), "started": at(5_000) }), Some("5.0 s".into()));
        assert_eq!(
            of(doc! { "ctime": at(0), "run_at": at(4_000), "started": at(5_000) }),
            Some("1.0 s".into())
        );
        assert_eq!(of(doc! { "ctime": at(9_000), "started": at(5_000) }), Some("0.00 s".into()));
        assert_eq!(of(doc! { "ctime": at(0) }), None);
        assert_eq!(of(doc! { "ctime": "then", "started": at(0) }), None);
    }

    #[test]
    fn limits_are_as_people_set_them() {
        let words = [5.0, 0.5, 90.0, 120.0, 7_200.0, 7_260.0, 90_061.0].map(limit);
        assert_eq!(words, ["5 s", "0.5 s", "90 s", "2 min", "2 h", "2 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn lengths_have_two_units_at_most() {
        let lengths = [-5, 0, 27, 1_000, 12_345, 61_000, 3_700_000, 90_000_000, i64::MAX];
        let texts = lengths.map(precise);
        let expected = ["0.00 s", "0.00 s", "0.02 s", "1.0 s", "12.3 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"];
        assert_eq!(texts[..8], expected);
        assert!(texts[8].ends_with(" h"), "{}", texts[8]);
    }
}
