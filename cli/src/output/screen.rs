//! The terminal on standard output, and whether more than ASCII can be shown on it.

use std::io::IsTerminal;

use console::Term;

/// What is known of standard output.
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
}
