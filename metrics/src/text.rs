//! The two formats of text that scrapers read.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::declared::{Declared, Metrics, OfQueue};
use crate::kinds::Metric;
use crate::{Component, QUEUE};

/// A format of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// That of Prometheus.
    Prometheus,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

/// What each metric begins with.
const HELP: &str = "# HELP ";

impl Format {
    /// What the header `Accept` asks for: OpenMetrics where it names it, and prefers nothing else to it.
    pub fn of_accept(accept: Option<&str>) -> Self {
        let accept = accept.unwrap_or_default();
        match quality(accept, OPEN_METRICS) {
            Some(open) if open > 0.0 && open >= quality(accept, "text/plain").unwrap_or(0.0) => {
                Self::OpenMetrics
            }
            _ => Self::Prometheus,
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// How much somebody wants a type of content. `None`: it is not named.
fn quality(accept: &str, wanted: &str) -> Option<f32> {
    let of_range = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(wanted));
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse);
        is_it.then(|| quality.unwrap_or(0.0))
    };
    accept.split(',').filter_map(of_range).reduce(f32::max)
}

/// What a component exports.
#[derive(Debug)]
struct Exported {
    metrics: Arc<Metrics>,
    component: Component,
}

impl Metrics {
    /// What `component` has to tell, as text.
    pub fn text(self: &Arc<Self>, component: Component, format: Format) -> String {
        self.folded.set(self.queues.folded() as u64);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Exported { metrics: Arc::clone(self), component }));
        let mut written = String::new();
        // Nothing is written but to memory.
        let _cannot_fail = text::encode(&mut written, &registry);
        match format {
            Format::OpenMetrics => written,
            Format::Prometheus => for_prometheus(&written),
        }
    }
}

impl Collector for Exported {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (declared, metric) in Metrics::DECLARED.iter().zip(self.metrics.each()) {
            if declared.from.contains(&self.component) {
                described(&mut encoder, declared, metric, &mut |encoder| metric.samples(encoder, &[]))?;
            }
        }
        let (queues, pattern) = (self.metrics.queues.all(), OfQueue::default());
        for (place, declared) in OfQueue::DECLARED.iter().enumerate() {
            if declared.from.contains(&self.component) {
                described(&mut encoder, declared, pattern.each()[place], &mut |encoder| {
                    let of_queue = |(label, series): &(String, Arc<OfQueue>)| {
                        series.each()[place].samples(encoder, &[(QUEUE, label.as_str())])
                    };
                    queues.iter().try_for_each(of_queue)
                })?;
            }
        }
        Ok(())
    }
}

type Write<'a> = dyn FnMut(&mut prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result + 'a;

fn described(
    encoder: &mut DescriptorEncoder<'_>,
    declared: &Declared,
    metric: &dyn Metric,
    write: &mut Write<'_>,
) -> fmt::Result {
    let name = match metric.kind() {
        MetricType::Counter => declared.name.strip_suffix("_total").unwrap_or(declared.name),
        _ => declared.name,
    };
    let (name, unit) = match declared.unit() {
        Some(unit) => (
            name.strip_suffix(unit.as_str()).and_then(|name| name.strip_suffix('_')).unwrap_or(name),
            Some(unit),
        ),
        None => (name, None),
    };
    write(&mut encoder.encode_descriptor(name, &escaped(declared.meaning), unit.as_ref(), metric.kind())?)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

impl Declared {
    /// The unit that the name ends with.
    pub fn unit(&self) -> Option<Unit> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        [Unit::Seconds, Unit::Bytes].into_iter().find(|unit| name.ends_with(&format!("_{}", unit.as_str())))
    }
}

