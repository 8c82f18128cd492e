//! Whose turn is next, where use is shared. Pure: what each group has used in, the order of groups out.
//!
//! The tenant that has used the least for its weight comes first, and of its groups the one that has. What is given is
//! charged at once, so that the next choice sees it. What was used counts less and less: half after each half-life.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::group::tenant_of;
use super::settings::Settings;

/// The smallest charge, in seconds: who is given something has to come later.
const LEAST_CHARGE: f64 = 0.001;

/// The order in which groups are given something.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    tenants: Vec<Tenant>,
    line: BinaryHeap<Reverse<(Score, usize)>>,
}

#[derive(Debug, Clone)]
struct Tenant {
    used: f64,
    weight: f64,
    groups: Vec<Member>,
    line: BinaryHeap<Reverse<(Score, usize)>>,
}

#[derive(Debug, Clone)]
struct Member {
    group: Arc<str>,
    used: f64,
    weight: f64,
}

/// A number of seconds that can be compared.
#[derive(Debug, Clone, Copy)]
struct Score(f64);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

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
        let mut tenants: Vec<Tenant> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for (group, used) in groups {
            let name = tenant_of(&group);
            let number = *numbers.entry(name.to_owned()).or_insert_with(|| {
                tenants.push(Tenant {
                    used: of_tenant(name),
                    weight: f64::from(settings.weight(name)),
                    groups: Vec::new(),
                    line: BinaryHeap::new(),
                });
                tenants.len() - 1
            });
            let weight = f64::from(settings.weight_within(&group));
            if let Some(tenant) = tenants.get_mut(number) {
                tenant.groups.push(Member { group, used, weight });
            }
        }
        let mut line = BinaryHeap::new();
        for (number, tenant) in tenants.iter_mut().enumerate() {
            tenant.line = tenant.groups.iter().map(Member::score).zip(0..).map(Reverse).collect();
            line.push(Reverse((tenant.score(), number)));
        }
        Self { tenants, line }
    }

    /// The next group of those that may be given something, which is charged so many seconds for it.
    pub fn next(&mut self, charge: f64, may: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        let charge = charge.max(LEAST_CHARGE);
        let mut left_out = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(Reverse((_, number))) = self.line.pop()
        {
            let Some(tenant) = self.tenants.get_mut(number) else { continue };
            found = tenant.next(charge, &may);
            match found {
                Some(_) => self.line.push(Reverse((tenant.score(), number))),
                None => left_out.push(Reverse((tenant.score(), number))),
            }
        }
        self.line.extend(left_out);
        found
    }
}

impl Tenant {
    fn score(&self) -> Score {
        Score(self.used / self.weight)
    }

    fn next(&mut self, charge: f64, may: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        let mut left_out = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(Reverse((score, number))) = self.line.pop()
        {
            let Some(member) = self.groups.get_mut(number) else { continue };
            if may(&member.group) {
                member.used += charge;
                self.used += charge;
                found = Some(Arc::clone(&member.group));
                self.line.push(Reverse((member.score(), number)));
            } else {
                left_out.push(Reverse((score, number)));
            }
        }
        self.line.extend(left_out);
        found
    }
}

impl Member {
    fn score(&self) -> Score {
        Score(self.used / self.weight)
    }
}

/// What is left of a number of seconds after some time.
pub fn decayed(used: f64, after: Duration, half_life: Duration) -> f64 {
    let halves = after.as_secs_f64() / half_life.as_secs_f64().max(f64::MIN_POSITIVE);
    if used.is_finite() { used.max(0.0) * (-halves).exp2() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn shares(groups: &[(&str, f64)], weights: &[(&str, u32)]) -> Shares {
        let of_tenant = |tenant: &str| -> f64 {
            groups.iter().filter(|(group, _)| tenant_of(group) == tenant).map(|(_, used)| *used).sum()
        };
        let weights = weights.iter().map(|(group, weight)| ((*group).to_owned(), *weight)).collect();
        let settings = Settings::default().with_weights(weights);
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
            let settings = Settings::default()
                .with_weights(groups.iter().map(|(group, (_, weight))| (group.clone(), *weight)).collect());
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
}
