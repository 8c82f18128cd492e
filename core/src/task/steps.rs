//! Steps: how far the run of a task with several plugins is, and what becomes of its steps when that is over.
//!
//! Only the runner knows how far they are, so it writes the states of all of them at once: the newest word counts, and
//! nothing depends on the ones before it having been heard.

use bson::{Bson, Document, doc};

use crate::budget::{self, size_of_field};
use crate::model::{STEPS, Status};

/// The states, with so much of them as there is room for: of many steps that told much, how each has ended.
fn within_budget(states: &[Document]) -> Vec<Document> {
    let mut states = states.to_vec();
    for without in ["exit", "message"] {
        if size_of_field(STEPS, &states.clone().into()) <= budget::STATES {
            break;
        }
        for state in &mut states {
            state.remove(without);
        }
    }
    states
}

fn asked_for(step: &str) -> Document {
    doc! {
        "name": format!("{step}.name"), "plugin": format!("{step}.plugin"), "params": format!("{step}.params"),
    }
}

/// All steps by `each`, an expression of `$$step`, where the task has any.
fn all(each: Document) -> Document {
    let map = doc! { "$map": { "input": "$steps", "as": "step", "in": each } };
    doc! { "$cond": [{ "$isArray": "$steps" }, map, "$steps"] }
}

pub(super) fn stated(states: &[Document]) -> Document {
    let state = doc! { "$arrayElemAt": [{ "$literal": within_budget(states) }, "$$n"] };
    let one = doc! { "$let": {
        "vars": { "step": { "$arrayElemAt": ["$steps", "$$n"] } },
        "in": { "$mergeObjects": [asked_for("$$step"), state] },
    } };
    let numbers = doc! { "$range": [0, { "$size": "$steps" }] };
    let map = doc! { "$map": { "input": numbers, "as": "n", "in": one } };
    doc! { "$cond": [{ "$isArray": "$steps" }, map, "$steps"] }
}

/// The steps as they were before the first of them began: the next attempt begins with that.
pub(super) fn queued() -> Document {
    all(doc! { "$mergeObjects": [asked_for("$$step"), { "status": Status::Queued }] })
}

/// The steps of a run that has ended with `status` without its runner: so has the one that ran.
pub(super) fn closed(status: Status) -> Document {
    let ended = doc! { "$mergeObjects": ["$$step", { "status": status, "ended": "$$NOW" }] };
    all(doc! { "$cond": [{ "$eq": ["$$step.status", Status::Running] }, ended, "$$step"] })
}

/// What is kept of the steps of an attempt that ended with `status`: not what was asked for, which is in the task.
pub(super) fn kept(steps: Option<&Bson>, status: Status) -> Option<Bson> {
    let steps = steps?.as_array()?.iter().map(|step| match step {
        Bson::Document(step) => {
            let mut step = step.clone();
            step.remove("params");
            if step.get("status") == Some(&Bson::from(Status::Running)) {
                step.insert("status", status);
            }
            Bson::Document(step)
        }
        other => other.clone(),
    });
    Some(Bson::Array(steps.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_tell_much_keep_their_states() {
        let state =
            |exit: usize| doc! { "status": 1, "message": "m", "exit": { "engine": "x".repeat(exit) } };
        let few = vec![state(9), state(9)];
        assert_eq!(within_budget(&few), few);
        let many = vec![state(20_000); 100];
        assert_eq!(within_budget(&many), vec![doc! { "status": 1, "message": "m" }; 100]);
        let long = doc! { "status": 2, "message": "x".repeat(9_000) };
        assert_eq!(within_budget(&vec![long; 100]), vec![doc! { "status": 2 }; 100]);
    }

    #[test]
    fn of_an_attempt_only_is_kept_what_became_of_its_steps() {
        let steps = Bson::from(vec![
            doc! { "name": "a", "params": { "x": 1 }, "status": 1, "exit": { "code": 0 } },
            doc! { "name": "b", "plugin": "B", "params": {}, "status": 0 },
            doc! { "name": "c", "params": {}, "status": -2 },
        ]);
        let expected = Bson::from(vec![
            doc! { "name": "a", "status": 1, "exit": { "code": 0 } },
            doc! { "name": "b", "plugin": "B", "status": -6 },
            doc! { "name": "c", "status": -2 },
        ]);
        assert_eq!(kept(Some(&steps), Status::Orphaned), Some(expected));
        assert_eq!(kept(None, Status::Failed), None);
        assert_eq!(kept(Some(&Bson::from("odd")), Status::Failed), None);
    }
}
