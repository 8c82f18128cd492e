//! `engines`: what a task costs with each way to run plugins.

mod alone;
mod way;

use anyhow::{Context, anyhow};
use bson::{Document, doc};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::bare;
use crate::compare::{Finding, ratio};
use crate::figure::contest::{order, widths_of};
use crate::figure::{Figure, Rounds, Turn};
use crate::machine::Work;
use crate::results::{Results, Sample};
use crate::statistics::{Summary, rate};
use crate::world::Kind;
use crate::world::drain::{Plan, prepare, release};
use crate::world::node::{Node, Setup};
use crate::world::plugins::engines_folder;
use crate::world::processes::{cpu_of_ended_children, cpu_of_families};
use crate::world::service::Service;
use crate::world::web::Web;
use way::Way;

const NAME: &str = "engines";

const METHOD: &str = "drains of tasks that do nothing, as in `processes` and `warm`, by a node for each engine: /bin/true, \
    the warm demo plugin, a Perl module, a shell script of the type nomongo, a container of an image with one program \
    (a private Podman, without a network, a tenth of the tasks), and a web service in the benchmark that answers 201 and \
    calls back at once, over a DCI of its own (a quarter of the tasks). The bare processes are /bin/true, perl -e 1, and \
    the same script, started as `processes` does. CPU time of the node: of the DEN, its runners, guards and plugins, or \
    adapters, and of the DCI that is called back, from /proc/PID/stat; of the machine: of all CPUs from /proc/stat, with \
    MongoDB, Podman and the benchmark's own looks, every 25 ms. Then one task at a time on the idle node, 30 of them in a \
    round, with pauses of 200 to 300 ms: from just before the call that submits until a change stream tells of its end; \
    a bare process: the mean time of one after the other. An engine that is not there is named with the reason";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const TASKS: u32 = 1000;
const WIDTHS: [u32; 1] = [8];

/// So many tasks run alone, or as many as are drained, if these are fewer.
const ALONE: u32 = 30;

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    turn.world.leave_out(format!("{NAME}: kubernetes"), "there is no cluster");
    let mut samples = Vec::new();
    for way in order(&Way::ALL, turn.round) {
        if let Some(why) = missing(turn, way).await {
            turn.world.leave_out(format!("{NAME}: {}", way.label()), &why);
            continue;
        }
        turn.begin(&format!("{NAME}: {}", way.label()));
        let measured = match way.plugin() {
            Some(plugin) => Box::pin(engine(turn, way, plugin)).await,
            None => Box::pin(processes(turn, way)).await,
        };
        let new = measured.with_context(|| way.label())?;
        turn.end(&new);
        samples.extend(new);
    }
    Ok(samples)
}

/// Why a way cannot be measured on this machine.
async fn missing(turn: Turn<'_>, way: Way) -> Option<String> {
    match way {
        Way::BarePerl | Way::Perl => {
            let once = bare::run(&way::PERL_START, 1, 1).await;
            once.err().map(|error| format!("{error:#}"))
        }
        Way::Container => turn.world.podman().await.err().map(ToOwned::to_owned),
        Way::BareTrue | Way::BareProgram | Way::Exec | Way::Warm | Way::Program | Way::Http => None,
    }
}

fn count_alone(turn: Turn<'_>) -> u32 {
    turn.args.tasks_or(ALONE).min(ALONE)
}

/// The floor: processes without any of ours.
async fn processes(turn: Turn<'_>, way: Way) -> anyhow::Result<Vec<Sample>> {
    let command = way.command(&turn.world.folder)?;
    let (tasks, count) = (turn.args.tasks_or(TASKS), count_alone(turn));
    let mut samples = Vec::new();
    for width in turn.args.widths_or(&WIDTHS) {
        let (before, machine) = (cpu_of_ended_children()?, Work::so_far());
        let seconds = bare::run(&command, tasks, width).await?;
        let used = cpu_of_ended_children()? - before;
        samples.extend(rate(tasks, seconds).map(|speed| way.speed(width).sample(speed)));
        samples.push(way.cpu(width).sample(each(used, tasks)));
        let machine = machine.and_then(Work::seconds_since);
        samples.extend(machine.map(|used| way.machine_cpu(width).sample(each(used, tasks))));
    }
    let seconds = bare::run(&command, count, 1).await?;
    samples.push(way.alone().sample(each(seconds, count)));
    Ok(samples)
}

/// The milliseconds of one, where so many have taken these seconds.
fn each(seconds: f64, count: u32) -> f64 {
    seconds * 1000.0 / f64::from(count)
}

async fn engine(turn: Turn<'_>, way: Way, plugin: &'static str) -> anyhow::Result<Vec<Sample>> {
    let mut setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    setup.plugins.push(engines_folder(&turn.world.folder));
    let mut beside = Beside::start(turn, way, &setup).await?;
    if !beside.engines.is_null() {
        setup.settings.insert("engines".to_owned(), beside.engines.take());
    }
    let node = Node::start(&setup).await?;
    node.finish(async |node| {
        let measured = Box::pin(drains_and_waits(turn, node, (way, plugin), &beside)).await;
        // Before its database is dropped.
        beside.end().await?;
        measured
    })
    .await
}

