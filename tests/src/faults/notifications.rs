//! Messages: somebody wants to be told of every failure and of every lost runner, and remembers what arrived.

use std::collections::{BTreeMap, BTreeSet};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{Selector, whole_number};
use disbatch_core::notifications::{Channel, Kind, QUEUE, Settings};
use futures::TryStreamExt;

use super::random::Random;
use super::world::World;
use crate::hook::Manner;

/// What the subscription is called.
const SUBSCRIPTION: &str = "everything";

/// The lease of whoever tells.
const LEASE: &str = "notifier";

/// So many requests may be answered otherwise than they should be. There are far fewer.
const REQUESTS: usize = 10_000;

/// How many events of a kind there are, by the queue and the kind.
pub type Events = BTreeMap<(String, &'static str), i64>;

/// How the receiver answers: some messages it refuses, and of some it does not say that it has them.
pub fn manners(random: &mut Random) -> Vec<Manner> {
    let any = |random: &mut Random| match random.below(10) {
        0 => Manner::Refuses,
        1 => Manner::HangsUp,
        _ => Manner::Takes,
    };
    (0..REQUESTS).map(|_| any(random)).collect()
}

/// Subscribes to all that happens to the tasks of the suite. Messages are tried until they arrive, and soon.
pub async fn subscribe(world: &World) -> anyhow::Result<()> {
    let settings = Settings {
        events: vec![Kind::Failed, Kind::Lost],
        failures_in_row: None,
        waits_longer: None,
        runs_longer: None,
        queues: world.queues.iter().map(|queue| queue.id.0).collect(),
        schedules: vec![],
        tenants: vec![],
        tags: vec![],
        channel: Channel::Webhook,
        url: Some(world.hook.url()),
        user: None,
        from: None,
        to: vec![],
        every: 1.0,
        delay: 0.5,
        subject: None,
        text: None,
        enabled: true,
    };
    settings.check()?;
    world.store.make_notification_queue().await?;
    world.store.set_subscription(SUBSCRIPTION, &settings, None).await?;
    let soon = doc! { "base": 0.2, "factor": 1.5, "max": 2.0 };
    let patient = doc! { "max_attempts": 1_000_i64, "timeout": 20.0, "backoff": soon };
    world.store.update_queue(&Selector::Id(QUEUE.0), patient).await?;
    Ok(())
}

/// The node that tells, if there is one and the database is there.
pub async fn leader(world: &World) -> Option<String> {
    let leases = world.database.collection::<Document>("leases");
    let lease = leases.find_one(doc! { "_id": LEASE }).await.ok()??;
    // As NODE:PROCESS.
    Some(lease.get_str("instance").ok()?.split(':').next()?.to_owned())
}

/// Lets another node tell, as if the lease had run out. Two may do so for a moment.
pub async fn end_lease(world: &World) {
    let leases = world.database.collection::<Document>("leases");
    let past = doc! { "$set": { "until": DateTime::from_millis(0) } };
    // While the database is away, the lease runs out by itself.
    let _away = leases.update_one(doc! { "_id": LEASE }, past).await;
}

/// What there was to be told: each task that has failed, was orphaned or took too long, and is not tried again; and each attempt whose
/// runner was lost, whether its task was tried again or not. By what is stored of tasks and attempts, and not by anything that
/// subscriptions know.
pub async fn happened(world: &World) -> anyhow::Result<Events> {
    let lost = lost_attempts(world).await?;
    let mut events = Events::new();
    for queue in &world.queues {
        let fields = doc! { "history.status": 1, "history.attempt": 1, "cancel": 1 };
        let mut tasks = world.tasks().find(doc! { "queue": queue.id }).projection(fields).await?;
        while let Some(task) = tasks.try_next().await? {
            let ended = Ended::of(&task, &lost)?;
            for (kind, number) in [(Kind::Failed, ended.failed), (Kind::Lost, ended.lost.len())] {
                *events.entry((queue.name.clone(), kind.as_str())).or_default() += i64::try_from(number)?;
            }
        }
    }
    events.retain(|_, number| *number > 0);
    Ok(events)
}

/// What has arrived, and what is wrong with it as a whole.
pub fn told(world: &World) -> anyhow::Result<(Events, Vec<String>)> {
    let (mut events, mut odd) = (Events::new(), Vec::new());
    let messages = world.hook.messages()?;
    for event in messages.iter().filter_map(|message| message["events"].as_array()).flatten() {
        let (queue, count) = (event["queue"].as_str(), event["count"].as_i64());
        let kind =
            [Kind::Failed, Kind::Lost].map(Kind::as_str).into_iter().find(|kind| event["event"] == *kind);
        match (kind, queue, count) {
            (Some(kind), Some(queue), Some(count)) => {
                *events.entry((queue.to_owned(), kind)).or_default() += count;
            }
            _ => odd.push(format!("this was told: {event}")),
        }
    }
    odd.extend(
        messages
            .iter()
            .filter(|message| message["more"] != 0)
            .map(|message| format!("not all is told: {message}")),
    );
    // One that is missing has been lost, however many others there are.
    let mut numbers: Vec<Option<i64>> = messages.iter().map(|message| message["number"].as_i64()).collect();
    numbers.sort_unstable();
    let expected: Vec<Option<i64>> = (1..).map(Some).take(numbers.len()).collect();
    if numbers != expected {
        odd.push(format!("the numbers of the messages are {numbers:?}"));
    }
    Ok((events, odd))
}

/// How many messages are still to be delivered.
pub async fn count_open(world: &World) -> anyhow::Result<u64> {
    let open = doc! { "queue": QUEUE, "status": { "$in": [-7, -4, -2, -1, 0] } };
    Ok(world.tasks().count_documents(open).await?)
}

/// What a task has come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ended {
    /// How often it has ended as a failure.
    failed: usize,
    /// The attempts whose runners were lost.
    lost: BTreeSet<i64>,
}

