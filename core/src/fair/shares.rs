//! Whose turn is next, where use is shared: what each group has used in, the order of groups out.
//!
//! The tenant that has used the least for its weight comes first, and of its groups the one that has. What is given is
//! charged at once, so that the next choice sees it. What was used counts less and less: half after each half-life. So what
//! groups have used by now is what was noted of them, less what is long ago, and what they have running.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};

use super::ledger::{GROUPS, id_of};
use super::read::Running;
use super::{Settings, tenant_of, total_of};
use crate::model::{QueueId, number, whole_number};
use crate::store::{Store, StoreError, collect, count_of, of_millis};

/// The smallest charge, in seconds: who is given something has to come later.
const LEAST_CHARGE: f64 = 0.001;

/// How long a task is taken to run, in seconds, as long as none has ended.
const USUAL: f64 = 1.0;

/// What so many groups have used is asked for at once.
const AT_ONCE: usize = 5_000;

/// The order in which groups are given something: a line of tenants, each of which is one of its groups.
#[derive(Debug, Clone, Default)]
pub struct Shares(Line<Line<Arc<str>>>);

/// Some of whom the one comes next that has used the least for its weight.
#[derive(Debug, Clone, Default)]
struct Line<T> {
    members: Vec<Member<T>>,
    /// The scores of members, and their places among these.
    order: BinaryHeap<Reverse<(u64, usize)>>,
}

#[derive(Debug, Clone)]
struct Member<T> {
    who: T,
    /// Seconds, never less than none.
    used: f64,
    weight: f64,
}

impl Shares {
    /// The order of `groups`, in whatever order they come, with what each and each tenant has used, in seconds. Of those
    /// that have used the same, the one whose name comes first does.
    pub fn new(
        groups: impl IntoIterator<Item = (Arc<str>, f64)>,
        of_tenant: impl Fn(&str) -> f64,
        settings: &Settings,
    ) -> Self {
        let mut groups: Vec<(Arc<str>, f64)> = groups.into_iter().collect();
        groups.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut tenants: Vec<(String, Vec<Member<Arc<str>>>)> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for (group, used) in groups {
            let name = tenant_of(&group);
            let number = *numbers.entry(name.to_owned()).or_insert_with(|| {
                tenants.push((name.to_owned(), Vec::new()));
                tenants.len() - 1
            });
            let weight = f64::from(settings.weight_within(&group));
            if let Some((_, members)) = tenants.get_mut(number) {
                members.push(Member { who: group, used, weight });
            }
        }
        let tenants = tenants.into_iter().map(|(name, groups)| Member {
            who: Line::of(groups),
            used: of_tenant(&name),
            weight: f64::from(settings.weight(&name)),
        });
        Self(Line::of(tenants.collect()))
    }

    /// The next group of those that may be given something, which is charged so many seconds for it.
    pub fn next(&mut self, charge: f64, may: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        let charge = charge.max(LEAST_CHARGE);
        self.0.next(charge, |tenant| tenant.next(charge, |group| may(group).then(|| Arc::clone(group))))
    }
}

impl<T> Line<T> {
    fn of(members: Vec<Member<T>>) -> Self {
        let order = members.iter().map(Member::score).zip(0..).map(Reverse).collect();
        Self { members, order }
    }

    /// What the first one gives that gives anything. It is charged for it.
    fn next<G>(&mut self, charge: f64, mut give: impl FnMut(&mut T) -> Option<G>) -> Option<G> {
        let (mut given, mut left_out) = (None, Vec::new());
        while given.is_none()
            && let Some(Reverse((score, number))) = self.order.pop()
        {
            let Some(member) = self.members.get_mut(number) else { continue };
            given = give(&mut member.who);
            if given.is_some() {
                member.used += charge;
                self.order.push(Reverse((member.score(), number)));
            } else {
                left_out.push(Reverse((score, number)));
            }
        }
        self.order.extend(left_out);
        given
    }
}

impl<T> Member<T> {
    /// How much it has had for its weight. Numbers that are not negative are in the order of their bits.
    fn score(&self) -> u64 {
        (self.used / self.weight).to_bits()
    }
}

