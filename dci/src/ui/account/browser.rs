//! What a browser is called, by what it calls itself.

use crate::ui::parts::cut;

/// So many characters are shown of one that is not known.
const MOST: usize = 60;

/// Parts of what they call themselves, the first of which counts: many name others, too.
const BROWSERS: [(&str, &str); 7] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
];

/// The same of what they run on.
const SYSTEMS: [(&str, &str); 6] = [
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

/// `Firefox on Linux`.
pub fn name(agent: &str) -> String {
    let find = |known: &[(&str, &'static str)]| {
        known.iter().find(|(part, _)| agent.contains(*part)).map(|(_, name)| *name)
    };
    match (find(&BROWSERS), find(&SYSTEMS)) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser.to_owned(),
        (None, _) if agent.is_empty() => "not known".to_owned(),
        (None, _) => cut(agent, MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_known_by_what_they_call_themselves() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        let edge = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
                    Safari/537.36 Edg/140.0.0.0";
        let safari = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                      Version/18.0 Safari/605.1.15";
        for (agent, expected) in [
            (firefox, "Firefox on Linux"),
            (edge, "Edge on Windows"),
            (safari, "Safari on macOS"),
            ("curl/8.0", "curl"),
            ("", "not known"),
            ("<script>", "<script>"),
        ] {
            assert_eq!(name(agent), expected);
        }
        assert_eq!(name(&"x".repeat(200)).chars().count(), MOST + 1);
    }
}
