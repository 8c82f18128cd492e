//! Sentences whose names lead on.

use askama::Template;
use askama::filters::HtmlSafe;

/// A task's id has so many characters.
const ID: usize = 24;

/// Text, parts of which are links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(
    source = "{% for (text, address) in pieces %}{% if address.is_empty() %}{{ text }}{% else %}<a href=\"{{ address }}\">{{ text }}</a>{% endif %}{% endfor %}",
    ext = "html"
)]
pub struct Linked {
    /// Each piece with its address; empty if it leads nowhere.
    pieces: Vec<(String, String)>,
}

impl HtmlSafe for Linked {}

impl Linked {
    /// A sentence, in which ids lead to their tasks, and what `names` has behind these words to its address.
    pub fn of(text: &str, names: &[(String, String)]) -> Self {
        let mut linked = Self::default();
        let (mut plain, mut at) = (0, 0);
        while let Some(rest) = text.get(at..) {
            let Some(next) = rest.chars().next() else { break };
            let is_start = text.get(..at).is_some_and(|before| !before.ends_with(is_of_word));
            match found(rest, names).filter(|_| is_start) {
                Some((length, address)) => {
                    linked.push(text.get(plain..at), "");
                    linked.push(rest.get(..length), &address);
                    at += length;
                    plain = at;
                }
                None => at += next.len_utf8(),
            }
        }
        linked.push(text.get(plain..), "");
        linked
    }

    fn push(&mut self, text: Option<&str>, address: &str) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.pieces.push((text.to_owned(), address.to_owned()));
        }
    }
}

/// What text begins with that has an address: how long it is.
fn found(text: &str, names: &[(String, String)]) -> Option<(usize, String)> {
    let ends = |length: usize| text.get(length..).is_some_and(|rest| !rest.starts_with(is_of_word));
    let name = names.iter().find(|(name, _)| text.starts_with(name.as_str()) && ends(name.len()));
    if let Some((name, address)) = name {
        return Some((name.len(), address.clone()));
    }
    let id = text.get(..ID).filter(|_| ends(ID))?;
    let is_id = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| (ID, format!("/tasks/{id}")))
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_lead_on_and_all_else_is_text() {
        let names = [("queue <m>".to_owned(), "/queues/1".to_owned())];
        let html = |text: &str| Linked::of(text, &names).render().unwrap();
        assert_eq!(
            html("é: the queue <m> waits for 6b0003bb686c8275d8013333."),
            "é: the <a href=\"/queues/1\">queue &#60;m&#62;</a> waits for \
             <a href=\"/tasks/6b0003bb686c8275d8013333\">6b0003bb686c8275d8013333</a>."
        );
        for text in ["the queue m", "6b0003bb686c8275d80133334", "x6b0003bb686c8275d8013333", ""] {
            assert_eq!(html(text), text);
        }
        assert_eq!(html("queue <m>x"), "queue &#60;m&#62;x");
    }
}
