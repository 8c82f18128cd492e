//! `processes`: tasks that do nothing, a process each.

use bson::{Document, doc};
use futures::FutureExt;

use crate::bare;
use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::{Entrant, order, peer_drain, times, widths};
use crate::figure::{Figure, Rounds, Turn, cost};
use crate::peer::{AGENDA, BULLMQ, CELERY, CELERY_CHILD, MINION, RQ};
use crate::results::{Results, Sample, Series};
use crate::statistics::rate;
use crate::world::drain::{Plan, drain, tenths};
use crate::world::plugins::{SHELL, TRUE, TRUE_PROGRAM};

const NAME: &str = "processes";

const METHOD: &str = "/bin/true as a plugin, a process for each task: the node is made warm with twice as many tasks \
    as run at once, then the tasks wait in a queue with threads 0; timed from setting threads until none is left that \
    is queued, claimed or running. The floor starts /bin/true as often, as many at once, writes a task to its standard \
    input, reads both outputs, and waits for its end. The Shell plugin drains as many with params.command [\"/bin/true\"]. \
    CPU time of one task by /proc/PID/stat, from the release to the last end, of the server with the benchmark's looks \
    every 25 ms. The peers do the same with jobs that do nothing, see bench/peers. \
    First and last tenth by the tasks' own mtime at their end, without the way to the first one";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const ENTRANTS: [Entrant; 9] = [
    Entrant::Floor,
    Entrant::Ours,
    Entrant::Shell,
    Entrant::Peer(&RQ),
    Entrant::Peer(&MINION),
    Entrant::Peer(&CELERY),
    Entrant::Peer(&CELERY_CHILD),
    Entrant::Peer(&AGENDA),
    Entrant::Peer(&BULLMQ),
];

/// Tasks in a second that Perl Disbatch 4.103 ran: one DEN, 8 threads, the Demo plugin, MongoDB 6.0.5. A
/// recorded figure from another run on a 2-core machine; it is not measured here.
const PERL_DISBATCH_TASKS_PER_SECOND: f64 = 3.2;

/// What DEN, runner and guard may use for a task.
const NODE_MICROSECONDS: f64 = 250.0;

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(4000);
    let mut samples = Vec::new();
    for width in turn.args.widths_or(&[8, 64]) {
        for entrant in order(&ENTRANTS, turn.round) {
            turn.begin(&format!("{NAME}: {}, {width} wide", entrant.label()));
            let new = match entrant {
                Entrant::Floor => {
                    let seconds = bare::run(&[TRUE_PROGRAM], tasks, width).await?;
                    rate(tasks, seconds)
                        .map(|speed| entrant.series(NAME, width).sample(speed))
                        .into_iter()
                        .collect()
                }
                Entrant::Ours => ours(turn, tasks, width).await?,
                Entrant::Shell => shell(turn, tasks, width).await?,
                Entrant::Peer(peer) => {
                    peer_drain(turn, NAME, peer, (tasks, width)).await.into_iter().collect()
                }
            };
            turn.end(&new);
            samples.extend(new);
        }
    }
    Ok(samples)
}

async fn ours(turn: Turn<'_>, tasks: u32, width: u32) -> anyhow::Result<Vec<Sample>> {
    let node = turn.world.node(NAME).await?;
    let plan = Plan { plugin: TRUE, params: Document::new(), tasks, width };
    let drained = node.finish(async |node| drain(node, &plan, turn.progress).await).await?;
    let mut samples: Vec<Sample> = rate(tasks, drained.seconds)
        .map(|speed| Entrant::Ours.series(NAME, width).sample(speed))
        .into_iter()
        .collect();
    if let Some((first, last)) = tenths(&drained.ends) {
        samples.extend([first_tenth(width).sample(first), last_tenth(width).sample(last)]);
    }
    samples.extend(cost::samples(NAME, (tasks, width), drained.cpu));
    Ok(samples)
}

