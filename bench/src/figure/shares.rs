//! `shares`: how long groups wait where few of them submit most, in a fair queue and in one that is not. On paper: with
//! the functions that a DEN chooses by, and no database.

mod load;
mod picture;
mod play;

use anyhow::Context;
use futures::FutureExt;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::simulation::random::Random;
use crate::statistics::Summary;
use load::{Load, load};
use picture::Picture;
use play::{Order, Played, play};

pub const NAME: &str = "shares";

const METHOD: &str = "discrete events, the same in each run: 1,000 groups submit about 12,000 tasks within half an hour, each \
    all of its own at once, so many as Zipf's law with the exponent 1.1 gives it, and the largest hundredth within the first \
    minute. Tasks take 5 s on average, those of each third group 20 s, in 32 places. Who is next is said by the functions that a \
    DEN uses: the oldest task, groups in turn, or the group that has used the least. Waits are from submission to start";

/// Groups, tasks and places, unless it is said how many.
const GROUPS: u32 = 1_000;
const TASKS: u32 = 12_000;
const PLACES: usize = 32;

/// Groups by how many tasks they have: up to so many.
const CLASSES: [(u32, &str); 5] =
    [(1, "1"), (3, "2 to 3"), (10, "4 to 10"), (40, "11 to 40"), (u32::MAX, "more")];

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

fn wait(order: Order, (_, class): (u32, &str), which: &str) -> Series {
    let name = order.name();
    Series {
        figure: NAME,
        key: format!("{name}_{}_wait_{which}_s", class.replace(' ', "_")).into(),
        label: format!("{name}: wait of groups with {class} tasks, {which}, s").into(),
    }
}

fn between(order: Order) -> Series {
    let name = order.name();
    Series {
        figure: NAME,
        key: format!("{name}_most_between").into(),
        label: format!("{name}: tasks of another group while one waits for its next, at most").into(),
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let small = |order| wait(order, CLASSES[0], "median");
    vec![
        Finding::new(
            "most_between",
            "another's tasks between two turns",
            results.values(&between(Order::Turns)).to_vec(),
        )
        .with(Goal::AtMost(1.0)),
        Finding::new(
            "small_turns_to_fifo",
            "wait of the smallest groups, turns to fifo",
            ratio(results, &small(Order::Turns), &small(Order::Fifo)),
        ),
        Finding::new(
            "small_use_to_fifo",
            "wait of the smallest groups, use to fifo",
            ratio(results, &small(Order::Use), &small(Order::Fifo)),
        ),
    ]
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    turn.begin(NAME);
    let load = load(turn.args.groups_or(GROUPS), turn.args.tasks_or(TASKS), &mut Random::new(1));
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    let shown =
        [("oldest first", "#b0b0b0"), ("groups take turns", "#2a9d6f"), ("groups share use", "#3a6fd8")];
    for (order, (label, colour)) in Order::ALL.into_iter().zip(shown) {
        let played = play(&load, PLACES, order);
        let waits = CLASSES.map(|class| Summary::of(&waits_of(class, &load, &played)));
        series.push((
            label.to_owned(),
            colour,
            waits.map(|wait| wait.map_or(0.0, |wait| wait.median)).to_vec(),
        ));
        for (class, wait_of) in CLASSES.into_iter().zip(waits) {
            let Some(summary) = wait_of else { continue };
            samples.push(wait(order, class, "median").sample(summary.median));
            samples.push(wait(order, class, "p95").sample(summary.p95));
        }
        let most = u32::try_from(played.most_between).unwrap_or(u32::MAX);
        samples.push(between(order).sample(f64::from(most)));
    }
    let picture = Picture {
        title: format!(
            "{} groups with {} tasks in {PLACES} places: how long a task waits",
            load.groups.len(),
            load.jobs.len()
        ),
        axes: ("tasks of its group".to_owned(), "median, in seconds".to_owned()),
        classes: CLASSES.map(|(_, class)| class.to_owned()).to_vec(),
        series,
    };
    let path = &turn.args.svg;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, picture.svg()).with_context(|| format!("cannot write {}", path.display()))?;
    turn.end(&samples);
    turn.progress.note(&format!("{NAME}: the picture is in {}", path.display()));
    Ok(samples)
}

/// How long the tasks of the groups of a class waited.
fn waits_of((most, _): (u32, &str), load: &Load, played: &Played) -> Vec<f64> {
    let least = CLASSES.iter().map(|(most, _)| *most).filter(|smaller| *smaller < most).max().unwrap_or(0);
    let is_of = |group: usize| load.sizes.get(group).is_some_and(|size| (least + 1..=most).contains(size));
    let waits = load.jobs.iter().zip(&played.waits);
    waits.filter(|(job, _)| is_of(job.group)).map(|(_, wait)| *wait).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_in_one_class() {
        let load = load(200, 3_000, &mut Random::new(2));
        let played = play(&load, 8, Order::Turns);
        let counts = CLASSES.map(|class| waits_of(class, &load, &played).len());
        assert_eq!(counts.iter().sum::<usize>(), load.jobs.len());
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}