async fn drains_and_waits(
    turn: Turn<'_>,
    node: &mut Node,
    (way, plugin): (Way, &'static str),
    beside: &Beside,
) -> anyhow::Result<Vec<Sample>> {
    let tasks = way.tasks(turn.args.tasks_or(TASKS));
    let mut samples = Vec::new();
    for width in turn.args.widths_or(&WIDTHS) {
        let plan = Plan { plugin, params: beside.params.clone(), tasks, width };
        let ready = Box::pin(prepare(node, &plan, turn.progress)).await?;
        let heads: Vec<i32> = [Some(node.pid()), beside.pid()].into_iter().flatten().collect();
        let (before, machine) = (cpu_of_families(&heads)?, Work::so_far());
        let drained = Box::pin(release(node, ready, &plan, turn.progress)).await?;
        let used = cpu_of_families(&heads)? - before;
        samples.extend(rate(tasks, drained.seconds).map(|speed| way.speed(width).sample(speed)));
        samples.push(way.cpu(width).sample(each(used, tasks)));
        let machine = machine.and_then(Work::seconds_since);
        samples.extend(machine.map(|used| way.machine_cpu(width).sample(each(used, tasks))));
    }
    let waits =
        Box::pin(alone::waits(node, (plugin, &beside.params), count_alone(turn), turn.progress)).await?;
    samples.extend(Summary::of(&waits).map(|waits| way.alone_of_round().sample(waits.median)));
    samples.extend(waits.into_iter().map(|wait| way.alone().sample(wait)));
    Ok(samples)
}

/// What an engine needs beside its node.
struct Beside {
    /// The key `engines` of the node's configuration.
    engines: Value,
    params: Document,
    web: Option<Web>,
    _service: Option<Service>,
}

impl Beside {
    async fn start(turn: Turn<'_>, way: Way, setup: &Setup) -> anyhow::Result<Self> {
        let nothing = Self { engines: Value::Null, params: Document::new(), web: None, _service: None };
        Ok(match way {
            Way::Warm => Self { params: doc! { "noreport": true }, ..nothing },
            Way::Container => {
                let podman = turn.world.podman().await.map_err(|why| anyhow!("no Podman: {why}"))?;
                Self { engines: json!({ "container": { "socket": podman.socket() } }), ..nothing }
            }
            Way::Http => {
                let (web, service) = (turn.world.web_beside(setup).await?, Service::start().await?);
                Self {
                    // The address is in the tasks, so the node has to allow it.
                    engines: json!({ "http": { "callback_url": web.url(), "allow": ["127.0.0.1"] } }),
                    params: doc! { "url": service.url() },
                    web: Some(web),
                    _service: Some(service),
                }
            }
            Way::BareTrue | Way::BarePerl | Way::BareProgram | Way::Exec | Way::Perl | Way::Program => {
                nothing
            }
        })
    }

    /// The process that works for the node's tasks beside it.
    fn pid(&self) -> Option<i32> {
        self.web.as_ref().and_then(Web::pid)
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        if let Some(web) = self.web.take() {
            web.end().await?;
        }
        Ok(())
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let mut findings = Vec::new();
    for width in widths_of(results, NAME, Way::Exec.key()) {
        for way in Way::ALL {
            let exec = (way.plugin().is_some() && way != Way::Exec).then_some(Way::Exec);
            for other in [way.floor(), exec].into_iter().flatten() {
                findings.push(Finding::new(
                    format!("{}_over_{}_{width}_wide", way.key(), other.key()),
                    format!("{} / {}, {width} wide", way.label(), other.label()),
                    ratio(results, &way.speed(width), &other.speed(width)),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_compared_with_their_processes_and_with_programs() {
        let mut results = Results::default();
        for (way, speed) in [
            (Way::BareTrue, 1600.0),
            (Way::Exec, 400.0),
            (Way::BarePerl, 800.0),
            (Way::Perl, 200.0),
            (Way::Http, 100.0),
        ] {
            results.add(vec![way.speed(8).sample(speed)]);
        }
        let findings = findings(&results);
        let values = |key: &str| {
            let found = findings.iter().find(|finding| finding.key == key);
            found.map(|finding| finding.values.clone()).unwrap_or_default()
        };
        assert_eq!(values("exec_over_bare_true_8_wide"), [0.25]);
        assert_eq!(values("perl_over_bare_perl_8_wide"), [0.25]);
        assert_eq!(values("perl_over_exec_8_wide"), [0.5]);
        assert_eq!(values("http_over_exec_8_wide"), [0.25]);
        assert!(values("container_over_exec_8_wide").is_empty(), "it was not measured");
        assert!(!findings.iter().any(|finding| finding.key.starts_with("exec_over_exec")));
    }

    #[test]
    fn time_is_shared_by_all_tasks() {
        assert!((each(2.0, 1000) - 2.0).abs() < 1e-9);
    }
}
