//! The machine, as far as it explains the figures.

use std::time::Duration;

use crate::world::processes::TICKS_PER_SECOND;

/// How long to look at what others do.
const LOOK_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    /// How many CPUs this process may use.
    pub cpus: Option<usize>,
    /// Which share of their time all CPUs were busy before anything was measured.
    pub busy_before: Option<f64>,
}

impl Machine {
    /// Looks for a second. Call it while this process has nothing to do.
    pub async fn look() -> Self {
        let cpus = std::thread::available_parallelism().ok().map(std::num::NonZero::get);
        let before = Times::now();
        tokio::time::sleep(LOOK_FOR).await;
        let busy_before = before.zip(Times::now()).and_then(|(before, after)| before.busy_until(after));
        Self { cpus, busy_before }
    }

    /// Whether others leave too little for the figures to mean much.
    pub fn is_busy(&self) -> bool {
        self.busy_before.is_some_and(|share| share > 0.1)
    }
}

/// What all CPUs together have done so far, for whomever.
#[derive(Debug, Clone, Copy)]
pub struct Work(Times);

impl Work {
    /// `None` where there is no Linux.
    pub fn so_far() -> Option<Self> {
        Times::now().map(Self)
    }

    /// How many seconds of CPU time were used since then.
    pub fn seconds_since(self) -> Option<f64> {
        Some(self.0.ticks_until(Times::now()?)? / TICKS_PER_SECOND)
    }
}

/// Time that all CPUs have spent since the start of the machine, in the kernel's ticks.
#[derive(Debug, Clone, Copy)]
struct Times {
    idle: u64,
    all: u64,
}

impl Times {
    /// `None` where there is no Linux.
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: `cpu`, then user, nice, system, idle, iowait, irq, softirq and steal.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_whitespace();
        words.next().filter(|word| *word == "cpu")?;
        let times: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
        let times = times.filter(|times| times.len() == 8)?;
        Some(Self { idle: times[3] + times[4], all: times.iter().sum() })
    }

    /// The ticks in which a CPU was busy, until then.
    fn ticks_until(self, later: Self) -> Option<f64> {
        let (idle, all) = self.passed(later);
        number(all.saturating_sub(idle))
    }

    /// The share of them.
    fn busy_until(self, later: Self) -> Option<f64> {
        let (_, all) = self.passed(later);
        Some(self.ticks_until(later)? / number(all).filter(|all| *all > 0.0)?)
    }

    /// How much of the time that waits for disks counts as idle may be corrected later: then it is less than before.
    fn passed(self, later: Self) -> (u64, u64) {
        (later.idle.saturating_sub(self.idle), later.all.saturating_sub(self.all))
    }
}

/// What a measurement takes fits.
fn number(ticks: u64) -> Option<f64> {
    u32::try_from(ticks).ok().map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let before = Times::parse("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1\n").unwrap();
        let after = Times::parse("cpu  20 0 15 180 5 0 0 0 0 0\n").unwrap();
        assert_eq!(before.busy_until(after), Some(0.15));
        assert_eq!((before.ticks_until(after), before.ticks_until(before)), (Some(15.0), Some(0.0)));
        assert_eq!(before.busy_until(before), None);
        assert!(Times::parse("intr 1 2").is_none());
        assert!(
            Times::parse("cpu  1 0 1 99999999999 0 0 0 0 0 0\n").is_some(),
            "machines may be up for long"
        );
    }
}
