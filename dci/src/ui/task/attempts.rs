//! The attempts of a task, of which one's output is shown.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Document;
use disbatch_core::model::{Status, whole_number};

use super::life::status;
use super::output::Of;
use crate::ui::StatusView;

/// The last so many have a tab; there may be thousands.
const MOST: usize = 20;

/// Whose output is shown.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub of: Of,
    /// The earlier attempt, if it is that of one.
    pub earlier: Option<&'a Document>,
    /// Whether somebody has chosen it, so that it stays what comes next.
    pub fixed: bool,
}

impl<'a> Choice<'a> {
    /// The one that is asked for, or else the last one. As long as a task waits for its next attempt, that is an earlier one. `None`:
    /// there is no such attempt.
    pub fn of(task: &Document, attempts: &'a [Document], asked: Option<i64>) -> Option<Self> {
        let earlier = asked.and_then(|asked| attempts.iter().find(|attempt| number(attempt) == asked));
        let is_last = |asked| !matches!(current(task), Current::Waiting) && asked == number(task);
        (earlier.is_some() || asked.is_none_or(is_last)).then(|| Self::with(task, attempts, earlier))
    }

    fn with(task: &Document, attempts: &'a [Document], earlier: Option<&'a Document>) -> Self {
        let of = |attempt: &'a Document, fixed| Self {
            of: Of::Earlier(number(attempt)),
            earlier: Some(attempt),
            fixed,
        };
        if let Some(attempt) = earlier {
            return of(attempt, true);
        }
        match (current(task), attempts.last()) {
            (Current::Waiting, Some(last)) => of(last, false),
            (Current::Running(attempt), _) => Self { of: Of::Running(attempt), earlier: None, fixed: false },
            _ => Self { of: Of::Task, earlier: None, fixed: false },
        }
    }

    /// The number of the earlier attempt.
    pub fn earlier_number(&self) -> Option<i64> {
        self.earlier.map(number)
    }

    /// The number of the attempt, if there is one yet.
    pub fn number(&self, task: &Document) -> Option<i64> {
        let of_task = || (!matches!(current(task), Current::Waiting)).then(|| number(task));
        self.earlier_number().or_else(of_task)
    }
}

/// Where a task is between its attempts.
enum Current {
    Running(i64),
    Waiting,
    Ended,
}

fn current(task: &Document) -> Current {
    let attempt = number(task);
    match status(task) {
        Some(Status::Running) => Current::Running(attempt),
        // What was cancelled between two attempts has the output of none.
        Some(Status::Cancelled) => Current::Waiting,
        Some(status) if status.has_ended() => Current::Ended,
        _ => Current::Waiting, // It has not begun, or nobody knows what it means.
    }
}

fn number(document: &Document) -> i64 {
    document.get("attempt").and_then(whole_number).unwrap_or(0)
}

/// A tab for each attempt, if there are several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/attempts.html")]
pub struct Tabs {
    id: String,
    tabs: Vec<Tab>,
    /// The one that is shown.
    chosen: Option<i64>,
}

impl HtmlSafe for Tabs {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tab {
    number: i64,
    status: StatusView,
    /// Whether it is kept apart from the task.
    earlier: bool,
}

impl Tabs {
    /// Those of a task, of which `chosen` is shown; else the last one.
    pub fn of(id: &str, task: &Document, attempts: &[Document], chosen: Option<i64>) -> Self {
        let earlier = attempts.iter().map(|attempt| Tab {
            number: number(attempt),
            status: StatusView::of(attempt),
            earlier: true,
        });
        let last = Tab { number: number(task).max(1), status: StatusView::of(task), earlier: false };
        let has_own = !matches!(current(task), Current::Waiting);
        let mut tabs: Vec<Tab> = earlier.chain(has_own.then_some(last)).collect();
        tabs.drain(..tabs.len().saturating_sub(MOST));
        if tabs.len() < 2 {
            tabs.clear();
        }
        Self { id: id.to_owned(), tabs, chosen }
    }

    pub fn with_chosen(self, chosen: Option<i64>) -> Self {
        Self { chosen, ..self }
    }

    fn is_chosen(&self, tab: &Tab) -> bool {
        match self.chosen {
            Some(chosen) => tab.number == chosen,
            None => !tab.earlier,
        }
    }

