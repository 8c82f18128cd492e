//! What the end-to-end tests share: a database of one's own on a real server, and the built binaries.
//!
//! The tests drive `den`, `dtr`, `dci` and `disbatch` as users do, and look at the pages in a browser. Build them first
//! in the same profile (`cargo build --workspace --release` before `cargo nextest run --release`); `make test` does.

pub mod browser;
mod dci;
pub mod faults;
pub mod hook;
mod plugins;
pub mod podman;
mod process;
pub mod screenshots;
mod world;

pub use dci::Dci;
pub use plugins::{Script, install_recorder};
pub use process::{Den, Finished, binary, finish};
pub use world::{Server, World};

use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

/// How long a test waits for something that should happen within moments, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` gives a value.
pub async fn eventually<T, F, Fut>(what: &str, mut condition: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let began = Instant::now();
    loop {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        if began.elapsed() > PATIENCE {
            bail!("waited {} s in vain: {what}", PATIENCE.as_secs());
        }
        sleep(until_next_look(began)).await;
    }
}

/// A part of what has been waited for: what takes long is not to keep the machine busy with looks.
fn until_next_look(began: Instant) -> Duration {
    (began.elapsed() / 16).clamp(Duration::from_millis(20), Duration::from_millis(150))
}

/// Watches that `condition` holds for `duration`, for things that must not happen.
pub async fn always<F, Fut>(what: &str, duration: Duration, mut condition: F) -> anyhow::Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<bool>>,
{
    let end = Instant::now() + duration;
    while Instant::now() < end {
        if !condition().await? {
            bail!("does not hold: {what}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The folder of what `scripts/prepare` fetches.
pub fn fetched() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("disbatch"))
}

/// Says why a test is left out here.
pub fn skipped(why: &str) {
    let _nobody_reads = writeln!(std::io::stderr(), "skipped: {why}");
}
