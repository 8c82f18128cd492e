//! Sentences whose names lead on.

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::model::TaskId;

/// What a sentence may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// As the sentence has it.
    pub text: String,
    /// What is shown of it.
    pub shown: String,
    pub address: String,
}

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
    /// A sentence, in which names lead on.
    pub fn of(text: &str, names: &[Name]) -> Self {
        let mut linked = Self::default();
        let (mut plain, mut at) = (0, 0);
        while let Some(rest) = text.get(at..) {
            let Some(next) = rest.chars().next() else { break };
            let is_start = text.get(..at).is_some_and(|before| !before.ends_with(is_of_word));
            match found(rest, names).filter(|_| is_start) {
                Some(name) => {
                    linked.push(text.get(plain..at), "");
                    linked.push(Some(&name.shown), &name.address);
                    at += name.text.len();
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

/// The name that text begins with.
fn found<'a>(text: &str, names: &'a [Name]) -> Option<&'a Name> {
    let is_whole =
        |name: &Name| text.strip_prefix(name.text.as_str()).is_some_and(|rest| !rest.starts_with(is_of_word));
    names.iter().find(|name| is_whole(name))
}

/// The ids in text: of tasks, and of what else has one.
pub fn ids(text: &str) -> impl Iterator<Item = TaskId> {
    text.split(|c: char| !is_of_word(c)).filter_map(|word| word.parse().ok())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, shown: &str, address: &str) -> Name {
        Name { text: text.to_owned(), shown: shown.to_owned(), address: address.to_owned() }
    }

    #[test]
    fn names_lead_on_and_all_else_is_text() {
        const ID: &str = "6b0003bb686c8275d8013333";
        let names = [name("queue <m>", "queue <m>", "/queues/1"), name(ID, "say <b>", "/tasks/1")];
        let html = |text: &str| Linked::of(text, &names).render().unwrap();
        assert_eq!(
            html(&format!("é: the queue <m> waits for the task {ID}.")),
            "é: the <a href=\"/queues/1\">queue &#60;m&#62;</a> waits for the task \
             <a href=\"/tasks/1\">say &#60;b&#62;</a>."
        );
        for text in ["the queue m", "6b0003bb686c8275d80133334", "x6b0003bb686c8275d8013333", ""] {
            assert_eq!(html(text), text);
        }
        assert_eq!(html("queue <m>x"), "queue &#60;m&#62;x");
        let ids: Vec<String> =
            ids(&format!("the tasks {ID}, {ID}x and é")).map(|id| id.to_string()).collect();
        assert_eq!(ids, [ID]);
    }
}
