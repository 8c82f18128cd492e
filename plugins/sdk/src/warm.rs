//! The warm way to be run: one process, task after task. See the section "Warm plugins" of `docs/plugins.md`.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::Control;
use crate::{Error, Task};

/// Names the wish of the runner in the environment.
const VARIABLE: &str = "DISBATCH_WARM";

const PANICKED: u8 = 101;

pub(crate) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

pub(crate) fn serve<E: Display>(
    mut input: impl BufRead,
    control: &mut Control,
    mut work: impl FnMut(&mut Task) -> Result<(), E>,
) -> ExitCode {
    let mut line = String::new();
    loop {
        line.clear();
        match input.read_line(&mut line) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) => {}
            Err(error) => return lost(&Error::Task(error.to_string())),
        }
        let (brought, has_several) = match read(&line) {
            Ok(Line { tasks: Some(tasks), .. }) => (tasks, true),
            Ok(Line { task: Some(task), env, work_dir, .. }) => (vec![Parts { task, env, work_dir }], false),
            // It is not about one that is being worked on: this would not be read then.
            Ok(Line { cancel: Some(_), .. }) => continue,
            // Whose end it would be is not known.
            Ok(_) => return lost(&Error::Task("the line has no task".to_owned())),
            Err(error) => return lost(&error),
        };
        for parts in brought {
            let mut task = match Task::brought(parts, std::mem::take(control)) {
                Ok(task) => task,
                Err(error) => return lost(&error),
            };
            task.is_one_of(has_several);
            let code = one(&mut task, &mut work);
            let done = match has_several {
                true => json!({ "done": { "exit": code } }),
                false => json!({ "done": { "id": task.id(), "exit": code } }),
            };
            *control = task.into_control();
            control.send(&done);
            if control.is_closed() {
                return ExitCode::FAILURE;
            }
        }
    }
}

fn lost(error: &Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "{error}");
    ExitCode::FAILURE
}

/// Does one task, and returns what would be the exit status of a process of its own. Its output has left this
/// process then.
fn one<E: Display>(task: &mut Task, work: &mut impl FnMut(&mut Task) -> Result<(), E>) -> u8 {
    // Nothing of a task that has panicked is used for the next one, save what `work` itself keeps.
    let outcome = catch_unwind(AssertUnwindSafe(|| work(task)));
    let flushed = io::stdout().flush();
    let (code, message) = match outcome {
        Ok(Ok(())) => match flushed {
            Ok(()) => return 0,
            Err(error) => (1, format!("cannot write standard output: {error}")),
        },
        Ok(Err(error)) => (1, format!("{error:#}")),
        // The hook has printed it.
        Err(panic) => {
            forget(panic);
            return PANICKED;
        }
    };
    task.print_error(&format!("{message}\n"));
    code
}

fn forget(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// What a line brings: a task, or several, or that one is to end.
#[derive(Debug, Deserialize)]
struct Line {
    task: Option<Value>,
    #[serde(default)]
    env: Value,
    work_dir: Option<String>,
    tasks: Option<Vec<Parts>>,
    cancel: Option<Value>,
}

/// A task: its document, its variables and its folder.
#[derive(Debug, Deserialize)]
pub(crate) struct Parts {
    pub(crate) task: Value,
    #[serde(default)]
    pub(crate) env: Value,
    pub(crate) work_dir: Option<String>,
}

fn read(line: &str) -> Result<Line, Error> {
    serde_json::from_str(line).map_err(|error| Error::Task(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::control;

    /// What a runner reads when `work` is given these lines.
    fn served<E: Display>(
        lines: &str,
        work: impl FnMut(&mut Task) -> Result<(), E>,
    ) -> (ExitCode, Vec<Value>) {
        let (mut control, mut reader) = control::tests::connected();
        let code = serve(lines.as_bytes(), &mut control, work);
        drop(control);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (code, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn line(id: &str, params: &Value) -> String {
        let task = json!({ "_id": { "$oid": id }, "params": params });
        let env = json!({ "DISBATCH_TASK_ID": id, "DISBATCH_QUEUE": "q" });
        format!("{}\n", json!({ "task": task, "env": env, "work_dir": format!("/tmp/{id}") }))
    }

    #[test]
    fn each_task_is_done_before_the_next_one_begins() {
        let lines = line("a", &json!({ "n": 1 })) + &line("b", &json!({ "n": 2 }));
        let mut seen = Vec::new();
        let (code, said) = served(&lines, |task| {
            task.set_result(json!({ "n": task.param::<i32>("n")? }))?;
            let folder = task.work_dir().display().to_string();
            seen.push((task.variable("DISBATCH_TASK_ID"), folder));
            Ok::<(), Error>(())
        });
        assert_eq!(code, ExitCode::SUCCESS);
        let expected = [
            json!({ "result": { "n": 1 } }),
            json!({ "done": { "id": "a", "exit": 0 } }),
            json!({ "result": { "n": 2 } }),
            json!({ "done": { "id": "b", "exit": 0 } }),
        ];
        assert_eq!(said, expected);
        let of = |id: &str| (Some(id.to_owned()), format!("/tmp/{id}"));
        assert_eq!(seen, [of("a"), of("b")]);
    }

    #[test]
    fn errors_and_panics_are_failures_of_their_task_only() {
        let lines: String = ["a", "b", "c"].iter().map(|id| line(id, &json!({ "how": id }))).collect();
        let (code, said) = served(&lines, |task| match task.id() {
            "a" => Err("no disk"),
            "b" => panic!("on purpose"),
            _ => Ok(()),
        });
        assert_eq!(code, ExitCode::SUCCESS);
        let exits: Vec<i64> = said.iter().map(|line| line["done"]["exit"].as_i64().unwrap()).collect();
        assert_eq!(exits, [1, 101, 0]);
    }

    #[test]
    fn several_tasks_of_one_line_are_answered_by_name() {
        let one = |id: &str| line(id, &json!({}));
        let both = format!("{{\"tasks\":[{},{}]}}\n", one("a").trim(), one("b").trim());
        let lines = format!("{both}{{\"cancel\":{{\"id\":\"a\"}}}}\n{}", one("c"));
        let (code, said) = served(&lines, |task| {
            task.print("out");
            if task.id() == "b" { Err("no disk") } else { Ok(()) }
        });
        assert_eq!(code, ExitCode::SUCCESS);
        let expected = [
            json!({ "id": "a", "stdout": "out" }),
            json!({ "id": "a", "done": { "exit": 0 } }),
            json!({ "id": "b", "stdout": "out" }),
            json!({ "id": "b", "stderr": "no disk\n" }),
            json!({ "id": "b", "done": { "exit": 1 } }),
            json!({ "done": { "id": "c", "exit": 0 } }),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_line_that_is_no_task_ends_the_process() {
        let good = line("a", &json!({}));
        for bad in ["nope\n", "[]\n", "{}\n", "{\"task\":5}\n", "{\"task\":{\"_id\":"] {
            let (code, said) = served(&format!("{good}{bad}{good}"), |_| Ok::<(), Error>(()));
            assert_eq!((code, said.len()), (ExitCode::FAILURE, 1), "{bad}");
        }
    }

    #[test]
    fn a_runner_that_is_gone_ends_the_process() {
        let (mut control, reader) = control::tests::connected();
        drop(reader);
        let mut count = 0;
        let work = |_: &mut Task| {
            count += 1;
            Ok::<(), Error>(())
        };
        let lines = line("a", &json!({})).repeat(3);
        assert_eq!(serve(lines.as_bytes(), &mut control, work), ExitCode::FAILURE);
        assert_eq!(count, 1);
    }
}
