//! The sites that are looked at, and what came out, as Markdown.

use super::cluster::{Outcome, simulate};
use super::plan::{Load, used_nodes};
use super::{Assumptions, Scenario, Wakes};

/// Nodes of a site.
pub const NODES: [u32; 3] = [10, 100, 1_000];

/// Tasks in a day, in millions.
pub const MILLIONS: [u32; 3] = [1, 10, 100];

/// So many tasks come in a simulation, about.
const TASKS: f64 = 30_000.0;

const SHORTEST: f64 = 10.0;
const LONGEST: f64 = 300.0;

const SEED: u64 = 20_261_120;

/// A site at its busiest hour, and on average.
#[derive(Debug, Clone)]
pub struct Row {
    /// The busiest hour.
    pub scenario: Scenario,
    pub load: Load,
    pub shards: u32,
    /// Which share of the nodes is needed.
    pub used_nodes: f64,
    /// The busiest hour. `None`: there are too few nodes.
    pub peak: Option<Outcome>,
    /// The average of a day, with the same shards.
    pub average: Option<Outcome>,
}

pub fn rows(assumptions: &Assumptions, mut done: impl FnMut(usize, usize)) -> Vec<Row> {
    let mut scenarios = Vec::new();
    for wakes in [Wakes::Streams, Wakes::Looks] {
        for nodes in NODES {
            scenarios.extend(MILLIONS.map(|millions| Scenario {
                nodes,
                millions,
                factor: assumptions.peak,
                wakes,
            }));
        }
    }
    let all = scenarios.len();
    let mut rows = Vec::new();
    for (number, scenario) in scenarios.into_iter().enumerate() {
        done(number, all);
        rows.push(row(assumptions, scenario));
    }
    rows
}

fn row(assumptions: &Assumptions, scenario: Scenario) -> Row {
    let load = Load::of(assumptions, scenario);
    let shards = load.shards(assumptions);
    let run = |scenario: Scenario| {
        let length = (TASKS / scenario.rate()).clamp(SHORTEST, LONGEST);
        (used_nodes(assumptions, scenario) < 0.95)
            .then(|| simulate(assumptions, scenario, shards, length, SEED))
    };
    Row {
        scenario,
        load,
        shards,
        used_nodes: used_nodes(assumptions, scenario),
        peak: run(scenario),
        average: run(Scenario { factor: 1.0, ..scenario }),
    }
}

/// Assumptions and results. `measured`: the names of what was measured.
pub fn markdown(assumptions: &Assumptions, measured: &[&str], rows: &[Row]) -> String {
    let mut lines = vec!["| assumption | value | |".to_owned(), "| --- | --- | --- |".to_owned()];
    for (name, label, value) in assumptions.named() {
        let origin = if measured.contains(&name) { "measured" } else { "assumed" };
        lines.push(format!("| {label} | {} | {origin} |", number(value)));
    }
    for wakes in [Wakes::Streams, Wakes::Looks] {
        let title = match wakes {
            Wakes::Streams => {
                "Four nodes with room wait at their change streams, the others look once a second:"
            }
            Wakes::Looks => "Nodes look once a second, as where there are no change streams:",
        };
        lines.extend([String::new(), title.to_owned(), String::new()]);
        lines.push(
            "| nodes | tasks a day | tasks/s, peak | nodes used | cores: tasks | streams | asking in vain | idle | shards | \
             cores used | wait at peak p50 / p95 / p99, ms | average p99, ms | connections of a primary | hints/s of a DEN |"
                .to_owned(),
        );
        lines.push(format!("|{}", " --- |".repeat(14)));
        lines.extend(rows.iter().filter(|row| row.scenario.wakes == wakes).map(|row| line(assumptions, row)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn line(assumptions: &Assumptions, row: &Row) -> String {
    let Row { scenario, load, shards, used_nodes, peak, average } = row;
    let ms = |outcome: &Outcome, percent| {
        outcome.percentile(percent).map_or_else(String::new, |wait| number(wait * 1e3))
    };
    let waits = peak.as_ref().map_or_else(
        || "too few nodes".to_owned(),
        |peak| format!("{} / {} / {}", ms(peak, 50), ms(peak, 95), ms(peak, 99)),
    );
    let average = average.as_ref().map_or_else(|| "too few nodes".to_owned(), |average| ms(average, 99));
    let used = peak.as_ref().map_or_else(String::new, |peak| format!("{:.0} %", peak.used * 100.0));
    let hints = if scenario.wakes == Wakes::Streams { number(scenario.rate()) } else { "0".to_owned() };
    format!(
        "| {} | {} million | {} | {:.0} % | {} | {} | {} | {} | {shards}{} | {used} | {waits} | {average} | {} | {hints} |",
        scenario.nodes,
        scenario.millions,
        number(scenario.rate()),
        used_nodes * 100.0,
        number(load.tasks),
        number(load.streams),
        number(load.fruitless),
        number(load.idle),
        if *shards > assumptions.queues { "*" } else { "" },
        number(f64::from(scenario.nodes) * assumptions.connections),
    )
}

/// With two or three digits that mean something.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

impl Assumptions {
    /// All of them, by the name of the field and in words.
    pub fn named(&self) -> [(&'static str, &'static str, f64); 20] {
        [
            ("cores", "cores of a shard's primary", f64::from(self.cores)),
            ("most_used", "share of them that may be used", self.most_used),
            ("places", "tasks at once on a node", f64::from(self.places)),
            ("task_seconds", "seconds that a task runs, on average", self.task_seconds),
            ("queues", "queues with tasks", f64::from(self.queues)),
            ("peak", "busiest hour / average", self.peak),
            ("starts_per_second", "tasks that a node can start, per second", self.starts_per_second),
            ("round_trip_ms", "round trip to the database, ms", self.round_trip_ms),
            ("hint_ms", "from a task's acknowledgement to the hint, ms", self.hint_ms),
            ("gather_ms", "gathering hints after asking in vain, ms", self.gather_ms),
            ("submit_us", "storing a task, us of a core", self.submit_us),
            ("run_us", "claim, start and end of a task, us of a core", self.run_us),
            ("stream_us", "a change stream that is waited at, us of a core for each task", self.stream_us),
            (
                "asked_us",
                "one that is asked every two seconds what else has changed, the same",
                self.asked_us,
            ),
            ("fruitless_us", "asking a queue in vain, us of a core", self.fruitless_us),
            ("look_us", "the look of a node for what any may do, each second, us of a core", self.look_us),
            ("own_look_us", "that of a node beyond the first four", self.own_look_us),
            ("beat_us", "a heartbeat, each second, us of a core", self.beat_us),
            ("connections", "connections of a node to a primary", self.connections),
            ("writes_per_task", "documents written for a task", self.writes_per_task),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_nodes_are_called_so() {
        let a = Assumptions { task_seconds: 10.0, ..Assumptions::default() };
        let full = Scenario { nodes: 10, millions: 100, factor: 1.0, wakes: Wakes::Looks };
        let rows = [row(&a, full), row(&a, Scenario { nodes: 100, millions: 1, ..full })];
        assert!(rows[0].peak.is_none() && rows[1].peak.is_some());
        let text = markdown(&a, &["run_us"], &rows);
        assert!(text.contains("too few nodes") && text.contains("us of a core | 300 | measured |"), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (number(3472.2), number(12.34), number(0.123)),
            ("3472".into(), "12.3".into(), "0.12".into())
        );
    }
}
