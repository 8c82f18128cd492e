//! The terminal: what there is of it, and what it may be told. What tasks write, and names and reasons that others have given, must not move
//! its cursor, change its title, or have it answer in the place of whoever looks at it.

use std::io::{self, IsTerminal, Write};

use console::Term;
use disbatch_values::text::is_odd;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Screen {
    /// Rows and columns, if it is a terminal.
    pub size: Option<(usize, usize)>,
    pub colour: bool,
}

impl Screen {
    /// Standard output as it is now; its size may change at any time.
    pub fn of_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::default();
        }
        let (rows, columns) = Term::stdout().size();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let colour = set("NO_COLOR").is_none() && set("TERM").is_none_or(|kind| kind != "dumb");
        Self { size: Some((rows.into(), columns.into())), colour }
    }

    pub fn bold(self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The text in place of what the terminal shows, as far as there is room; as it is if there is no terminal.
    pub fn replace(self, text: &str) -> String {
        let Some((rows, _)) = self.size else { return text.to_owned() };
        let lines: Vec<&str> = text.lines().take(rows.saturating_sub(1)).collect();
        // Line by line, so that nothing flickers: home, each line cleared to its end, then all below.
        format!("\x1b[H{}\x1b[J", lines.iter().map(|line| format!("{line}\x1b[K\n")).collect::<String>())
    }
}

/// Whether standard output is a terminal that can show more than ASCII.
pub fn shows_marks() -> bool {
    std::io::stdout().is_terminal() && is_utf8(|name| std::env::var(name).ok())
}

/// The first of these variables that is not empty counts (POSIX, 8.2).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|text| !text.is_empty()));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// What stands for a control character, or one that changes how others are shown.
const REPLACED: char = '\u{fffd}';

/// Colours are told by shorter sequences.
const LONGEST_COLOUR: usize = 64;

const NO_COLOUR: &[u8] = b"\x1b[0m";

pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_odd(c) { REPLACED } else { c }).collect()
}

/// Text that may have several lines, without all other control characters.
pub fn visible_lines(text: &str) -> String {
    let controls = |c: char| is_odd(c) && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if controls(c) { REPLACED } else { c }).collect()
}

/// The same JSON, with what it has left as it is of control characters escaped.
pub fn escaped_json(json: &str) -> String {
    let escape = |c: char| match c {
        // Those of ASCII are escaped in any case, or mean lines.
        c if is_odd(c) && c > '~' => {
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        c => c.to_string(),
    };
    json.chars().map(escape).collect()
}

/// Where a task's output goes: byte for byte, but to a terminal as text and colours. There, whatever else would control it
/// is written so that it can be read.
#[derive(Debug)]
pub struct TaskOutput {
    to_stderr: bool,
    /// None: all bytes go as they are.
    tamer: Option<Tamer>,
}

impl TaskOutput {
    /// To standard error or standard output. With `raw`, also a terminal gets every byte.
    pub fn new(to_stderr: bool, raw: bool) -> Self {
        let is_terminal = if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        Self { to_stderr, tamer: (is_terminal && !raw).then(Tamer::default) }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tamer {
            None => write(bytes, self.to_stderr),
            Some(tamer) => write(&tamer.take(bytes), self.to_stderr),
        }
    }
}

impl Drop for TaskOutput {
    /// Writes what may have been the beginning of something, and ends colours that the task has left on.
    fn drop(&mut self) {
        if let Some(tamer) = &mut self.tamer {
            let _nobody_looks = write(&tamer.end(), self.to_stderr);
        }
    }
}

fn write(bytes: &[u8], to_stderr: bool) -> io::Result<()> {
    fn all(mut out: impl Write, bytes: &[u8]) -> io::Result<()> {
        out.write_all(bytes)?;
        out.flush()
    }
    if to_stderr { all(io::stderr().lock(), bytes) } else { all(io::stdout().lock(), bytes) }
}

#[derive(Debug, Default)]
struct Tamer {
    /// What may be the beginning of a colour or of a character.
    held: Vec<u8>,
    coloured: bool,
}

/// What bytes begin with, and how long that is.
enum First {
    Text(usize),
    Colour(usize),
    Odd(usize),
    Open,
}

impl Tamer {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut tame = Vec::with_capacity(all.len());
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let first = First::of(rest);
            let (First::Text(length) | First::Colour(length) | First::Odd(length)) = first else {
                self.held = rest.to_vec();
                break;
            };
            let (piece, after) = rest.split_at(length);
            if matches!(first, First::Colour(_)) {
                self.coloured = !is_reset(piece);
            }
            if matches!(first, First::Odd(_)) {
                tame.extend(readable(piece).into_bytes());
            } else {
                tame.extend_from_slice(piece);
            }
            rest = after;
        }
        tame
    }

    fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let mut tame: Vec<u8> = held.iter().flat_map(|byte| readable(&[*byte]).into_bytes()).collect();
        if std::mem::take(&mut self.coloured) {
            tame.extend_from_slice(NO_COLOUR);
        }
        tame
    }
}

impl First {
    fn of(bytes: &[u8]) -> Self {
        let is_text = |byte: &&u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
        match bytes.iter().take_while(is_text).count() {
            0 => {}
            length => return Self::Text(length),
        }
        match bytes.first() {
            Some(0x1b) => Self::colour(bytes),
            Some(0x80..) => Self::character(bytes),
            _ => Self::Odd(1), // Any other control character.
        }
    }

    /// `ESC [ .. m` with numbers.
    fn colour(bytes: &[u8]) -> Self {
        match bytes.get(1) {
            None => return Self::Open,
            Some(b'[') => {}
            Some(_) => return Self::Odd(1),
        }
        let end = bytes.iter().skip(2).position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'));
        match end.map(|end| end + 2) {
            Some(end) if end < LONGEST_COLOUR && bytes[end] == b'm' => Self::Colour(end + 1),
            None if bytes.len() < LONGEST_COLOUR => Self::Open,
            Some(_) | None => Self::Odd(1),
        }
    }

