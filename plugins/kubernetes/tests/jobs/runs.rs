//! What becomes of a task.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::adapter::{Adapter, DATABASE, TASK, job_of, task};
use crate::cluster::{Cluster, Kind, NAMESPACE};

#[test]
fn a_task_becomes_a_job_and_its_log_the_output() {
    let cluster = Cluster::start();
    let settings = json!({ "args": ["count"], "env": { "TOKEN": "{{secret:token}}" } });
    let mut told = task(&cluster, 1, &settings);
    told["secure_params"] = json!({ "password": "battery" });
    let adapter = Adapter::start_with(&told);
    let mut pod = cluster.pod_of(&job_of(1));
    let job = cluster.object(Kind::Job, NAMESPACE, &job_of(1));
    let labels = &job["metadata"]["labels"];
    assert_eq!((&labels["disbatch.task"], &labels["disbatch.database"]), (&json!(TASK), &json!(DATABASE)));
    // The pod has three seconds less than its adapter, and the job a minute more than its task.
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 300 + 17 + 60);
    assert_eq!(job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 17);
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["args"], json!(["count"]));
    assert!(!job.to_string().contains("horse") && !job.to_string().contains("battery"), "{job}");
    let secret = cluster.object(Kind::Secret, NAMESPACE, &job_of(1));
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
    let data = secret["stringData"].to_string();
    assert!(data.contains("horse") && data.contains("battery") && !data.contains("worker"), "{data}");
    pod.waits("ContainerCreating");
    adapter.until_written(2, "waiting: ContainerCreating");
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    pod.writes("one");
    adapter.until_written(0, "one\n");
    pod.writes("two  ");
    pod.writes("");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (Some(0), "one\ntwo  \n\n", "")
    );
    let expected = json!({
        "namespace": NAMESPACE, "job": job_of(1), "pod": pod.name(), "node": "worker-1", "digest": "sha256:1",
        "reason": "Completed", "exit_code": 0, "oom": false,
    });
    assert_eq!(outcome.facts(), &expected);
    for kind in [Kind::Job, Kind::Pod, Kind::Secret] {
        assert_eq!(cluster.count(kind), 0, "{kind:?} is left");
    }
}

#[test]
fn a_failure_is_that_of_the_container() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("no such file");
    pod.ends(3, "Error");
    let outcome = adapter.wait();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (Some(3), "no such file\n", "")
    );
    assert_eq!(outcome.facts()["exit_code"], 3);
    assert_eq!(cluster.count(Kind::Job), 0);
}

#[test]
fn memory_that_ran_out_is_named() {
    let cluster = Cluster::start();
    let settings = json!({ "resources": { "limits": { "memory": "64Mi" } } });
    let adapter = Adapter::start_with(&task(&cluster, 1, &settings));
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.ends(137, "OOMKilled");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.facts()["oom"].as_bool()), (Some(137), Some(true)));
    assert_eq!(outcome.stderr, "disbatch: the container ran out of memory: its limit is 64Mi\n");
}

#[test]
fn a_pod_that_was_evicted_is_a_failure_with_its_reason() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on");
    pod.set(
        json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." }),
    );
    let outcome = adapter.wait();
    assert_eq!((outcome.code, &outcome.facts()["reason"]), (Some(125), &json!("Evicted")));
    assert!(outcome.stderr.contains("Evicted: The node was low on resource: memory."), "{}", outcome.stderr);
}

#[test]
fn a_pod_that_somebody_deletes_is_a_failure() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on");
    pod.is_deleted();
    let outcome = adapter.wait();
    assert_eq!((outcome.code, &outcome.facts()["reason"]), (Some(125), &json!("Deleted")));
    assert!(outcome.stderr.contains("somebody has deleted the pod"), "{}", outcome.stderr);
}

#[test]
fn that_there_is_no_pod_is_said() {
    let cluster = Cluster::start();
    cluster.with(|world| world.makes_no_pods = true);
    let adapter = Adapter::start(&cluster, 1);
    let how = format!("kubectl -n {NAMESPACE} describe job {}", job_of(1));
    adapter.until_written(2, &format!("waiting: the cluster has made no pod yet ({how})"));
    cluster.with(|world| {
        world.makes_no_pods = false;
        world.settle();
    });
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!(adapter.wait().code, Some(0));
}

#[test]
fn an_image_that_cannot_be_is_not_waited_for() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    cluster.pod_of(&job_of(1)).waits("InvalidImageName");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""));
    assert_eq!(outcome.stderr, "disbatch: the container could not be started: InvalidImageName: m\n");
    assert_eq!(cluster.count(Kind::Job), 0);
}

