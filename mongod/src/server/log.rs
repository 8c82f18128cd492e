//! The log of `mongod`: one JSON object per line.

use std::path::Path;

use serde_json::Value;

/// Why the server ended, in one line: its last error, else its last lines.
pub(super) fn reason(log: &Path) -> String {
    let text = match std::fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("there is no log: {error}"),
    };
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let errors: Vec<String> = lines.iter().filter(|line| is_error(line)).map(message).collect();
    let found = if errors.is_empty() {
        lines.iter().rev().take(3).rev().map(message).collect::<Vec<_>>()
    } else {
        errors
    };
    format!("{} (log: {})", found.join("; "), log.display())
}

fn is_error(line: &Value) -> bool {
    matches!(line["s"].as_str(), Some("E" | "F")) || !line["attr"]["error"].is_null()
}

fn message(line: &Value) -> String {
    let text = line["msg"].as_str().unwrap_or_default();
    match &line["attr"]["error"] {
        Value::Null => text.to_owned(),
        Value::String(error) => format!("{text}: {error}"),
        error => {
            format!("{text}: {}", error["errmsg"].as_str().map_or_else(|| error.to_string(), str::to_owned))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_before_the_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("mongod.log");
        assert!(reason(&log).starts_with("there is no log: "));
        let noise = r#"{"s":"I","msg":"Starting"}"#;
        std::fs::write(&log, format!("{noise}\nnot JSON\n{noise}\n")).unwrap();
        assert_eq!(reason(&log), format!("Starting; Starting (log: {})", log.display()));
        let error = r#"{"s":"E","msg":"Failed to set up listener","attr":{"error":{"code":9001,"errmsg":"Address already in use"}}}"#;
        std::fs::write(&log, format!("{noise}\n{error}\n{noise}\n")).unwrap();
        assert_eq!(
            reason(&log),
            format!("Failed to set up listener: Address already in use (log: {})", log.display())
        );
    }
}
