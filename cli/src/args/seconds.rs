//! Lengths of time as people write and read them.

use std::time::Duration;

pub use disbatch_wire::seconds::{parse, value};

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
