//! Spans, as a collector gets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::{TaskId, whole_number};
use disbatch_core::task::commit_name;
use disbatch_tests::{Dci, Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use prost::Message;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::{PARENT, TRACED, printed, submit};
use crate::{link, metrics, outage};

const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;
const ERROR: i32 = 2;

/// Says that it has begun, and runs until somebody kills it.
const STAY: Script<'_> = Script { name: "Stay", text: "#!/bin/sh\necho begun\nexec sleep 600\n" };

/// A span as it was sent.
#[derive(Debug, Clone, Default)]
struct Seen {
    service: String,
    name: String,
    trace: String,
    span: String,
    parent: String,
    kind: i32,
    links: Vec<String>,
    status: i32,
    attributes: BTreeMap<String, String>,
    nanos: (u64, u64),
}

/// Takes what is sent to it, as the protocol has it (OTLP over HTTP).
struct Collector {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _running: AbortOnDropHandle<()>,
}

impl Collector {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let all = Arc::clone(&all);
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &all).await {
                        let name = format!("what was sent is odd: {error:#}");
                        all.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(Seen { name, ..Seen::default() });
                    }
                });
            }
        });
        Ok(Self { url, seen, _running: AbortOnDropHandle::new(running) })
    }

    /// Spans with this name.
    fn named(&self, name: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|span| span.name == name).cloned().collect()
    }

    async fn until(&self, name: &str, count: usize) -> anyhow::Result<Vec<Seen>> {
        let found = eventually("spans", || async {
            let found = self.named(name);
            Ok((found.len() >= count).then_some(found))
        });
        let found = found.await.with_context(|| format!("{name}: {:#?}", self.named(name)))?;
        ensure!(found.len() == count, "{name}: {found:#?}");
        Ok(found)
    }

    fn environment(&self) -> [(&str, &str); 1] {
        [("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)]
    }
}

async fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(number) = line.strip_prefix("content-length:") {
                length = number.trim().parse()?;
            }
            head += &format!("{line}\n");
        }
        ensure!(head.starts_with("post /v1/traces ") && head.contains("application/x-protobuf"), "{head}");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let spans = read(&body)?;
        seen.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
            )
            .await?;
    }
}

fn read(body: &[u8]) -> anyhow::Result<Vec<Seen>> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut spans = Vec::new();
    for of_resource in ExportTraceServiceRequest::decode(body)?.resource_spans {
        let resource = attributes(&of_resource.resource.context("no resource")?.attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Seen {
                service: resource.get("service.name").cloned().unwrap_or_default(),
                trace: hex(&span.trace_id),
                span: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                kind: span.kind,
                links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                status: span.status.map_or(0, |status| status.code),
                attributes: attributes(&span.attributes),
                nanos: (span.start_time_unix_nano, span.end_time_unix_nano),
                name: span.name,
            });
        }
    }
    Ok(spans)
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &AnyValue| match value {
        AnyValue::StringValue(text) => text.clone(),
        AnyValue::IntValue(number) => number.to_string(),
        AnyValue::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let one = |pair: &KeyValue| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
        (pair.key.clone(), value.map(text).unwrap_or_default())
    };
    all.iter().map(one).collect()
}

/// A world in which a DEN and a DCI send their traces.
async fn traced(collector: &Collector) -> anyhow::Result<(World, Dci)> {
    let world = World::new().await?;
    let dci =
        Dci::start_with(&world.config(), &world.path().join("dci.log"), &collector.environment()).await?;
    Ok((world, dci))
}

