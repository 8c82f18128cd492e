//! Messages for chats. Names in them are text, and nothing that a chat would make a link or a call for everybody of. Pure.

use disbatch_plugin::Error;
use serde_json::{Value, json};

use crate::message::{Message, Words};
use crate::post::Request;

/// A card has so many links at most.
const MOST_LINKS: usize = 5;

/// For Slack, and what takes the same.
pub fn slack(url: &str, words: &Words) -> Result<Request, Error> {
    let text = format!("*{}*\n{}", plain(&words.subject), plain(&words.text));
    Request::new(url, json!({ "text": text }).to_string())
}

/// What Slack would read as a link or as a mention.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// For a workflow of Microsoft Teams that takes an Adaptive Card.
pub fn teams(url: &str, message: &Message, words: &Words) -> Result<Request, Error> {
    // A run of text is shown as it is; a `TextBlock` would be read as Markdown.
    let run = |text: &str| json!({ "type": "TextRun", "text": text });
    let line = |text: &str| json!({ "type": "RichTextBlock", "inlines": [run(text)] });
    let mut heading = run(&words.subject);
    heading["weight"] = json!("Bolder");
    let mut body = vec![json!({ "type": "RichTextBlock", "inlines": [heading] })];
    body.extend(words.text.lines().filter(|text| !text.trim().is_empty()).map(line));
    let tasks = message.events.iter().flat_map(|event| &event.tasks);
    let links: Vec<Value> = tasks
        .filter_map(|task| task.url.as_ref().map(|url| (&task.id, url)))
        .take(MOST_LINKS)
        .map(|(id, url)| json!({ "type": "Action.OpenUrl", "title": format!("Task {id}"), "url": url }))
        .collect();
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": body, "actions": links, "msteams": { "width": "Full" },
    });
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": null, "content": card });
    Request::new(url, json!({ "type": "message", "attachments": [attachment] }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::failures;

    #[test]
    fn names_are_no_mentions_and_no_links() {
        let words = Words {
            subject: "a <!channel> & b".to_owned(),
            text: "<http://x|y>\n\n[z](http://x)".to_owned(),
        };
        let body = |request: Request| serde_json::from_str::<Value>(&request.body).unwrap();
        let slack = body(slack("https://s.example/", &words).unwrap());
        assert_eq!(slack["text"], "*a &lt;!channel&gt; &amp; b*\n&lt;http://x|y&gt;\n\n[z](http://x)");
        let teams = body(teams("https://t.example/", &failures(), &words).unwrap());
        let card = &teams["attachments"][0]["content"];
        let texts: Vec<&Value> =
            card["body"].as_array().unwrap().iter().map(|block| &block["inlines"][0]["text"]).collect();
        assert_eq!(texts, ["a <!channel> & b", "<http://x|y>", "[z](http://x)"]);
        assert_eq!(card["actions"].as_array().unwrap().len(), 1);
        assert_eq!(card["actions"][0]["url"], "https://d.example/tasks/6b00");
    }
}
