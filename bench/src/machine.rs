//! The machine, as far as it explains the figures.

use std::time::Duration;

/// How long to look at what others do.
const LOOK_FOR: Duration = Duration::from_secs(1);

/// What is known of it.
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

/// Time that all CPUs have spent since the start of the machine.
#[derive(Debug, Clone, Copy)]
struct Times {
    idle: u32,
    all: u32,
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
        let times: Option<Vec<u32>> = words.take(8).map(|word| word.parse().ok()).collect();
        let times = times.filter(|times| times.len() == 8)?;
        Some(Self {
            idle: times[3].wrapping_add(times[4]),
            all: times.iter().fold(0, |all, time| all.wrapping_add(*time)),
        })
    }

    fn busy_until(self, later: Self) -> Option<f64> {
        let (idle, all) = (later.idle.wrapping_sub(self.idle), later.all.wrapping_sub(self.all));
        (all > 0).then(|| f64::from(all.saturating_sub(idle)) / f64::from(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let before = Times::parse("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1\n").unwrap();
        let after = Times::parse("cpu  20 0 15 180 5 0 0 0 0 0\n").unwrap();
        assert_eq!(before.busy_until(after), Some(0.15));
        assert_eq!(before.busy_until(before), None);
        assert!(Times::parse("intr 1 2").is_none());
    }
}
