//! How a task ends that a web service works on: what is noted of it, and what that means. Pure.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::EXTERNAL;
use crate::clock;
use crate::model::{Rules, Status, Task, number};
use crate::store::{between, put};
use crate::task::Finish;
use crate::text::cut;

/// A note in the history has so many characters of the service's message at most.
const NOTED: usize = 500;

disbatch_values::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Reason {
        Service = "service",
        Cancel = "cancel",
        Silence = "silence",
        Timeout = "timeout",
        Deadline = "deadline",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub status: Status,
    pub reason: Reason,
    pub message: Option<String>,
    pub result: Option<Document>,
}

impl Ending {
    pub(crate) fn ordered(reason: Reason) -> Self {
        Self { status: Status::Terminated, reason, message: None, result: None }
    }

    pub(crate) fn of(external: &Document) -> Option<Self> {
        let end = external.get_document("end").ok()?;
        Some(Self {
            status: Status::stored(end)?,
            reason: end.get_str("reason").ok().and_then(Reason::named).unwrap_or(Reason::Service),
            message: end.get_str("message").ok().map(str::to_owned),
            result: end.get_document("result").ok().cloned(),
        })
    }

    pub(super) fn document(&self) -> Document {
        let mut end = doc! { "status": self.status, "reason": self.reason.as_str() };
        put(&mut end, "message", self.message.as_ref());
        put(&mut end, "result", self.result.as_ref());
        end
    }

    fn note(&self, external: &Document) -> Option<String> {
        let message = self.message.as_deref().map(|message| cut(message.trim(), NOTED, "..."));
        let message = message.filter(|message| !message.is_empty());
        match self.reason {
            Reason::Cancel => Some("cancelled".to_owned()),
            Reason::Timeout => Some("it took longer than its timeout".to_owned()),
            Reason::Deadline => Some("its deadline passed".to_owned()),
            Reason::Silence => {
                let seconds = external.get("timeout").and_then(number).unwrap_or_default();
                Some(format!("nothing was heard from its web service for {seconds} s"))
            }
            Reason::Service => match (self.status, message) {
                (Status::Terminated, None) => Some("its web service has aborted it".to_owned()),
                (Status::Terminated, Some(message)) => {
                    Some(format!("its web service has aborted it: {message}"))
                }
                (_, message) => message,
            },
        }
    }

    /// After which pause the task is tried again, if it is: after a failure and after a timeout.
    pub(super) fn again(&self, task: &Task, rules: &Rules) -> Option<Duration> {
        let may_be = match self.reason {
            Reason::Service => self.status == Status::Failed && !task.is_to_be_cancelled(),
            Reason::Silence | Reason::Timeout => !task.is_to_be_cancelled(),
            Reason::Cancel | Reason::Deadline => false,
        };
        if may_be { rules.after_failure(task.failures(), clock::chance()) } else { None }
    }

    pub(super) fn finish(&self, task: &Task, stdout: Bson) -> Finish {
        let empty = Document::new();
        let external = task.rest.get_document(EXTERNAL).unwrap_or(&empty);
        let message = self.message.as_deref().filter(|message| !message.is_empty());
        // What goes well is no matter for standard error.
        let stderr = message.filter(|_| self.status != Status::Succeeded).map(|message| {
            let end = if message.ends_with('\n') { "" } else { "\n" };
            format!("{message}{end}")
        });
        Finish {
            status: self.status,
            stdout,
            stderr: stderr.map_or(Bson::Null, Bson::from),
            complete: true,
            result: self.result.clone(),
            exit: Some(self.exit(task, external)),
            note: self.note(external),
            last_line: None,
            pause: None,
            recorded: None,
            trial: None,
        }
    }

