//! What came out: a table for people, JSON for programs.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::compare::Finding;
use crate::figure::Figure;
use crate::machine::Machine;
use crate::peer::Account;
use crate::results::{Results, Series};
use crate::statistics::Summary;

#[derive(Debug)]
pub struct Report<'a> {
    args: &'a Args,
    figures: Vec<(&'static Figure, Vec<Finding>)>,
    results: &'a Results,
    machine: Machine,
    peers: Account,
}

impl<'a> Report<'a> {
    pub fn new(
        args: &'a Args,
        machine: Machine,
        peers: Account,
        figures: &[&'static Figure],
        results: &'a Results,
    ) -> Self {
        let figures = figures.iter().map(|figure| (*figure, (figure.findings)(results))).collect();
        Self { args, figures, results, machine, peers }
    }

    /// Prints the table.
    #[expect(clippy::print_stdout, reason = "the table is the program's output")]
    pub fn print(&self) {
        print!("{}", self.table());
    }

    /// Writes the JSON to `path`, in a folder that is made if need be.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, format!("{:#}\n", self.json()))
    }

    fn table(&self) -> String {
        let Machine { cpus, busy_before } = self.machine;
        let cpus = cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        let busy =
            busy_before.map_or_else(String::new, |share| format!(", {:.0} % busy before", share * 100.0));
        let mut lines = vec![
            format!("rounds: {}{cpus}{busy}", self.args.rounds),
            String::new(),
            format!("{:72}{:>10}{:>10}{:>10}{:>10}", "", "median", "p95", "min", "max"),
        ];
        for (figure, findings) in &self.figures {
            for (series, _, summary) in self.series_of(figure) {
                lines.push(row(&format!("{}: {}", series.figure, series.label), summary, 1));
            }
            lines.extend(findings.iter().filter_map(finding_row));
        }
        lines.push(String::new());
        let left_out = self.peers.skipped.iter().map(|(peer, why)| format!("Left out: {peer}: {why}"));
        lines.extend(left_out);
        let not_measured = self.peers.not_measured.iter();
        lines.extend(not_measured.map(|(what, why)| format!("{what}: not measured: {why}")));
        lines.push("How it is measured:".to_owned());
        lines.extend(self.figures.iter().map(|(figure, _)| format!("  {}: {}", figure.name, figure.method)));
        lines.push(String::new());
        lines.join("\n")
    }

    fn series_of(&self, figure: &Figure) -> impl Iterator<Item = (&Series, &[f64], Summary)> {
        self.results.summaries().filter(|(series, _, _)| series.figure == figure.name)
    }

    fn json(&self) -> Value {
        let figures: Map<String, Value> = self
            .figures
            .iter()
            .map(|(figure, findings)| (figure.name.to_owned(), self.figure_json(figure, findings)))
            .collect();
        json!({
            "settings": {
                "tasks": self.args.tasks, "rounds": self.args.rounds,
            },
            "machine": { "cpus": self.machine.cpus, "busy_before_share": self.machine.busy_before },
            "version": env!("CARGO_PKG_VERSION"),
            "debug_build": cfg!(debug_assertions),
            "peers": { "versions": self.peers.versions, "left_out": self.peers.skipped },
            "not_measured": self.peers.not_measured,
            "figures": figures,
        })
    }

    fn figure_json(&self, figure: &Figure, findings: &[Finding]) -> Value {
        let series: Map<String, Value> = self
            .series_of(figure)
            .map(|(series, values, summary)| (series.key.to_string(), described(values, summary)))
            .collect();
        let findings: Map<String, Value> = findings
            .iter()
            .filter_map(|finding| Some((finding.key.to_string(), finding_json(finding)?)))
            .collect();
        json!({ "method": figure.method, "series": series, "findings": findings })
    }
}

/// Prints what can be measured.
#[expect(clippy::print_stdout, reason = "the list is the program's output")]
pub fn list(figures: &[&Figure]) {
    for figure in figures {
        println!("{}: {}", figure.name, figure.method);
    }
}

fn row(label: &str, summary: Summary, decimals: usize) -> String {
    let Summary { median, p95, min, max } = summary;
    format!("{label:72}{median:>10.decimals$}{p95:>10.decimals$}{min:>10.decimals$}{max:>10.decimals$}")
}