    fn character(bytes: &[u8]) -> Self {
        let head = &bytes[..bytes.len().min(4)];
        match head.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next()) {
            Some(c) if !is_odd(c) => Self::Text(c.len_utf8()),
            Some(c) => Self::Odd(c.len_utf8()),
            None if std::str::from_utf8(head).is_err_and(|error| error.error_len().is_none()) => Self::Open,
            None => Self::Odd(1),
        }
    }
}

fn is_reset(colour: &[u8]) -> bool {
    colour.iter().skip(2).all(|byte| matches!(byte, b'0' | b';' | b'm'))
}

/// A control character, or a byte that is in none, as `less` shows it.
fn readable(odd: &[u8]) -> String {
    match odd {
        [byte @ b' '..=b'~'] => char::from(*byte).to_string(),
        [byte] if byte.is_ascii() => format!("^{}", char::from(byte ^ 0x40)),
        [byte] => format!("<{byte:02X}>"),
        more => String::from_utf8_lossy(more).chars().map(|c| format!("<U+{:04X}>", u32::from(c))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_terminal_shows_the_beginning() {
        let screen = Screen { size: Some((3, 80)), colour: false };
        assert_eq!(screen.replace("a\nb\nc\nd\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(Screen::default().replace("a\n"), "a\n");
    }

    #[test]
    fn there_is_no_colour_without_a_terminal() {
        assert_eq!(Screen::default().bold("x"), "x");
    }

    #[test]
    fn the_first_variable_counts() {
        let is = |all: &str, lang: &str| {
            is_utf8(|name| {
                Some(
                    if name == "LC_ALL" {
                        all
                    } else if name == "LANG" {
                        lang
                    } else {
                        ""
                    }
                    .to_owned(),
                )
            })
        };
        assert!(is("", "en_GB.UTF-8") && is("C.utf8", "C"));
        assert!(!is("C", "en_GB.UTF-8") && !is("", ""));
    }

    fn tame(pieces: &[&[u8]]) -> Vec<u8> {
        let mut tamer = Tamer::default();
        let mut tame: Vec<u8> = pieces.iter().flat_map(|piece| tamer.take(piece)).collect();
        tame.extend(tamer.end());
        tame
    }

    /// Without colours.
    fn plain(text: &str) -> String {
        let mut parts = text.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |plain, part| plain + part.split_once('m').unwrap().1)
    }

    #[test]
    fn text_and_colours_go_through_and_all_else_can_be_read() {
        for (raw, shown) in [
            (&b"plain \xe2\x98\x83\ttext\r\n"[..], "plain \u{2603}\ttext\r\n"),
            (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            (b"\x1b[38;2;1;2;3mpink", "\x1b[38;2;1;2;3mpink\x1b[0m"),
            (b"\x1b]0;title\x07", "^[]0;title^G"),
            (b"\x1b[2J\x1b[H\x1b[6n", "^[[2J^[[H^[[6n"),
            (b"a\x08b\x7fc\x00\x0e", "a^Hb^?c^@^N"),
            (b"\xc2\x9b2J \x9b2J \xff", "<U+009B>2J <9B>2J <FF>"),
            ("\u{202e}abc\u{2069}".as_bytes(), "<U+202E>abc<U+2069>"),
            (b"end\x1b[3", "end^[[3"),
            (b"end\xe2\x98", "end<E2><98>"),
            (b"\x1b\x1b[m", "^[\x1b[m"),
        ] {
            assert_eq!(String::from_utf8(tame(&[raw])).unwrap(), shown, "{raw:?}");
        }
    }

    #[test]
    fn it_does_not_matter_where_output_is_cut() {
        let raw = b"a\x1b[1;31mb\xe2\x98\x83\x1b]0;x\x07\xc2\x9b\xf0\x9f\x98\x80\xff\x1b[0m\x1b[";
        let whole = tame(&[raw]);
        for place in 0..raw.len() {
            let (first, second) = raw.split_at(place);
            assert_eq!(tame(&[first, second]), whole, "at {place}");
        }
        let bytes: Vec<&[u8]> = raw.chunks(1).collect();
        assert_eq!(tame(&bytes), whole);
    }

    #[test]
    fn nothing_but_colours_controls_the_terminal() {
        let openings = [&b""[..], b"\x1b", b"\x1b[", b"\x1b[1", b"\xc2", b"\xe2\x98"];
        for opening in openings {
            for byte in 0..=255_u8 {
                let shown = tame(&[opening, &[byte], b"2J;rest\x07"]);
                let shown = String::from_utf8(shown).unwrap();
                let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
                assert!(!plain(&shown).contains(is_odd), "{opening:?} {byte}: {shown:?}");
            }
        }
        let long = [b"\x1b[".as_slice(), &[b'1'; 1000], b"m"].concat();
        assert!(tame(&[&long]).starts_with(b"^[[111"), "no colour is so long");
    }

    #[test]
    fn messages_and_json_have_no_control_characters() {
        assert_eq!(visible("a\x1b[2J\nb\u{9b}"), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
        assert_eq!(visible_lines("a\x07\nb\tc\r"), "a\u{fffd}\nb\tc\u{fffd}");
        assert_eq!(visible("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(visible_lines("a\u{2029}\n\u{200f}"), "a\u{fffd}\n\u{fffd}");
        let value = serde_json::json!({ "a\u{9b}": "\u{7f}é\n\x1b\u{202e}\u{e0041}" });
        let json = escaped_json(&value.to_string());
        assert!(!json.contains(is_odd), "{json:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
