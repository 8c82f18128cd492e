//! No task runs twice at the same time, whoever dies, and however many try.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::adapter::{Adapter, DATABASE, TASK, job_of, task};
use crate::cluster::{Cluster, Kind, NAMESPACE, Refusal, Trouble};

/// How many pods there ever were.
fn pods(cluster: &Cluster) -> usize {
    cluster.with(|world| world.pods.len())
}

#[test]
fn a_job_whose_adapter_was_killed_is_followed_by_the_next_attempt() {
    let cluster = Cluster::start();
    let first = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("one");
    first.until_written(0, "one\n");
    first.kill();
    pod.writes("two");
    let second = Adapter::start(&cluster, 2);
    second.until_written(0, "one\ntwo\n");
    pod.writes("three");
    pod.ends(0, "Completed");
    let outcome = second.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "one\ntwo\nthree\n"));
    assert_eq!(
        (&outcome.facts()["job"], &outcome.facts()["adopted_from_attempt"]),
        (&json!(job_of(1)), &json!("1"))
    );
    assert!(outcome.stderr.contains("going on with the job"), "{}", outcome.stderr);
    assert_eq!((pods(&cluster), cluster.count(Kind::Job)), (1, 0));
}

#[test]
fn a_job_that_has_ended_is_not_followed() {
    let cluster = Cluster::start();
    let first = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    first.until_written(2, "runs on");
    first.kill();
    pod.ends(1, "Error");
    let second = Adapter::start(&cluster, 2);
    let pod = cluster.pod_of(&job_of(2));
    assert_eq!(cluster.count(Kind::Job), 1, "the first one is gone before there is a second");
    pod.runs();
    pod.ends(0, "Completed");
    let outcome = second.wait();
    assert_eq!((outcome.code, pods(&cluster)), (Some(0), 2));
    assert_eq!(outcome.facts().get("adopted_from_attempt"), None);
}

#[test]
fn a_job_that_is_going_is_waited_for() {
    let cluster = Cluster::start();
    cluster.with(|world| world.is_stubborn = true);
    let first = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    first.until_written(2, "runs on");
    first.signal(nix::sys::signal::Signal::SIGTERM);
    cluster.until("the job is to go", |world| {
        world
            .objects
            .iter()
            .any(|(key, job)| key.0 == Kind::Job && !job["metadata"]["deletionTimestamp"].is_null())
    });
    first.kill();
    let second = Adapter::start(&cluster, 2);
    second.until_written(2, "waiting for the end of an earlier job");
    assert_eq!((pods(&cluster), cluster.count(Kind::Job)), (1, 1));
    pod.ends(143, "Error");
    let pod = cluster.pod_of(&job_of(2));
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!((second.wait().code, pods(&cluster)), (Some(0), 2));
}

#[test]
fn a_pod_that_is_drained_has_its_time_and_then_is_waited_for() {
    let cluster = Cluster::start();
    cluster.with(|world| world.is_stubborn = true);
    let mut told = task(&cluster, 1, &json!({}));
    // Of which the pod has five.
    told["worker"]["grace"] = json!(8.0);
    let first = Adapter::start_with(&told);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    first.until_written(2, "runs on");
    let drained = Instant::now();
    pod.is_drained();
    assert_eq!(first.wait().code, Some(125));
    assert!(drained.elapsed() >= Duration::from_secs(10 + 5));
    let second = Adapter::start(&cluster, 2);
    second.until_written(2, "waiting for the end of an earlier job");
    assert_eq!((pods(&cluster), cluster.count(Kind::Pod), cluster.count(Kind::Job)), (1, 1, 1));
    pod.ends(143, "Error");
    let pod = cluster.pod_of(&job_of(2));
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!((second.wait().code, pods(&cluster)), (Some(0), 2));
}

/// A job of another attempt that somebody else looks after.
fn job(cluster: &Cluster, attempt: u32, suspended: bool) {
    job_of_database(cluster, attempt, suspended, DATABASE);
}

