//! The beginning of a text, or what is around the first place where something was found in it, which is marked.

use std::ops::Range;

use crate::ui::parts::cut;

/// So many characters are shown before what was found, where that is not at the beginning.
const BEFORE: usize = 40;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Its pieces in order, and whether each is what was looked for.
    pub pieces: Vec<(bool, String)>,
}

impl Excerpt {
    /// At most `most` characters of `text`, with every `hit` in them marked, whichever case it has there. `hit` is in lower
    /// case; if it is empty, nothing is marked.
    pub fn of(text: &str, hit: &str, most: usize) -> Self {
        let begin = begin(text, hit, most);
        let shown = cut(text.get(begin..).unwrap_or_default(), most);
        let mut pieces = Vec::new();
        if begin > 0 {
            pieces.push((false, "…".to_owned()));
        }
        let mut end = 0;
        for hit in hits(&shown, hit) {
            pieces.push((false, shown.get(end..hit.start).unwrap_or_default().to_owned()));
            pieces.push((true, shown.get(hit.clone()).unwrap_or_default().to_owned()));
            end = hit.end;
        }
        pieces.push((false, shown.get(end..).unwrap_or_default().to_owned()));
        pieces.retain(|(_, piece)| !piece.is_empty());
        Self { pieces }
    }

    /// All of it.
    pub fn plain(&self) -> String {
        self.pieces.iter().map(|(_, piece)| piece.as_str()).collect()
    }
}

/// Where in `text` to begin, so that the first hit is among the characters that are shown.
fn begin(text: &str, hit: &str, most: usize) -> usize {
    if hit.is_empty() {
        return 0;
    }
    let lower = text.to_lowercase();
    let before = lower.find(hit).and_then(|at| lower.get(..at)).map_or(0, |before| before.chars().count());
    if before + hit.chars().count() <= most {
        return 0;
    }
    text.char_indices().nth(before.saturating_sub(BEFORE)).map_or(0, |(at, _)| at)
}

/// Where `hit` is in a short text, which may be in another case. Hits side by side are one.
fn hits(text: &str, hit: &str) -> Vec<Range<usize>> {
    if hit.is_empty() {
        return Vec::new();
    }
    let (mut lower, mut from) = (String::new(), Vec::new());
    for (at, letter) in text.char_indices() {
        lower.extend(letter.to_lowercase());
        // In lower case a letter may have another length.
        from.resize(lower.len(), at);
    }
    from.push(text.len());
    let mut hits: Vec<Range<usize>> = Vec::new();
    for (at, hit) in lower.match_indices(hit) {
        let (Some(start), Some(end)) = (from.get(at), from.get(at + hit.len())) else { continue };
        match hits.last_mut() {
            Some(last) if last.end == *start => last.end = *end,
            _ => hits.push(*start..*end),
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, hit: &str, most: usize) -> String {
        let piece =
            |(is_hit, piece): &(bool, String)| if *is_hit { format!("[{piece}]") } else { piece.clone() };
        Excerpt::of(text, hit, most).pieces.iter().map(piece).collect()
    }

    #[test]
    fn hits_are_marked_in_any_case() {
        assert_eq!(marked("To ADA, from ada", "ada", 99), "To [ADA], from [ada]");
        assert_eq!(marked("abc", "", 2), "ab…");
        assert_eq!(marked("ÄÖ ẞ", "ö", 99), "Ä[Ö] ẞ");
        assert_eq!(marked("İİa", "a", 99), "İİ[a]");
        assert_eq!(marked("abc", "x", 99), "abc");
        assert_eq!(marked("axxxb", "x", 99), "a[xxx]b", "it is one");
    }

    #[test]
    fn what_is_far_behind_is_shown_with_what_is_around_it() {
        let text = format!("{}needle{}", "é".repeat(500), "x".repeat(500));
        assert_eq!(marked(&text, "needle", 50), format!("…{}[needle]xxxx…", "é".repeat(BEFORE)));
        assert_eq!(Excerpt::of(&text, "needle", 50).plain().chars().count(), 52);
    }
}
