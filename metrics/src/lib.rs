//! What Disbatch tells monitoring systems: each metric is declared once ([`declared`]), counted where things happen, and written as
//! Prometheus and OpenMetrics want it ([`text`]). Whoever counts does so in memory: nothing here asks the database.

pub mod declared;
#[cfg(test)]
mod documented;
mod kinds;
pub mod labels;
mod process;
pub mod queues;
pub mod text;

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

pub use declared::Metrics;
pub use kinds::{AsValues, By, Counter, Gauge, Histogram, Met, Row, Rows};
pub use text::Format;

/// The label of what is counted for each queue.
pub const QUEUE: &str = "queue";

/// Who exports metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Den,
    Dci,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Den => "den",
            Self::Dci => "dci",
        })
    }
}

/// A route of the REST API, and what it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The template of its addresses.
    pub template: String,
    pub method: &'static str,
    pub code: u16,
}

impl AsValues for Route {
    fn values(&self) -> Vec<String> {
        vec![self.template.clone(), self.method.to_owned(), self.code.to_string()]
    }
}

/// An operation on the database, and whether it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operation {
    pub name: &'static str,
    pub failed: bool,
}

impl AsValues for Operation {
    fn values(&self) -> Vec<String> {
        vec![self.name.to_owned(), if self.failed { "error" } else { "ok" }.to_owned()]
    }
}

/// Few, as there are many operations.
const OPERATION_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

/// All operations of this process.
static OPERATIONS: LazyLock<Met<Operation, Histogram>> =
    LazyLock::new(|| Met::new(&["op", "outcome"], || Histogram::new(OPERATION_SECONDS)));

/// Counts an operation that took so long.
pub fn operated(operation: Operation, time: Duration) {
    OPERATIONS.of(&operation).observe_time(time);
}

impl Metrics {
    /// Those of a component of this release.
    pub fn of(component: Component, version: &str) -> Self {
        let metrics = Self::default();
        metrics.build.set(vec![(vec![version.to_owned(), component.to_string()], 1.0)]);
        metrics
    }
}
