//! Where several DENs read the same tasks in the same order, each would try the first ones, and all but one in vain. So
//! whoever has lost tasks to others takes some that come a bit later. Pure.

/// So many tasks are left out at most.
const FARTHEST: usize = 512;

/// With the first loss, so many.
const FIRST: usize = 8;

/// How far what is tried is from the first one.
#[derive(Debug, Default)]
pub(super) struct Spread(usize);

impl Spread {
    /// How many are to be read beyond those that are wanted.
    pub fn distance(&self) -> usize {
        self.0
    }

    /// Which of `tasks` that could all be the next one to take. `chance` is random, from 0 to 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a small positive number"
    )]
    pub fn pick(&self, tasks: usize, chance: f64) -> usize {
        // Squared: the first ones are taken more often, so that none of them is left for long.
        let at = (self.0 as f64 * chance * chance) as usize;
        at.min(tasks.saturating_sub(1))
    }

    /// Of `tried` tasks, others were faster to claim `lost`.
    pub fn met_others(&mut self, tried: usize, lost: usize) {
        if lost * 4 > tried {
            self.0 = (self.0 * 2).max(tried).clamp(FIRST, FARTHEST);
        } else if lost == 0 {
            self.0 = self.0 * 7 / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_meets_others_goes_farther_and_comes_back() {
        let mut spread = Spread::default();
        assert_eq!(spread.pick(100, 1.0), 0, "the first one, as long as there is nobody else");
        spread.met_others(1, 1);
        assert_eq!((spread.pick(100, 1.0), spread.pick(3, 1.0), spread.pick(0, 1.0)), (8, 2, 0));
        for _ in 0..20 {
            spread.met_others(4, 4);
        }
        assert_eq!(spread.distance(), FARTHEST);
        for _ in 0..60 {
            spread.met_others(4, 0);
        }
        assert_eq!(spread.distance(), 0);
    }
}