/// What the span of an attempt says, and those within it.
async fn check(
    collector: &Collector,
    process: &Seen,
    (send, task, number): (&String, &str, &str),
) -> anyhow::Result<()> {
    assert_eq!(process.links, std::slice::from_ref(send), "{process:?}");
    let of = |name: &str| process.attributes.get(name).map(String::as_str).unwrap_or_default();
    for (name, value) in [
        ("messaging.system", "disbatch"),
        ("messaging.destination.name", "traced"),
        ("messaging.message.id", task),
        ("messaging.operation.type", "process"),
        ("disbatch.attempt", number),
        ("disbatch.node", "n1"),
        ("disbatch.plugin", "Traced"),
    ] {
        assert_eq!(of(name), value, "{name}: {process:?}");
    }
    assert!(of("disbatch.wait").parse::<f64>().is_ok(), "{process:?}");
    let mut end = process.nanos.0;
    for name in ["prepare", "run Traced", "settle"] {
        let parts = collector.until(name, 2).await?;
        let part = parts.iter().find(|part| part.parent == process.span);
        let part = part.with_context(|| format!("{name}: {parts:?}"))?;
        let follows = part.nanos.0 >= end && part.nanos.1 >= part.nanos.0;
        assert!(part.trace == process.trace && follows, "{part:?} {process:?}");
        end = part.nanos.1;
    }
    assert!(end <= process.nanos.1, "{process:?}");
    Ok(())
}

#[tokio::test]
async fn a_trace_leads_from_the_request_into_the_plugin() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let (world, dci) = traced(&collector).await?;
    let queue = world.script_queue(TRACED, 1).await?;
    let more = doc! { "name": "traced", "max_attempts": 2, "backoff": { "base": 0.01, "jitter": 0 } };
    world.update_queue(queue, more).await?;
    let _den = world.den_in("n1", &[], &collector.environment())?;
    let task =
        submit(&dci, &[("traceparent", PARENT), ("baggage", "user=ann")], json!({ "until": 2 })).await?;
    let stored = world.until_status(task, 1).await?;

    let trace = &PARENT[3..35];
    let send = &collector.until("send traced", 1).await?[0];
    assert_eq!(
        (&send.trace[..], &send.parent[..], send.kind),
        (trace, &PARENT[36..52], PRODUCER),
        "{send:?}"
    );
    assert_eq!(
        (&send.service[..], &send.attributes["messaging.message.id"]),
        ("disbatch-dci", &task.to_string())
    );
    let processes = collector.until("process traced", 2).await?;
    let [first, second] = &processes[..] else { unreachable!("there are two") };
    assert_eq!((&first.trace[..], &first.parent, first.kind), (trace, &send.span, CONSUMER), "{first:?}");
    assert_eq!((first.status, &first.attributes["error.type"][..]), (ERROR, "exit"));
    // It is tried again in a trace of its own.
    assert!(second.trace != trace && second.parent.is_empty() && second.status == 0, "{second:?}");
    for (number, process) in ["1", "2"].iter().zip(&processes) {
        check(&collector, process, (&send.span, &task.to_string(), number)).await?;
    }
    let odd = collector
        .seen
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .any(|span| span.name.contains("odd"));
    assert!(!odd, "{:?}", collector.seen);

    // What the plugin was told is the place of its own span.
    let runs = collector.named("run Traced");
    let told = |of: &Value| of[0][0].as_str().map(|told| (told[3..35].to_owned(), told[36..52].to_owned()));
    let attempts = world.store().list_attempts(task).await?;
    let of_first = printed(attempts.first().context("no attempt")?)?;
    for (of, process) in [(of_first, first), (printed(&stored)?, second)] {
        let run = runs.iter().find(|run| run.trace == process.trace).context("no run")?;
        assert_eq!(told(&of), Some((run.trace.clone(), run.span.clone())), "{of}");
        assert_eq!(of[0][2], "user=ann");
        assert_eq!(of[1]["parent"], of[0][0], "on standard input, too");
    }
    // The task has what it was submitted with.
    let kept = stored.get_document("trace")?.get_str("parent")?;
    assert_eq!(&kept[36..52], send.span);
    world.end().await
}

/// Waits until the plugin of [`STAY`] has begun: a runner that is killed before does not lose its task, which is given back. Returns its
/// runner.
async fn begun(world: &World, task: TaskId, attempt: i64) -> anyhow::Result<Pid> {
    eventually("its plugin to begin", || async {
        Ok((world.live(task, attempt).await?.0 == b"begun\n").then_some(()))
    })
    .await?;
    let pid = world.task(task).await?.get("pid").and_then(whole_number).context("no pid")?;
    Ok(Pid::from_raw(i32::try_from(pid)?))
}

