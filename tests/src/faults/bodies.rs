//! Bodies that are as large as they may be, and larger when they have been read.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;

use super::world::World;

/// The longest body.
const BYTES: usize = 16 * 1024 * 1024;

/// So many are sent to each address at once.
const AT_ONCE: usize = 4;

/// The DCI may have this much memory, in KiB: what all requests together may take, and as much again for all else.
const MOST_MEMORY: u64 = 512 * 1024;

/// Many small objects, which take ninety times their text when they are read.
static BODY: LazyLock<String> = LazyLock::new(|| {
    let object = "{\"\":0},";
    format!("{{\"queue\":[{}0]}}", object.repeat(BYTES / object.len() - 4))
});

/// Sends some to the DCI, which others may kill meanwhile.
pub async fn send(world: Arc<World>) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build()?;
    let one = async |path: &'static str| {
        let request = http.post(format!("{}{path}", world.url)).header("content-type", "application/json");
        let answer = request.body(BODY.as_str()).send().await;
        answer.map(|answer| (path, answer.status()))
    };
    let paths = ["/login", "/tasks"].into_iter().flat_map(|path| [path; AT_ONCE]);
    for (path, status) in join_all(paths.map(one)).await.into_iter().flatten() {
        ensure!(!status.is_success(), "POST {path} with a huge body: {status}");
    }
    let Some(peak) = world.web.lock().await.peak() else { return Ok(()) };
    ensure!(peak < MOST_MEMORY, "the DCI has had {} MiB of memory", peak / 1024);
    Ok(())
}
