use serde_json::{Value, json};

use super::*;

/// A pod with this status, and besides with these fields.
fn pod(status: Value, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": "p", "uid": "u" }, "spec": { "nodeName": "worker-1", "containers": [] }, "status": status,
    });
    for (key, value) in more.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

/// The state of the task's container in a list of all.
fn containers(state: Value) -> Value {
    json!([
        { "name": "side", "state": { "running": {} }, "image": "s", "imageID": "s" },
        { "name": "task", "state": state, "image": "i", "imageID": "r/i@sha256:1" },
    ])
}

fn terminated(code: i32, reason: &str) -> Value {
    containers(json!({ "terminated": {
        "exitCode": code, "reason": reason, "startedAt": "2026-11-20T08:24:27Z", "finishedAt": "2026-11-20T08:24:28Z",
    } }))
}

fn stage_of(status: Value) -> Stage {
    look(&pod(status, json!({})), "task", false).stage
}

fn end_of(status: Value) -> Ended {
    match stage_of(status) {
        Stage::Ended(ended) => ended,
        other => panic!("{other:?}"),
    }
}

fn wait_of(status: Value) -> (String, Trouble) {
    match stage_of(status) {
        Stage::Waiting { why, trouble } => (why, trouble),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_waits_then_runs_then_ends() {
    assert_eq!(wait_of(json!({ "phase": "Pending" })), ("Pending".to_owned(), Trouble::Nothing));
    let running = pod(
        json!({ "phase": "Running", "containerStatuses": containers(json!({ "running": {} })) }),
        json!({}),
    );
    let seen = look(&running, "task", false);
    assert_eq!(
        (seen.pod.as_str(), seen.node.as_deref(), seen.stage),
        ("p", Some("worker-1"), Stage::Running)
    );
    assert_eq!(seen.digest.as_deref(), Some("sha256:1"));
    let done = end_of(json!({ "phase": "Running", "containerStatuses": terminated(0, "Completed") }));
    assert_eq!((done.code, done.reason.as_str(), done.why), (Some(0), "Completed", None));
    let failed = end_of(json!({ "phase": "Failed", "containerStatuses": terminated(3, "Error") }));
    assert_eq!((failed.code, failed.why), (Some(3), None));
    let killed = end_of(json!({ "phase": "Failed", "containerStatuses": terminated(137, "Error") }));
    assert!(killed.why.unwrap().ends_with("which is that of SIGKILL"));
}

#[test]
fn what_it_waits_for_is_said() {
    let unplaced = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" },
    ] });
    assert_eq!(wait_of(unplaced), ("Unschedulable: 0/3 nodes are available".to_owned(), Trouble::Nothing));
    let waiting = |reason: &str| {
        let state = json!({ "waiting": { "reason": reason, "message": "m" } });
        wait_of(json!({ "phase": "Pending", "containerStatuses": containers(state) }))
    };
    assert_eq!(waiting("ContainerCreating").1, Trouble::Nothing);
    assert_eq!(waiting("ImagePullBackOff"), ("ImagePullBackOff: m".to_owned(), Trouble::Something));
    assert_eq!(waiting("InvalidImageName").1, Trouble::Hopeless);
    let of_init = json!([{ "name": "first", "state": { "waiting": { "reason": "ErrImagePull" } } }]);
    let state = containers(json!({ "waiting": { "reason": "PodInitializing" } }));
    let both = json!({ "phase": "Pending", "containerStatuses": state, "initContainerStatuses": of_init });
    assert_eq!(wait_of(both), ("ErrImagePull".to_owned(), Trouble::Something));
}

#[test]
fn memory_that_ran_out_is_told_apart() {
    let ended = end_of(json!({ "phase": "Failed", "containerStatuses": terminated(137, "OOMKilled") }));
    assert!(ended.oom && ended.code == Some(137) && ended.why.is_none());
}

#[test]
fn a_pod_that_had_to_go_has_failed_even_if_its_program_ended_well() {
    let evicted = json!({
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
        "containerStatuses": terminated(0, "Completed"),
    });
    let ended = end_of(evicted);
    assert_eq!((ended.code, ended.reason.as_str()), (None, "Evicted"));
    assert_eq!(ended.why.unwrap(), "the pod failed: Evicted: The node was low on resource: memory.");
    let without_containers = json!({ "phase": "Failed", "reason": "Evicted", "message": "m" });
    assert_eq!(end_of(without_containers).why.unwrap(), "the pod failed: Evicted: m");
    let preempted = json!({
        "phase": "Running", "containerStatuses": terminated(143, "Error"),
        "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m" }],
    });
    let ended = end_of(preempted);
    assert_eq!(
        (ended.code, ended.why.unwrap().as_str()),
        (Some(143), "the pod had to go: PreemptionByScheduler: m")
    );
}

#[test]
fn a_pod_that_was_deleted_is_a_failure_unless_it_was_us() {
    let deleted = pod(
        json!({ "phase": "Running", "containerStatuses": terminated(0, "Completed") }),
        json!({ "deletionTimestamp": "2026-11-20T08:24:27Z" }),
    );
    let Stage::Ended(by_others) = look(&deleted, "task", false).stage else { panic!("it has ended") };
    assert_eq!((by_others.code, by_others.reason.as_str()), (None, "Deleted"));
    let Stage::Ended(by_us) = look(&deleted, "task", true).stage else { panic!("it has ended") };
    assert_eq!((by_us.code, by_us.why), (Some(0), None));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let state = json!({ "terminated": {
        "exitCode": 128, "reason": "StartError", "message": "exec: \"nothing\": not found", "startedAt": "1970-01-01T00:00:00Z",
    } });
    let ended = end_of(json!({ "phase": "Failed", "containerStatuses": containers(state) }));
    assert_eq!(
        ended.why.unwrap(),
        "the container could not be started: StartError: exec: \"nothing\": not found"
    );
}

#[test]
fn an_init_container_that_failed_is_named() {
    let of_init = json!([{ "name": "first", "state": { "terminated": { "exitCode": 9 } } }]);
    let state = containers(json!({ "waiting": { "reason": "PodInitializing" } }));
    let status = json!({ "phase": "Failed", "containerStatuses": state, "initContainerStatuses": of_init });
    assert_eq!(
        end_of(status).why.unwrap(),
        "the pod failed: its init container 'first' ended with exit code 9"
    );
}

#[test]
fn a_job_may_end_without_a_pod() {
    let of = |conditions: Value| {
        let job = json!({ "metadata": {}, "status": { "conditions": conditions } });
        of_job(&serde_json::from_value(job).unwrap())
    };
    assert_eq!(of(json!([{ "type": "Suspended", "status": "True" }])), None);
    assert_eq!(of(json!([{ "type": "Complete", "status": "True" }])), Some(Ok(())));
    assert_eq!(of(json!([{ "type": "Failed", "status": "False" }])), None);
    let failed =
        of(json!([{ "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "m" }]));
    let failed = failed.unwrap().unwrap_err();
    assert_eq!(
        (failed.reason.as_str(), failed.why.as_deref()),
        ("DeadlineExceeded", Some("the job failed: DeadlineExceeded: m"))
    );
}
