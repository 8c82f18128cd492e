//! What becomes of a queue's [canary](Canary): any DEN compares how attempts of both versions have ended, and takes the canary back if it is
//! worse. Everybody may look at the same time: the update that takes it back names the canary as it was read, so that it is taken back once,
//! and never one that somebody has begun since.
//!
//! Whether it is worse tells Fisher's exact test, one-sided.

use bson::{Bson, doc};
use disbatch_operation::operation;

use crate::audit::{Actor, AuditEntry, Object, ObjectKind, Verb, Via};
use crate::model::{CANARY, CANARY_RETURNED, Canary, NodeName, Queue, Selector};
use crate::series::Sides;
use crate::store::{Altered, Store, StoreError, integer};
use crate::text;

/// So many of a canary's attempts must have ended before it is judged.
pub const LEAST: u64 = 20;

/// It is worse if what was seen, or something worse, would come about with less than this probability by chance alone. It is asked again and
/// again while attempts end, so that in all a canary that is as good is taken back more often than that: see the simulation below.
pub const WORSE_BELOW: f64 = 0.001;

/// A part of a whole for people: `5 %`, or `0.25 %`.
pub fn percent(part: f64) -> String {
    text::percent(100.0 * part, 2)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Side {
    pub ended: u64,
    pub failed: u64,
}

impl Side {
    #[expect(clippy::cast_precision_loss, reason = "it is a ratio for people")]
    pub fn rate(self) -> f64 {
        if self.ended == 0 { 0.0 } else { self.failed.min(self.ended) as f64 / self.ended as f64 }
    }
}

pub fn is_worse(canary: Side, others: Side) -> bool {
    canary.ended >= LEAST && probability(canary, others) < WORSE_BELOW
}

/// How probable it is that of all failures as many as this, or more, are among those of the canary, if failures do not depend on the
/// version: the upper tail of the hypergeometric distribution.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn probability(canary: Side, others: Side) -> f64 {
    let failed = canary.failed.min(canary.ended);
    let all_failed = failed + others.failed.min(others.ended);
    let all = canary.ended + others.ended;
    let most = canary.ended.min(all_failed);
    let choose = |n: u64, k: u64| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let least = all_failed.saturating_sub(others.ended);
    if failed <= least {
        return 1.0;
    }
    let first =
        choose(canary.ended, failed) + choose(others.ended, all_failed - failed) - choose(all, all_failed);
    let (mut term, mut sum) = (1.0_f64, 1.0_f64);
    for k in failed..most {
        let up = (canary.ended - k) as f64 * (all_failed - k) as f64;
        let down = (k + 1) as f64 * (others.ended + k + 1 - all_failed) as f64;
        term *= up / down;
        sum += term;
        if term < sum * 1e-17 {
            break; // From here on they only become smaller.
        }
    }
    (first + sum.ln()).exp().min(1.0)
}

/// The logarithm of n!, by Stirling's series where n is large.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ln_factorial(n: u64) -> f64 {
    if n < 32 {
        return (2..=n).map(|n| (n as f64).ln()).sum();
    }
    let n = n as f64;
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + series
}

