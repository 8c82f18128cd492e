//! `disbatch-kubernetes`: runs the tasks of plugins with the engine `kubernetes`, each as a Job of a cluster.
//!
//! A runner starts it as it starts any plugin, and what holds for plugins holds for it: it reads the task from its
//! standard input, its output is the task's, and SIGTERM means that the task is to end.
//!
//! Its client is the feature `client` of this crate. Without it there is no such program: a node that has none leaves tasks
//! of such plugins to others.

mod changes;
mod claim;
mod cluster;
mod follow;
mod input;
mod job;
mod log;
mod pod;
mod verdict;

use std::process::ExitCode;

use disbatch_adapter::{CANNOT_RUN, Control, Stop, TOLD_TO_END, block_on, note, with_task, without_nulls};
use kube::api::DeleteParams;
use serde_json::{Map, Value, json};

use claim::Claimed;
use cluster::{Cluster, describe, persistently};
use follow::{Following, JobOutcome, SETTLES};
use input::JobInput;
use job::Wanted;
use verdict::{Seen, Stage};

const REMOVALS: u32 = 5;

fn main() -> ExitCode {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    block_on(with_task(work))
}

async fn work(line: &[u8]) -> Result<u8, String> {
    let told = JobInput::parse(line)?;
    let mut stop = Stop::listen().map_err(|error| format!("cannot listen to signals: {error}"))?;
    let mut control = Control::from_environment();
    let wanted = Wanted::new(&told)?;
    let of_node = told.worker.engine_config.clone().unwrap_or_default();
    let cluster = tokio::select! {
        cluster = Box::pin(Cluster::find(&of_node, wanted.namespace.as_deref())) => cluster?,
        () = stop.wanted() => return Ok(TOLD_TO_END),
    };
    let claimed = tokio::select! {
        claimed = Box::pin(claim::claim(&cluster, &wanted, &mut control)) => Some(claimed?),
        () = stop.wanted() => None,
    };
    let Some(claimed) = claimed else {
        Box::pin(claim::end_all(&cluster, &wanted)).await;
        return Ok(TOLD_TO_END);
    };
    if let Some(attempt) = &claimed.adopted {
        note(&format_args!("going on with the job {}, of attempt {attempt}", claimed.job.name));
    }
    let container = wanted.container();
    let following = Following {
        cluster: &cluster,
        job: &claimed.job,
        selector: &wanted.selector,
        container: &container,
        settles: SETTLES + told.worker.grace(),
    };
    let outcome = Box::pin(following.follow(&mut control, &mut stop)).await;
    if !outcome.as_ref().is_ok_and(|outcome| outcome.stopped) {
        let has_ended =
            matches!(&outcome, Ok(JobOutcome { seen: Some(Seen { stage: Stage::Ended(_), .. }), .. }));
        // The next attempt waits for a job that is there until its pod is gone.
        let how = if has_ended { DeleteParams::background() } else { DeleteParams::foreground() };
        remove(&cluster, &claimed, &how).await;
    }
    let outcome = outcome?;
    report(&outcome, &mut control, &facts(&cluster, &claimed, &outcome));
    explain(&outcome, &wanted);
    Ok(exit_code(&outcome))
}

/// Removes a job that is followed no more. If it cannot be, the cluster does it later.
async fn remove(cluster: &Cluster, claimed: &Claimed, how: &DeleteParams) {
    let mut left = REMOVALS;
    let goes_on = || {
        left -= 1;
        left > 0
    };
    let remove = async || cluster.remove(&claimed.job, how.clone()).await;
    if let Err(error) = persistently(goes_on, remove).await {
        note(&format_args!("the job {} is left for the cluster: {}", claimed.job.name, describe(&error)));
    }
}

fn facts(cluster: &Cluster, claimed: &Claimed, outcome: &JobOutcome) -> Map<String, Value> {
    let (seen, ended) = (outcome.seen.as_ref(), &outcome.ended);
    without_nulls(json!({
        "namespace": cluster.namespace,
        "job": claimed.job.name,
        "pod": seen.map(|seen| &seen.pod),
        "node": seen.and_then(|seen| seen.node.as_ref()),
        "digest": seen.and_then(|seen| seen.digest.as_ref()),
        "exit_code": ended.code,
        "oom": ended.oom,
        "reason": Some(&ended.reason).filter(|reason| !reason.is_empty()),
        "adopted_from_attempt": claimed.adopted,
    }))
}

/// Passes on what the container has said last, and says what there is to know of it.
fn report(outcome: &JobOutcome, control: &mut Control, facts: &Map<String, Value>) {
    let last_words = outcome.ended.last_words.as_deref().unwrap_or_default();
    for line in last_words.lines().map(str::trim).filter(|line| line.starts_with('{')) {
        match serde_json::from_str::<Map<String, Value>>(line) {
            Ok(message) => {
                control.send(&Value::Object(message));
            }
            // Kubernetes keeps no more than 4096 bytes.
            Err(_) => {
                note(&"a line that the container has written for its runner is no JSON object, or is cut off")
            }
        }
    }
    control.send(&json!({ "facts": facts }));
}

fn explain(outcome: &JobOutcome, wanted: &Wanted) {
    if outcome.stopped {
        return;
    }
    if outcome.ended.oom {
        match wanted.memory() {
            Some(limit) => note(&format_args!("the container ran out of memory: its limit is {limit}")),
            None => note(&"the container ran out of memory"),
        }
    }
    if let Some(why) = &outcome.ended.why {
        note(why);
    }
}

fn exit_code(outcome: &JobOutcome) -> u8 {
    match outcome.ended.code {
        Some(code) => u8::try_from(code).unwrap_or(CANNOT_RUN),
        None if outcome.stopped => TOLD_TO_END,
        None => CANNOT_RUN,
    }
}

#[cfg(test)]
mod tests {
    use super::verdict::Ended;
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_container_if_it_has_one() {
        let of = |code: Option<i32>, stopped: bool| {
            exit_code(&JobOutcome { seen: None, ended: Ended { code, ..Ended::default() }, stopped })
        };
        assert_eq!([of(Some(0), false), of(Some(3), false), of(Some(143), true)], [0, 3, 143]);
        assert_eq!(
            [of(None, false), of(None, true), of(Some(-1), false)],
            [CANNOT_RUN, TOLD_TO_END, CANNOT_RUN]
        );
    }
}
