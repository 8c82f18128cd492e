//! `disbatch answer ID`

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::api::Client;
use crate::args::AnswerOptions;
use crate::command::life::{advise, details};
use crate::output::{plain, print, visible};

/// Answers what a task has asked, makes a link for somebody who is to answer, or shows what is asked.
pub async fn run(client: &Client, options: &AnswerOptions) -> anyhow::Result<()> {
    let id = &options.id;
    if options.link {
        let link = client.post(&format!("/tasks/{id}/answer/link"), &json!({})).await.map_err(advise)?;
        let (path, until) = (plain(link.get("path")), plain(link.get("until")));
        return print(&format!(
            "{}\nIt holds until {until}, or until it is answered.\n",
            client.address(&path)
        ));
    }
    match value(options)? {
        Some(value) => {
            let body = json!({ "value": value });
            client.post(&format!("/tasks/{id}/answer"), &body).await.map_err(advise)?;
            print(&format!("{id} answered\n"))
        }
        None => {
            let task = details(client, id).await.map_err(advise)?;
            print(&visible(&asked(&task)?))
        }
    }
}

/// What is given; `None`: nothing.
fn value(options: &AnswerOptions) -> anyhow::Result<Option<Value>> {
    if let Some(json) = &options.json {
        let value: Value = serde_json::from_str(json).context("--json is not JSON")?;
        return if value.is_object() {
            Ok(Some(value))
        } else {
            bail!("--json: expected an object, got {value}")
        };
    }
    let mut fields = Map::new();
    for word in &options.set {
        let pair = word.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, text) = pair.with_context(|| format!("--set {word}: write name=value"))?;
        fields.insert(name.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| text.into()));
    }
    Ok(Some(Value::Object(fields)).filter(|_| !options.set.is_empty()))
}

/// What a task asks, for people.
fn asked(task: &Value) -> anyhow::Result<String> {
    let Some(awaiting) = task.get("awaiting").filter(|awaiting| awaiting.is_object()) else {
        bail!("the task waits for no answer");
    };
    let mut text = format!("{}\n", plain(awaiting.get("title")));
    for (words, field) in [("Since", "asked"), ("Until", "deadline"), ("Then", "on_deadline")] {
        let value = plain(awaiting.get(field));
        if !value.is_empty() && (field != "on_deadline" || awaiting.get("deadline").is_some()) {
            text.push_str(&format!("{words:<12}{value}\n"));
        }
    }
    let who = awaiting.get("who").and_then(Value::as_array).into_iter().flatten().map(|who| plain(Some(who)));
    let who: Vec<String> = who.collect();
    text.push_str(&format!(
        "{:<12}{}\n",
        "Who",
        if who.is_empty() { "operators".to_owned() } else { who.join(", ") }
    ));
    if let Some(form) = awaiting.get("form") {
        text.push_str(&format!("{:<12}{form}\n", "Form"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[&str], json: Option<&str>) -> anyhow::Result<Option<Value>> {
        let set = set.iter().map(|word| (*word).to_owned()).collect();
        value(&AnswerOptions { id: String::new(), set, json: json.map(str::to_owned), link: false })
    }

    #[test]
    fn an_answer_is_set_field_by_field_or_as_json() {
        let expected = json!({ "go": true, "n": 3, "comment": "as = it is" });
        assert_eq!(of(&["go=true", "n=3", "comment=as = it is"], None).unwrap(), Some(expected));
        assert_eq!(of(&[], Some("{}")).unwrap(), Some(json!({})));
        assert_eq!(of(&[], None).unwrap(), None);
        for (set, json) in [(&["go"][..], None), (&["=1"], None), (&[], Some("[1]")), (&[], Some("{"))] {
            assert!(of(set, json).is_err(), "{set:?} {json:?}");
        }
    }

    #[test]
    fn what_is_asked_is_told() {
        let task = json!({ "awaiting": { "title": "Go on?", "who": ["ann"], "form": { "type": "object" }, "asked": "now" } });
        let text = asked(&task).unwrap();
        assert_eq!(text, "Go on?\nSince       now\nWho         ann\nForm        {\"type\":\"object\"}\n");
        assert!(asked(&json!({})).unwrap_err().to_string().contains("waits for no answer"));
    }
}
