//! What came of many runs as a page that needs nothing else: `--html`.

use askama::Template;
use disbatch_cli::args::{Limits, ReplayOptions};
use disbatch_cli::{args::seconds, status};
use disbatch_compare::diff::{self, Row};
use disbatch_compare::{Comparison, LeftFile, OtherVersion, StepEnd, Text};
use disbatch_core::text::percent;

use super::report::NO_TEXT;
use super::verdict::{Tried, Verdict, Verdicts};

/// The differences of so many runs are on it: a page with a thousand of them is one that no browser likes.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "replay.html")]
struct Page<'a> {
    title: String,
    with: Option<String>,
    counts: Vec<(Verdict, usize)>,
    median: Option<String>,
    limits: String,
    runs: Vec<Run<'a>>,
}

struct Run<'a> {
    task: &'a str,
    attempt: i64,
    plugin: &'a str,
    verdict: Verdict,
    why: String,
    times: [String; 3],
    facts: Vec<(&'static str, String, String)>,
    texts: Vec<(&'a Text, Vec<Row>)>,
}

pub fn render(verdicts: &Verdicts<'_>, options: &ReplayOptions) -> anyhow::Result<String> {
    let mut room = MOST;
    let runs = verdicts.all.iter().map(|tried| run(tried, verdicts.limits, &mut room)).collect();
    let title = match (&options.many.queue, verdicts.all.len()) {
        (Some(queue), count) => format!("Replay of {count} runs of {queue}"),
        (None, 1) => "Replay of a run".to_owned(),
        (None, count) => format!("Replay of {count} runs"),
    };
    let Limits { slower_than, faster_than, noise } = verdicts.limits;
    let page = Page {
        title,
        with: options.with.as_ref().map(|path| path.display().to_string()),
        counts: Verdict::ALL.map(|verdict| (verdict, verdicts.count(verdict))).to_vec(),
        median: verdicts.median().map(|median| format!("{median:.2}")),
        limits: format!(
            "Slower is what took more than {} longer, faster what took more than {} less, if that is more than {}.",
            percent(*slower_than, 1),
            percent(*faster_than, 1),
            seconds::words(noise.as_secs_f64()),
        ),
        runs,
    };
    Ok(page.render()?)
}

fn run<'a>(tried: &'a Tried, limits: &Limits, room: &mut usize) -> Run<'a> {
    let verdict = tried.verdict(limits);
    let (why, comparison) = match &tried.outcome {
        Ok(comparison) => (comparison.different().join(", "), Some(comparison)),
        Err(why) => (why.clone(), None),
    };
    let different = comparison.filter(|_| verdict == Verdict::Different && *room > 0);
    *room -= usize::from(different.is_some());
    Run {
        task: &tried.task,
        attempt: tried.attempt,
        plugin: &tried.plugin,
        verdict,
        why,
        times: tried.times(),
        facts: different.map(facts).unwrap_or_default(),
        texts: different.map(texts).unwrap_or_default(),
    }
}

/// Those that differ besides text.
fn facts(comparison: &Comparison) -> Vec<(&'static str, String, String)> {
    let mut facts = Vec::new();
    let Comparison { status, exit, steps, files, other_versions, note, .. } = comparison;
    for OtherVersion { plugin, was, is } in other_versions {
        facts.push(("version", format!("{plugin} {was}"), is.clone().unwrap_or_else(|| "none".to_owned())));
    }
    if !status.same {
        let words = |code: i64| format!("{code} {}", status::word(code));
        facts.push(("status", words(status.was), words(status.is)));
    }
    if !exit.same {
        facts.push(("exit", exit.was.to_string(), exit.is.to_string()));
    }
    if let Some(steps) = steps.as_ref().filter(|steps| !steps.same) {
        let words = |steps: &[StepEnd]| {
            let word = |step: &StepEnd| format!("{}: {}", step.name, status::word(step.status));
            steps.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        facts.push(("steps", words(&steps.was), words(&steps.is)));
    }
    if let Some(files) = files.as_ref().filter(|files| !files.same) {
        let words = |own: &[LeftFile], other: &[LeftFile]| {
            let paths: Vec<&str> =
                own.iter().filter(|file| !other.contains(file)).map(|file| file.path.as_str()).collect();
            if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
        };
        facts.push(("files", words(&files.was, &files.is), words(&files.is, &files.was)));
    }
    facts.extend(note.clone().map(|note| ("note", String::new(), note)));
    facts
}

fn texts(comparison: &Comparison) -> Vec<(&Text, Vec<Row>)> {
    let different = comparison.texts.iter().filter(|text| !text.same);
    different
        .map(|text| match text.difference.as_str() {
            "" => (text, vec![Row::Gap(NO_TEXT.to_owned())]),
            difference => (text, diff::rows(difference)),
        })
        .collect()
}

impl Verdict {
    const fn class(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Different => "different",
            Self::NotReplayable => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn it_shows_all_runs_and_needs_nothing_else() {
        let comparison = json!({
            "status": { "was": 1, "is": 2, "same": false }, "exit": { "was": {}, "is": {}, "same": true },
            "texts": [{
                "name": "stdout", "same": false, "was_bytes": 4, "is_bytes": 4,
                "difference": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n <x>\n-is 1\n+is <2>\n",
            }],
            "duration": { "was": 0.1, "is": 2.0 }, "memory": { "was": null, "is": null }, "changed_files": null, "note": null,
        });
        let tried = |number, outcome| Tried {
            number,
            task: "<b>t".to_owned(),
            attempt: 1,
            plugin: "P".to_owned(),
            outcome,
        };
        let all = [
            tried(0, Ok(serde_json::from_value(comparison).unwrap())),
            tried(1, Err("no <plugin>".to_owned())),
        ];
        let limits = Limits { slower_than: 50.0, faster_than: 33.0, noise: Duration::from_millis(100) };
        let words = ["disbatch", "replay", "a.tar", "--html", "x"].map(Into::into);
        let arguments = disbatch_cli::args::parse(&mut words.to_vec()).unwrap();
        let Some(disbatch_cli::args::Command::Replay(options)) = arguments.command else { panic!() };
        let page = render(&Verdicts { all: &all, limits: &limits }, &options).unwrap();
        for part in ["Replay of 2 runs", "1 succeeded", "2 failed", "+1900 %", "not replayable"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for odd in ["<script", "<b>t", "<x>", "<2>", "<plugin>", "http://", "https://", "src="] {
            assert!(!page.contains(odd), "{odd}: {page}");
        }
        assert!(page.matches("<tr").count() >= 6, "{page}");
    }
}
