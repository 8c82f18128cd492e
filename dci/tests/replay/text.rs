//! What differs from run to run: ids and times.

use std::collections::HashMap;

/// Recorded ids and the ids that stand for them now.
#[derive(Debug, Default)]
pub struct Ids(HashMap<String, String>);

impl Ids {
    /// Takes the ids of two texts, one by one, as the same. What is known stays.
    pub fn learn(&mut self, recorded: &str, here: &str) {
        let (recorded, here) = (ids(recorded), ids(here));
        if recorded.len() == here.len() {
            for (recorded, here) in recorded.into_iter().zip(here) {
                self.0.entry(recorded.to_owned()).or_insert_with(|| here.to_owned());
            }
        }
    }

    /// `text` with today's ids.
    pub fn translate(&self, text: &str) -> String {
        ids(text).into_iter().fold(text.to_owned(), |text, id| match self.0.get(id) {
            Some(here) => text.replace(id, here),
            None => text,
        })
    }
}

fn ids(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() == 24 && word.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
        .filter(|word| *word != "000000000000000000000000")
        .collect()
}

/// `text` without dates, epoch seconds and epoch milliseconds of this age.
pub fn without_times(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if is_date(rest) {
            out.push_str("DATE");
            rest = &rest[19..];
        } else if matches!(number, 10 | 13) && rest.starts_with('1') {
            out.push_str("TIME");
            rest = &rest[number..];
            if let Some(fraction) = rest.strip_prefix('.') {
                rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            }
        } else {
            let end = if number > 0 { number } else { rest.chars().next().map_or(1, char::len_utf8) };
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out
}

/// `text` without how long ago nodes were seen, in answers of `/monitoring`.
pub fn without_ages(text: &str) -> String {
    let Some((before, nodes)) = text.split_once("\"nodes\":{\"fresh\":") else { return text.to_owned() };
    let Some((nodes, after)) = nodes.split_once("}}") else { return text.to_owned() };
    let without = |word: &str| match word.trim_start_matches(|c: char| c.is_ascii_digit()) {
        rest if rest.len() < word.len() => format!("AGE{rest}"),
        _ => word.to_owned(), // No number.
    };
    let nodes: String = nodes.split_inclusive(':').map(without).collect();
    format!("{before}\"nodes\":{{\"fresh\":{nodes}}}}}{after}")
}

fn is_date(text: &str) -> bool {
    let pattern = b"dddd-dd-ddTdd:dd:dd";
    text.len() >= pattern.len()
        && text.bytes().zip(pattern).all(|(c, p)| if *p == b'd' { c.is_ascii_digit() } else { c == *p })
}

#[test]
fn ages_are_left_out() {
    let text = "{\"message\":\"m\",\"nodes\":{\"fresh\":{\"a1\":0},\"stale\":{\"b\":100}},\"status\":1}";
    let without = "{\"message\":\"m\",\"nodes\":{\"fresh\":{\"a1\":AGE},\"stale\":{\"b\":AGE}},\"status\":1}";
    assert_eq!(without_ages(text), without);
}

#[test]
fn ids_and_times_are_recognised() {
    let mut ids = Ids::default();
    ids.learn("a 6b0003b956635706337b691a", "a 7b0003b956635706337b691a");
    assert_eq!(ids.translate("/x/6b0003b956635706337b691a?"), "/x/7b0003b956635706337b691a?");
    let text = "{\"a\":\"2026-11-20T08:24:27\",\"b\":1795163067.344,\"c\":1795163066819,\"é\":99999999999}";
    assert_eq!(without_times(text), "{\"a\":\"DATE\",\"b\":TIME,\"c\":TIME,\"é\":99999999999}");
}
