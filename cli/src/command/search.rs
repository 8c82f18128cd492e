//! `disbatch search [FILTER]`

use serde_json::{Map, Value, json};

use crate::api::Client;
use crate::args::ListingOptions;
use crate::command::tasks;

/// Prints the tasks that any fields pick, as JSON, or how many there are.
pub async fn run(client: &Client, filter: Option<String>, options: &ListingOptions) -> anyhow::Result<()> {
    let body = request(filter.as_deref(), options)?;
    tasks::show(&client.post("/tasks/search", &body).await?, options)
}

/// What to look for. What is not an object is for the DCI to refuse, as long as it is JSON that Perl takes.
fn request(filter: Option<&str>, options: &ListingOptions) -> anyhow::Result<Value> {
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
    fn only_what_was_said_is_sent() {
        let none = ListingOptions::default();
        assert_eq!(request(None, &none).unwrap(), json!({"filter": {}}));
        let options = ListingOptions {
            count: true,
            noterse: true,
            options: Some(r#"{"limit":1}"#.into()),
            ..Default::default()
        };
        assert_eq!(
            request(Some(r#"{"a":1}"#), &options).unwrap(),
            json!({"filter": {"a": 1}, "options": {"limit": 1}, "count": 1, "terse": 0})
        );
    }

    #[test]
    fn what_is_no_json_is_not_sent() {
        let none = ListingOptions::default();
        assert_eq!(
            request(Some("\"x\""), &none).unwrap_err().to_string(),
            "Invalid filter is not JSON: '\"x\"'"
        );
        assert_eq!(request(Some("[]"), &none).unwrap(), json!({"filter": []}));
        let options = ListingOptions { options: Some("{".into()), ..none };
        assert_eq!(request(None, &options).unwrap_err().to_string(), "Invalid --options is not JSON: '{'");
    }
}