#[test]
fn what_a_container_says_last_is_for_the_runner() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.ends_saying(0, "{\"result\":{\"rows\":7}}\nnot for it\n{\"status\":");
    let outcome = adapter.wait();
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.control.contains(&json!({ "result": { "rows": 7 } })), "{:?}", outcome.control);
    assert!(outcome.stderr.contains("is no JSON object, or is cut off"), "{}", outcome.stderr);
}

#[test]
fn a_task_that_is_to_end_takes_its_pod_with_it() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("half of it");
    adapter.until_written(0, "half of it\n");
    adapter.signal(Signal::SIGTERM);
    let outcome = adapter.wait();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (Some(143), "half of it\n", "")
    );
    for kind in [Kind::Job, Kind::Pod, Kind::Secret] {
        assert_eq!(cluster.count(kind), 0, "{kind:?} is left");
    }
}

#[test]
fn a_pod_that_does_not_want_to_end_is_waited_for() {
    let cluster = Cluster::start();
    cluster.with(|world| world.is_stubborn = true);
    let mut adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on");
    adapter.signal(Signal::SIGTERM);
    cluster.until("the job is to go", |world| {
        world
            .objects
            .iter()
            .any(|(key, job)| key.0 == Kind::Job && !job["metadata"]["deletionTimestamp"].is_null())
    });
    assert!(adapter.is_running() && cluster.count(Kind::Pod) == 1);
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, cluster.count(Kind::Job)), (Some(0), 0));
}

#[test]
fn a_task_that_ends_before_its_pod_begins_leaves_nothing() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    cluster.pod_of(&job_of(1));
    adapter.signal(Signal::SIGTERM);
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(143), ""));
    assert_eq!((cluster.count(Kind::Job), cluster.count(Kind::Pod)), (0, 0));
}

#[test]
fn tenants_have_namespaces_of_their_own() {
    let cluster = Cluster::start();
    let mut told = task(&cluster, 1, &json!({}));
    told["worker"]["engine_config"]["tenant_namespaces"] = "disbatch-{tenant}".into();
    told["worker"]["variables"]["TENANT_ID"] = "acme".into();
    let adapter = Adapter::start_with(&told);
    let pod = cluster.pod_of(&job_of(1));
    assert_eq!(pod.object()["metadata"]["namespace"], "disbatch-acme");
    pod.runs();
    pod.ends(0, "Completed");
    assert_eq!(adapter.wait().facts()["namespace"], "disbatch-acme");
    told["worker"]["variables"]["TENANT_ID"] = "Acme".into();
    let outcome = Adapter::start_with(&told).wait();
    assert_eq!(outcome.code, Some(125));
    assert!(outcome.stderr.contains("cannot be a namespace"), "{}", outcome.stderr);
}

#[test]
fn a_misspelt_key_is_not_passed_over() {
    let cluster = Cluster::start();
    let settings = json!({ "pod": { "spec": { "misspelt": true } } });
    let outcome = Adapter::start_with(&task(&cluster, 1, &settings)).wait();
    assert_eq!((outcome.code, cluster.count(Kind::Job)), (Some(125), 0));
    let expected = "cannot make the job of the task: strict decoding error: unknown field \"spec.template.spec.misspelt\" (400)";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
}

/// The first block of that language in the documentation.
fn documented(language: &str) -> &'static str {
    let page = include_str!("../../../../docs/engines/kubernetes.md");
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_documented_example_does_what_it_says() {
    let manifest: Value = serde_json::from_str(documented("json")).unwrap();
    assert_eq!(manifest["engine"], "kubernetes");
    let cluster = Cluster::start();
    let mut told = task(&cluster, 1, &manifest["kubernetes"]);
    told["params"] = json!({ "text": "one two two" });
    told["worker"]["variables"]["JOB_PARAMS"] = told["params"].to_string().into();
    let adapter = Adapter::start_with(&told);
    let mut pod = cluster.pod_of(&job_of(1));
    let container = pod.object()["spec"]["containers"][0].clone();
    assert_eq!(container["image"], "docker.io/library/busybox:1.37");
    // What a node of the cluster would do.
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let words: Vec<&str> =
        container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let variable = |name: &str| {
        let found = container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name);
        found.unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(variable("DISBATCH_CONTROL"), "/dev/termination-log");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("JOB_PARAMS", variable("JOB_PARAMS")).env("DISBATCH_CONTROL", &control);
    let ran = command.output().unwrap();
    assert!(ran.status.success());
    pod.runs();
    pod.writes(String::from_utf8(ran.stdout).unwrap().trim_end());
    pod.ends_saying(0, &fs::read_to_string(&control).unwrap());
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (Some(0), "3\n", ""));
    assert!(outcome.control.contains(&json!({ "result": { "words": 3 } })), "{:?}", outcome.control);
}
