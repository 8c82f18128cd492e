//! What the connection to the cluster may do to a task.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::adapter::{Adapter, job_of, task};
use crate::cluster::{Cluster, Kind, Refusal, Trouble};

#[test]
fn a_cluster_is_reached_with_tls() {
    let cluster = Cluster::start_with_tls();
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("hello");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (Some(0), "hello\n", ""));
}

#[test]
fn what_happens_while_nothing_can_be_seen_is_seen_later() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    for _ in 0..3 {
        cluster.break_streams();
    }
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    cluster.break_streams();
    pod.ends(7, "Error");
    assert_eq!(adapter.wait().code, Some(7));
}

#[test]
fn what_a_cluster_has_forgotten_is_looked_at_anew() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    let before = cluster.asked("GET", "/pods");
    pod.ends(0, "Completed");
    cluster.forget();
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(cluster.asked("GET", "/pods") > before);
}

#[test]
fn each_line_comes_once_wherever_the_log_breaks_off() {
    let cluster = Cluster::start();
    // Before the first line, within a time, within a text, between two lines, and within the last one.
    cluster.with(|world| world.cuts.extend([0, 10, 40, 41, 200, 333, 1111]));
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    let mut expected = String::new();
    pod.runs();
    for number in 0..40 {
        let text = format!("line {number} {}", "x".repeat(number));
        pod.writes(&text);
        expected = expected + &text + "\n";
        if number == 20 {
            adapter.until_written(0, "line 20 ");
            cluster.break_streams();
        }
    }
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (Some(0), expected.as_str(), "")
    );
    assert!(cluster.asked("GET", "/log") >= 8);
}

#[test]
fn a_busy_cluster_is_asked_again() {
    let cluster = Cluster::start();
    for code in [429, 500, 503] {
        let refusal = Refusal::new(code, "ServerTimeout", "later");
        for (method, part) in [
            ("GET", "/jobs"),
            ("POST", "/jobs"),
            ("POST", "/secrets"),
            ("PATCH", "/jobs"),
            ("DELETE", "/jobs"),
        ] {
            cluster.trouble(method, part, Trouble::Refused(refusal.clone()));
        }
        for part in ["/pods", "/log"] {
            cluster.trouble("GET", part, Trouble::Refused(refusal.clone()));
        }
    }
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("hello");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (Some(0), "hello\n", ""));
    assert_eq!(cluster.count(Kind::Job), 0);
    let left = cluster.with(|world| world.troubles.len());
    assert_eq!(left, 0, "all of it has happened");
}

#[test]
fn who_gets_no_answer_asks_again() {
    let cluster = Cluster::start();
    cluster.trouble("GET", "/jobs", Trouble::Silent);
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    cluster.trouble("DELETE", "/jobs", Trouble::Silent);
    adapter.signal(Signal::SIGTERM);
    assert_eq!((adapter.wait().code, cluster.count(Kind::Job)), (Some(143), 0));
}

#[test]
fn who_hears_nothing_of_a_pod_asks_again() {
    let cluster = Cluster::start();
    cluster.trouble("GET", "/log", Trouble::Silent);
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    // The next watches, or the next lists, get lost.
    for part in ["/jobs", "/pods"] {
        cluster.trouble("GET", part, Trouble::Silent);
    }
    cluster.forget();
    pod.writes("hello");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (Some(0), "hello\n", ""));
    let left = cluster.with(|world| world.troubles.len());
    assert_eq!(left, 0, "all of it has happened");
}

#[test]
fn what_is_forbidden_is_said_and_leaves_nothing() {
    for (method, part, said) in [
        ("GET", "/jobs", "cannot look for jobs of the task: jobs is forbidden (403)"),
        ("POST", "/jobs", "cannot make the job of the task: jobs is forbidden (403)"),
        ("POST", "/secrets", "cannot make the secret of the task: jobs is forbidden (403)"),
        ("PATCH", "/jobs", "cannot let the job of the task begin: jobs is forbidden (403)"),
    ] {
        let cluster = Cluster::start();
        let refusal = Refusal::new(403, "Forbidden", "jobs is forbidden");
        cluster.trouble(method, part, Trouble::Refused(refusal));
        let outcome = Adapter::start(&cluster, 1).wait();
        assert_eq!((outcome.code, cluster.count(Kind::Job)), (Some(125), 0), "{method} {part}");
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
}

#[test]
fn who_was_allowed_to_look_and_is_refused_looks_again() {
    let cluster = Cluster::start();
    let adapter = Adapter::start(&cluster, 1);
    let pod = cluster.pod_of(&job_of(1));
    pod.runs();
    adapter.until_written(2, "runs on worker-1");
    cluster.until("a watch of the job", |world| world.asked.iter().any(|asked| asked == "watching Job"));
    for code in [401, 403] {
        let refusal = Refusal::new(code, "Forbidden", "jobs is forbidden");
        cluster.trouble("GET", "/jobs", Trouble::Refused(refusal));
    }
    cluster.break_streams();
    adapter.until_written(2, "the cluster cannot be asked: jobs is forbidden (403)");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_log_that_cannot_be_read_is_a_note_and_no_failure() {
    let cluster = Cluster::start();
    for _ in 0..50 {
        let refusal = Refusal::new(403, "Forbidden", "pods/log is forbidden");
        cluster.trouble("GET", "/log", Trouble::Refused(refusal));
    }
    let adapter = Adapter::start(&cluster, 1);
    let mut pod = cluster.pod_of(&job_of(1));
    pod.runs();
    pod.writes("hello");
    pod.ends(0, "Completed");
    let outcome = adapter.wait();
    assert_eq!(outcome.code, Some(0));
    assert!(
        outcome.stderr.contains("the output is not complete: pods/log is forbidden (403)"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_cluster_that_is_not_known_is_said() {
    let cluster = Cluster::start();
    let mut told = task(&cluster, 1, &json!({}));
    told["worker"]["engine_config"]["kubeconfig"] = "/nowhere/kubeconfig".into();
    let outcome = Adapter::start_with(&told).wait();
    assert_eq!(outcome.code, Some(125));
    assert!(outcome.stderr.contains("engines.kubernetes.kubeconfig: "), "{}", outcome.stderr);
}
