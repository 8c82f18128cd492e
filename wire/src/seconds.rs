//! Lengths of time as people write and read them: `90`, `90s`, `5m`, `2h`, `7d`.

use std::time::Duration;

use serde_json::Value;

/// Longer than this is a mistake: a hundred years.
const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;

/// Reads a length of time. Without a unit it is in seconds; fractions are allowed.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no length of time: write 90, 90s, 5m, 2h or 7d");
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3_600.0),
        Some((at, 'd')) => (&text[..at], 86_400.0),
        _ => (text, 1.0), // No unit; what is no number is complained about below.
    };
    // Rust also reads "inf" and "1e3".
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    if seconds > LONGEST {
        return Err(format!("'{text}' is more than a hundred years"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Seconds as the API takes them: whole ones as an integer.
pub fn value(time: Duration) -> Value {
    if time.subsec_nanos() == 0 { time.as_secs().into() } else { time.as_secs_f64().into() }
}

/// A length of time for people: `850 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `7 d 1 h`.
pub fn words(seconds: f64) -> String {
    let Ok(time) = Duration::try_from_secs_f64(seconds) else { return format!("{seconds} s") };
    let whole = time.as_secs();
    let two = |large: u64, unit: &str, small: u64, smaller: &str| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {smaller}") }
    };
    match whole {
        0 => format!("{} ms", time.as_millis()),
        1..60 if time.subsec_millis() == 0 => format!("{whole} s"),
        1..60 => format!("{seconds:.1} s"),
        60..3_600 => two(whole / 60, "min", whole % 60, "s"),
        3_600..86_400 => two(whole / 3_600, "h", whole / 60 % 60, "min"),
        _ => two(whole / 86_400, "d", whole / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units() {
        for (text, seconds) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("5m", 300.0),
            ("2h", 7_200.0),
            ("7d", 604_800.0),
            ("1.5h", 5_400.0),
            ("0", 0.0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "-1", "1w", "5 m", "inf", "1e3", ".", "1.2.3", "99999999d", "5µ"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn whole_seconds_are_integers() {
        assert_eq!(value(Duration::from_secs(90)).to_string(), "90");
        assert_eq!(value(Duration::from_millis(1_500)).to_string(), "1.5");
    }

    #[test]
    fn people_read_two_units() {
        for (seconds, text) in [
            (0.85, "850 ms"),
            (4.2, "4.2 s"),
            (5.0, "5 s"),
            (200.0, "3 min 20 s"),
            (7_500.0, "2 h 5 min"),
            (604_800.0, "7 d"),
        ] {
            assert_eq!(words(seconds), text);
        }
    }
}
