//! What came of many runs, for people.

use console::{Style, style};
use disbatch_cli::args::Limits;
use disbatch_cli::output::{Column, Cut, Screen, Table, plain, visible};
use serde_json::{Value, json};

use super::report;
use super::verdict::{Tried, Verdict, Verdicts};

/// Of so many runs it is shown what came out differently.
const SHOWN: usize = 3;

const TABLE: Table = Table {
    columns: &[
        Column { title: "Task", cell: |run| plain(run.get("task")), cut: Cut::Late },
        Column { title: "Attempt", cell: |run| plain(run.get("attempt")), cut: Cut::Never },
        Column { title: "Was", cell: |run| plain(run.get("was")), cut: Cut::Never },
        Column { title: "Is", cell: |run| plain(run.get("is")), cut: Cut::Never },
        Column { title: "Change", cell: |run| plain(run.get("change")), cut: Cut::Never },
        Column { title: "Outcome", cell: |run| plain(run.get("outcome")), cut: Cut::Early },
    ],
    noun: "runs that did not come out as they were",
};

/// A run in a line.
pub fn line(tried: &Tried, limits: &Limits) -> String {
    let [was, is, change] = tried.times();
    let times = if is.is_empty() { String::new() } else { format!(", {was} → {is} ({change})") };
    format!("task {}, attempt {}: {}{times}", tried.task, tried.attempt, tried.words(limits))
}

/// Those that did not come out as they were, what differs in the first of them, and how many there are of each kind.
pub fn text(verdicts: &Verdicts<'_>, screen: Screen) -> String {
    let is_odd = |tried: &&Tried| tried.verdict(verdicts.limits) != Verdict::Same;
    let odd: Vec<Value> =
        verdicts.all.iter().filter(is_odd).map(|tried| row(tried, verdicts.limits)).collect();
    let mut text = if odd.is_empty() { String::new() } else { TABLE.render(&odd, screen) };
    let mut different =
        verdicts.all.iter().filter(|tried| tried.verdict(verdicts.limits) == Verdict::Different);
    for tried in different.by_ref().take(SHOWN) {
        let Ok(comparison) = &tried.outcome else { continue };
        let lines = report::differences(comparison, screen);
        if !lines.is_empty() {
            let name = format!("task {}, attempt {}", visible(&tried.task), tried.attempt);
            text.push_str(&format!(
                "\n{}\n{}\n",
                style(name).bold().underlined(),
                lines.join("\n").trim_start()
            ));
        }
    }
    let more = different.count();
    if more > 0 {
        text.push_str(&format!("\n{more} more are different: --html FILE and --json have them all\n"));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&counts(verdicts));
    text
}

fn row(tried: &Tried, limits: &Limits) -> Value {
    let [was, is, change] = tried.times();
    // Why something cannot be replayed may take several lines.
    let outcome = tried.words(limits).replace('\n', " ");
    json!({ "task": tried.task, "attempt": tried.attempt, "was": was, "is": is, "change": change, "outcome": outcome })
}

/// `12 runs: 9 same, 1 slower, 2 different`, and how long they took.
fn counts(verdicts: &Verdicts<'_>) -> String {
    let colour = |verdict| match verdict {
        Verdict::Same | Verdict::Faster => Style::new().green(),
        Verdict::Slower | Verdict::NotReplayable => Style::new().yellow(),
        Verdict::Different => Style::new().red(),
    };
    let count = |verdict: Verdict| {
        let count = verdicts.count(verdict);
        (count > 0).then(|| colour(verdict).apply_to(format!("{count} {}", verdict.word())).to_string())
    };
    let counts: Vec<String> = Verdict::ALL.into_iter().filter_map(count).collect();
    let noun = if verdicts.all.len() == 1 { "run" } else { "runs" };
    let mut text = format!("{} {noun}: {}\n", verdicts.all.len(), counts.join(", "));
    if let Some(median) = verdicts.median() {
        text.push_str(&format!("median: {median:.2} times as long as recorded\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_as_it_was_is_only_counted() {
        let limits = Limits { slower_than: 50.0, faster_than: 33.0, noise: Duration::ZERO };
        let tried = |number| Tried {
            number,
            task: format!("t{number}"),
            attempt: 1,
            plugin: "P".to_owned(),
            outcome: Err("the plugin P\nis not here".to_owned()),
        };
        let all = [tried(0), tried(1)];
        let text = text(&Verdicts { all: &all, limits: &limits }, Screen::default());
        assert!(
            text.contains(
                "t1   | 1       |     |    |        | not replayable: the plugin P is not here | \n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with(
                "\n2 total runs that did not come out as they were.\n\n2 runs: 2 not replayable\n"
            ),
            "{text}"
        );
        assert_eq!(line(&all[0], &limits), "task t0, attempt 1: not replayable: the plugin P\nis not here");
    }
}
