//! `recorded`: what it costs to record all attempts.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use futures::FutureExt;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::statistics::rate;
use crate::world::Kind;
use crate::world::drain::{Plan, prepare_in, release};
use crate::world::node::Node;
use crate::world::plugins::{SHELL, TRUE};

const NAME: &str = "recorded";

const METHOD: &str = "drains, 64 wide, by one node, of a queue that records nothing and of one that records all attempts (`record: {share: 1}`), in \
    turn: one, other, other, one, and so on, each four times. The machine is faster at one time than at another by more than what is \
    measured. Of /bin/true as a plugin, as in `processes`, where nothing is done but what each task costs, and of a small Perl program \
    (the Shell plugin with params.command [\"perl\", \"-MPOSIX\", \"-e\", \"1\"])";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

/// Tasks of each queue, in so many drains.
const TASKS: u32 = 8_000;
const DRAINS: u32 = 4;

const WIDTH: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Nothing,
    Perl,
}

impl Work {
    const ALL: [Self; 2] = [Self::Nothing, Self::Perl];

    fn plan(self, tasks: u32) -> Plan<'static> {
        let (plugin, params, part) = match self {
            Self::Nothing => (TRUE, Document::new(), 1),
            Self::Perl => (SHELL, doc! { "command": ["perl", "-MPOSIX", "-e", "1"] }, 4),
        };
        Plan { plugin, params, tasks: tasks.div_ceil(DRAINS * part), width: WIDTH }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    Off,
    On,
}

impl Recording {
    fn series(self, work: Work) -> Series {
        let (key, label) = match (work, self) {
            (Work::Nothing, Self::Off) => ("off_per_second", "without recordings, per second"),
            (Work::Nothing, Self::On) => ("on_per_second", "with all attempts recorded, per second"),
            (Work::Perl, Self::Off) => ("perl_off_per_second", "Perl, without recordings, per second"),
            (Work::Perl, Self::On) => ("perl_on_per_second", "Perl, with all attempts recorded, per second"),
        };
        Series::fixed(NAME, key, label)
    }

    /// Whose turn it is: of four in a row, the first and the last are of one queue. Then neither comes later than the other.
    fn of_turn(turn: u32) -> Self {
        if turn.div_ceil(2).is_multiple_of(2) { Self::Off } else { Self::On }
    }
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut all = Vec::new();
    for work in Work::ALL {
        turn.begin(&format!("{NAME}: {work:?}"));
        let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
        let plan = work.plan(turn.args.tasks_or(TASKS));
        let node = Node::start(&setup).await?;
        let [off, on] = node.finish(async |node: &mut Node| drained(turn, node, &plan).await).await?;
        let sample = |(recording, seconds): (Recording, f64)| {
            Some(recording.series(work).sample(rate(plan.tasks * DRAINS, seconds)?))
        };
        let samples: Vec<Sample> =
            [(Recording::Off, off), (Recording::On, on)].into_iter().filter_map(sample).collect();
        turn.end(&samples);
        all.extend(samples);
    }
    Ok(all)
}

/// The seconds of all drains of each queue.
async fn drained(turn: Turn<'_>, node: &mut Node, plan: &Plan<'_>) -> anyhow::Result<[f64; 2]> {
    let of_queues = [node.create_queue(plan.plugin, 0).await?, recording_queue(node, plan).await?];
    let mut seconds = [0.0; 2];
    // Each round begins with another one.
    for number in (0..2 * DRAINS).map(|number| number + turn.round % 2 * 2) {
        let which = Recording::of_turn(number) as usize;
        let ready = prepare_in(node, of_queues[which], plan, turn.progress).await?;
        seconds[which] += release(node, ready, plan, turn.progress).await?.seconds;
        node.set_threads(of_queues[which], 0).await?;
    }
    // Each is stored before its task has ended, or is lost.
    let recordings = node.database.collection::<Document>("tasks.recordings");
    let (recorded, all) = (recordings.count_documents(doc! {}).await?, plan.tasks * DRAINS);
    ensure!(recorded >= u64::from(all), "of {all} attempts {recorded} are recorded");
    Ok(seconds)
}

async fn recording_queue(node: &Node, plan: &Plan<'_>) -> anyhow::Result<QueueId> {
    let queue = node.create_queue(plan.plugin, 0).await?;
    let queues = node.database.collection::<Document>("queues");
    queues.update_one(doc! { "_id": queue }, doc! { "$set": { "record": { "share": 1 } } }).await?;
    Ok(queue)
}

fn findings(results: &Results) -> Vec<Finding> {
    let finding = |(work, key, label): (Work, &'static str, &'static str)| {
        let values = ratio(results, &Recording::On.series(work), &Recording::Off.series(work));
        Finding::new(key, label, values).with(Goal::AtLeast(0.97))
    };
    [
        (Work::Nothing, "on_over_off", "with / without recordings"),
        (Work::Perl, "perl_on_over_off", "Perl, with / without recordings"),
    ]
    .into_iter()
    .map(finding)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_queue_comes_later_than_the_other() {
        let numbers = |recording| (0..8).filter(move |number| Recording::of_turn(*number) == recording);
        assert_eq!(numbers(Recording::On).collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!(numbers(Recording::Off).sum::<u32>(), numbers(Recording::On).sum::<u32>());
    }

    #[test]
    fn a_tenth_less_is_too_much() {
        let mut results = Results::default();
        let of = |recording: Recording, work, speed| recording.series(work).sample(speed);
        results.add(vec![
            of(Recording::Off, Work::Nothing, 1000.0),
            of(Recording::On, Work::Nothing, 900.0),
            of(Recording::Off, Work::Perl, 100.0),
            of(Recording::On, Work::Perl, 98.0),
        ]);
        let found: Vec<_> =
            findings(&results).iter().map(|finding| (finding.values.clone(), finding.is_reached())).collect();
        assert_eq!(found, [(vec![0.9], Some(false)), (vec![0.98], Some(true))]);
    }
}
