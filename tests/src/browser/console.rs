//! The browser's console, which has errors of scripts and requests, and what the Content-Security-Policy forbade.

use serde_json::{Value, json};

use super::session::Session;

/// The level of errors, violations of the policy included.
const SEVERE: &str = "SEVERE";

/// The capability that makes the driver keep the console.
pub(super) fn preferences() -> Value {
    json!({ "browser": "ALL" })
}

/// The errors since the last call.
pub(super) async fn complaints(session: &Session) -> anyhow::Result<Vec<String>> {
    let entries = session.post("/se/log", &json!({ "type": "browser" })).await?;
    Ok(entries.as_array().into_iter().flatten().filter_map(complaint).collect())
}

fn complaint(entry: &Value) -> Option<String> {
    let message = entry["message"].as_str().unwrap_or_default();
    // Should one be announced only, it would be as wrong.
    let is_forbidden = message.contains("Content Security Policy");
    (entry["level"] == SEVERE || is_forbidden).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_violations_are_complaints_and_remarks_are_not() {
        let entry = |level: &str, message: &str| complaint(&json!({ "level": level, "message": message }));
        assert_eq!(entry("SEVERE", "x is not defined").unwrap(), "x is not defined");
        assert!(entry("WARNING", "violates the following Content Security Policy directive").is_some());
        assert_eq!(entry("INFO", "hello"), None);
    }
}
