//! What a person reads.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::checks::{Concurrency, Evidence, Verdict};
use super::inject::Injected;

/// So many violations of an invariant are shown.
const SHOWN: usize = 10;

/// A line on standard output.
pub fn say(line: &str) {
    // Whoever has stopped reading misses it.
    let _nobody_reads = writeln!(io::stdout(), "{line}");
}

/// The tables at the end. Returns whether every invariant held.
pub fn print(
    evidence: &Evidence<'_>,
    injected: &Injected,
    concurrency: &[Concurrency],
    verdicts: &[Verdict],
) -> bool {
    say("\ntasks by final status");
    let mut statuses: BTreeMap<i64, usize> = BTreeMap::new();
    for task in evidence.tasks.values() {
        *statuses.entry(Evidence::status(task)).or_default() += 1;
    }
    for (status, count) in statuses {
        say(&format!("  {status:>4} {:<12} {count:>6}", word(status)));
    }
    say("failed tasks by the first line of their standard error");
    for (reason, count) in reasons(evidence) {
        say(&format!("  {count:>6}  {reason}"));
    }
    let ended = evidence.runs.iter().filter(|run| run.ended).count();
    say(&format!("plugins started: {}, of which came to their end: {ended}", evidence.runs.len()));
    say("faults injected");
    for (fault, count) in injected {
        say(&format!("  {:<16} {count:>6}", fault.name()));
    }
    say("plugins at once (at most; limit in force then; largest limit)");
    for queue in concurrency {
        say(&format!("  {:<16} {:>4} {:>4} {:>4}", queue.queue, queue.most, queue.limit, queue.largest));
    }
    say("invariants");
    for verdict in verdicts {
        let violations = verdict.violations.len();
        let word = if violations == 0 { "held".to_owned() } else { format!("VIOLATED {violations} times") };
        say(&format!("  {:<32} {word}", verdict.name));
        for violation in verdict.violations.iter().take(SHOWN) {
            say(&format!("      {violation}"));
        }
    }
    verdicts.iter().all(|verdict| verdict.violations.is_empty())
}

fn reasons(evidence: &Evidence<'_>) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for task in evidence.tasks.values().filter(|task| Evidence::status(task) == 2) {
        let line = task.get_str("stderr").ok().and_then(|text| text.lines().next());
        *reasons.entry(line.unwrap_or("(none, or in GridFS)").to_owned()).or_default() += 1;
    }
    reasons
}

fn word(status: i64) -> &'static str {
    match status {
        -7 => "deferred",
        -6 => "orphaned",
        -5 => "cancelled",
        -4 => "blocked",
        -3 => "terminated",
        -2 => "queued",
        -1 => "claimed",
        0 => "running",
        1 => "succeeded",
        2 => "failed",
        _ => "",
    }
}
