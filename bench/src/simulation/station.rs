//! A place where work waits for one of several servers, first come, first served.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds since the beginning.
pub type Time = u64;

/// Servers that share one line.
#[derive(Debug)]
pub struct Station {
    /// When each is free.
    free: BinaryHeap<Reverse<Time>>,
    busy: Time,
}

impl Station {
    pub fn new(servers: u32) -> Self {
        Self { free: (0..servers.max(1)).map(|_| Reverse(0)).collect(), busy: 0 }
    }

    /// When work is done that comes `now` and takes so long. Work has to come in the order of its times.
    pub fn serve(&mut self, now: Time, takes: Time) -> Time {
        let Reverse(free) = self.free.pop().unwrap_or_default();
        let done = now.max(free) + takes;
        self.free.push(Reverse(done));
        self.busy += takes;
        done
    }

    /// For how long the servers have worked, together.
    pub fn busy(&self) -> Time {
        self.busy
    }
}

/// So many seconds as a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and some days at most"
)]
pub fn time(seconds: f64) -> Time {
    (seconds * 1e9) as Time
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of some days")]
pub fn seconds(time: Time) -> f64 {
    time as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::random::Random;

    /// The mean time in the line of work that comes at random and takes random times.
    fn mean_wait(servers: u32, rate: f64, mean: f64) -> f64 {
        let (mut random, mut station) = (Random::new(7), Station::new(servers));
        let (mut now, mut waited, tasks) = (0, 0.0, 400_000);
        for _ in 0..tasks {
            now += time(random.exponential(1.0 / rate));
            let takes = time(random.exponential(mean));
            waited += seconds(station.serve(now, takes) - now - takes);
        }
        waited / f64::from(tasks)
    }

    #[test]
    fn one_server_is_as_the_formula_says() {
        for used in [0.3, 0.5, 0.8] {
            let (wait, exact) = (mean_wait(1, used, 1.0), used / (1.0 - used));
            assert!((wait / exact - 1.0).abs() < 0.05, "used {used}: {wait}, by the formula {exact}");
        }
    }

    #[test]
    fn several_servers_are_as_erlang_says() {
        // Erlang C with four servers and three of them busy on average: half of what comes has to wait.
        let load: f64 = 3.0;
        let term = |n: u32| (1..=n).fold(1.0, |product, k| product * load / f64::from(k));
        let full = term(4) * 4.0 / (4.0 - load);
        let waits = full / ((0..4).map(term).sum::<f64>() + full);
        let exact = waits / (4.0 - load);
        let wait = mean_wait(4, load, 1.0);
        assert!((wait / exact - 1.0).abs() < 0.05, "{wait}, by the formula {exact}");
    }
}
