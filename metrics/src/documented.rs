//! That docs/metrics.md has all metrics, as they are declared.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use prometheus_client::metrics::MetricType;

use crate::QUEUE;
use crate::declared::{Declared, Metrics, OfQueue};
use crate::kinds::{KnownLabel, Metric};

const MARKS: [&str; 2] = ["<!-- metrics -->\n", "<!-- /metrics -->"];

fn row(declared: &Declared, metric: &dyn Metric, of_queue: &[KnownLabel]) -> String {
    let label = |(name, values): &KnownLabel| match values {
        [] => format!("`{name}`"),
        values => format!("`{name}` ({})", values.join(", ")),
    };
    let labels: Vec<String> = of_queue.iter().chain(&metric.labels()).map(label).collect();
    let from: Vec<String> = declared.from.iter().map(|from| from.to_string().to_uppercase()).collect();
    format!(
        "| `{}` | {} | {} | {} | {} |\n",
        declared.name,
        metric.kind().as_str(),
        labels.join(", "),
        from.join(", "),
        declared.meaning
    )
}

fn table() -> String {
    let (metrics, queue) = (Metrics::default(), OfQueue::default());
    let mut rows: Vec<String> = Vec::new();
    for (declared, metric) in Metrics::DECLARED.iter().zip(metrics.each()) {
        rows.push(row(declared, metric, &[]));
    }
    for (declared, metric) in OfQueue::DECLARED.iter().zip(queue.each()) {
        rows.push(row(declared, metric, &[(QUEUE, &[])]));
    }
    rows.sort();
    let mut table = "| name | type | labels | from | meaning |\n| --- | --- | --- | --- | --- |\n".to_owned();
    table.write_str(&rows.concat()).unwrap();
    table
}

#[test]
fn the_documentation_has_all_of_them() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (documented, after) = rest.split_once(MARKS[1]).unwrap();
    if std::env::var_os("DISBATCH_RENEW").is_some() {
        std::fs::write(path, format!("{before}{}{}{}{after}", MARKS[0], table(), MARKS[1])).unwrap();
    } else {
        assert_eq!(documented, table(), "docs/metrics.md: run this test with DISBATCH_RENEW=1");
    }
}

#[test]
fn names_say_what_they_are_of() {
    let (metrics, queue) = (Metrics::default(), OfQueue::default());
    let of_process = Metrics::DECLARED.iter().zip(metrics.each());
    let mut names = BTreeSet::new();
    for (declared, metric) in of_process.chain(OfQueue::DECLARED.iter().zip(queue.each())) {
        let name = declared.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.starts_with("disbatch_") || name.starts_with("process_"), "{name}");
        let is_counter = matches!(metric.kind(), MetricType::Counter);
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        assert!(!declared.from.is_empty() && !declared.meaning.ends_with('.'), "{name}");
    }
}
