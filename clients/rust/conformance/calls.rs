//! The calls of a case, by the names of the methods.

use std::time::Duration;

use disbatch_client::{Client, Error, Event, OutputStream, Result, blocking};
use futures::TryStreamExt;
use serde_json::{Map, Value, json};

/// What a step says of its call.
pub struct Given<'a> {
    pub args: &'a [Value],
    pub options: &'a Map<String, Value>,
    pub trace: Option<String>,
}

impl Given<'_> {
    fn text(&self, n: usize) -> &str {
        self.args.get(n).and_then(Value::as_str).unwrap_or_default()
    }

    fn arg(&self, n: usize) -> &Value {
        self.args.get(n).unwrap_or(&Value::Null)
    }

    fn option(&self, name: &str) -> &Value {
        self.options.get(name).unwrap_or(&Value::Null)
    }

    fn reason(&self) -> Option<&str> {
        self.option("reason").as_str()
    }

    fn timeout(&self) -> Option<Duration> {
        self.option("timeout").as_f64().map(Duration::from_secs_f64)
    }

    fn limit(&self) -> Option<usize> {
        self.option("limit").as_u64().and_then(|limit| usize::try_from(limit).ok())
    }

    fn filters(&self) -> Map<String, Value> {
        self.options
            .iter()
            .filter(|(name, _)| *name != "limit")
            .map(|(name, one)| (name.clone(), one.clone()))
            .collect()
    }

    fn stream(&self) -> Result<OutputStream> {
        self.args.get(1).and_then(Value::as_str).map_or(Ok(OutputStream::Stdout), str::parse)
    }

    fn attempt(&self) -> Option<u32> {
        self.option("attempt").as_u64().and_then(|attempt| u32::try_from(attempt).ok())
    }
}

fn text(bytes: Vec<u8>) -> Value {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

fn events(events: Vec<Event>) -> Value {
    events
        .into_iter()
        .map(|Event { event, data, id }| json!({"event": event, "data": data, "id": id}))
        .collect()
}

/// The same calls of both clients: `$wait` is how one is awaited, `$all` collects a stream.
macro_rules! calls {
    ($client:ident, $name:ident, $given:ident, $all:ident $(, $wait:tt)?) => {{
        if let Some(trace) = &$given.trace {
            $client = $client.with_traceparent(trace.clone());
        }
        let (first, options) = ($given.text(0), $given.options);
        Ok(match $name {
            "submit" => json!($client.submit(first, $given.arg(1), options)$(.$wait)??),
            "submit_many" => {
                let params = $given.arg(1).as_array().cloned().unwrap_or_default();
                json!($client.submit_many(first, params, options)$(.$wait)??)
            }
            "get" => json!($client.get(first)$(.$wait)??),
            "wait" => json!($client.wait(first, $given.timeout())$(.$wait)??),
            "result" => $client.result(first, $given.timeout())$(.$wait)??,
            "cancel" => $client.cancel(first, $given.reason())$(.$wait)??,
            "retry" => $client.retry(first, $given.reason())$(.$wait)??,
            "rerun" => $client.rerun(first, options)$(.$wait)??,
            "rerun_array" => $client.rerun_array(first, options)$(.$wait)??,
            "answer" => $client.answer(first, $given.arg(1))$(.$wait)??,
            "explain" => $client.explain(first)$(.$wait)??,
            "list" => json!($all!($client.list($given.filters(), $given.limit()))),
            "output" if $given.option("follow") == true => {
                let pieces = $all!($client.follow_output(first, $given.stream()?, $given.attempt()));
                text(pieces.concat())
            }
            "output" => text($client.output(first, $given.stream()?, $given.attempt())$(.$wait)??),
            "events" => events($all!($client.events(first, $given.option("after").as_str()))),
            "queues" => json!($client.queues()$(.$wait)??),
            "queue" => $client.queue(first)$(.$wait)??,
            "create_queue" => json!($client.create_queue(first, $given.text(1), options)$(.$wait)??),
            "update_queue" => json!($client.update_queue(first, options)$(.$wait)??),
            "delete_queue" => json!($client.delete_queue(first)$(.$wait)??),
            "pause" => json!($client.pause(first, $given.reason())$(.$wait)??),
            "resume" => json!($client.resume(first)$(.$wait)??),
            "schedules" => json!($client.schedules(options)$(.$wait)??),
            "schedule" => $client.schedule(first)$(.$wait)??,
            "create_schedule" => $client.create_schedule(first, $given.text(1), options)$(.$wait)??,
            "update_schedule" => $client.update_schedule(first, options)$(.$wait)??,
            "delete_schedule" => json!($client.delete_schedule(first)$(.$wait)??),
            "pause_schedule" => $client.pause_schedule(first)$(.$wait)??,
            "resume_schedule" => $client.resume_schedule(first)$(.$wait)??,
            "run_schedule" => json!($client.run_schedule(first)$(.$wait)??),
            "files" => json!($client.files($given.args.first().and_then(Value::as_str))$(.$wait)??),
            "put_files" => $client.put_files(first, $given.text(1), options)$(.$wait)??,
            "get_files" => {
                let (version, prefix) = ($given.option("version").as_u64(), $given.option("prefix").as_str());
                $client.get_files(first, $given.text(1), version, prefix)$(.$wait)??
            }
            "version" => json!($client.version()$(.$wait)??),
            "check" => json!($client.check()$(.$wait)??),
            "request" => {
                let (query, body) = ($given.option("query"), $given.option("json"));
                $client.request(first, $given.text(1), query, body)$(.$wait)??
            }
            other => return Err(Error::Invalid(format!("there is no method {other}"))),
        })
    }};
}

pub async fn call_async(mut client: Client, name: &str, given: &Given<'_>) -> Result<Value> {
    macro_rules! all {
        ($stream:expr) => {
            $stream.try_collect::<Vec<_>>().await?
        };
    }
    calls!(client, name, given, all, await)
}

pub fn call_blocking(mut client: blocking::Client, name: &str, given: &Given<'_>) -> Result<Value> {
    macro_rules! all {
        ($items:expr) => {
            $items.collect::<Result<Vec<_>>>()?
        };
    }
    calls!(client, name, given, all)
}