    /// How it ended, as tasks have it in `exit`: times in seconds.
    fn exit(&self, task: &Task, external: &Document) -> Document {
        let mut exit = Document::new();
        put(&mut exit, "reason", (self.reason != Reason::Service).then(|| self.reason.as_str()));
        let ended = external.get_document("end").and_then(|end| end.get_datetime("at"));
        if let (Ok(began), Ok(ended)) = (task.rest.get_datetime("started"), ended) {
            // The two come from different clocks.
            exit.insert("duration", between(*began, *ended).as_secs_f64());
        }
        exit
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, deserialize_from_document};

    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_000 + seconds * 1000)
    }

    fn task(fields: Document, external: Document) -> Task {
        let mut task = doc! {
            "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "started": at(0), "attempt": 1,
        };
        task.extend(fields);
        task.insert(EXTERNAL, external);
        deserialize_from_document(task).unwrap()
    }

    fn rules(task: &Task) -> Rules {
        Rules::of(task, None)
    }

    fn said(status: i64, message: Option<&str>) -> Ending {
        Ending {
            status: Status::from_code(status),
            reason: Reason::Service,
            message: message.map(str::to_owned),
            result: None,
        }
    }

    #[test]
    fn what_is_noted_is_read_again() {
        let ending = Ending { result: Some(doc! { "rows": 3 }), ..said(2, Some("no disk")) };
        assert_eq!(Ending::of(&doc! { "end": ending.document() }), Some(ending));
        for reason in [Reason::Cancel, Reason::Silence, Reason::Timeout, Reason::Deadline] {
            let ending = Ending::ordered(reason);
            assert_eq!(Ending::of(&doc! { "end": ending.document() }), Some(ending));
        }
        assert_eq!(Ending::of(&doc! { "end": Bson::Null }), None);
    }

    #[test]
    fn what_a_service_says_is_in_the_task() {
        let running = task(doc! {}, doc! { "timeout": 5.0, "end": { "at": at(90) } });
        let done = said(1, Some("3 rows")).finish(&running, "log".into());
        assert_eq!(
            (done.status, &done.stdout, &done.stderr),
            (Status::Succeeded, &"log".into(), &Bson::Null)
        );
        assert_eq!((done.note.as_deref(), done.exit), (Some("3 rows"), Some(doc! { "duration": 90.0 })));
        let failed = said(2, Some("no disk")).finish(&running, Bson::Null);
        assert_eq!((failed.stderr, failed.note.as_deref()), ("no disk\n".into(), Some("no disk")));
        let aborted = said(-3, None).finish(&running, Bson::Null);
        assert_eq!(aborted.note.as_deref(), Some("its web service has aborted it"));
        let silent = Ending::ordered(Reason::Silence).finish(&running, Bson::Null);
        assert_eq!(silent.note.as_deref(), Some("nothing was heard from its web service for 5 s"));
        assert_eq!(silent.exit, Some(doc! { "reason": "silence", "duration": 90.0 }));
        let long = said(1, Some(&"é".repeat(2_000))).finish(&running, Bson::Null);
        assert_eq!(long.note.unwrap().chars().count(), NOTED + 3);
    }

    #[test]
    fn failures_and_silence_are_tried_again_and_nothing_else() {
        let twice = task(doc! { "max_attempts": 2 }, doc! {});
        let again = |ending: &Ending| ending.again(&twice, &rules(&twice)).is_some();
        assert!(again(&said(2, None)) && again(&Ending::ordered(Reason::Silence)));
        assert!(again(&Ending::ordered(Reason::Timeout)));
        for ending in [said(1, None), said(-3, None), said(7, None)] {
            assert!(!again(&ending), "{ending:?}");
        }
        for reason in [Reason::Cancel, Reason::Deadline] {
            assert!(!again(&Ending::ordered(reason)), "{reason:?}");
        }
        let asked = task(doc! { "max_attempts": 2, "cancel": { "by": "ada" } }, doc! {});
        assert_eq!(said(2, None).again(&asked, &rules(&asked)), None);
        let once = task(doc! {}, doc! {});
        assert_eq!(said(2, None).again(&once, &rules(&once)), None);
    }
}
