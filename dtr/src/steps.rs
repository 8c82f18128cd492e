//! How far the steps of a task are: what tasks have in `steps`, and what their progress says.

use bson::{Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{Status, number};

use crate::capture::Captures;
use crate::outcome::Verdict;
use crate::relay::Relay;

/// A step among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfStep {
    /// Its number, from 1 on.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    pub name: String,
}

impl OfStep {
    /// Whether no other plugin of the task comes after it.
    pub fn is_last(&self) -> bool {
        self.number >= self.of
    }

    /// It in words: `step 2 of 3 (convert)`.
    pub fn words(&self) -> String {
        format!("step {} of {} ({})", self.number, self.of, self.name)
    }

    /// The progress of the task, when its plugin says this of its own.
    pub fn progress(&self, own: &Document) -> Document {
        let part = own.get("percent").and_then(number).unwrap_or(0.0);
        let before = f64::from(self.number.saturating_sub(1)) * 100.0;
        let words = self.words();
        let message = match own.get_str("message") {
            Ok(message) => format!("{words}: {message}"),
            Err(_) => words,
        };
        doc! {
            "percent": (before + part) / f64::from(self.of.max(1)), "message": message, "step": self.number,
            "steps": self.of,
        }
    }
}

/// The states of all steps, which are told whenever one changes. An ordinary task has none.
#[derive(Debug)]
pub struct Board {
    states: Vec<Document>,
    relay: Relay,
}

impl Board {
    /// None has begun of so many.
    pub fn new(steps: usize, relay: Relay) -> Self {
        Self { states: waiting(steps), relay }
    }

    /// The plugin of the step `index` is about to be started; what it writes comes after what is captured.
    pub fn begin(&mut self, index: usize, captures: &Captures) {
        let offset = |length: u64| i64::try_from(length).unwrap_or(i64::MAX);
        let output_at = doc! {
            "stdout": offset(captures.stdout.len()), "stderr": offset(captures.stderr.len()),
        };
        let started = SystemClock.now();
        self.set(index, doc! { "status": Status::Running, "started": started, "output_at": output_at });
    }

    pub fn end(&mut self, index: usize, verdict: &Verdict) {
        let mut end = doc! { "status": verdict.status, "ended": SystemClock.now() };
        if let Some(exit) = verdict.exit() {
            end.insert("exit", exit);
        }
        if let Some(note) = &verdict.note {
            end.insert("message", note);
        }
        self.set(index, end);
    }

    fn set(&mut self, index: usize, fields: Document) {
        if let Some(state) = self.states.get_mut(index) {
            state.extend(fields);
            self.relay.steps.send_replace(Some(self.states.clone()));
        }
    }
}

/// The states of so many steps, of which one cannot be begun.
pub fn unable_to_start(steps: usize, index: usize, why: &str) -> Vec<Document> {
    let mut states = waiting(steps);
    if let Some(state) = states.get_mut(index) {
        state.extend(doc! { "status": Status::Failed, "ended": SystemClock.now(), "message": why });
    }
    states
}

fn waiting(steps: usize) -> Vec<Document> {
    vec![doc! { "status": Status::Queued }; steps]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay;

    fn second() -> OfStep {
        OfStep { number: 2, of: 4, name: "convert".to_owned() }
    }

    #[test]
    fn a_step_knows_whether_it_is_the_last() {
        let of = |number, of| OfStep { number, of, name: String::new() };
        assert_eq!([of(1, 1), of(1, 2), of(2, 2)].map(|step| step.is_last()), [true, false, true]);
        assert!(!second().is_last());
    }

    #[test]
    fn progress_is_that_of_the_whole_task() {
        let expected = doc! {
            "percent": 37.5, "message": "step 2 of 4 (convert): half", "step": 2, "steps": 4,
        };
        assert_eq!(second().progress(&doc! { "percent": 50.0, "message": "half" }), expected);
        let expected = doc! { "percent": 25.0, "message": "step 2 of 4 (convert)", "step": 2, "steps": 4 };
        assert_eq!(second().progress(&doc! {}), expected);
    }

    #[test]
    fn states_say_what_has_become_of_each_step() {
        let (relay, _inbox) = relay::channel();
        let mut captures = Captures::new(None, None);
        let mut board = Board::new(3, relay);
        board.begin(0, &captures);
        captures.stdout.push(b"four");
        board.end(0, &Verdict::unable_to_start("no disk".to_owned()));
        board.begin(1, &captures);
        board.begin(7, &captures);
        let statuses: Vec<i32> = board.states.iter().map(|state| state.get_i32("status").unwrap()).collect();
        assert_eq!(statuses, [2, 0, -2]);
        assert_eq!(board.states[0].get_str("message").unwrap(), "no disk");
        assert!(board.states[0].get_datetime("ended").is_ok());
        let output_at = |index: usize| board.states[index].get_document("output_at").unwrap().clone();
        assert_eq!(output_at(0), doc! { "stdout": 0_i64, "stderr": 0_i64 });
        assert_eq!(output_at(1), doc! { "stdout": 4_i64, "stderr": 0_i64 });
        assert_eq!(board.states[2], doc! { "status": -2 });
    }

    #[test]
    fn a_step_that_cannot_be_begun_is_the_only_one_that_has_ended() {
        let states = unable_to_start(2, 1, "why");
        assert_eq!(states[0], doc! { "status": -2 });
        assert_eq!(states[1].get_i32("status").unwrap(), 2);
        assert_eq!(states[1].get_str("message").unwrap(), "why");
    }
}