#[tokio::test]
async fn what_nobody_wants_to_see_is_not_sent_and_what_has_died_is_once() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let (world, dci) = traced(&collector).await?;
    let queue = world.script_queue(STAY, 2).await?;
    world.update_queue(queue, doc! { "name": "traced" }).await?;
    let den = world.den_in("n1", &[], &collector.environment())?;
    let unseen = format!("{}00", &PARENT[..53]);
    let unseen = submit(&dci, &[("traceparent", &unseen)], json!({ "a": 1 })).await?;
    let seen = submit(&dci, &[], json!({ "a": 1 })).await?;
    for task in [unseen, seen] {
        kill(begun(&world, task, 1).await?, Signal::SIGKILL)?;
        world.until_status(task, -6).await?;
    }
    // Spans of both have gone when those of the second, and of what the DEN sends at its end, have come.
    let processes = collector.until("process traced", 1).await?;
    let status = den.end_with(Signal::SIGTERM).await?;
    assert!(status.success(), "{status}");
    let processes_later = collector.until("process traced", 1).await?;
    let process = &processes[0];
    assert_eq!(process.span, processes_later[0].span);
    assert_eq!(process.attributes["messaging.message.id"], seen.to_string());
    assert_eq!((process.status, &process.attributes["error.type"][..]), (ERROR, "lost"));
    let run = &collector.until("run Stay", 1).await?[0];
    assert_eq!(
        (&run.parent, &run.trace),
        (&process.span, &process.trace),
        "its plugin may have sent spans that lead to it"
    );
    let send = &collector.until("send traced", 1).await?[0];
    assert!(send.parent.is_empty() && send.trace == process.trace, "{send:?} {process:?}");
    world.end().await
}

#[tokio::test]
async fn attempts_of_the_dead_have_their_own_traces_and_statuses() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let (world, dci) = traced(&collector).await?;
    world.configure(json!({ "lease": 3 }))?;
    let queue = world.script_queue(STAY, 1).await?;
    let backoff = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    let more = doc! { "name": "traced", "on_orphan": "requeue", "max_attempts": 5, "backoff": backoff };
    world.update_queue(queue, more).await?;
    let den = world.den_in("n1", &[], &collector.environment())?;
    let task = submit(&dci, &[("traceparent", PARENT)], json!({ "a": 1 })).await?;
    kill(begun(&world, task, 1).await?, Signal::SIGKILL)?;
    collector.until("process traced", 1).await?;
    // The second dies with its node, so that its lease runs out.
    let runner = begun(&world, task, 2).await?;
    let _other = world.den_in("n2", &[], &collector.environment())?;
    den.signal(Signal::SIGKILL)?;
    kill(runner, Signal::SIGKILL)?;
    collector.until("process traced", 2).await?;
    // The third has committed its end.
    let runner = begun(&world, task, 3).await?;
    let committed = doc! { "_id": commit_name(task, 3), "status": 1 };
    world.database().collection::<Document>("tasks.commits").insert_one(committed).await?;
    kill(runner, Signal::SIGKILL)?;
    world.until_status(task, 1).await?;

    let processes = collector.until("process traced", 3).await?;
    let [first, second, third] = &processes[..] else { unreachable!("there are three") };
    let of = |span: &Seen, name: &str| span.attributes.get(name).cloned().unwrap_or_default();
    assert_eq!(first.trace, PARENT[3..35]);
    for (span, number) in [(second, "2"), (third, "3")] {
        assert_eq!(of(span, "disbatch.attempt"), number);
        assert!(span.trace != first.trace && span.parent.is_empty(), "a trace of its own: {span:?}");
        assert_eq!(span.links, first.links);
    }
    assert_eq!((second.status, &of(second, "error.type")[..]), (ERROR, "lost"), "{second:?}");
    assert_eq!((third.status, &of(third, "disbatch.status")[..]), (0, "1"), "{third:?}");
    world.end().await
}

