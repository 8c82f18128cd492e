//! Which job is the task's: one of an earlier attempt that still runs, or a new one. Never are there two that run.
//!
//! A job is made so that it does not begin (`suspend`). Then all jobs of the task are looked at, and only if there is none besides
//! does it begin; each of that is done only if the job has not changed since. Of two attempts that do this at once, because a node is
//! cut off from the database but not from the cluster, at least one sees the other: the earlier one gives way to the later one,
//! and the later one removes an earlier job that has not begun, or takes it over if it has.

mod choice;

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::Error;
use serde_json::json;
use tokio::time::sleep;

use super::cluster::{Cluster, JobRef, Pauses, Removal, Removed, describe, is_passing, patiently, soon};
use super::job::Wanted;
use choice::{Choice, choose};
use disbatch_adapter::Control;
use disbatch_adapter::note;

/// How long it takes at least until the jobs of the task are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long it takes at least until it is tried again to let a job begin that somebody has changed.
const CHANGES: Duration = Duration::from_millis(20);

/// How often it is tried to remove a job that must not begin.
const REMOVALS: u32 = 5;

/// How long the jobs of a task that was stopped are waited for. The adapter is killed before.
const GOING: Duration = Duration::from_secs(60);

/// The job of the task.
#[derive(Debug)]
pub struct Claimed {
    pub job: JobRef,
    /// The number of the attempt that has made it, if it was made by an earlier one.
    pub adopted: Option<String>,
}

/// Finds the job of the task, or makes it.
///
/// # Errors
/// The cluster refuses it, cannot be reached, or the task is another attempt's by now.
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
        let look = patiently("look for jobs of the task", async || cluster.jobs_of(&wanted.selector).await);
        let jobs = refused("look for jobs of the task", look.await?)?;
        if let Some(tried) = &tried
            && let Some(claimed) = begun_after_all(&jobs, tried)?
        {
            return Ok(claimed);
        }
        match choose(&jobs, wanted) {
            Choice::GiveWay => return Err("a later attempt of this task has a job in the cluster".to_owned()),
            Choice::Remove(job, how) => {
                control.progress("waiting for the end of an earlier job of this task");
                let removed = patiently("remove an earlier job", async || cluster.remove(&job, how).await);
                if refused("remove an earlier job", removed.await?)? == Removed::Done {
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
                    let made = patiently("make the secret of the task", async || {
                        cluster.create_secret(&wanted.name, &secret).await
                    });
                    refused("make the secret of the task", made.await?)?;
                    has_secret = Some(job.uid.clone());
                }
                if begin(cluster, &job).await? {
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
    let has_begun = !choice::is_waiting(job) && !choice::is_going(job);
    Ok(has_begun.then(|| Claimed { job: JobRef::of(job), adopted: None }))
}

/// Makes the job. If it is there already, because an answer was lost, it will be found, unless it is that of another task.
async fn make(cluster: &Cluster, wanted: &Wanted) -> Result<(), String> {
    let made = patiently("make the job of the task", async || cluster.create_job(&wanted.job).await);
    match made.await? {
        Err(Error::Api(status)) if status.is_already_exists() => {
            let look = patiently("look for jobs of the task", async || cluster.job_named(&wanted.name).await);
            let found = refused("look for jobs of the task", look.await?)?;
            if found.is_some_and(|job| !choice::is_of_database(&job, wanted)) {
                return Err(format!("the job {} is of a task of another database", wanted.name));
            }
            sleep(LOOK_AGAIN).await;
            Ok(())
        }
        made => refused("make the job of the task", made).map(drop),
    }
}

/// Lets a job begin if it is as it was seen. Tells whether it was.
async fn begin(cluster: &Cluster, job: &JobRef) -> Result<bool, String> {
    let patch = json!({
        "metadata": { "uid": job.uid, "resourceVersion": job.version },
        "spec": { "suspend": false },
    });
    let begun = patiently("let the job of the task begin", async || {
        cluster.patch_job(&job.name, &patch).await.map(drop)
    });
    match begun.await? {
        Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
        begun => refused("let the job of the task begin", begun).map(|()| true),
    }
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
    let own = jobs.iter().find(|job| choice::is_own(job, wanted) && choice::is_waiting(job));
    match own {
        Some(job) => Ok(cluster.remove(&JobRef::unchanged(job), Removal::PodsLater).await? == Removed::Done),
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
    for job in jobs.iter().filter(|job| choice::attempt(job) <= wanted.attempt) {
        is_gone = false;
        if !choice::is_going(job) {
            cluster.remove(&JobRef::of(job), Removal::WithPods).await?;
        }
    }
    Ok(is_gone)
}

fn refused<T>(what: &str, answer: Result<T, Error>) -> Result<T, String> {
    answer.map_err(|error| format!("cannot {what}: {}", describe(&error)))
}
