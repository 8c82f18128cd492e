//! What came out: a table for people, JSON for programs.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::compare::{self, GOAL_TIMES_PERL, PERL_DISBATCH_TASKS_PER_SECOND, Ratio};
use crate::figure::Figure;
use crate::machine::Machine;
use crate::results::Results;
use crate::statistics::Summary;

/// Everything that is reported.
#[derive(Debug)]
pub struct Report<'a> {
    args: &'a Args,
    figures: &'a [Figure],
    results: &'a Results,
    ratios: [Ratio; 3],
    machine: Machine,
}

impl<'a> Report<'a> {
    /// The report on `results`.
    pub fn new(args: &'a Args, machine: Machine, figures: &'a [Figure], results: &'a Results) -> Self {
        let ratios =
            [compare::share_of_floor(results), compare::times_perl(results), compare::decay(results)];
        Self { args, figures, results, ratios, machine }
    }

    /// Prints the table.
    #[expect(clippy::print_stdout, reason = "the table is the program's output")]
    pub fn print(&self) {
        print!("{}", self.table());
    }

    /// Writes the JSON to `path`, in a folder that is made if need be.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, format!("{:#}\n", self.json()))
    }

    fn table(&self) -> String {
        let Args { tasks, threads, rounds, .. } = self.args;
        let Machine { cpus, busy_before } = self.machine;
        let cpus = cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        let busy =
            busy_before.map_or_else(String::new, |share| format!(", {:.0} % busy before", share * 100.0));
        let mut lines = vec![
            format!("{tasks} tasks a round, {threads} at once, rounds: {rounds}{cpus}{busy}"),
            String::new(),
            format!("{:42}{:>10}{:>10}{:>10}{:>10}", "", "median", "p95", "min", "max"),
        ];
        for (series, _, summary) in self.results.summaries() {
            lines.push(row(&format!("{}: {}", series.figure, series.label), summary, 1));
        }
        for ratio in &self.ratios {
            if let Some(summary) = Summary::of(&ratio.values) {
                lines.push(row(&format!("ratio: {}", ratio.label), summary, 2));
            }
        }
        lines.push(String::new());
        lines.extend(self.goal_line());
        lines.push("How it is measured:".to_owned());
        lines.extend(self.figures.iter().map(|figure| format!("  {}: {}", figure.name(), figure.method())));
        lines.push(String::new());
        lines.join("\n")
    }

    fn goal_line(&self) -> Option<String> {
        let (times, reached) = self.goal()?;
        let outcome = if reached { "reached" } else { "not reached" };
        Some(format!(
            "Goal: {GOAL_TIMES_PERL} times the {PERL_DISBATCH_TASKS_PER_SECOND} tasks/s that Perl Disbatch 4.103 \
             ran on a 2-core machine (recorded in another run): {times:.1} times, {outcome}.\n"
        ))
    }

    /// How many times as fast as Perl Disbatch, and whether that is enough.
    fn goal(&self) -> Option<(f64, bool)> {
        let times = Summary::of(&compare::times_perl(self.results).values)?.median;
        Some((times, times >= GOAL_TIMES_PERL))
    }

    fn json(&self) -> Value {
        let mut figures = Map::new();
        for figure in self.figures {
            let series: Map<String, Value> = self
                .results
                .summaries()
                .filter(|(series, _, _)| series.figure == figure.name())
                .map(|(series, values, summary)| (series.key.to_owned(), described(values, summary)))
                .collect();
            figures.insert(figure.name().to_owned(), json!({ "method": figure.method(), "series": series }));
        }
        let ratios: Map<String, Value> = self
            .ratios
            .iter()
            .filter_map(|ratio| {
                Some((ratio.key.to_owned(), described(&ratio.values, Summary::of(&ratio.values)?)))
            })
            .collect();
        let Args { tasks, threads, rounds, .. } = self.args;
        json!({
            "settings": { "tasks": tasks, "threads": threads, "rounds": rounds },
            "machine": { "cpus": self.machine.cpus, "busy_before_share": self.machine.busy_before },
            "version": env!("CARGO_PKG_VERSION"),
            "debug_build": cfg!(debug_assertions),
            "figures": figures,
            "ratios": ratios,
            "recorded": { "perl_disbatch_4_103_tasks_per_second": PERL_DISBATCH_TASKS_PER_SECOND },
            "goal": {
                "times_perl_disbatch_4_103": GOAL_TIMES_PERL,
                "reached": self.goal().map(|(_, reached)| reached),
            },
        })
    }
}

fn row(label: &str, summary: Summary, decimals: usize) -> String {
    let Summary { median, p95, min, max } = summary;
    format!("{label:42}{median:>10.decimals$}{p95:>10.decimals$}{min:>10.decimals$}{max:>10.decimals$}")
}

fn described(values: &[f64], summary: Summary) -> Value {
    json!({
        "median": summary.median, "p95": summary.p95, "min": summary.min, "max": summary.max,
        "values": values,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::figure::{drain, floor};
    use crate::results::Sample;

    fn results(rates: &[f64]) -> Results {
        let mut results = Results::default();
        for rate in rates {
            results.add(vec![
                Sample { series: &drain::RATE, value: *rate },
                Sample { series: &floor::RATE, value: 1000.0 },
            ]);
        }
        results
    }

    #[test]
    fn the_report_says_whether_the_goal_is_reached() {
        let args = Args::parse_from(["disbatch-bench"]);
        for (rate, words) in [(64.0, "20.0 times, reached."), (32.0, "10.0 times, not reached.")] {
            let results = results(&[rate]);
            let report = Report::new(&args, Machine::default(), &Figure::ALL, &results);
            assert!(report.table().contains(words), "{}", report.table());
            assert_eq!(report.json()["goal"]["reached"], rate > 50.0);
        }
    }

    #[test]
    fn programs_find_series_and_ratios() {
        let args = Args::parse_from(["disbatch-bench", "--tasks", "9"]);
        let results = results(&[100.0, 300.0]);
        let json = Report::new(&args, Machine::default(), &Figure::ALL, &results).json();
        assert_eq!(json["figures"]["drain"]["series"]["tasks_per_second"]["median"], 200.0);
        assert_eq!(json["ratios"]["share_of_floor"]["values"], serde_json::json!([0.1, 0.3]));
        assert_eq!(json["settings"]["tasks"], 9);
        assert_eq!(json["figures"]["latency"]["series"], serde_json::json!({}));
    }

    #[test]
    fn without_a_drain_there_is_no_goal() {
        let args = Args::parse_from(["disbatch-bench", "floor"]);
        let results = Results::default();
        let report = Report::new(&args, Machine::default(), &[Figure::Floor], &results);
        assert!(!report.table().contains("Goal"));
        assert!(report.json()["goal"]["reached"].is_null());
    }
}