    fn address(&self, tab: &Tab) -> String {
        let of = if tab.earlier { format!("?.attempt={}", tab.number) } else { String::new() };
        format!("/tasks/{}{of}#output", self.id)
    }
}

/// `6 · failure 2 of 4`: the attempt, and what is known of failures. `most`: so many end the task.
pub fn words(task: &Document, most: Option<i64>) -> Option<String> {
    let attempt = task.get("attempt").and_then(whole_number).filter(|attempt| *attempt >= 1);
    let parts: Vec<String> =
        [attempt.map(|n| n.to_string()), failures(task, most)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// `failure 2 of 4` if the last attempt has failed, `1 of 4 failures` if others had. Nothing of an only attempt, or where none has failed.
/// Only failures count towards the bound: an attempt that was interrupted, given back or ended by hand costs none, so that there may be more attempts than that.
pub fn failures(task: &Document, most: Option<i64>) -> Option<String> {
    let earlier = task.get("failures").and_then(whole_number).unwrap_or(0).max(0);
    let timed_out = || {
        task.get_document("exit").is_ok_and(|exit| exit.get_str("reason").is_ok_and(|why| why == "timeout"))
    };
    // The failure that ends a task is not counted among those after which it was tried again.
    let (count, is_last) = match status(task) {
        Some(Status::Failed) => (earlier.saturating_add(1), true),
        Some(Status::Terminated) if timed_out() => (earlier.saturating_add(1), true),
        Some(Status::Deferred) => (earlier, true),
        _ => (earlier, false), // It goes on, has succeeded, or ended by what is no failure of its plugin.
    };
    // The bound may have been lowered since.
    let most = most.filter(|most| *most >= 2 && *most >= count);
    match (count, is_last, most) {
        (0, ..) => None,
        (_, true, None) if earlier == 0 => None,
        (count, true, Some(most)) => Some(format!("failure {count} of {most}")),
        (count, true, None) => Some(format!("failure {count}")),
        (count, false, Some(most)) => Some(format!("{count} of {most} failures")),
        (count, false, None) => Some(format!("{count} failure{}", if count == 1 { "" } else { "s" })),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_last_attempt_is_shown_unless_another_is_asked_for() {
        let attempts = [doc! { "attempt": 1, "status": 2 }, doc! { "attempt": 2, "status": 2 }];
        let choice = |task: Document, asked| {
            let choice = Choice::of(&task, &attempts, asked).unwrap();
            (choice.of, choice.earlier_number(), choice.fixed)
        };
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, None), (Of::Running(3), None, false));
        assert_eq!(choice(doc! { "status": 2, "attempt": 3 }, None), (Of::Task, None, false));
        for waiting in [-7, -4, -2, -1, -5] {
            let shown = choice(doc! { "status": waiting, "attempt": 2 }, None);
            assert_eq!(shown, (Of::Earlier(2), Some(2), false), "{waiting}");
        }
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, Some(1)), (Of::Earlier(1), Some(1), true));
        assert_eq!(choice(doc! { "status": 0, "attempt": 3 }, Some(3)), (Of::Running(3), None, false));
        assert_eq!(Choice::of(&doc! { "status": -2 }, &[], None).unwrap().of, Of::Task);
    }

    #[test]
    fn there_is_no_attempt_that_was_not_made() {
        let attempts = [doc! { "attempt": 1, "status": 2 }];
        let is_there = |task: Document, asked| Choice::of(&task, &attempts, Some(asked)).is_some();
        let running = doc! { "status": 0, "attempt": 2 };
        assert_eq!(
            [0, 1, 2, 3, -1].map(|asked| is_there(running.clone(), asked)),
            [false, true, true, false, false]
        );
        assert!(!is_there(doc! { "status": -7, "attempt": 2 }, 2), "it waits for it");
        assert!(Choice::of(&doc! { "status": -2 }, &[], Some(1)).is_none());
    }

    #[test]
    fn each_attempt_has_a_tab() {
        let attempts = [doc! { "attempt": 1, "status": 2 }, doc! { "attempt": 2, "status": -3 }];
        let task = doc! { "status": 0, "attempt": 3 };
        let html = Tabs::of("6b", &task, &attempts, Some(2)).render().unwrap();
        assert!(
            html.contains(
                "<a href=\"/tasks/6b?.attempt=2#output\" data-attempt=\"2\" aria-current=\"true\">"
            ),
            "{html}"
        );
        assert_eq!(html.matches("<a ").count(), 3);
        assert_eq!(html.matches("aria-current").count(), 1);
        let running = Tabs::of("6b", &task, &attempts, None).render().unwrap();
        assert!(
            running.contains("<a href=\"/tasks/6b#output\" data-attempt=\"3\" aria-current=\"true\">"),
            "{running}"
        );
        let waiting = Tabs::of("6b", &doc! { "status": -7, "attempt": 2 }, &attempts, Some(2));
        assert_eq!(waiting.tabs.len(), 2);
        let alone = Tabs::of("6b", &doc! { "status": 1 }, &[], None).render().unwrap();
        assert!(alone.contains("id=\"task-attempts\"") && !alone.contains("<a "), "{alone}");
    }

    #[test]
    fn what_counts_towards_the_bound_is_failures() {
        let of = |task: Document, most: Option<i64>| words(&task, most).unwrap_or_default();
        let task = |status: i32, failures: i64| doc! { "status": status, "attempt": 6, "failures": failures };
        assert_eq!(of(task(2, 1), Some(4)), "6 · failure 2 of 4", "four others were given back");
        assert_eq!(of(task(2, 1), None), "6 · failure 2");
        assert_eq!(of(task(2, 4), Some(3)), "6 · failure 5", "the bound was lowered");
        assert_eq!(of(task(-7, 2), Some(4)), "6 · failure 2 of 4");
        assert_eq!(of(task(0, 2), Some(4)), "6 · 2 of 4 failures");
        assert_eq!(of(task(1, 1), None), "6 · 1 failure");
        assert_eq!(of(task(-6, 2), Some(3)), "6 · 2 of 3 failures", "who has died has not failed");
        assert_eq!(of(doc! { "status": 2, "attempt": 1 }, None), "1");
        assert_eq!(of(task(-7, 1), None), "6 · failure 1");
        assert_eq!(of(doc! { "status": 2, "attempt": 1 }, Some(3)), "1 · failure 1 of 3");
        let timed_out = doc! { "status": -3, "attempt": 2, "failures": 1, "exit": { "reason": "timeout" } };
        assert_eq!(of(timed_out, Some(2)), "2 · failure 2 of 2");
        let cancelled = doc! { "status": -3, "attempt": 2, "failures": 1, "exit": { "reason": "cancel" } };
        assert_eq!(of(cancelled, Some(2)), "2 · 1 of 2 failures");
        assert_eq!(words(&doc! { "attempt": "x", "failures": "y" }, Some(2)), None);
    }
}
