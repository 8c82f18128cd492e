//! axe-core, which looks for what keeps people from using a page. `scripts/prepare` installs it.

use anyhow::Context;
use serde_json::json;

use super::session::Session;
use crate::fetched;

/// Its file, named with its version in `scripts/prepare`, too.
const FILE: &str = "axe-core-4.12.1/axe.min.js";

/// Gives a text for each element and rule that do not agree. Of all rules, or of those that its argument names.
const RUN: &str = r#"
const done = arguments[arguments.length - 1];
const line = (rule, node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\s+/g, " ")}`;
axe.run(document, { resultTypes: ["violations"], ...(arguments[0] && { runOnly: arguments[0] }) }).then(
  (found) => done(found.violations.flatMap((rule) => rule.nodes.map((node) => line(rule, node)))),
  (error) => done([`axe-core failed: ${error}`]));
"#;

/// What it finds wrong with the page as it is, by these of its rules; by all unless there are some.
pub(super) async fn violations(session: &Session, rules: Option<&[&str]>) -> anyhow::Result<Vec<String>> {
    let source = source()?;
    session.post("/execute/sync", &json!({ "script": source, "args": [] })).await?;
    let found = session.post("/execute/async", &json!({ "script": RUN, "args": [rules] })).await?;
    let found = found.as_array().context("axe-core gives no list")?;
    Ok(found.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect())
}

fn source() -> anyhow::Result<String> {
    let path = fetched()?.join(FILE);
    let text = std::fs::read_to_string(&path);
    text.with_context(|| {
        format!("these tests need axe-core in {}: 'scripts/prepare browser' fetches it", path.display())
    })
}
