//! Traces: what became of a task, as spans that are sent to a collector (OTLP over HTTP), in the terms of OpenTelemetry's conventions for
//! messaging. Only those who look after tasks send them, from the times that they have anyway: runners and plugins need nothing for it.
//!
//! The ids of the spans of an attempt follow from the task and the number of the attempt. So whoever finds a dead runner sends the
//! same spans as its DEN would have, and plugins can be told theirs before there is anything to send.

mod attempt;
mod batch;
mod sampler;

use std::env::{self, VarError};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bson::DateTime;
use disbatch_core::model::{Place, QueueId, TaskId, TraceContext};
use disbatch_metrics::Metrics;
use disbatch_metrics::labels::Export;
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanLinks};
use tokio::sync::mpsc;

pub use attempt::{Attempt, Ended};
pub use batch::Sending;
use sampler::Sampler;

/// Spans that wait to be sent. More are dropped: nothing waits for a collector.
const WAITING: usize = 2048;

/// Why there can be no traces although they are asked for.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("{name}: {why}")]
    Variable { name: &'static str, why: String },
    #[error("cannot send traces: {0}")]
    Exporter(String),
}

/// Sends spans. Clones send to the same collector.
#[derive(Debug, Clone)]
pub struct Tracer {
    spans: mpsc::Sender<SpanData>,
    sampler: Sampler,
    metrics: Arc<Metrics>,
    /// The name of this node, if it is one.
    node: Option<String>,
}

impl Tracer {
    /// As the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT` and such). `None`: nobody wants traces. Spans are sent until
    /// [`Sending::finish`].
    pub fn of_environment(
        service: &'static str,
        version: &'static str,
        node: Option<String>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<(Self, Sending)>, TracesError> {
        let is_off = variable("OTEL_SDK_DISABLED")?.is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let is_none = variable("OTEL_TRACES_EXPORTER")?.is_some_and(|text| text == "none");
        let endpoints = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let mut is_wanted = false;
        for name in endpoints {
            is_wanted |= variable(name)?.is_some();
        }
        if is_off || is_none || !is_wanted {
            return Ok(None);
        }
        let sampler = Sampler::of(
            variable("OTEL_TRACES_SAMPLER")?.as_deref(),
            variable("OTEL_TRACES_SAMPLER_ARG")?.as_deref(),
        )?;
        let (spans, waiting) = mpsc::channel(WAITING);
        let sending = Sending::start(service, version, node.as_deref(), waiting, metrics)?;
        Ok(Some((Self { spans, sampler, metrics: Arc::clone(metrics), node }, sending)))
    }

    /// The place of a submission of tasks, within the trace of the request if it has one, and the context that its tasks get.
    pub fn submission(&self, request: Option<&TraceContext>, number: [u8; 12]) -> (Place, TraceContext) {
        let parent = request.map(TraceContext::place);
        let trace = parent.map_or_else(|| ids::trace(&number, 0), |parent| parent.trace);
        let place = Place {
            trace,
            span: ids::span(&number, 0, "send"),
            is_sampled: self.sampler.samples(parent.map(|parent| parent.is_sampled), &trace),
        };
        (place, request.map_or_else(|| TraceContext::new(place), |request| request.at(place)))
    }

    /// Tasks were submitted between these two times.
    pub fn submitted(&self, submission: &Submission<'_>) {
        let Submission { place, request, queue, queue_name, tasks, times, failed } = submission;
        let mut attributes = about(*queue, queue_name);
        attributes.push(KeyValue::new("messaging.operation.type", "send"));
        attributes.push(KeyValue::new("messaging.operation.name", "send"));
        match tasks {
            [task] => attributes.push(KeyValue::new("messaging.message.id", task.to_string())),
            _ => attributes.push(KeyValue::new(
                "messaging.batch.message_count",
                i64::try_from(tasks.len()).unwrap_or(i64::MAX),
            )),
        }
        let span = Span {
            place: *place,
            parent: request.as_ref().map(|request| (request.place().span, true)),
            name: format!("send {queue_name}"),
            kind: SpanKind::Producer,
            times: *times,
            attributes,
            links: Vec::new(),
            error: failed.then_some("refused"),
        };
        self.send(span);
    }

    fn send(&self, span: Span) {
        if span.place.is_sampled && self.spans.try_send(span.data()).is_err() {
            self.metrics.trace_spans.of(Export::Dropped).inc();
        }
    }
}

/// Tasks that were submitted together.
#[derive(Debug)]
pub struct Submission<'a> {
    /// As [`Tracer::submission`] gave it.
    pub place: Place,
    /// The trace of the request.
    pub request: Option<TraceContext>,
    pub queue: QueueId,
    pub queue_name: &'a str,
    pub tasks: &'a [TaskId],
    pub times: (DateTime, DateTime),
    /// They were refused.
    pub failed: bool,
}

/// What each span says of its queue.
fn about(queue: QueueId, name: &str) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "disbatch"),
        KeyValue::new("messaging.destination.name", name.to_owned()),
        KeyValue::new("disbatch.queue.id", queue.to_string()),
    ]
}

/// A span that is over.
struct Span {
    place: Place,
    /// The span around it, and whether that is of another process.
    parent: Option<([u8; 8], bool)>,
    name: String,
    kind: SpanKind,
    times: (DateTime, DateTime),
    attributes: Vec<KeyValue>,
    links: Vec<Place>,
    /// What went wrong, in a word.
    error: Option<&'static str>,
}

impl Span {
    fn data(self) -> SpanData {
        let mut links = SpanLinks::default();
        links.links =
            self.links.iter().map(|place| Link::new(context(*place, true), Vec::new(), 0)).collect();
        let mut attributes = self.attributes;
        attributes.extend(self.error.map(|error| KeyValue::new("error.type", error)));
        let (start, end) = self.times;
        SpanData {
            span_context: context(self.place, false),
            parent_span_id: self.parent.map_or(SpanId::INVALID, |(span, _)| SpanId::from_bytes(span)),
            parent_span_is_remote: self.parent.is_some_and(|(_, is_remote)| is_remote),
            span_kind: self.kind,
            name: self.name.into(),
            start_time: time(start),
            // Clocks are set back at times.
            end_time: time(end.max(start)),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links,
            status: self.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder("disbatch").build(),
        }
    }
}

fn context(place: Place, is_remote: bool) -> SpanContext {
    let flags = if place.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from_bytes(place.trace), SpanId::from_bytes(place.span));
    SpanContext::new(trace, span, flags, is_remote, TraceState::default())
}

fn time(at: DateTime) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.timestamp_millis()).unwrap_or(0))
}

/// The value of a variable of the environment, if it has one.
fn variable(name: &'static str) -> Result<Option<String>, TracesError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(TracesError::Variable { name, why: "it is no text".to_owned() }),
    }
}

/// Ids that follow from what they are for.
mod ids {
    use sha2::{Digest, Sha256};

    fn hash(of: &[u8; 12], attempt: i64, what: &str) -> [u8; 32] {
        Sha256::new()
            .chain_update(of)
            .chain_update(attempt.to_be_bytes())
            .chain_update(what)
            .finalize()
            .into()
    }

    pub fn trace(of: &[u8; 12], attempt: i64) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&hash(of, attempt, "trace")[..16]);
        id
    }

    pub fn span(of: &[u8; 12], attempt: i64, what: &str) -> [u8; 8] {
        let mut id = [0; 8];
        id.copy_from_slice(&hash(of, attempt, what)[..8]);
        id
    }
}
