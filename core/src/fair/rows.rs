//! What there is to be shown of the groups of a queue: what each has waiting, running and got, and when its turn is; and what
//! comes before a task that waits.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use disbatch_wire::queues::QueueGroup;

use super::ledger::{GROUPS, id_of};
use super::read::{Names, Running, has_no_group, has_no_priority};
use super::shares::{Shares, Uses, names_for};
use super::turns::Pointer;
use super::unindexed_tasks::Reading;
use super::window::Want;
use super::{NO_GROUP, Settings, Share};
use crate::counters::count::Amount;
use crate::model::{Queue, QueueId, Status, Task, whole_number};
use crate::store::{Store, StoreError, collect, integer, with};

/// Up to so many groups that wait it is told when their turn is.
const MOST_WAITING: usize = 10_000;

const COUNTED: u64 = 1_000;

/// So many tasks of a queue are looked at for those that have no group, or no priority.
const LOOKED_AT: Reading = Reading { past: None, limit: 1_000 };

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFilter {
    /// Only those whose names come after this one.
    pub after: Option<String>,
    pub prefix: Option<String>,
    pub waiting: bool,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GroupPage {
    /// In the order of their names.
    pub rows: Vec<QueueGroup>,
    pub more: bool,
    pub waiting: Amount,
    pub round: i64,
    pub last: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Order {
    names: BTreeSet<Arc<str>>,
    /// There are more.
    cut: bool,
    pointer: Pointer,
    /// Where use is shared, how many turns come before each.
    ranks: Option<HashMap<Arc<str>, u64>>,
}

impl Order {
    /// How many turns come before the next one of a group that waits, if that can be told.
    pub fn turns_before(&self, group: &str, weight: impl Fn(&str) -> u32) -> Option<u64> {
        if let Some(ranks) = &self.ranks {
            return ranks.get(group).copied();
        }
        if self.cut || !self.names.contains(group) {
            return None;
        }
        let last = self.pointer.last.as_str();
        // Its turn goes on.
        let is_on = self.names.contains(last) && self.pointer.had < weight(last);
        if group == last {
            return Some(if is_on { 0 } else { self.names.len() as u64 - 1 });
        }
        let is_between = |name: &&Arc<str>| match (last < group, last < &***name, &***name < group) {
            (true, behind, before) => behind && before,
            (false, behind, before) => behind || before,
        };
        Some(self.names.iter().filter(is_between).count() as u64 + u64::from(is_on))
    }
}

impl Store {
    /// Groups of a queue that wait, have tasks running, or had some lately, in the order of their names.
    #[operation(queue = %queue.id)]
    pub async fn queue_groups(&self, queue: &Queue, filter: &GroupFilter) -> Result<GroupPage, StoreError> {
        let settings = Settings::of(queue);
        let running = self.running_by_group(queue.id).await?;
        let (order, plain) = self.order_of_groups(queue).await?;
        let mut names: BTreeSet<Arc<str>> = order.names.clone();
        if order.cut {
            let from = filter.after.as_deref().unwrap_or_default();
            let more = Names { from: Some(from), before: None };
            let heads = self.waiting_groups(queue.id, more, filter.limit.saturating_add(2)).await?;
            names.extend(heads.into_iter().map(|head| head.group));
        }
        if !filter.waiting {
            names.extend(running.keys().cloned());
            names.extend(self.known_groups(queue.id, filter).await?);
        }
        let is_asked = |name: &&Arc<str>| {
            filter.after.as_deref().is_none_or(|after| &***name > after)
                && filter.prefix.as_deref().is_none_or(|prefix| name.starts_with(prefix))
        };
        let mut names: Vec<Arc<str>> =
            names.iter().filter(is_asked).take(filter.limit.saturating_add(1)).cloned().collect();
        let more = names.len() > filter.limit;
        names.truncate(filter.limit);
        let counts = self.waiting_of(queue.id, &names, plain).await?;
        let asked = names_for(names.iter().map(|name| &**name));
        let uses = Uses::of(self.used_by(queue.id, &asked, settings.half_life()).await?, &running);
        let known = (&settings, &order, &uses, &running);
        let row = |(name, waiting): (Arc<str>, Amount)| row_of(&name, waiting, known);
        let rows = names.into_iter().zip(counts).map(row).collect();
        let all = order.names.len() as u64;
        let waiting = if order.cut { Amount::MoreThan(all) } else { Amount::Exactly(all) };
        let round = order.pointer.round;
        let last = (order.pointer != Pointer::default()).then_some(order.pointer.last);
        Ok(GroupPage { rows, more, waiting, round, last })
    }

    /// Who waits in a fair queue, and in which order they come; and how many tasks without a group are known.
    pub(crate) async fn order_of_groups(&self, queue: &Queue) -> Result<(Order, Amount), StoreError> {
        let settings = Settings::of(queue);
        let pointer = self.rotation(queue.id).await?;
        let heads = self.waiting_groups(queue.id, Names::default(), MOST_WAITING).await?;
        let mut order = Order { cut: heads.len() >= MOST_WAITING, pointer, ..Order::default() };
        order.names = heads.into_iter().map(|head| head.group).collect();
        let plain = self.without_group(queue).await?;
        if plain != Amount::Exactly(0) {
            order.names.insert(Arc::from(NO_GROUP));
        }
        if settings.share == Share::Use {
            let names: Vec<Arc<str>> = order.names.iter().cloned().collect();
            let (shares, charge) = self.shares(queue.id, &names, &settings).await?;
            order.ranks = Some(ranks(shares, charge));
        }
        Ok((order, plain))
    }

    /// How many of the first tasks of a queue have no group.
    async fn without_group(&self, queue: &Queue) -> Result<Amount, StoreError> {
        let (read, _, plain) = self.plain_tasks(queue, LOOKED_AT, has_no_group).await?;
        let plain = plain.len() as u64;
        let all = read < LOOKED_AT.limit || plain == 0;
        Ok(if all { Amount::Exactly(plain) } else { Amount::MoreThan(plain) })
    }

    /// Groups of which something is stored, from where the page begins.
    async fn known_groups(&self, queue: QueueId, filter: &GroupFilter) -> Result<Vec<Arc<str>>, StoreError> {
        let from = filter.after.as_deref().max(filter.prefix.as_deref()).unwrap_or_default();
        let end = doc! { "queue": queue, "group": Bson::MaxKey };
        let within = doc! { "_id": { "$gte": id_of(queue, from), "$lt": end } };
        // Those of tenants are left out below; there are as many as groups, at most.
        let most = filter.limit.saturating_mul(2).saturating_add(4);
        let groups = self.database().collection::<Document>(GROUPS);
        let found = groups.find(within).sort(doc! { "_id": 1 }).projection(doc! { "_id": 1 });
        let found = collect(found.limit(integer(most))).await?;
        let name = |group: &Document| {
            let name = group.get_document("_id").ok()?.get_str("group").ok()?;
            (!name.ends_with('/')).then(|| Arc::from(name))
        };
        Ok(found.iter().filter_map(name).collect())
    }

    async fn waiting_of(
        &self,
        queue: QueueId,
        names: &[Arc<str>],
        plain: Amount,
    ) -> Result<Vec<Amount>, StoreError> {
        let of =
            |name: &Arc<str>| (doc! { "queue": queue, "status": Status::Queued, "group": &**name }, COUNTED);
        let named = names.iter().filter(|name| &***name != NO_GROUP);
        let counts: Vec<(Document, u64)> = named.map(of).collect();
        let mut amounts = self.count_each_up_to(&counts).await?.into_iter();
        let amount = |name: &Arc<str>| match &**name {
            NO_GROUP => plain,
            _ => amounts.next().unwrap_or(Amount::Exactly(0)),
        };
        Ok(names.iter().map(amount).collect())
    }
}

fn row_of(
    name: &str,
    waiting: Amount,
    (settings, order, uses, running): (&Settings, &Order, &Uses, &HashMap<Arc<str>, Running>),
) -> QueueGroup {
    let used = uses.stored.get(name).copied().unwrap_or_default();
    let runs = running.get(name).map_or(0, |running| running.places.running);
    let turn_in = order.turns_before(name, |group| settings.weight(group));
    let is_idle = waiting == Amount::Exactly(0);
    let full = settings.group_threads.filter(|threads| runs >= *threads);
    let (waiting, more_waiting) = waiting.parts();
    QueueGroup {
        group: name.to_owned(),
        waiting,
        more_waiting,
        running: runs,
        started: used.started,
        finished: used.finished,
        used: uses.of_group(name),
        weight: settings.weight(name),
        started_ago: used.since_start.map(|since| since.as_secs_f64()),
        turn_in: turn_in.filter(|_| !is_idle),
        why: if is_idle { "none of its tasks waits".to_owned() } else { why(full, turn_in) },
    }
}

/// When a group that waits has its next turn, or why it has none. `full`: as many of its tasks run as may.
fn why(full: Option<u64>, turn_in: Option<u64>) -> String {
    match (full, turn_in) {
        (Some(1), _) => "its task runs, and a group may have 1 running".to_owned(),
        (Some(threads), _) => format!("{threads} of its tasks run, as many as a group may have"),
        (None, Some(0)) => "its turn is next".to_owned(),
        (None, Some(1)) => "1 turn comes before its next one".to_owned(),
        (None, Some(turns)) => format!("{turns} turns come before its next one"),
        (None, None) => format!("more than {MOST_WAITING} groups wait"),
    }
}

/// How many turns come before the first one of each group.
fn ranks(mut shares: Shares, charge: f64) -> HashMap<Arc<str>, u64> {
    let mut ranks: HashMap<Arc<str>, u64> = HashMap::new();
    for turn in 0..MOST_WAITING as u64 {
        let Some(group) = shares.next(charge, |_| true) else { break };
        ranks.entry(group).or_insert(turn);
    }
    ranks
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Turns of other groups, if these can be told.
    pub turns: Option<u64>,
    /// Tasks of its group.
    pub tasks: u64,
    /// Its group has as many tasks running as it may have: so many.
    pub full: Option<u64>,
}

impl Store {
    /// What comes before a task of a fair queue. Up to `most` tasks are counted.
    pub(crate) async fn before_in_group(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<Before, StoreError> {
        let settings = Settings::of(queue);
        let group = task.rest.get("group").and_then(Bson::as_str).unwrap_or(NO_GROUP);
        let (order, _) = self.order_of_groups(queue).await?;
        let mut full = None;
        if let Some(threads) = settings.group_threads {
            let running = self.running_by_group(queue.id).await?;
            full = running.get(group).is_some_and(|group| group.places.running >= threads).then_some(threads);
        }
        let tasks = if group == NO_GROUP {
            self.before_among_plain(queue, task, most).await?
        } else {
            let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
            let want = Want { group: Arc::from(group), limit, classes: BTreeSet::new(), free: false };
            let found = self.tasks_of_groups(queue.id, &[want], None).await?;
            let tasks = found.into_iter().next().map(|(tasks, _)| tasks).unwrap_or_default();
            let at = tasks.iter().position(|one| one.task == task.id.0).unwrap_or(tasks.len());
            most.min(at as u64)
        };
        let turns = order.turns_before(group, |group| settings.weight(group));
        Ok(Before { turns, tasks, full })
    }

    async fn before_among_plain(&self, queue: &Queue, task: &Task, most: u64) -> Result<u64, StoreError> {
        let (read, _, plain) = self.plain_tasks(queue, LOOKED_AT, has_no_group).await?;
        let before = plain.iter().take_while(|one| one.task != task.id.0).count();
        let is_seen = before < plain.len() || read < LOOKED_AT.limit;
        Ok(if is_seen { most.min(before as u64) } else { most })
    }

    /// How many tasks come before one of a queue that goes by priority, up to `most`.
    pub(crate) async fn before_by_priority(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<u64, StoreError> {
        let priority = task.rest.get("priority").and_then(whole_number).unwrap_or(0);
        let queued = doc! { "queue": queue.id, "status": Status::Queued };
        let higher = with(queued.clone(), doc! { "priority": { "$gt": priority } });
        let older = with(queued, doc! { "priority": priority, "_id": { "$lt": task.id } });
        let counted = self.count_each_up_to(&[(higher, most), (older, most)]).await?;
        let ranked: u64 =
            counted.iter().map(|(Amount::Exactly(tasks) | Amount::MoreThan(tasks))| *tasks).sum();
        let (_, _, plain) = self.plain_tasks(queue, LOOKED_AT, has_no_priority).await?;
        let is_before =
            |one: &super::order::Candidate| priority < 0 || (priority == 0 && one.task < task.id.0);
        let plain = plain.iter().filter(|one| is_before(one)).count();
        Ok(ranked.saturating_add(plain as u64).min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::Used;
    use super::*;

    fn order(names: &[&str], last: &str, had: u32) -> Order {
        let pointer = Pointer { round: 3, last: last.to_owned(), had };
        Order { names: names.iter().map(|name| Arc::from(*name)).collect(), pointer, ..Order::default() }
    }

    #[test]
    fn turns_are_counted_from_where_the_rotation_stands() {
        let before = |order: &Order, group: &str| order.turns_before(group, |_| 2);
        let done = order(&["a", "b", "d", "e"], "b", 2);
        let turns = ["d", "e", "a", "b", "x"].map(|group| before(&done, group));
        assert_eq!(turns, [Some(0), Some(1), Some(2), Some(3), None]);
        let half = order(&["a", "b", "d", "e"], "b", 1);
        let turns = ["b", "d", "e", "a"].map(|group| before(&half, group));
        assert_eq!(turns, [Some(0), Some(1), Some(2), Some(3)]);
        let gone = order(&["a", "d", "e"], "c", 1);
        assert_eq!(["d", "e", "a"].map(|group| before(&gone, group)), [Some(0), Some(1), Some(2)]);
        assert_eq!(before(&order(&["a"], "a", 2), "a"), Some(0), "it is alone");
        assert_eq!(before(&Order { cut: true, ..order(&["a"], "a", 2) }, "a"), None);
    }

    #[test]
    fn where_use_is_shared_they_are_counted_by_what_is_charged() {
        let groups =
            [("a", 10.0), ("b", 0.0), ("c", 3.5)].map(|(group, used)| (Arc::<str>::from(group), used));
        let shares = Shares::new(
            groups.clone(),
            |tenant| groups.iter().find(|(group, _)| &**group == tenant).map_or(0.0, |(_, used)| *used),
            &Settings::default(),
        );
        let ranks = ranks(shares, 1.0);
        assert_eq!([ranks["b"], ranks["c"]], [0, 4]);
        assert!(ranks["a"] > 10);
    }

    #[test]
    fn it_is_said_when_the_turn_is_or_why_there_is_none() {
        let whys = [(Some(1), None), (Some(4), None), (None, Some(0)), (None, Some(1)), (None, Some(9))];
        assert_eq!(
            whys.map(|(full, turn_in)| why(full, turn_in)),
            [
                "its task runs, and a group may have 1 running",
                "4 of its tasks run, as many as a group may have",
                "its turn is next",
                "1 turn comes before its next one",
                "9 turns come before its next one",
            ]
        );
    }

    #[test]
    fn a_row_tells_what_is_known() {
        let settings = Settings { group_threads: Some(2), ..Settings::default() };
        let order = order(&["a", "b"], "a", 1);
        let stored =
            HashMap::from([("a".to_owned(), Used { used: 5.0, started: 9, finished: 7, ..Used::default() })]);
        let mut runs = Running::default();
        runs.places.running = 2;
        let running = HashMap::from([(Arc::from("b"), runs)]);
        let uses = Uses::of(stored, &running);
        let row = |name: &str, waiting| row_of(name, waiting, (&settings, &order, &uses, &running));
        let a = row("a", Amount::MoreThan(1_000));
        assert_eq!((a.waiting, a.more_waiting, a.started_ago), (1_000, true, None));
        assert_eq!((a.started, a.finished, a.running, a.turn_in), (9, 7, 0, Some(1)));
        assert_eq!(a.why, why(None, Some(1)));
        assert!((a.used - 5.0).abs() < 1e-9);
        assert_eq!(row("b", Amount::Exactly(1)).why, why(Some(2), None));
        let idle = row("c", Amount::Exactly(0));
        assert_eq!((idle.waiting, idle.more_waiting, idle.turn_in), (0, false, None));
        assert_eq!(idle.why, "none of its tasks waits");
    }
}