/// The same for Prometheus: there, counters are named as their samples are, descriptions escape no quotes, and nothing tells of units and
/// the end. Samples are the same, so they are left as they are.
fn for_prometheus(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let families = text.strip_suffix("# EOF\n").unwrap_or(text);
    // No value of a label has a line of its own.
    for family in families.strip_prefix(HELP).into_iter().flat_map(|rest| rest.split("\n# HELP ")) {
        let mut lines = family.splitn(3, '\n');
        let (help, kind, rest) = (lines.next(), lines.next(), lines.next().unwrap_or_default());
        let (name, meaning) = help.and_then(|help| help.split_once(' ')).unwrap_or_default();
        let kind = kind.and_then(|kind| kind.rsplit_once(' ')).unwrap_or_default().1;
        let total = if kind == "counter" { "_total" } else { "" };
        let meaning = meaning.replace("\\\"", "\"");
        let samples =
            if rest.starts_with("# UNIT ") { rest.split_once('\n').unwrap_or_default().1 } else { rest };
        let newline = if samples.is_empty() || samples.ends_with('\n') { "" } else { "\n" };
        written.extend([
            HELP,
            name,
            total,
            " ",
            &meaning,
            "\n# TYPE ",
            name,
            total,
            " ",
            kind,
            "\n",
            samples,
            newline,
        ]);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Outcome;

    #[test]
    fn who_names_open_metrics_gets_it_unless_they_prefer_the_other() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let cases = [
            (None, Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/html, */*;q=0.8"), Format::Prometheus),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (Some("application/openmetrics-text; q=0"), Format::Prometheus),
            (Some("application/openmetrics-text; q=odd"), Format::Prometheus),
            (Some("text/plain, application/openmetrics-text; q=0.5"), Format::Prometheus),
            (Some(prometheus), Format::OpenMetrics),
        ];
        for (accept, format) in cases {
            assert_eq!(Format::of_accept(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn both_formats_say_the_same() {
        let metrics: Arc<Metrics> = Arc::default();
        metrics.queues.are([([1; 12], "a \"b\"\\\n")].into_iter());
        let queue = metrics.queues.of([1; 12]);
        queue.ended.of(Outcome::Failed).add(3);
        queue.cpu.add_seconds(0.5);
        queue.wait.observe(0.003);
        queue.run.of(Outcome::Failed).observe(0.01);
        let open = metrics.text(Component::Den, Format::OpenMetrics);
        let prometheus = metrics.text(Component::Den, Format::Prometheus);
        let label = "queue=\"a \\\"b\\\"\\\\\\n\"";
        for line in [
            format!("disbatch_tasks_ended_total{{{label},outcome=\"failed\"}} 3.0"),
            format!("disbatch_task_cpu_seconds_total{{{label}}} 0.5"),
            format!("disbatch_task_wait_seconds_bucket{{le=\"0.005\",{label}}} 1"),
            format!("disbatch_task_wait_seconds_bucket{{le=\"+Inf\",{label}}} 1"),
            format!("disbatch_task_run_seconds_count{{{label},outcome=\"failed\"}} 1"),
            "disbatch_claim_seconds_count 0".to_owned(),
            "disbatch_queues_folded 0.0".to_owned(),
        ] {
            assert!(open.contains(&line) && prometheus.contains(&line), "{line} is not in {open}");
        }
        for (line, of) in [
            ("# TYPE disbatch_tasks_ended counter", &open),
            ("# UNIT disbatch_task_cpu_seconds seconds", &open),
            ("are `queue=\\\"other\\\"`", &open),
            ("# TYPE disbatch_tasks_ended_total counter", &prometheus),
            ("# TYPE disbatch_task_cpu_seconds_total counter", &prometheus),
            ("are `queue=\"other\"`", &prometheus),
        ] {
            assert!(of.contains(line), "{line} is not in {of}");
        }
        assert!(open.ends_with("# EOF\n") && !prometheus.contains("EOF"));
        assert!(!prometheus.contains("\ndisbatch_node_places "), "nobody has told of it");
        assert!(!prometheus.contains("disbatch_queue_places"), "it is the DCI's");
        assert!(!prometheus.contains("outcome=\"cancelled\",le="), "it has seen none");
    }
}