impl Ended {
    fn of(task: &Document, lost: &BTreeSet<(ObjectId, i64)>) -> anyhow::Result<Self> {
        let id = task.get_object_id("_id")?;
        let is_cancelled = task.get_document("cancel").is_ok();
        let mut ended = Self::default();
        let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
        for entry in history.iter().filter_map(Bson::as_document) {
            let number = |field: &str| entry.get(field).and_then(whole_number);
            let attempt = number("attempt").unwrap_or(0);
            match number("status") {
                Some(2..) => ended.failed += 1,
                // Who has cancelled it knows that it has ended.
                Some(-3) if !is_cancelled => ended.failed += 1,
                Some(-6) => {
                    ended.failed += 1;
                    ended.lost.insert(attempt);
                }
                Some(-7) if lost.contains(&(id, attempt)) => {
                    ended.lost.insert(attempt);
                }
                _ => {}
            }
        }
        Ok(ended)
    }
}

/// Attempts that were kept because their runners were lost and their tasks are tried again.
async fn lost_attempts(world: &World) -> anyhow::Result<BTreeSet<(ObjectId, i64)>> {
    let attempts = world.database.collection::<Document>("tasks.attempts");
    let fields = doc! { "task": 1, "attempt": 1 };
    let mut found = attempts.find(doc! { "status": -6 }).projection(fields).await?;
    let mut lost = BTreeSet::new();
    while let Some(attempt) = found.try_next().await? {
        lost.extend(attempt.get_object_id("task").ok().zip(attempt.get("attempt").and_then(whole_number)));
    }
    Ok(lost)
}

/// Where what was told differs from what has happened, for each queue.
pub fn differences(kind: Kind, happened: &Events, told: &Events) -> Vec<String> {
    let of_kind = |events: &Events| {
        let all = events.iter().filter(|((_, of), _)| *of == kind.as_str());
        all.map(|((queue, _), number)| (queue.clone(), *number)).collect::<BTreeMap<_, _>>()
    };
    let (happened, told) = (of_kind(happened), of_kind(told));
    let queues: BTreeSet<&String> = happened.keys().chain(told.keys()).collect();
    let number = |events: &BTreeMap<String, i64>, queue: &String| events.get(queue).copied().unwrap_or(0);
    let differs = |queue: &&String| number(&happened, queue) != number(&told, queue);
    let text = |queue: &String| {
        let (there, here) = (number(&happened, queue), number(&told, queue));
        format!("queue {queue}: there were {there} ({}), and {here} were told", kind.as_str())
    };
    queues.into_iter().filter(differs).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_lost_once_whether_its_task_is_tried_again_or_not() {
        let id = ObjectId::new();
        let entry = |status: i32, attempt: i64| doc! { "status": status, "attempt": attempt };
        let history = [
            entry(-1, 1),
            entry(0, 1),
            entry(-7, 1),
            entry(-2, 1),
            entry(-7, 2),
            entry(-2, 2),
            entry(-4, 3),
            entry(-7, 3),
            entry(-6, 4),
        ];
        let task = doc! { "_id": id, "history": history.to_vec() };
        let lost = BTreeSet::from([(id, 1), (id, 3), (ObjectId::new(), 2)]);
        let ended = Ended::of(&task, &lost).unwrap();
        assert_eq!(ended, Ended { failed: 1, lost: BTreeSet::from([1, 3, 4]) });
        assert_eq!(Ended::of(&doc! { "_id": id }, &lost).unwrap(), Ended::default());
        for (status, cancel, failed) in
            [(1, false, 0), (2, true, 1), (7, false, 1), (-3, false, 1), (-3, true, 0)]
        {
            let mut task = doc! { "_id": id, "history": [entry(0, 1), entry(status, 1)] };
            if cancel {
                task.insert("cancel", doc! { "by": "ann" });
            }
            assert_eq!(Ended::of(&task, &lost).unwrap(), Ended { failed, ..Ended::default() }, "{task}");
        }
    }

    #[test]
    fn what_was_told_too_often_or_not_at_all_differs() {
        let events = |all: &[(&str, Kind, i64)]| {
            let key =
                |(queue, kind, number): &(&str, Kind, i64)| (((*queue).to_owned(), kind.as_str()), *number);
            all.iter().map(key).collect::<Events>()
        };
        let happened = events(&[("a", Kind::Lost, 2), ("b", Kind::Lost, 1), ("a", Kind::Failed, 5)]);
        let told = events(&[("a", Kind::Lost, 2), ("c", Kind::Lost, 1), ("a", Kind::Failed, 6)]);
        assert_eq!(differences(Kind::Lost, &happened, &happened), Vec::<String>::new());
        assert_eq!(differences(Kind::Lost, &happened, &told).len(), 2);
        let failed = differences(Kind::Failed, &happened, &told);
        assert_eq!(failed, ["queue a: there were 5 (failed), and 6 were told"]);
    }
}
