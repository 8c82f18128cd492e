//! `disbatch doctor`

use std::process::ExitCode;

use disbatch_wire::doctor::{Diagnosis, Finding};
use serde_json::Value;

use crate::api::{Client, read};
use crate::args::ListingOptions;
use crate::command::life::advise;
use crate::output::{document, plain, print, shows_marks, visible};

/// Prints what the checks have found. The exit status is that of monitoring systems: 0 fine, 1 warnings, 2 errors.
pub async fn run(client: &Client, options: &ListingOptions) -> anyhow::Result<ExitCode> {
    let answer = client.get("/doctor", None).await.map_err(advise)?;
    let marks = if shows_marks() { ["✓", "!", "✗", "-"] } else { ["ok", "warning", "error", "skipped"] };
    print(&document(&answer, options, |answer| text(answer, marks))?)?;
    Ok(ExitCode::from(match answer.get("level").and_then(Value::as_str) {
        Some("ok") => 0,
        Some("warning") => 1,
        _ => 2,
    }))
}

fn text(answer: &Value, [fine, warning, error, skipped]: [&str; 4]) -> String {
    let Ok(diagnosis) = read::<Diagnosis>(answer.clone()) else { return plain(Some(answer)) + "\n" };
    let line = |finding: &Finding| {
        let mark = match &finding.level[..] {
            "ok" => fine,
            "warning" => warning,
            "skipped" => skipped,
            _ => error,
        };
        let subject =
            finding.subject.as_deref().map(|subject| format!("{}: ", visible(subject))).unwrap_or_default();
        let advice =
            finding.advice.as_deref().map(|advice| format!("    {}\n", visible(advice))).unwrap_or_default();
        format!("{mark} {}: {subject}{}\n{advice}", visible(&finding.check), visible(&finding.text))
    };
    diagnosis.findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn findings_have_a_mark_and_what_to_do() {
        let answer = json!({"level": "error", "findings": [
            {"check": "database", "level": "ok", "text": "fine"},
            {"check": "nodes", "level": "error", "subject": "n\u{1b}1", "text": "it is gone", "advice": "Start it."},
        ]});
        assert_eq!(
            text(&answer, ["✓", "!", "✗", "-"]),
            "✓ database: fine\n✗ nodes: n\u{fffd}1: it is gone\n    Start it.\n"
        );
    }
}
