//! What comes of a plugin whose result comes apart from what it prints. Its own streams are shown while it runs, and logged;
//! the task gets them only where there is no answer.

use bson::doc;
use disbatch_core::model::Status;
use disbatch_core::plugin::{Engine, Plugin};
use disbatch_core::task::COMMAND_FIELDS;

use crate::answer::{self, Answer};
use crate::capture::{Capture, Captures};
use crate::facts;
use crate::outcome::{Held, Verdict};
use crate::plugin::Ended;

/// Perl Disbatch's words for a task whose plugin has given no result.
const UNABLE: &[u8] = b"Unable to complete";

/// So many bytes at the end of each of its own streams are logged.
const LOGGED: usize = 8 * 1024;

/// What Disbatch 4.4 says in place of an exit status where a signal ended the program.
const BY_SIGNAL: i32 = -1;

/// What it says where the program could not be started.
const NOT_STARTED: i32 = -3;

/// What came of a plugin that has ended, with what it has answered, or why there is no answer. `own`: what it has printed.
/// What the task is to have is added to `captures`; if the plugin is the only one, values that are no text are kept.
pub async fn of(
    plugin: &Plugin,
    (answer, ended): (Result<Answer, String>, Ended),
    own: &Captures,
    (captures, is_only): (&mut Captures, bool),
) -> Verdict {
    log(own);
    let command = of_command(plugin, &ended);
    let mut verdict = match answer {
        Ok(answer) => {
            let is_program = plugin.manifest.engine == Engine::Program;
            // The harness of Perl answers when the plugin has returned, whole or not at all: how its process ends after that makes no difference.
            let status = answer.status();
            // A program that says that all is well, and then fails, has failed; so that nothing is lost, all that it has said is its
            // output.
            let overruled = is_program && status == Status::Succeeded && !ended.exit.success();
            let (status, answer) =
                if overruled { (Status::Failed, answer.into_output()) } else { (status, answer) };
            captures.stdout.push(answer::text(&answer.stdout).as_bytes());
            captures.stderr.push(answer::text(&answer.stderr).as_bytes());
            if overruled {
                add(own, captures).await;
            }
            let mut verdict = Verdict::with(ended, status);
            if is_only {
                verdict.held =
                    [held(&answer.stdout, &captures.stdout), held(&answer.stderr, &captures.stderr)];
            }
            verdict
        }
        Err(why) => {
            let mut verdict = Verdict::with(ended, Status::Failed);
            let is_its_own = verdict.is_its_own();
            if is_its_own {
                captures.stdout.push(UNABLE);
            }
            add(own, captures).await;
            if is_its_own {
                captures.stderr.note(&format!("disbatch: the plugin has given no result: {why}\n"));
                verdict.note.get_or_insert_with(|| "its plugin has given no result".to_owned());
            }
            verdict
        }
    };
    verdict.more.extend(command);
    verdict
}

/// What the task's `exit` has of a plugin that could not be started, if there is anything to be said.
pub fn not_started(plugin: &Plugin, why: &str) -> Option<bson::Document> {
    let [status, message] = COMMAND_FIELDS;
    let is_program = plugin.manifest.engine == Engine::Program;
    is_program.then(|| doc! { status: NOT_STARTED, message: why })
}

fn of_command(plugin: &Plugin, ended: &Ended) -> bson::Document {
    let mut exit = doc! {};
    if plugin.manifest.engine == Engine::Program {
        let [status, message] = COMMAND_FIELDS;
        exit.insert(status, ended.exit.code().unwrap_or(BY_SIGNAL));
        if !ended.exit.success() {
            let signal = facts::signal_note(ended.exit, ended.facts.exit.oom);
            let code = || format!("exit status {}", ended.exit.code().unwrap_or(BY_SIGNAL));
            exit.insert(message, signal.map_or_else(code, |note| note.trim_end().to_owned()));
        }
    }
    exit
}

fn held(value: &bson::Bson, text: &Capture) -> Option<Held> {
    answer::in_place_of_text(value).map(|value| Held { value, length: text.len() })
}

async fn add(own: &Captures, captures: &mut Captures) {
    for stream in [&own.stdout, &own.stderr] {
        match stream.reader() {
            Ok(reader) => captures.stderr.drain(reader).await,
            Err(error) => captures.stderr.note(&format!("disbatch: its output cannot be read: {error}\n")),
        }
        if let Some(failure) = stream.failure() {
            captures.stderr.note(&format!("disbatch: {failure}\n"));
        }
    }
}

