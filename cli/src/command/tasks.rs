//! `disbatch tasks [FILTER]`, or `disbatch tasks --queue QUEUE ..`, and `disbatch search [FILTER]`

mod listing;

use serde_json::{Map, Value, json};

use crate::api::Client;
use crate::args::{Format, ListingOptions, TaskFilter};
use crate::output::{plain, pretty, print, shown_json};

/// How many tasks are shown unless `--limit` says otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Prints the tasks that a JSON object or options name. Without any of them, but with a format, the newest of all queues.
pub async fn run(
    client: &Client,
    filter: Option<String>,
    which: &TaskFilter,
    options: &ListingOptions,
) -> anyhow::Result<()> {
    if which.is_given() || (filter.is_none() && options.format.is_some()) {
        return listing::run(client, which, options).await;
    }
    let body = request(filter.as_deref(), options)?;
    show(&client.get("/tasks", Some(&body)).await?, options)
}

/// Prints what the DCI found.
pub fn show(answer: &Value, options: &ListingOptions) -> anyhow::Result<()> {
    match answer.get("count") {
        None if options.format.is_some_and(|format| format != Format::Json) => {
            // One task comes without a list, and none as an empty object.
            let tasks = match answer {
                Value::Object(none) if none.is_empty() => json!([]),
                Value::Object(_) => json!([answer]),
                tasks => tasks.clone(),
            };
            print(&listing::table(&tasks, options)?)
        }
        Some(count) if options.count => print(&format!("{} tasks\n", plain(Some(count)))),
        // The DCI ends JSON for people with a line break of its own.
        _ if options.pretty => print(&shown_json(format!("{}\n\n", pretty(answer)?))),
        _ => print(&shown_json(format!("{answer}\n"))),
    }
}

/// The filter with the options as keys that start with a dot. Such keys in the filter win.
fn request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
    let mut body = Map::new();
    let mut option = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (format!(".{name}"), value)));
    };
    let flag = |on: bool| on.then(|| json!(1));
    option("limit", Some(json!(options.limit.unwrap_or(DEFAULT_LIMIT))));
    option("skip", options.skip.map(Value::from));
    option("fields", options.fields.clone().map(Value::from));
    option("count", flag(options.count));
    option("epoch", flag(options.epoch));
    option("full", flag(options.full));
    option("terse", flag(options.terse));
    if let Some(text) = filter {
        match serde_json::from_str(text) {
            Ok(Value::Object(filter)) => body.extend(filter),
            _ => anyhow::bail!("Invalid filter is not a JSON object: '{text}'"),
        }
    }
    Ok(Value::Object(body))
}

/// Prints the tasks that any fields pick, as JSON, or how many there are.
pub async fn search(client: &Client, filter: Option<String>, options: &ListingOptions) -> anyhow::Result<()> {
    let body = search_request(filter.as_deref(), options)?;
    show(&client.post("/tasks/search", &body).await?, options)
}

/// What to look for. What is not an object is for the DCI to refuse, as long as it is JSON that Perl takes.
fn search_request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
    let mut body = Map::new();
    let filter = filter.unwrap_or("{}");
    let parsed =
        structure(filter).ok_or_else(|| anyhow::anyhow!("Invalid filter is not JSON: '{filter}'"))?;
    body.insert("filter".to_owned(), parsed);
    if let Some(text) = &options.options {
        let parsed =
            structure(text).ok_or_else(|| anyhow::anyhow!("Invalid --options is not JSON: '{text}'"))?;
        body.insert("options".to_owned(), parsed);
    }
    if options.count {
        body.insert("count".to_owned(), json!(1));
    }
    if options.terse || options.noterse {
        body.insert("terse".to_owned(), json!(i32::from(options.terse)));
    }
    Ok(Value::Object(body))
}

/// The text as a JSON object or array; nothing if it is neither.
fn structure(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value| matches!(value, Value::Object(_) | Value::Array(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_keys_with_a_dot_and_the_filter_wins() {
        let options = ListingOptions { limit: Some(5), count: true, skip: Some(2), ..Default::default() };
        let body = request(Some(r#"{"queue":"q",".limit":1}"#), &options).unwrap();
        assert_eq!(body, json!({"queue": "q", ".limit": 1, ".count": 1, ".skip": 2}));
        assert_eq!(request(None, &ListingOptions::default()).unwrap(), json!({".limit": 100}));
    }

    #[test]
    fn a_filter_is_an_object() {
        let error = request(Some("[]"), &ListingOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "Invalid filter is not a JSON object: '[]'");
    }

    #[test]
    fn only_what_was_said_is_sent() {
        let none = ListingOptions::default();
        assert_eq!(search_request(None, &none).unwrap(), json!({"filter": {}}));
        let options = ListingOptions {
            count: true,
            noterse: true,
            options: Some(r#"{"limit":1}"#.into()),
            ..Default::default()
        };
        assert_eq!(
            search_request(Some(r#"{"a":1}"#), &options).unwrap(),
            json!({"filter": {"a": 1}, "options": {"limit": 1}, "count": 1, "terse": 0})
        );
    }

    #[test]
    fn what_is_no_json_is_not_sent() {
        let none = ListingOptions::default();
        assert_eq!(
            search_request(Some("\"x\""), &none).unwrap_err().to_string(),
            "Invalid filter is not JSON: '\"x\"'"
        );
        assert_eq!(search_request(Some("[]"), &none).unwrap(), json!({"filter": []}));
        let options = ListingOptions { options: Some("{".into()), ..none };
        assert_eq!(
            search_request(None, &options).unwrap_err().to_string(),
            "Invalid --options is not JSON: '{'"
        );
    }
}
