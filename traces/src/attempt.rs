//! The spans of an attempt: `process {queue}`, from the claim until its end is stored, and within that `prepare`, `run {plugin}`
//! and `settle`.

use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Place, Status, TraceContext, whole_number};
use disbatch_core::task::{Run, long_ago};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;

use crate::{Span, Tracer, about, ids};

/// An attempt that goes on.
#[derive(Debug, Clone)]
pub struct Attempt {
    run: Run,
    queue_name: String,
    plugin: String,
    /// What the task has.
    context: Option<TraceContext>,
    /// Whether no other has begun before it. Its number is no proof: a claim that is given back has one, too.
    is_first: bool,
    /// Since when it could have been claimed, if that is known.
    queued: Option<DateTime>,
    begun: DateTime,
}

/// How an attempt has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// When its plugin had ended. `None`: nobody knows.
    pub at: Option<DateTime>,
    /// When that was stored.
    pub stored: DateTime,
    /// How long the plugin ran, if there was one.
    pub ran: Option<Duration>,
    pub status: Status,
    /// Why it has failed, in a word of [`disbatch_metrics::labels::Cause`].
    pub error: Option<&'static str>,
}

impl Attempt {
    /// One of this task, in a queue with this name and plugin.
    pub fn new(run: Run, (queue_name, plugin): (String, String), task: &Document, begun: DateTime) -> Self {
        let mut history = task.get_array("history").into_iter().flatten().filter_map(Bson::as_document);
        let number = |entry: &Document, name: &str| entry.get(name).and_then(whole_number);
        let is_earlier = |entry: &Document| {
            number(entry, "status") == Some(Status::Running.code())
                && number(entry, "attempt").is_some_and(|attempt| attempt < run.attempt)
        };
        let is_first = run.attempt <= 1 || !history.any(is_earlier);
        Self { context: TraceContext::of_task(task), run, queue_name, plugin, is_first, queued: None, begun }
    }

    /// It could have been claimed since then.
    pub fn queued(self, since: Option<DateTime>) -> Self {
        Self { queued: since, ..self }
    }

    /// The first attempt belongs to the trace of whoever has submitted the task. Later ones have traces of their own, so that one that
    /// is tried again after hours neither makes that trace longer, nor is left out because that was.
    fn process(&self, tracer: &Tracer) -> Place {
        let (task, attempt) = (self.run.task.0.bytes(), self.run.attempt);
        let parent = self.context.as_ref().map(TraceContext::place).filter(|_| self.is_first);
        let trace = parent.map_or_else(|| ids::trace(&task, attempt), |parent| parent.trace);
        Place {
            trace,
            span: ids::span(&task, attempt, "process"),
            is_sampled: tracer.sampler.samples(parent.map(|parent| parent.is_sampled), &trace),
        }
    }

    fn within(&self, process: Place, what: &str) -> Place {
        Place { span: ids::span(&self.run.task.0.bytes(), self.run.attempt, what), ..process }
    }

    /// What the plugin is told: the place of its own span.
    pub fn context(&self, tracer: &Tracer) -> TraceContext {
        let run = self.within(self.process(tracer), "run");
        self.context.as_ref().map_or_else(|| TraceContext::new(run), |context| context.at(run))
    }
}

impl Tracer {
    /// An attempt is over: its spans are sent.
    pub fn attempted(&self, attempt: &Attempt, ended: Ended) {
        let process = attempt.process(self);
        if !process.is_sampled {
            return;
        }
        let (begun, stored) = (attempt.begun, ended.stored);
        let parent = attempt.context.as_ref().map(TraceContext::place);
        let mut attributes = self.of_attempt(attempt);
        attributes.push(KeyValue::new("messaging.operation.type", "process"));
        attributes.push(KeyValue::new("messaging.operation.name", "process"));
        attributes.push(KeyValue::new("disbatch.status", ended.status.code()));
        if let Some(queued) = attempt.queued {
            let waited = begun.timestamp_millis().saturating_sub(queued.timestamp_millis());
            #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
            attributes.push(KeyValue::new("disbatch.wait", waited.max(0) as f64 / 1000.0));
        }
        self.send(Span {
            place: process,
            parent: parent.filter(|_| attempt.is_first).map(|parent| (parent.span, true)),
            name: format!("process {}", attempt.queue_name),
            kind: SpanKind::Consumer,
            times: (begun, stored),
            attributes,
            links: parent.into_iter().collect(),
            error: ended.error,
        });
        let part = |what: &str, name: String, times: (DateTime, DateTime), error| {
            self.send(Span {
                place: attempt.within(process, what),
                parent: Some((process.span, false)),
                name,
                kind: SpanKind::Internal,
                times,
                attributes: self.of_attempt(attempt),
                links: Vec::new(),
                error,
            });
        };
        let run = |times| part("run", format!("run {}", attempt.plugin), times, ended.error);
        match (ended.at, ended.ran) {
            (Some(at), Some(ran)) => {
                let started = long_ago(at, ran).max(begun);
                part("prepare", "prepare".to_owned(), (begun, started), None);
                run((started, at));
                part("settle", "settle".to_owned(), (at, stored), None);
            }
            // What its plugin has been told leads to it, whatever became of it.
            _ => run((begun, ended.at.unwrap_or(stored))),
        }
    }

    fn of_attempt(&self, attempt: &Attempt) -> Vec<KeyValue> {
        let run = &attempt.run;
        let mut attributes = about(run.queue, &attempt.queue_name);
        attributes.extend([
            KeyValue::new("messaging.message.id", run.task.to_string()),
            KeyValue::new("disbatch.attempt", run.attempt),
            KeyValue::new("disbatch.node", run.node.as_str().to_owned()),
            KeyValue::new("disbatch.plugin", attempt.plugin.clone()),
        ]);
        attributes.extend(
            self.node
                .as_ref()
                .filter(|node| **node != run.node.as_str())
                .map(|node| KeyValue::new("disbatch.told_by", node.clone())),
        );
        attributes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::model::{NodeName, QueueId, TaskId};
    use disbatch_metrics::Metrics;
    use tokio::sync::mpsc;

    use super::*;
    use crate::sampler::Sampler;

    #[test]
    fn of_a_trace_all_spans_are_recorded_or_none() {
        let sampler = Sampler::of(Some("traceidratio"), Some("0.5")).unwrap();
        let metrics = Arc::new(Metrics::default());
        let tracer = Tracer { spans: mpsc::channel(1).0, sampler, metrics, node: None };
        for (half, is_sampled) in [("0448eb211c80319c", true), ("f448eb211c80319c", false)] {
            let parent = format!("00-0af7651916cd43dd{half}-b7ad6b7169203331-01");
            let request = TraceContext::of(Some(&parent), None, None).unwrap();
            for number in 0..20 {
                let (sent, _) = tracer.submission(Some(&request), [number; 12]);
                let run = Run {
                    task: TaskId(ObjectId::from_bytes([number; 12])),
                    queue: QueueId(ObjectId::from_bytes([0; 12])),
                    node: NodeName::new("n"),
                    attempt: 1,
                    instance: None,
                };
                let names = ("q".to_owned(), "P".to_owned());
                let task = doc! { "trace": request.field() };
                let attempt = Attempt::new(run, names, &task, DateTime::from_millis(0));
                let all = [sent.is_sampled, attempt.process(&tracer).is_sampled];
                assert_eq!(all, [is_sampled; 2], "{parent} {number}");
            }
        }
    }
}