pub fn decayed(used: f64, after: Duration, half_life: Duration) -> f64 {
    let halves = after.as_secs_f64() / half_life.as_secs_f64().max(f64::MIN_POSITIVE);
    if used.is_finite() { used.max(0.0) * (-halves).exp2() } else { 0.0 }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// Seconds, as of now.
    pub used: f64,
    pub started: u64,
    pub finished: u64,
    /// Seconds in all.
    pub ran: f64,
    pub since_start: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Uses {
    pub stored: HashMap<String, Used>,
    running: HashMap<String, f64>,
    /// How long a task runs, in seconds.
    usual: f64,
}

impl Store {
    pub(super) async fn used_by(
        &self,
        queue: QueueId,
        names: &[String],
        half_life: Duration,
    ) -> Result<HashMap<String, Used>, StoreError> {
        let mut all = HashMap::new();
        for some in names.chunks(AT_ONCE) {
            let ids: Vec<Document> = some.iter().map(|name| id_of(queue, name)).collect();
            let since = |field: &str| doc! { "$subtract": ["$$NOW", format!("${field}")] };
            let pipeline = [
                doc! { "$match": { "_id": { "$in": ids } } },
                doc! { "$project": {
                    "use": 1, "started": 1, "finished": 1, "ran": 1, "age": since("at"),
                    "since_start": since("last_start"),
                } },
            ];
            let groups = self.database().collection::<Document>(GROUPS);
            let found = collect(groups.aggregate(pipeline)).await?;
            let named = |group: &Document| {
                let name = group.get_document("_id").ok()?.get_str("group").ok()?.to_owned();
                Some((name, Used::of(group, half_life)))
            };
            all.extend(found.iter().filter_map(named));
        }
        Ok(all)
    }

    /// The order of groups that wait, by what each and its tenant has used, and what a task is charged, in seconds.
    pub(super) async fn shares(
        &self,
        queue: QueueId,
        groups: &[Arc<str>],
        settings: &Settings,
    ) -> Result<(Shares, f64), StoreError> {
        let names = names_for(groups.iter().map(|group| &**group));
        let (stored, running) = futures::try_join!(
            self.used_by(queue, &names, settings.half_life()),
            self.running_by_group(queue),
        )?;
        let uses = Uses::of(stored, &running);
        let given = groups.iter().map(|group| (Arc::clone(group), uses.of_group(group)));
        Ok((Shares::new(given, |tenant| uses.of_tenant(tenant), settings), uses.usual))
    }
}

impl Used {
    fn of(stored: &Document, half_life: Duration) -> Self {
        let seconds = |field: &str| stored.get(field).and_then(number).unwrap_or(0.0);
        let count = |field: &str| count_of(stored, field).unwrap_or(0);
        let span = |field: &str| stored.get(field).and_then(whole_number).map(of_millis);
        Self {
            used: decayed(seconds("use"), span("age").unwrap_or_default(), half_life),
            started: count("started"),
            finished: count("finished"),
            ran: seconds("ran"),
            since_start: span("since_start"),
        }
    }
}

impl Uses {
    pub fn of(stored: HashMap<String, Used>, running: &HashMap<Arc<str>, Running>) -> Self {
        // A tenant's total has what its groups have, so it does not count twice.
        let groups = stored.iter().filter(|(name, _)| !name.ends_with('/')).map(|(_, used)| used);
        let (ran, finished) = groups.fold((0.0, 0), |sum, used| (sum.0 + used.ran, sum.1 + used.finished));
        let usual = if finished == 0 { USUAL } else { ran / finished as f64 };
        let mut of_groups: HashMap<String, f64> = HashMap::new();
        for (group, running) in running {
            // A task that has just begun counts as if it took as long as others.
            let least = running.places.running as f64 * usual;
            *of_groups.entry(group.to_string()).or_default() += running.seconds.max(least);
            let tenant = tenant_of(group);
            if tenant != &**group {
                *of_groups.entry(total_of(tenant)).or_default() += running.seconds.max(least);
            }
        }
        Self { stored, running: of_groups, usual }
    }

    /// Seconds.
    pub fn of_group(&self, name: &str) -> f64 {
        let stored = self.stored.get(name).map_or(0.0, |used| used.used);
        stored + self.running.get(name).copied().unwrap_or(0.0)
    }

    /// Seconds.
    pub fn of_tenant(&self, tenant: &str) -> f64 {
        self.of_group(tenant) + self.of_group(&total_of(tenant))
    }
}

/// The names under which it is stored what these groups and their tenants have used.
pub(super) fn names_for<'a>(groups: impl Iterator<Item = &'a str>) -> Vec<String> {
    let of = |group: &str| [group.to_owned(), tenant_of(group).to_owned(), total_of(tenant_of(group))];
    Vec::from_iter(groups.flat_map(of).collect::<BTreeSet<_>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::window::Places;
    use super::*;

    fn shares(groups: &[(&str, f64)], weights: &[(&str, u32)]) -> Shares {
        let of_tenant = |tenant: &str| -> f64 {
            groups.iter().filter(|(group, _)| tenant_of(group) == tenant).map(|(_, used)| *used).sum()
        };
        let weights = weights.iter().map(|(group, weight)| ((*group).to_owned(), *weight)).collect();
        let settings = Settings { weights, ..Settings::default() };
        Shares::new(groups.iter().map(|(group, used)| (Arc::from(*group), *used)), of_tenant, &settings)
    }

    fn order(mut shares: Shares, charge: f64, number: usize) -> Vec<String> {
        std::iter::from_fn(|| shares.next(charge, |_| true))
            .take(number)
            .map(|group| group.to_string())
            .collect()
    }

    #[test]
    fn who_has_used_least_comes_first() {
        let groups = [("a", 10.0), ("b", 0.0), ("c", 4.5)];
        assert_eq!(order(shares(&groups, &[]), 2.0, 6), ["b", "b", "b", "c", "b", "c"]);
        assert_eq!(order(shares(&[("b", 0.0), ("a", 0.0)], &[]), 1.0, 3), ["a", "b", "a"]);
        assert!(order(shares(&[], &[]), 1.0, 3).is_empty());
    }

    #[test]
    fn tenants_share_first_and_their_groups_then() {
        let groups = [("acme/a", 0.0), ("acme/b", 0.0), ("acme/c", 0.0), ("solo", 0.0)];
        let had = order(shares(&groups, &[]), 1.0, 600);
        let count = |group: &str| had.iter().filter(|name| *name == group).count();
        assert_eq!([count("solo"), count("acme/a"), count("acme/b"), count("acme/c")], [300, 100, 100, 100]);
        let had = order(shares(&groups, &[("solo", 3), ("acme/b", 2)]), 1.0, 800);
        let count = |group: &str| had.iter().filter(|name| *name == group).count();
        assert_eq!([count("solo"), count("acme/a"), count("acme/b"), count("acme/c")], [600, 50, 100, 50]);
    }

    #[test]
    fn who_may_not_is_left_out_and_not_forgotten() {
        let mut shares = shares(&[("a/x", 0.0), ("a/y", 9.0), ("b", 5.0)], &[]);
        assert_eq!(shares.next(1.0, |group| group != "a/x").as_deref(), Some("b"));
        assert_eq!(shares.next(1.0, |group| group == "a/y").as_deref(), Some("a/y"));
        assert_eq!(shares.next(1.0, |_| false), None);
        assert_eq!(shares.next(1.0, |group| group.starts_with('a')).as_deref(), Some("a/x"));
    }

    #[test]
    fn use_counts_half_after_each_half_life() {
        let hour = Duration::from_secs(3600);
        let left = |after| decayed(80.0, after, hour);
        assert!((left(Duration::ZERO) - 80.0).abs() < 1e-9 && (left(hour) - 40.0).abs() < 1e-9);
        assert!((left(hour * 3) - 10.0).abs() < 1e-9 && left(hour * 100_000).abs() < 1e-9);
        assert!(
            decayed(f64::NAN, hour, hour).abs() < 1e-9 && decayed(1.0, hour, Duration::ZERO).abs() < 1e-9
        );
    }

    proptest! {
        #[test]
        fn in_the_end_use_for_the_weight_is_alike(
            groups in prop::collection::btree_map("[a-d](/[a-c])?", (0u8..20, 1u32..5), 1..8),
            charge in 1.0f64..4.0,
        ) {
            let used: BTreeMap<String, f64> =
                groups.iter().map(|(group, (used, _))| (group.clone(), f64::from(*used))).collect();
            let weights = groups.iter().map(|(group, (_, weight))| (group.clone(), *weight)).collect();
            let settings = Settings { weights, ..Settings::default() };
            let sum = |used: &BTreeMap<String, f64>, tenant: &str| -> f64 {
                used.iter().filter(|(group, _)| tenant_of(group) == tenant).map(|(_, used)| *used).sum()
            };
            let given = used.iter().map(|(group, used)| (Arc::from(group.as_str()), *used));
            let mut shares = Shares::new(given, |tenant| sum(&used, tenant), &settings);
            let mut had = used.clone();
            for _ in 0..4_000 {
                let group = shares.next(charge, |_| true).unwrap();
                *had.get_mut(&*group).unwrap() += charge;
            }
            let mut tenants: Vec<&str> = groups.keys().map(|group| tenant_of(group)).collect();
            tenants.dedup();
            let scores = tenants.iter().map(|tenant| sum(&had, tenant) / f64::from(settings.weight(tenant)));
            let scores: Vec<f64> = scores.collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let least = scores.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(most - least <= charge + 1e-6, "{scores:?}");
        }
    }

    fn used(used: f64, finished: u64, ran: f64) -> Used {
        Used { used, finished, ran, ..Used::default() }
    }

    fn running(tasks: u64, seconds: f64) -> Running {
        Running { places: Places { running: tasks, ..Places::default() }, seconds }
    }

    #[test]
    fn what_runs_counts_as_what_has_run() {
        let stored = HashMap::from([
            ("acme/ann".to_owned(), used(10.0, 5, 20.0)),
            ("acme/".to_owned(), used(10.0, 5, 20.0)),
            ("solo".to_owned(), used(1.0, 1, 4.0)),
        ]);
        let now = HashMap::from([
            (Arc::from("acme/bob"), running(2, 1.0)),
            (Arc::from("acme/ann"), running(1, 90.0)),
            (Arc::from("acme"), running(1, 0.0)),
        ]);
        let uses = Uses::of(stored, &now);
        assert!((uses.usual - 4.0).abs() < 1e-9, "24 s for 6 tasks: {}", uses.usual);
        let has = |name: &str, seconds: f64| {
            assert!((uses.of_group(name) - seconds).abs() < 1e-9, "{name}: {}", uses.of_group(name));
        };
        has("acme/bob", 8.0);
        has("acme/ann", 100.0);
        has("solo", 1.0);
        has("new", 0.0);
        assert!((uses.of_tenant("acme") - (10.0 + 8.0 + 90.0 + 4.0)).abs() < 1e-9);
        assert!((uses.of_tenant("solo") - 1.0).abs() < 1e-9);
        assert!((Uses::of(HashMap::new(), &HashMap::new()).usual - USUAL).abs() < 1e-9);
    }

    #[test]
    fn groups_are_asked_for_with_their_tenants() {
        let names = names_for(["acme/ann", "acme/bob", "solo"].into_iter());
        assert_eq!(names, ["acme", "acme/", "acme/ann", "acme/bob", "solo", "solo/"]);
    }

    #[test]
    fn what_is_stored_is_read_as_of_now() {
        let hour = Duration::from_secs(3600);
        let stored = doc! { "use": 8.0, "age": 7_200_000_i64, "started": 3, "finished": 2_i64, "ran": 9, "since_start": 1 };
        let read = Used::of(&stored, hour);
        assert!((read.used - 2.0).abs() < 1e-9 && (read.ran - 9.0).abs() < 1e-9, "{read:?}");
        assert_eq!((read.started, read.finished, read.since_start), (3, 2, Some(Duration::from_millis(1))));
        assert_eq!(Used::of(&doc! { "started": -1, "age": "x" }, hour), Used::default());
    }
}
