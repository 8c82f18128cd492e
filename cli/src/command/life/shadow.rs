//! `disbatch shadow QUEUE`

use disbatch_wire::shadows::{ShadowPair, Shadows};
use serde_json::json;

use crate::api::{Client, segment};
use crate::args::seconds;
use crate::args::{ListingOptions, ShadowOptions};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, print, visible};

const TABLE: Table<ShadowPair> = Table {
    columns: &[
        Column { title: "Task", cell: |pair| pair.task.clone(), cut: Cut::Never },
        Column { title: "Shadow", cell: |pair| pair.shadow.clone(), cut: Cut::Never },
        Column { title: "Was", cell: |pair| time(pair.was), cut: Cut::Never },
        Column { title: "Is", cell: |pair| time(pair.is), cut: Cut::Never },
        Column { title: "Outcome", cell: outcome, cut: Cut::Late },
    ],
    noun: "pairs",
};

/// Prints how the latest tasks of a queue compare with their shadows.
pub async fn run(client: &Client, which: &ShadowOptions, options: &ListingOptions) -> anyhow::Result<()> {
    let path = format!("/queues/{}/shadow", segment(&which.queue));
    let asked = options.limit.map(|limit| json!({ ".limit": limit }));
    let found = client.get(&path, asked.as_ref()).await.map_err(advise)?;
    print(&document(&found, options, |found| text(found, which.differences, Screen::of_stdout()))?)
}

fn text(shadows: &Shadows, with_differences: bool, screen: Screen) -> String {
    if shadows.shadow.is_none() {
        return "the queue has no shadow\n".to_owned();
    }
    let Shadows { same, different, slower, faster, task_failed, shadow_failed, compared, .. } = shadows;
    let mut text = format!(
        "{}{same} same, {different} different, {slower} slower, {faster} faster. Only the task failed: {task_failed}, only the shadow: {shadow_failed}.\n",
        TABLE.render(compared, screen)
    );
    for pair in compared.iter().filter(|_| with_differences) {
        for own in &pair.differences {
            text.push_str(&format!("\n{} {}\n", pair.task, own.name));
            text.extend(own.difference.lines().map(|line| format!("{}\n", visible(line))));
        }
    }
    text
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, seconds::words)
}

fn outcome(pair: &ShadowPair) -> String {
    if pair.different.is_empty() {
        return pair.verdict.clone();
    }
    format!("{}: {}", pair.verdict, pair.different.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::read;

    #[test]
    fn pairs_are_lines_and_differences_come_if_they_are_wanted() {
        let pair = json!({
            "task": "a", "shadow": "b", "verdict": "different", "different": ["status", "stdout"], "was": 1.5, "is": null,
            "differences": [{ "name": "stdout", "difference": "-two\n+2\n" }],
        });
        let found = json!({
            "queue": "q", "shadow": "n", "share": 1.0, "pairs": 1, "same": 0, "different": 1, "slower": 0, "faster": 0,
            "task_failed": 0, "shadow_failed": 1, "compared": [pair],
        });
        let short = text(&read(found.clone()).unwrap(), false, Screen::default());
        assert!(short.contains("different: status, stdout") && !short.contains("+2"), "{short}");
        assert!(short.ends_with("Only the task failed: 0, only the shadow: 1.\n"), "{short}");
        assert!(text(&read(found).unwrap(), true, Screen::default()).ends_with("\na stdout\n-two\n+2\n"));
        let none = json!({
            "queue": "q", "shadow": null, "share": null, "pairs": 0, "same": 0, "different": 0, "slower": 0, "faster": 0,
            "task_failed": 0, "shadow_failed": 0, "compared": [],
        });
        assert_eq!(text(&read(none).unwrap(), true, Screen::default()), "the queue has no shadow\n");
    }
}
