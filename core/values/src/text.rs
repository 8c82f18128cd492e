//! Text that others have written, where people read it.

/// Whether a character is none that is read, but changes how others are shown: control characters, those that turn the
/// direction of what follows, and those that cannot be seen. The two joiners are not among them, which scripts and pictures
/// are made with.
pub fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text with all such characters written as in Rust, as `\n` or `\u{202e}`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// So many percent for people, with at most so many decimal places: `33.3 %`. There is no negative zero.
pub fn percent(percent: f64, places: i32) -> String {
    format!("{} %", rounded(percent, places))
}

/// A change by so many percent, with its sign: `+5 %`.
pub fn percent_more(percent: f64) -> String {
    format!("{:+} %", rounded(percent, 0))
}

fn rounded(number: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (number * scale).round() / scale + 0.0 // Which is what -0 lacks.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_neither_more_nor_less() {
        let places = [0, 1, 2].map(|places| percent(100.0 / 3.0, places));
        assert_eq!(places, ["33 %", "33.3 %", "33.33 %"]);
        assert_eq!([percent(-0.04, 1), percent(50.0, 2), percent(0.07 * 100.0, 2)], ["0 %", "50 %", "7 %"]);
        let changes = [-0.4, 0.4, -5.0, 1900.0].map(percent_more);
        assert_eq!(changes, ["+0 %", "+0 %", "-5 %", "+1900 %"]);
    }

    #[test]
    fn what_turns_text_or_moves_a_cursor_is_escaped() {
        assert_eq!(escaped("a\u{1b}[2J\n\u{202e}b\u{2066}\u{9b}"), r"a\u{1b}[2J\n\u{202e}b\u{2066}\u{9b}");
        let plain = "é \"quoted\" \u{1f468}\u{200d}\u{1f469} \u{0646}\u{200c}\u{0647}";
        assert_eq!(escaped(plain), plain, "people write so");
        for c in [
            '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{61c}', '\u{feff}', '\0', '\u{7f}',
        ] {
            assert!(is_odd(c), "{c:?}");
        }
    }
}