fn finding_row(finding: &Finding) -> Option<String> {
    let row = row(&format!("  {}", finding.label), Summary::of(&finding.values)?, 2);
    let goal = finding.goal.zip(finding.is_reached()).map_or_else(String::new, |(goal, reached)| {
        format!("  goal {}: {}", goal.words(), if reached { "reached" } else { "not reached" })
    });
    Some(row + &goal)
}

fn described(values: &[f64], summary: Summary) -> Value {
    json!({
        "median": summary.median, "p95": summary.p95, "min": summary.min, "max": summary.max,
        "values": values,
    })
}

fn finding_json(finding: &Finding) -> Option<Value> {
    let mut json = described(&finding.values, Summary::of(&finding.values)?);
    if let Some((goal, reached)) = finding.goal.zip(finding.is_reached()) {
        json["goal"] = json!({ "is": goal.words(), "reached": reached });
    }
    Some(json)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use futures::FutureExt;

    use super::*;
    use crate::compare::{Goal, ratio};
    use crate::figure::Rounds;

    static OURS: Series = Series::fixed("test", "ours_per_second", "ours/s");
    static FLOOR: Series = Series::fixed("test", "floor_per_second", "floor/s");
    static FIGURE: Figure = Figure {
        name: "test",
        method: "by hand",
        rounds: Rounds::Every,
        measure: |_| async { Ok(Vec::new()) }.boxed_local(),
        findings: |results| {
            vec![
                Finding::new("share", "share of the floor", ratio(results, &OURS, &FLOOR))
                    .with(Goal::AtLeast(0.5)),
            ]
        },
    };

    fn results(rates: &[f64]) -> Results {
        let mut results = Results::default();
        for rate in rates {
            results.add(vec![OURS.sample(*rate), FLOOR.sample(1000.0)]);
        }
        results
    }

    #[test]
    fn the_report_says_whether_the_goal_is_reached() {
        let args = Args::parse_from(["disbatch-bench"]);
        for (rate, words) in
            [(500.0, "goal at least 0.5: reached"), (499.0, "goal at least 0.5: not reached")]
        {
            let results = results(&[rate]);
            let report = Report::new(&args, Machine::default(), Account::default(), &[&FIGURE], &results);
            assert!(report.table().contains(words), "{}", report.table());
            assert_eq!(
                report.json()["figures"]["test"]["findings"]["share"]["goal"]["reached"],
                rate > 499.0
            );
        }
    }

    #[test]
    fn programs_find_series_and_findings() {
        let args = Args::parse_from(["disbatch-bench", "--tasks", "9"]);
        let results = results(&[100.0, 300.0]);
        let json = Report::new(&args, Machine::default(), Account::default(), &[&FIGURE], &results).json();
        let figure = &json["figures"]["test"];
        assert_eq!(figure["series"]["ours_per_second"]["median"], 200.0);
        assert_eq!(figure["findings"]["share"]["values"], json!([0.1, 0.3]));
        assert_eq!(json["settings"]["tasks"], 9);
    }

    #[test]
    fn what_is_left_out_is_named() {
        let args = Args::parse_from(["disbatch-bench"]);
        let results = Results::default();
        let skipped = [("rq", "not installed".to_owned())].into();
        let not_measured = [("engines: kubernetes".to_owned(), "there is no cluster".to_owned())].into();
        let peers = Account { skipped, not_measured, ..Account::default() };
        let report = Report::new(&args, Machine::default(), peers, &[&FIGURE], &results);
        assert!(report.table().contains("Left out: rq: not installed"), "{}", report.table());
        assert_eq!(report.json()["peers"]["left_out"], json!({ "rq": "not installed" }));
        let line = "engines: kubernetes: not measured: there is no cluster";
        assert!(report.table().lines().any(|text| text == line), "{}", report.table());
        assert_eq!(report.json()["not_measured"]["engines: kubernetes"], "there is no cluster");
    }

    #[test]
    fn without_values_there_is_no_finding() {
        let args = Args::parse_from(["disbatch-bench"]);
        let results = Results::default();
        let report = Report::new(&args, Machine::default(), Account::default(), &[&FIGURE], &results);
        assert!(!report.table().contains("goal"));
        assert_eq!(report.json()["figures"]["test"]["findings"], json!({}));
    }
}
