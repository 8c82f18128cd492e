//! Words that a subscription has templates for, in the syntax of Jinja.

use disbatch_plugin::Error;
use minijinja::Environment;
use serde::Deserialize;

use crate::message::Message;

/// So much may a template do: enough for the largest message, and over at once for a loop that does not end.
const FUEL: u64 = 500_000;

/// A subject has so many characters at most, as mail and chats show no more.
const LONGEST_SUBJECT: usize = 200;

/// A text has so many characters at most: chats refuse longer ones.
const LONGEST_TEXT: usize = 12_000;

/// Those of a subscription.
#[derive(Debug, Default, Deserialize)]
pub struct Templates {
    subject: Option<String>,
    text: Option<String>,
}

impl Templates {
    /// The first line of a message.
    pub fn subject(&self, message: &Message) -> Result<String, Error> {
        let subject = rendered("subject", self.subject.as_deref(), message, Message::subject)?;
        // A line break would begin another header of a mail.
        Ok(cut(subject.split_whitespace().collect::<Vec<_>>().join(" "), LONGEST_SUBJECT))
    }

    /// The text below.
    pub fn text(&self, message: &Message) -> Result<String, Error> {
        Ok(cut(rendered("text", self.text.as_deref(), message, Message::text)?, LONGEST_TEXT))
    }
}

fn rendered(
    name: &'static str,
    template: Option<&str>,
    message: &Message,
    usual: impl Fn(&Message) -> String,
) -> Result<String, Error> {
    let Some(template) = template.filter(|template| !template.trim().is_empty()) else {
        return Ok(usual(message));
    };
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment
        .render_named_str(name, template, minijinja::value::Serde(message))
        .map_err(|error| Error::failed(format_args!("the template of the subscription is wrong: {error:#}")))
}

fn cut(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::failures;

    fn of(subject: &str, text: &str) -> Templates {
        Templates { subject: Some(subject.to_owned()), text: Some(text.to_owned()) }
    }

    #[test]
    fn templates_know_all_of_the_message() {
        let templates = of(
            "{{ count }} in {{ events[0].queue|upper }}\nBcc: x",
            "{% for event in events %}{{ event.event }} {{ event.tasks|length }} {{ number }}{% endfor %}",
        );
        assert_eq!(templates.subject(&failures()).unwrap(), "12 in IMPORTS Bcc: x");
        assert_eq!(templates.text(&failures()).unwrap(), "failed 2 3");
    }

    #[test]
    fn without_templates_the_usual_words_are_used() {
        for templates in [Templates::default(), of(" ", "\n")] {
            assert_eq!(templates.subject(&failures()).unwrap(), failures().subject());
            assert_eq!(templates.text(&failures()).unwrap(), failures().text());
        }
    }

    #[test]
    fn a_wrong_template_is_an_error_with_its_place() {
        let error = of("", "a\n{{ count").text(&failures()).unwrap_err().to_string();
        assert!(error.contains("syntax error") && error.contains("text:2"), "{error}");
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        let error = of("", endless).text(&failures()).unwrap_err().to_string();
        assert!(error.contains("wrong"), "{error}");
    }

    #[test]
    fn long_words_are_cut() {
        let long = of(&"é".repeat(300), &"x".repeat(20_000));
        assert_eq!(long.subject(&failures()).unwrap().chars().count(), 201);
        assert!(long.text(&failures()).unwrap().ends_with("x…"));
    }
}
