//! Which job is the task's: one of an earlier attempt that still runs, or a new one. Never are there two that run.
//!
//! A job is made so that it does not begin (`suspend`). Then all jobs of the task are looked at, and only if there is none besides
//! does it begin; each of that is done only if the job has not changed since. Of two attempts that do this at once, because a node is
//! cut off from the database but not from the cluster, at least one sees the other: the earlier one gives way to the later one,
//! and the later one removes an earlier job that has not begun, or takes it over if it has.

use std::time::Duration;

use disbatch_adapter::{Control, note};
use k8s_openapi::api::batch::v1::Job;
use kube::Error;
use kube::api::DeleteParams;
use tokio::time::sleep;

use super::cluster::{Cluster, JobRef, Pauses, describe, is_passing, patiently, soon};
use super::job::{ATTEMPT, DATABASE, STEP, Wanted};
use super::verdict;

/// How long it takes at least until the jobs of the task are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long it takes at least until it is tried again to let a job begin that somebody has changed.
const CHANGES: Duration = Duration::from_millis(20);

const REMOVALS: u32 = 5;

/// How long the jobs of a task that was stopped are waited for. The adapter is killed before.
const GOING: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Claimed {
    pub job: JobRef,
    /// The number of the attempt that has made it, if it was made by an earlier one.
    pub adopted: Option<String>,
}

/// Finds the job of the task, or makes it. Fails also if the task is another attempt's by now.
pub async fn claim(cluster: &Cluster, wanted: &Wanted, control: &mut Control) -> Result<Claimed, String> {
    let claimed = find(cluster, wanted, control).await;
    if claimed.is_err() {
        withdraw(cluster, wanted).await;
    }
    claimed
}

async fn find(cluster: &Cluster, wanted: &Wanted, control: &mut Control) -> Result<Claimed, String> {
    // The job that has its secret, and the one that was to begin.
    let (mut has_secret, mut tried): (Option<String>, Option<String>) = (None, None);
    loop {
        let look = async || cluster.jobs_of(&wanted.selector).await;
        let jobs = patiently("look for jobs of the task", look).await?;
        if let Some(tried) = &tried
            && let Some(claimed) = begun_after_all(&jobs, tried)?
        {
            return Ok(claimed);
        }
        match choose(&jobs, wanted) {
            Choice::GiveWay => return Err("a later attempt of this task has a job in the cluster".to_owned()),
            Choice::Remove(job) => {
                control.progress("waiting for the end of an earlier job of this task");
                let remove = async || cluster.remove(&job, DeleteParams::foreground()).await;
                if patiently("remove an earlier job", remove).await? {
                    tried = tried.filter(|tried| *tried != job.uid);
                    sleep(LOOK_AGAIN).await;
                }
            }
            Choice::Wait => {
                control.progress("waiting for the end of an earlier job of this task");
                sleep(LOOK_AGAIN).await;
            }
            Choice::Adopt(job, attempt) => {
                let adopted = Some(attempt).filter(|attempt| *attempt != wanted.attempt.to_string());
                return Ok(Claimed { job, adopted });
            }
            Choice::Begin(job) => {
                if has_secret.as_ref() != Some(&job.uid) {
                    let secret = wanted.secret(&job.uid);
                    let make = async || cluster.create_secret(&wanted.name, &secret).await;
                    patiently("make the secret of the task", make).await?;
                    has_secret = Some(job.uid.clone());
                }
                let begin = async || cluster.begin(&job).await;
                if patiently("let the job of the task begin", begin).await? {
                    return Ok(Claimed { job: JobRef { version: None, ..job }, adopted: None });
                }
                tried = Some(job.uid);
                sleep(CHANGES).await;
            }
            Choice::Make => make(cluster, wanted).await?,
        }
    }
}

/// Whether a job has begun after all, though the answer was lost. It may have ended by now, and yet is not to be made again.
fn begun_after_all(jobs: &[Job], uid: &str) -> Result<Option<Claimed>, String> {
    let Some(job) = jobs.iter().find(|job| job.metadata.uid.as_deref() == Some(uid)) else {
        return Err("somebody has removed the job of this task in the cluster".to_owned());
    };
    let has_begun = !is_waiting(job) && !is_going(job);
    Ok(has_begun.then(|| Claimed { job: JobRef::of(job), adopted: None }))
}