#[tokio::test]
async fn a_result_that_outlives_its_runner_in_an_outage_is_told() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let data = tempfile::tempdir()?;
    let mut server = outage::start(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    world.configure(json!({ "metrics": { "listen": 0 } }))?;
    let text = link::patient(&world);
    let queue = world.script_queue(Script { name: "Patient", text: &text }, 1).await?;
    world.update_queue(queue, doc! { "name": "patient" }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let den = world.den_in("n1", &[], &collector.environment())?;
    eventually("it to run", || async { Ok((link::runs(&world) == 1).then_some(())) }).await?;
    let runner = u32::try_from(world.task(task).await?.get_i64("pid")?)?;
    let url = metrics::address_of(&den).await?;
    link::signal(server.pid(), Signal::SIGSTOP)?;
    std::fs::write(world.path().join("go"), "")?;
    eventually("its result to be with the DEN", || async {
        Ok(den.log()?.contains("its runner has sent the result").then_some(()))
    })
    .await?;
    link::signal(runner, Signal::SIGKILL)?;
    link::signal(server.pid(), Signal::SIGKILL)?;
    server.wait().await?;
    drop(server);
    // The write of its result is given up.
    metrics::until(&url, &[("disbatch_write_backlog{op=\"end\"}".to_owned(), 0.0)]).await?;
    let server = outage::start(data.path(), Some(port)).await?;
    world.until_status(task, 1).await?;
    let process = &collector.until("process patient", 1).await?[0];
    assert_eq!((process.status, &process.attributes["disbatch.status"][..]), (0, "1"), "{process:?}");
    den.end_with(Signal::SIGTERM).await?;
    drop(world);
    server.stop().await
}

#[tokio::test]
async fn each_submission_is_sent_once_whatever_its_tasks_are_made_of() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let (world, dci) = traced(&collector).await?;
    let queue = world.script_queue(STAY, 0).await?;
    world.update_queue(queue, doc! { "name": "traced" }).await?;
    let people = world.database().collection::<Document>("people");
    people.insert_many([doc! { "name": "ann" }, doc! { "name": "bob" }]).await?;
    let body = json!({ "queue": "traced", "collection": "people", "filter": {}, "params": { "a": "document.name" } });
    let request = dci.request(Method::POST, "/tasks").header("traceparent", PARENT).json(&body);
    let status = request.send().await?.status();
    assert_eq!(status, 200);
    let send = &collector.until("send traced", 1).await?[0];
    assert_eq!((&send.trace[..], &send.parent[..]), (&PARENT[3..35], &PARENT[36..52]), "{send:?}");
    assert_eq!(send.attributes["messaging.batch.message_count"], "2");
    for task in world.tasks_of(queue).await? {
        assert_eq!(&task.get_document("trace")?.get_str("parent")?[36..52], send.span);
    }
    // A repetition is none. What comes after it has come when it would have.
    for _ in 0..2 {
        dci.posted("/tasks", &json!({ "queue": "traced", "params": [{ "a": 1 }], ".idempotency_key": "k" }))
            .await?;
    }
    let last = submit(&dci, &[], json!({ "a": 2 })).await?;
    let sends = collector.until("send traced", 3).await?;
    assert_eq!(sends[2].attributes["messaging.message.id"], last.to_string());
    world.end().await
}

#[tokio::test]
async fn a_sampler_that_is_none_is_named() -> anyhow::Result<()> {
    let world = World::new().await?;
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), ("OTEL_TRACES_SAMPLER", "sometimes")];
    let den = world.den_in("n1", &[], &environment)?;
    let said = eventually("what is wrong", || async {
        let log = den.log()?;
        Ok(log.contains("OTEL_TRACES_SAMPLER").then_some(log))
    });
    let said = said.await?;
    assert!(said.contains("'sometimes' is none of always_on"), "{said}");
    world.end().await
}