impl Store {
    /// Takes the canary of `queue`, as it was read, back if it is worse than what it is to take the place of. Returns what was seen then.
    #[operation(queue = %queue.id)]
    pub async fn judge_canary(&self, node: &NodeName, queue: &Queue) -> Result<Option<Sides>, StoreError> {
        let Some(canary) = Canary::of(queue) else { return Ok(None) };
        let sides = self.canary_sides(queue.id, &canary).await?;
        if !is_worse(sides.canary, sides.others) {
            return Ok(None);
        }
        let returned = doc! {
            "version": canary.version.as_str(), "share": canary.share, "began": canary.began, "at": self.now(),
            "failed": integer(sides.canary.failed), "of": integer(sides.canary.ended),
            "others_failed": integer(sides.others.failed), "others_of": integer(sides.others.ended),
            "p": probability(sides.canary, sides.others),
        };
        let fields = doc! { CANARY: Bson::Null, CANARY_RETURNED: returned };
        let as_read = [(CANARY.to_owned(), queue.rest.get(CANARY).cloned())];
        let returned = self.update_queue_from(&Selector::Id(queue.id.0), fields, &as_read).await?;
        let Some(altered) = returned.filter(Altered::is_different) else { return Ok(None) };
        let Altered { before, after } = altered;
        let (id, name) = (Some(queue.id.0), Some(queue.display_name()));
        let object = Object { kind: ObjectKind::Queue, id, name };
        let who = Actor::new(None, Via::Words(format!("Disbatch itself (the DEN of {node})")), "");
        let entry = AuditEntry::new(who, Verb::QueueUpdate, object);
        let entry = AuditEntry { queue: Some(queue.id), before, after: Some(after), ..entry };
        self.note_audit(&entry).await;
        Ok(Some(sides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(failed: u64, ended: u64) -> Side {
        Side { ended, failed }
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn the_test_has_the_values_of_others() {
        // Fisher's tea: 3 of 4 right, and all 4.
        assert_near(probability(side(3, 4), side(1, 4)), 17.0 / 70.0);
        assert_near(probability(side(4, 4), side(0, 4)), 1.0 / 70.0);
        // By hand: C(20,9) / C(40,9), and 1 of each with none of the other.
        assert_near(probability(side(9, 20), side(0, 20)), 167_960.0 / 273_438_880.0);
        assert_near(probability(side(1, 1), side(0, 999)), 0.001);
        // By counting all tables that are as bad or worse, in whole numbers.
        assert_near(probability(side(12, 15), side(5, 15)), 0.012_663_843_516_838_072);
        assert_near(probability(side(3, 20), side(0, 200)), 0.000_651_227_621_191_175_3);
        assert_near(probability(side(2, 20), side(0, 200)), 0.007_887_090_078_870_9);
    }

    #[test]
    fn what_is_no_worse_is_probable() {
        assert_near(probability(side(0, 20), side(5, 100)), 1.0);
        assert_near(probability(side(0, 0), side(0, 0)), 1.0);
        assert_near(probability(side(5, 5), side(0, 0)), 1.0);
        assert!(probability(side(5, 100), side(50, 1000)) > 0.4);
        // Both tails share what was seen.
        let (one, other) = (side(12, 40), side(9, 50));
        let seen = probability(one, other) + probability(other, one) - 1.0;
        assert!(seen > 0.0 && seen < 0.2, "{seen}");
    }

    #[test]
    fn large_counts_take_no_time_and_are_exact_enough() {
        let p = probability(side(1_050_000, 10_000_000), side(10_000_000, 100_000_000));
        assert!(p < 1e-300 || p == 0.0, "{p}");
        // Close to the normal distribution: 2.0 standard deviations above, 0.0228.
        let p = probability(side(50_474, 1_000_000), side(5_000_000, 100_000_000));
        assert!((0.012..0.018).contains(&p), "{p}");
        for n in [31, 32, 33, 170] {
            let exact: f64 = (2..=n).map(|n: u64| (n as f64).ln()).sum();
            assert_near(ln_factorial(n), exact);
        }
    }

    #[test]
    fn few_attempts_decide_nothing() {
        assert!(!is_worse(side(19, 19), side(0, 1000)));
        assert!(is_worse(side(20, 20), side(0, 1000)) && is_worse(side(3, 20), side(0, 200)));
        assert!(!is_worse(side(2, 20), side(0, 200)));
        assert!(!is_worse(side(1000, 1000), side(1000, 1000)), "everything fails");
        assert!(!is_worse(side(1000, 1000), side(0, 0)), "there is nothing to compare it with");
        assert!((side(1, 4).rate() - 0.25).abs() < 1e-12 && side(0, 0).rate() == 0.0);
    }

    /// How many of so many canaries are taken back, looked at after each of its attempts.
    fn returned(rates: [f64; 2], share: f64, canaries: u64) -> u64 {
        let mut seed = 42_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut run = || {
            let mut sides = [Side::default(); 2];
            (0..4000).any(|_| {
                let of = usize::from(random() >= share);
                sides[of].ended += 1;
                sides[of].failed += u64::from(random() < rates[of]);
                of == 0 && is_worse(sides[0], sides[1])
            })
        };
        (0..canaries).filter(|_| run()).count() as u64
    }

    /// What the documentation says.
    #[test]
    fn of_a_hundred_that_are_as_good_one_or_two_are_taken_back() {
        let good = returned([0.05, 0.05], 0.1, 200);
        assert!(good <= 6, "{good} of 200");
        let bad = returned([0.25, 0.05], 0.1, 50);
        assert!(bad >= 49, "{bad} of 50");
    }
}