/// Makes the job. If it is there already, because an answer was lost, it will be found, unless it is that of another task.
async fn make(cluster: &Cluster, wanted: &Wanted) -> Result<(), String> {
    let make = async || cluster.create_job(&wanted.job).await;
    if patiently("make the job of the task", make).await? {
        return Ok(());
    }
    let look = async || cluster.job_named(&wanted.name).await;
    let found = patiently("look for jobs of the task", look).await?;
    if found.is_some_and(|job| !is_of_database(&job, wanted)) {
        return Err(format!("the job {} is of a task of another database", wanted.name));
    }
    sleep(LOOK_AGAIN).await;
    Ok(())
}

/// Removes what was made and has not begun. The cluster would keep it for ever.
async fn withdraw(cluster: &Cluster, wanted: &Wanted) {
    let mut pauses = Pauses::default();
    for _ in 0..REMOVALS {
        match is_withdrawn(cluster, wanted).await {
            Ok(true) => return,
            Err(error) if !is_passing(&error) => {
                return note(&format_args!("the job {} may be left: {}", wanted.name, describe(&error)));
            }
            Ok(false) | Err(_) => pauses.pause().await,
        }
    }
    note(&format_args!("the job {} may be left", wanted.name));
}

async fn is_withdrawn(cluster: &Cluster, wanted: &Wanted) -> Result<bool, Error> {
    let jobs = cluster.jobs_of(&wanted.selector).await?;
    let own = jobs.iter().find(|job| is_own(job, wanted) && is_waiting(job));
    match own {
        Some(job) => cluster.remove(&JobRef::unchanged(job), DeleteParams::background()).await,
        None => Ok(true),
    }
}

/// Removes all jobs of the task with their pods, and waits until they are gone. Those of later attempts are not for us.
pub async fn end_all(cluster: &Cluster, wanted: &Wanted) {
    let all_gone = async {
        loop {
            match is_all_gone(cluster, wanted).await {
                Ok(true) => return Ok(()),
                Err(error) if !is_passing(&error) => return Err(error),
                Ok(false) | Err(_) => sleep(LOOK_AGAIN).await,
            }
        }
    };
    match tokio::time::timeout(GOING, all_gone).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => note(&format_args!("jobs of the task may be left: {}", describe(&error))),
        Err(_) => note(&"jobs of the task are left"),
    }
}

async fn is_all_gone(cluster: &Cluster, wanted: &Wanted) -> Result<bool, Error> {
    let jobs = soon(cluster.jobs_of(&wanted.selector)).await?;
    let mut is_gone = true;
    for job in jobs.iter().filter(|job| attempt(job) <= wanted.attempt) {
        is_gone = false;
        if !is_going(job) {
            cluster.remove(&JobRef::of(job), DeleteParams::foreground()).await?;
        }
    }
    Ok(is_gone)
}

/// What is to be done next, from what jobs there are for a task.
#[derive(Debug)]
enum Choice {
    /// Somebody else has the task.
    GiveWay,
    Remove(JobRef),
    /// To wait until one is gone.
    Wait,
    /// To follow this one, which the attempt with this number has made.
    Adopt(JobRef, String),
    /// To let this one begin, which is ours.
    Begin(JobRef),
    Make,
}

fn choose(jobs: &[Job], wanted: &Wanted) -> Choice {
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
        // One that has not begun may begin just now: then it is another matter.
        return Choice::Remove(if is_waiting(job) { JobRef::unchanged(job) } else { JobRef::of(job) });
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

fn attempt(job: &Job) -> u64 {
    label(job, ATTEMPT).parse().unwrap_or_default()
}

fn is_own(job: &Job, wanted: &Wanted) -> bool {
    job.metadata.name.as_deref() == Some(wanted.name.as_str())
}

/// Whether a job is that of a task of the same database. The same id may be in another one.
fn is_of_database(job: &Job, wanted: &Wanted) -> bool {
    label(job, DATABASE) == wanted.database()
}

fn is_going(job: &Job) -> bool {
    job.metadata.deletion_timestamp.is_some()
}

fn is_waiting(job: &Job) -> bool {
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

    use super::*;
    use crate::input::tests::told;

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
            Choice::Remove(job) => of("remove", &job),
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