fn job_of_database(cluster: &Cluster, attempt: u32, suspended: bool, database: &str) {
    let labels = json!({
        "disbatch.task": TASK, "disbatch.attempt": attempt.to_string(), "disbatch.database": database,
    });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "task", "image": "i" }] } });
    let job = json!({
        "metadata": { "name": job_of(attempt), "labels": labels },
        "spec": { "suspend": suspended, "template": template },
    });
    let made = cluster.with(|world| world.create(Kind::Job, NAMESPACE, job).is_ok());
    assert!(made);
}

#[test]
fn an_attempt_gives_way_to_a_later_one() {
    let cluster = Cluster::start();
    job(&cluster, 3, true);
    let outcome = Adapter::start(&cluster, 2).wait();
    assert_eq!((outcome.code, pods(&cluster), cluster.count(Kind::Job)), (Some(125), 0, 1));
    assert!(outcome.stderr.contains("a later attempt of this task"), "{}", outcome.stderr);
}

#[test]
fn a_job_that_somebody_else_makes_meanwhile_is_seen_before_the_own_one_begins() {
    let cluster = Cluster::start();
    // It is kept from beginning, as by others who change it.
    for _ in 0..2_000 {
        cluster.trouble("PATCH", "/jobs", Trouble::Refused(Refusal::new(409, "Conflict", "it has changed")));
    }
    let adapter = Adapter::start(&cluster, 2);
    cluster.until("its own job", |world| world.objects.keys().any(|key| key.2 == job_of(2)));
    job(&cluster, 3, false);
    let outcome = adapter.wait();
    assert!(outcome.stderr.contains("a later attempt of this task"), "{}", outcome.stderr);
    assert_eq!((outcome.code, pods(&cluster), cluster.count(Kind::Job)), (Some(125), 1, 1));
}

#[test]
fn a_copy_of_the_database_has_jobs_of_its_own() {
    let cluster = Cluster::start();
    job_of_database(&cluster, 1, false, "copy");
    let adapter = Adapter::start(&cluster, 2);
    let pod = cluster.pod_of(&job_of(2));
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!((adapter.wait().code, cluster.count(Kind::Job)), (Some(0), 1), "the other one is not touched");
    // They have the same name.
    let outcome = Adapter::start(&cluster, 1).wait();
    assert_eq!((outcome.code, cluster.count(Kind::Job)), (Some(125), 1));
    let expected = format!("the job {} is of a task of another database", job_of(1));
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
}

#[test]
fn an_earlier_job_that_has_not_begun_never_does() {
    let cluster = Cluster::start();
    job(&cluster, 1, true);
    let adapter = Adapter::start(&cluster, 2);
    let pod = cluster.pod_of(&job_of(2));
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!((adapter.wait().code, pods(&cluster), cluster.count(Kind::Job)), (Some(0), 1, 0));
}

#[test]
fn steps_have_jobs_of_their_own() {
    let cluster = Cluster::start();
    for step in ["1", "2"] {
        let mut told = task(&cluster, 1, &json!({}));
        told["worker"]["variables"]["DISBATCH_STEP"] = step.into();
        let adapter = Adapter::start_with(&told);
        let pod = cluster.pod_of(&format!("{}-{step}", job_of(1)));
        assert_eq!(pod.object()["metadata"]["labels"]["disbatch.step"], step);
        pod.runs();
        pod.ends(0, "Completed");
        assert_eq!(adapter.wait().code, Some(0));
    }
    assert_eq!((pods(&cluster), cluster.count(Kind::Job)), (2, 0));
}

#[test]
fn a_request_whose_answer_is_lost_makes_no_second_job() {
    for (method, part) in [("POST", "/jobs"), ("POST", "/secrets"), ("PATCH", "/jobs")] {
        let cluster = Cluster::start();
        cluster.trouble(method, part, Trouble::Unanswered);
        let adapter = Adapter::start(&cluster, 1);
        let pod = cluster.pod_of(&job_of(1));
        pod.runs();
        pod.ends(0, "Completed");
        let outcome = adapter.wait();
        assert_eq!(
            (outcome.code, outcome.stderr.as_str(), pods(&cluster)),
            (Some(0), "", 1),
            "{method} {part}"
        );
        assert_eq!((cluster.count(Kind::Job), cluster.count(Kind::Secret)), (0, 0), "{method} {part}");
    }
}
