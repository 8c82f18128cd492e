//! What values mean that are in the database, whoever has written them. They are kept as they were read, so that writing them back changes
//! nothing.

use bson::{Bson, DateTime};

/// The integer that `value` holds: any integer type, or a double without a fraction.
pub fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        #[expect(clippy::cast_possible_truncation, reason = "checked: no fraction, within 2^53")]
        Bson::Double(n) if n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0 => Some(*n as i64),
        _ => None, // Every other type is no number.
    }
}

/// A name as text; what else somebody has stored as one, a number for instance, is written out.
pub fn as_text(value: &Bson) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The number that `value` holds, of any numeric type.
pub fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        #[expect(clippy::cast_precision_loss, reason = "seconds and counts far below 2^53")]
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None, // Every other type is no number.
    }
}

/// A number of things to allow, `threads` or `maxthreads`, as Perl would compare it: `None` for null, numbers below zero as 0, text by its
/// leading digits, `true` as 1, too large as the largest.
///
/// Perl clients store it as an integer, as text ("2"), as `true`, or as a number beyond 64 bits.
pub fn count(value: &Bson) -> Option<u64> {
    match value {
        Bson::Null | Bson::Undefined => None,
        Bson::Boolean(flag) => Some(u64::from(*flag)),
        Bson::Int32(n) => Some(u64::try_from(*n).unwrap_or(0)),
        Bson::Int64(n) => Some(u64::try_from(*n).unwrap_or(0)),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, which is what is wanted"
        )]
        Bson::Double(n) => Some(*n as u64),
        Bson::String(text) => Some(leading_number(text)),
        _ => Some(0), // No other type is a number of anything: allow nothing.
    }
}

fn leading_number(text: &str) -> u64 {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    // Only too many digits can fail here once there is at least one.
    if digits == 0 { 0 } else { text[..digits].parse().unwrap_or(u64::MAX) }
}

/// A point in time: a date, or epoch seconds as an integer in documents of old releases.
pub fn date_time(value: &Bson) -> Option<DateTime> {
    match value {
        Bson::DateTime(at) => Some(*at),
        #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
        Bson::Double(seconds) => Some(DateTime::from_millis((seconds * 1000.0) as i64)),
        other => integer(other).map(|seconds| DateTime::from_millis(seconds.saturating_mul(1000))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_mean_what_perl_takes_them_for() {
        let cases = [
            (Bson::Null, None),
            (Bson::Int32(2), Some(2)),
            (Bson::Int64(99_999_999_999), Some(99_999_999_999)),
            (Bson::Int32(-1), Some(0)),
            (Bson::from("2"), Some(2)),
            (Bson::from("3\n"), Some(3)),
            (Bson::from("99999999999999999999999"), Some(u64::MAX)),
            (Bson::from("abc"), Some(0)),
            (Bson::Boolean(true), Some(1)),
            (Bson::Boolean(false), Some(0)),
            (Bson::Double(1e23), Some(u64::MAX)),
            (Bson::from(bson::doc! {}), Some(0)),
        ];
        for (stored, meaning) in cases {
            assert_eq!(count(&stored), meaning, "{stored:?}");
        }
    }

    #[test]
    fn moments_are_dates_or_epoch_seconds() {
        let at = DateTime::from_millis(1_795_163_380_000);
        assert_eq!(date_time(&at.into()), Some(at));
        assert_eq!(date_time(&Bson::Int32(1_795_163_380)), Some(at));
        assert_eq!(date_time(&Bson::Int64(1_795_163_380)), Some(at));
        assert_eq!(date_time(&Bson::from("yesterday")), None);
    }
}
