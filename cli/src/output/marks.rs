//! Whether more than ASCII can be shown.

use std::io::IsTerminal;

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