fn log(own: &Captures) {
    for (name, stream) in [("standard output", &own.stdout), ("standard error", &own.stderr)] {
        match stream.tail(LOGGED) {
            Ok(tail) if tail.is_empty() => {}
            Ok(tail) => {
                let text = String::from_utf8_lossy(&tail);
                tracing::info!(bytes = stream.len(), "{name} of the plugin itself: {}", text.trim_end());
            }
            Err(error) => tracing::warn!(%error, "{name} of the plugin itself cannot be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use bson::{Bson, Document};
    use disbatch_core::plugin::Manifest;
    use serde_json::{Value, json};

    use super::*;
    use crate::control::Control;
    use crate::facts::ExitFacts;
    use crate::supervision::Reason;

    fn plugin(engine: &str) -> Plugin {
        let manifest = Manifest::from_value(json!({ "name": "A", "engine": engine })).unwrap();
        Plugin::new(manifest, "/bin/true".into(), Vec::new())
    }

    fn ended(status: i32, reason: Option<Reason>) -> Ended {
        let exit = ExitStatus::from_raw(status);
        let facts = ExitFacts::of_task(exit, Duration::ZERO, (Duration::ZERO, 0));
        Ended { exit, facts: ExitFacts { reason, ..facts }, control: Control::default() }
    }

    /// The status, both streams and what `exit` has besides, of a plugin that has printed `own` on both of its streams.
    async fn came(
        plugin: &Plugin,
        answer: Result<Value, &str>,
        ended: Ended,
    ) -> (i64, String, String, Verdict) {
        let mut own = Captures::new(None, None);
        own.stdout.push(b"own out\n");
        own.stderr.push(b"own err\n");
        let mut captures = Captures::new(None, None);
        let answer = answer.map_err(str::to_owned).and_then(|value| Answer::of_json(value.to_string()));
        let verdict = of(plugin, (answer, ended), &own, (&mut captures, true)).await;
        let (stdout, stderr) = (captures.stdout.text().await.unwrap(), captures.stderr.text().await.unwrap());
        (verdict.status.code(), stdout, stderr, verdict)
    }

    #[tokio::test]
    async fn what_a_program_answers_is_the_tasks() {
        let program = plugin("program");
        let answer = || Ok(json!({ "status": 1, "stdout": "out", "stderr": "err" }));
        let (status, stdout, stderr, verdict) = came(&program, answer(), ended(0, None)).await;
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (1, "out", "err"));
        assert_eq!(verdict.more, doc! { "cmdExit": 0 });
        let (status, stdout, stderr, verdict) = came(&program, answer(), ended(3 << 8, None)).await;
        assert_eq!((status, stderr.as_str()), (2, "own out\nown err\n"));
        let stdout: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(stdout, answer().unwrap());
        assert_eq!(verdict.more, doc! { "cmdExit": 3, "cmdErr": "exit status 3" });
        let own_status = Ok(json!({ "status": 7, "stdout": "x" }));
        let (status, stdout, stderr, verdict) = came(&program, own_status, ended(9, None)).await;
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (7, "x", ""));
        assert_eq!(verdict.more.get_i32("cmdExit").unwrap(), -1);
        for odd in [json!({}), json!({ "status": 0 }), json!({ "status": -1 }), json!({ "status": 1.5 })] {
            assert_eq!(came(&program, Ok(odd.clone()), ended(0, None)).await.0, 2, "{odd}");
        }
    }

    #[tokio::test]
    async fn what_a_perl_module_returns_may_be_any_value() {
        let answer = Ok(json!({ "status": "1", "stdout": 12, "stderr": [1], "raw": true }));
        let (status, stdout, stderr, verdict) = came(&plugin("perl"), answer, ended(0, None)).await;
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (1, "12", "[1]"));
        let held = verdict.held.map(|held| held.unwrap());
        assert_eq!(held[0], Held { value: Bson::Int32(12), length: 2 });
        assert_eq!(held[1].value, Bson::from(vec![1]));
        assert_eq!(verdict.more, Document::new());
    }

    #[tokio::test]
    async fn what_a_perl_module_has_returned_stands_however_its_process_ends() {
        let perl = plugin("perl");
        for exit in [1 << 8, 9, 11] {
            for code in [1, 2, 7] {
                let answer = Ok(json!({ "status": code, "stdout": "x" }));
                let (status, stdout, stderr, _) = came(&perl, answer, ended(exit, None)).await;
                assert_eq!((status, stdout.as_str(), stderr.as_str()), (code, "x", ""), "{exit}");
            }
        }
        let answer = Ok(json!({ "status": 1, "stdout": "x" }));
        let (status, ..) = came(&perl, answer, ended(15, Some(Reason::Cancel))).await;
        assert_eq!(status, -3);
    }

    #[tokio::test]
    async fn without_an_answer_there_is_what_was_printed() {
        for engine in ["perl", "program"] {
            let (status, stdout, stderr, verdict) =
                came(&plugin(engine), Err("none"), ended(3 << 8, None)).await;
            assert_eq!((status, stdout.as_str()), (2, "Unable to complete"));
            assert_eq!(stderr, "own out\nown err\ndisbatch: the plugin has given no result: none\n");
            assert_eq!(verdict.note.as_deref(), Some("its plugin has given no result"));
            let cancelled = ended(15, Some(Reason::Cancel));
            let (status, stdout, stderr, verdict) = came(&plugin(engine), Err("none"), cancelled).await;
            assert_eq!((status, stdout.as_str(), stderr.as_str()), (-3, "", "own out\nown err\n"));
            assert_eq!(verdict.note.as_deref(), Some("cancelled"));
        }
    }

    #[test]
    fn a_program_that_was_not_started_says_so() {
        let expected = doc! { "cmdExit": -3, "cmdErr": "no such file" };
        assert_eq!(not_started(&plugin("program"), "no such file"), Some(expected));
        assert_eq!(not_started(&plugin("perl"), "no such file"), None);
    }
}