async fn shell(turn: Turn<'_>, tasks: u32, width: u32) -> anyhow::Result<Vec<Sample>> {
    let node = turn.world.node(NAME).await?;
    let plan = Plan { plugin: SHELL, params: doc! { "command": [TRUE_PROGRAM] }, tasks, width };
    let drained = node.finish(async |node| drain(node, &plan, turn.progress).await).await?;
    let speed = rate(tasks, drained.seconds).map(|speed| Entrant::Shell.series(NAME, width).sample(speed));
    Ok(speed.into_iter().collect())
}

fn tenth(which: &str, width: u32) -> Series {
    Series {
        figure: NAME,
        key: format!("disbatch_{width}_wide_{which}_tenth_per_second").into(),
        label: format!("Disbatch, {width} wide, {which} tenth, per second").into(),
    }
}

fn first_tenth(width: u32) -> Series {
    tenth("first", width)
}

fn last_tenth(width: u32) -> Series {
    tenth("last", width)
}

fn goal(entrant: Entrant) -> Option<Goal> {
    match entrant {
        Entrant::Floor => Some(Goal::AtLeast(0.45)),
        Entrant::Peer(peer) if peer.key == RQ.key => Some(Goal::AtLeast(10.0)),
        Entrant::Peer(peer) if peer.key == MINION.key => Some(Goal::AtLeast(3.0)),
        Entrant::Ours | Entrant::Shell | Entrant::Peer(_) => None,
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let mut findings = Vec::new();
    for width in widths(results, NAME) {
        let others =
            ENTRANTS.into_iter().filter(|entrant| !matches!(entrant, Entrant::Ours | Entrant::Shell));
        findings.extend(others.map(|other| times(results, NAME, (other, width), goal(other))));
        let ours = results.values(&Entrant::Ours.series(NAME, width));
        let perl = ours.iter().map(|speed| speed / PERL_DISBATCH_TASKS_PER_SECOND).collect();
        let key = format!("over_perl_disbatch_4_103_recorded_{width}_wide");
        let label = format!("Disbatch / Perl Disbatch 4.103, recorded, {width} wide");
        findings.push(Finding::new(key, label, perl).with(Goal::AtLeast(20.0)));
        findings.push(Finding::new(
            format!("last_tenth_over_first_tenth_{width}_wide"),
            format!("last tenth / first tenth, {width} wide"),
            ratio(results, &last_tenth(width), &first_tenth(width)),
        ));
        let label = format!("Shell plugin / {TRUE_PROGRAM} as a plugin, {width} wide");
        let (shell, plugin) = (Entrant::Shell.series(NAME, width), Entrant::Ours.series(NAME, width));
        let shell =
            Finding::new(format!("shell_over_plugin_{width}_wide"), label, ratio(results, &shell, &plugin));
        findings.push(shell.with(Goal::AtLeast(0.9)));
        findings.push(cost::finding(results, NAME, width, NODE_MICROSECONDS));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_system_is_compared_at_each_width() {
        let mut results = Results::default();
        for (entrant, width) in ENTRANTS.into_iter().flat_map(|entrant| [(entrant, 8), (entrant, 64)]) {
            let speed = match entrant {
                Entrant::Ours => 900.0,
                Entrant::Shell => 450.0,
                Entrant::Floor | Entrant::Peer(_) => 100.0,
            };
            results.add(vec![entrant.series(NAME, width).sample(speed)]);
        }
        let findings = findings(&results);
        let reached = |key: &str| {
            let found = findings.iter().find(|finding| finding.key == key).unwrap();
            (found.values.clone(), found.is_reached())
        };
        assert_eq!(reached("over_floor_8_wide"), (vec![9.0], Some(true)));
        assert_eq!(reached("over_floor_64_wide"), (vec![9.0], Some(true)));
        assert_eq!(reached("over_minion_64_wide"), (vec![9.0], Some(true)));
        assert_eq!(reached("shell_over_plugin_64_wide"), (vec![0.5], Some(false)));
        assert_eq!(reached("over_rq_8_wide"), (vec![9.0], Some(false)));
        assert_eq!(reached("over_minion_8_wide"), (vec![9.0], Some(true)));
        assert_eq!(reached("over_bullmq_8_wide"), (vec![9.0], None));
        assert_eq!(reached("over_perl_disbatch_4_103_recorded_8_wide").1, Some(true));
    }
}
