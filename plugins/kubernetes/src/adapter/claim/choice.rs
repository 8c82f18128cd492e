//! What is to be done next, from what jobs there are for a task. Pure.

use k8s_openapi::api::batch::v1::Job;

use super::super::cluster::{JobRef, Removal};
use super::super::job::Wanted;
use super::super::names::{ATTEMPT, DATABASE, STEP};
use super::super::verdict;

#[derive(Debug)]
pub enum Choice {
    /// Somebody else has the task.
    GiveWay,
    Remove(JobRef, Removal),
    /// To wait until one is gone.
    Wait,
    /// To follow this one, which the attempt with this number has made.
    Adopt(JobRef, String),
    /// To let this one begin, which is ours.
    Begin(JobRef),
    Make,
}

pub fn choose(jobs: &[Job], wanted: &Wanted) -> Choice {
    if jobs.iter().any(|job| attempt(job) > wanted.attempt) {
        return Choice::GiveWay;
    }
    let running = jobs.iter().filter(|job| is_running(job) && is_of_step(job, wanted));
    let running = running.max_by_key(|job| attempt(job));
    let is_to_stay = |job: &Job| match running {
        Some(running) => running.metadata.uid == job.metadata.uid,
        None => is_own(job, wanted) && is_waiting(job),
    };
    if let Some(job) = jobs.iter().find(|job| !is_going(job) && !is_to_stay(job)) {
        return remove(job);
    }
    if jobs.iter().any(is_going) {
        return Choice::Wait;
    }
    match (running, jobs.first()) {
        (Some(job), _) => Choice::Adopt(JobRef::of(job), label(job, ATTEMPT).to_owned()),
        (None, Some(own)) => Choice::Begin(JobRef::unchanged(own)),
        (None, None) => Choice::Make,
    }
}

/// One that has not begun may begin just now: then it is another matter.
fn remove(job: &Job) -> Choice {
    if is_waiting(job) {
        Choice::Remove(JobRef::unchanged(job), Removal::WithPods)
    } else {
        Choice::Remove(JobRef::of(job), Removal::WithPods)
    }
}

/// The attempt that has made a job.
pub fn attempt(job: &Job) -> u64 {
    label(job, ATTEMPT).parse().unwrap_or_default()
}

/// Whether a job is that of this attempt and step.
pub fn is_own(job: &Job, wanted: &Wanted) -> bool {
    job.metadata.name.as_deref() == Some(wanted.name.as_str())
}

/// Whether a job is that of a task of the same database. The same id may be in another one.
pub fn is_of_database(job: &Job, wanted: &Wanted) -> bool {
    label(job, DATABASE) == wanted.database()
}

/// Whether a job is being removed.
pub fn is_going(job: &Job) -> bool {
    job.metadata.deletion_timestamp.is_some()
}

/// Whether a job has not begun.
pub fn is_waiting(job: &Job) -> bool {
    !is_going(job) && job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

fn is_running(job: &Job) -> bool {
    !is_going(job) && !is_waiting(job) && verdict::of_job(job).is_none()
}

fn is_of_step(job: &Job, wanted: &Wanted) -> bool {
    label(job, STEP).parse().ok() == wanted.step
}

fn label<'a>(job: &'a Job, name: &str) -> &'a str {
    let labels = job.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(name)).map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::input::tests::told;
    use super::*;

    /// Attempt 3 of a task.
    fn wanted(step: Option<u64>) -> Wanted {
        let mut told = told(&json!({ "image": "i" }), &json!({}), &json!({}));
        told.step = step;
        Wanted::new(&told).unwrap()
    }

    fn job(attempt: u64, status: Value, more: Value) -> Job {
        let mut job = json!({
            "metadata": {
                "name": format!("disbatch-0a-{attempt}"), "uid": format!("u{attempt}"), "resourceVersion": "7",
                "labels": { "disbatch.attempt": attempt.to_string() },
            },
            "spec": { "template": {} },
            "status": status,
        });
        for (path, value) in more.as_object().unwrap() {
            match path.as_str() {
                "suspend" => job["spec"][path] = value.clone(),
                "step" => job["metadata"]["labels"]["disbatch.step"] = value.clone(),
                _ => job["metadata"][path] = value.clone(),
            }
        }
        serde_json::from_value(job).unwrap()
    }

    fn running(attempt: u64) -> Job {
        job(attempt, json!({ "active": 1 }), json!({}))
    }

    fn waiting(attempt: u64) -> Job {
        job(attempt, json!({}), json!({ "suspend": true }))
    }

    fn ended(attempt: u64) -> Job {
        job(attempt, json!({ "conditions": [{ "type": "Failed", "status": "True" }] }), json!({}))
    }

    fn going(attempt: u64) -> Job {
        job(attempt, json!({ "active": 1 }), json!({ "deletionTimestamp": "2026-11-20T08:24:27Z" }))
    }

    /// What is chosen, in short: what, which job, and whether it must not have changed.
    fn chosen(jobs: &[Job]) -> String {
        let of = |what: &str, job: &JobRef| {
            format!("{what} {}{}", job.uid, job.version.as_ref().map_or("", |_| " unchanged"))
        };
        match choose(jobs, &wanted(None)) {
            Choice::GiveWay => "give way".to_owned(),
            Choice::Remove(job, _) => of("remove", &job),
            Choice::Wait => "wait".to_owned(),
            Choice::Adopt(job, attempt) => format!("{} of {attempt}", of("adopt", &job)),
            Choice::Begin(job) => of("begin", &job),
            Choice::Make => "make".to_owned(),
        }
    }

    #[test]
    fn a_job_is_made_then_begins() {
        assert_eq!(chosen(&[]), "make");
        assert_eq!(chosen(&[waiting(3)]), "begin u3 unchanged");
        assert_eq!(chosen(&[running(3)]), "adopt u3 of 3");
    }

    #[test]
    fn what_runs_is_taken_over_and_what_has_ended_is_not() {
        assert_eq!(chosen(&[running(1)]), "adopt u1 of 1");
        assert_eq!(chosen(&[running(1), waiting(3)]), "remove u3 unchanged");
        assert_eq!(chosen(&[running(1), running(2)]), "remove u1");
        assert_eq!(chosen(&[ended(2)]), "remove u2");
        assert_eq!(chosen(&[ended(3)]), "remove u3");
        assert_eq!(chosen(&[ended(1), running(2)]), "remove u1");
    }

    #[test]
    fn an_earlier_one_that_has_not_begun_never_will() {
        assert_eq!(chosen(&[waiting(2)]), "remove u2 unchanged");
        assert_eq!(chosen(&[waiting(2), waiting(3)]), "remove u2 unchanged");
    }

    #[test]
    fn what_is_going_is_waited_for() {
        assert_eq!(chosen(&[going(2)]), "wait");
        assert_eq!(chosen(&[going(2), waiting(3)]), "wait");
        assert_eq!(chosen(&[going(1), ended(2)]), "remove u2");
    }

    #[test]
    fn a_later_attempt_comes_first() {
        for later in [waiting(4), running(4), ended(4), going(4)] {
            assert_eq!(chosen(&[running(1), waiting(3), later]), "give way");
        }
    }

    #[test]
    fn another_step_is_not_taken_over() {
        let first = job(2, json!({ "active": 1 }), json!({ "step": "1" }));
        let choice = |step: u64| choose(std::slice::from_ref(&first), &wanted(Some(step)));
        assert!(matches!(choice(1), Choice::Adopt(..)));
        assert!(matches!(choice(2), Choice::Remove(..)));
        assert_eq!(chosen(std::slice::from_ref(&first)), "remove u2");
    }
}
