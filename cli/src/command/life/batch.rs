//! `disbatch batch FILE`

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::api::Client;
use crate::args::ListingOptions;
use crate::args::secure::is_stdin;
use crate::command::life::advise;
use crate::output::{document, plain, print};

/// So many entries may come at once.
const MOST: usize = 1_000;

/// Submits tasks to several queues with one request.
pub async fn run(client: &Client, file: &Path, options: &ListingOptions) -> anyhow::Result<ExitCode> {
    let body = request(&read(file)?).with_context(|| file.display().to_string())?;
    let answer = client.post_json("/tasks/batch", body).await.map_err(advise)?;
    print(&document(&answer, options, text)?)?;
    let is_whole = answer.get("refused").and_then(Value::as_u64) == Some(0);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(crate::status::FAILED) })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if is_stdin(file) {
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(text)
}

/// The request, with all entries as they are written: numbers keep all their digits.
fn request(text: &str) -> anyhow::Result<String> {
    let entries = if text.trim_start().starts_with('[') {
        let entries: Vec<Value> = serde_json::from_str(text).context("it is no JSON array")?;
        check(entries.len())?;
        text.trim().to_owned()
    } else {
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
        for (number, line) in &lines {
            let entry: Option<Value> = serde_json::from_str(line).ok();
            if !entry.is_some_and(|entry| entry.is_object()) {
                bail!("line {}: not a JSON object", number + 1);
            }
        }
        check(lines.len())?;
        format!("[{}]", lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join(","))
    };
    Ok(format!("{{\"tasks\":{entries}}}"))
}

fn check(entries: usize) -> anyhow::Result<()> {
    match entries {
        0 => bail!("it has no entries"),
        1..=MOST => Ok(()),
        more => bail!("it has {more} entries, and at most {MOST} go in one batch"),
    }
}

/// A line for each entry: the id of its task, its ids, or why it was rejected.
fn text(answer: &Value) -> String {
    let results = answer.get("results").and_then(Value::as_array);
    let line = |(number, result): (usize, &Value)| {
        let ids = result.get("ids").and_then(Value::as_array).into_iter().flatten().map(|id| plain(Some(id)));
        let what = match (result.get("id"), result.get("error")) {
            (Some(id), _) => plain(Some(id)),
            (None, Some(error)) => format!("rejected: {}", crate::output::visible(&plain(Some(error)))),
            (None, None) => ids.collect::<Vec<_>>().join(" "),
        };
        format!("{} {what}\n", number + 1)
    };
    let lines: String = results.into_iter().flatten().enumerate().map(line).collect();
    let number = |name: &str| plain(answer.get(name));
    format!("{lines}{} entries accepted, {} rejected\n", number("submitted"), number("refused"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_lines_or_an_array_and_keep_their_digits() {
        let entry = r#"{"queue":"a","params":{"n":1.10}}"#;
        assert_eq!(
            request(&format!("{entry}\n\n{entry}\n")).unwrap(),
            format!("{{\"tasks\":[{entry},{entry}]}}")
        );
        assert_eq!(request(&format!("\n[{entry}]\n")).unwrap(), format!("{{\"tasks\":[{entry}]}}"));
        for (text, message) in [
            ("", "it has no entries"),
            ("[]", "it has no entries"),
            ("[1", "it is no JSON array"),
            ("{}\nnope\n", "line 2: not a JSON object"),
            (&"{}\n".repeat(1_001), "at most 1000 go in one batch"),
        ] {
            let error = request(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn each_entry_is_answered_by_a_line() {
        let answer = json!({
            "results": [{ "id": "6b" }, { "error": "queue not found", "status": 400 }, { "ids": ["7c", "8d"] }],
            "submitted": 2, "refused": 1,
        });
        let expected = "1 6b\n2 rejected: queue not found\n3 7c 8d\n2 entries accepted, 1 rejected\n";
        assert_eq!(text(&answer), expected);
    }
}
