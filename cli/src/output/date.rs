//! Times for people.

use serde_json::Value;

use crate::output::plain;

/// Milliseconds since 1970 as the DCI writes other times; anything else as it is.
pub fn date(value: Option<&Value>) -> String {
    let Some(millis) = value.and_then(Value::as_i64) else { return plain(value) };
    let seconds = millis.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // From 0000-03-01.
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_dates() {
        for (millis, text) in [
            (json!(1_795_163_066_819_i64), "2026-11-20T08:24:26"),
            (json!(0), "1970-01-01T00:00:00"),
            (json!(-1), "1969-12-31T23:59:59"),
            (json!(951_782_400_000_i64), "2000-02-29T00:00:00"),
            (json!("x"), "x"),
            (Value::Null, ""),
        ] {
            assert_eq!(date(Some(&millis)), text);
        }
    }
}
