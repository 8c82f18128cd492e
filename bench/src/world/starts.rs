//! How long tasks wait that come one after the other to a node that has nothing else to do: their plugin says when it began.

use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::mkfifo;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::time::{sleep, timeout};

use super::World;
use super::plugins::starts_pipe;
use crate::progress::Progress;

/// If a task is not started for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// The reader of the pipe that [`super::plugins::STARTS`] writes to.
#[derive(Debug)]
pub struct Starts(Lines<BufReader<Receiver>>);

impl Starts {
    /// Opens the pipe, which is made if need be.
    pub fn open(world: &World) -> anyhow::Result<Self> {
        let pipe = starts_pipe(&world.folder);
        if !pipe.exists() {
            mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a named pipe")?;
        }
        // Open for both, so that the end of one plugin is not the end of the file.
        Ok(Self(BufReader::new(OpenOptions::new().read_write(true).open_receiver(pipe)?).lines()))
    }

    /// The milliseconds from before each call of `submit`, which submits one task, to that task's first moment. One more task
    /// comes first, which is not counted: peers have connections to make then.
    pub async fn waits(
        &mut self,
        count: u32,
        submit: impl AsyncFn() -> anyhow::Result<()>,
        progress: &Progress,
    ) -> anyhow::Result<Vec<f64>> {
        let mut waited = Vec::new();
        for number in 0..=count {
            // The DEN becomes idle again. Pauses differ, so that no sample keeps step with its looks.
            sleep(Duration::from_millis(u64::from(200 + number * 37 % 100))).await;
            let submitted = now()?;
            submit().await?;
            let line = timeout(STALLED_AFTER, self.0.next_line()).await.context("a task is not run")?;
            let started: i64 = line?.context("the pipe has ended")?.parse().context("that is no time")?;
            ensure!(started > submitted, "a task began before it was submitted: the clock was set");
            waited.push(i32::try_from((started - submitted) / 1000).map(f64::from)? / 1000.0);
            progress.at(u64::from(number), u64::from(count));
        }
        waited.remove(0);
        Ok(waited)
    }
}

/// Nanoseconds since the epoch.
fn now() -> anyhow::Result<i64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}
