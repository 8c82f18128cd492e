//! `observed`: what it costs to be looked at.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::Document;
use futures::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::interval;
use tokio_util::task::AbortOnDropHandle;

use crate::compare::{Finding, Goal, ratio};
use crate::figure::contest::drains;
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::Kind;
use crate::world::drain::{Plan, drain};
use crate::world::node::Node;
use crate::world::plugins::TRUE;
use crate::world::web::{client, text};

const NAME: &str = "observed";

const METHOD: &str = "drains of /bin/true as a plugin, as in `processes`, 64 wide: by a DEN that serves no metrics and sends no traces, and by \
    one whose metrics are read every second, and which sends the spans of all tasks to a receiver that takes them and looks at none";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const TASKS: u32 = 8_000;
const WIDTH: u32 = 64;

/// Metrics are read so often: fifteen times as often as is usual.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eyes {
    Off,
    On,
}

impl Eyes {
    fn series(self) -> Series {
        match self {
            Self::Off => Series::fixed(NAME, "off_per_second", "without metrics and traces, per second"),
            Self::On => Series::fixed(NAME, "on_per_second", "with metrics and traces, per second"),
        }
    }
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(TASKS);
    let named = (|eyes: Eyes| format!("{NAME}: {eyes:?}"), Eyes::series);
    drains(turn, tasks, &[Eyes::Off, Eyes::On], named, async |eyes| drained(turn, eyes, tasks).await).await
}

async fn drained(turn: Turn<'_>, eyes: Eyes, tasks: u32) -> anyhow::Result<f64> {
    let mut setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let plan = Plan { plugin: TRUE, params: Document::new(), tasks, width: WIDTH };
    if eyes == Eyes::Off {
        let node = Node::start(&setup).await?;
        return Ok(node.finish(async |node| drain(node, &plan, turn.progress).await).await?.seconds);
    }
    let metrics = setup.serve_metrics()?;
    let receiver = Receiver::start().await?;
    setup.environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.clone()));
    let node = Node::start(&setup).await?;
    let reader = AbortOnDropHandle::new(tokio::spawn(read_metrics(client()?, metrics)));
    let drained = node.finish(async |node| drain(node, &plan, turn.progress).await).await?;
    ensure!(!reader.is_finished(), "the metrics of the DEN could not be read");
    let received = receiver.received();
    ensure!(received > 0, "the DEN has sent no spans");
    Ok(drained.seconds)
}

/// Ends when they cannot be read.
async fn read_metrics(http: reqwest::Client, url: String) {
    let mut tick = interval(SCRAPE_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = text(&http, &url).await {
            crate::progress::say(&format!("{NAME}: {error:#}"));
            return;
        }
    }
}

/// Takes spans. Ends when dropped.
struct Receiver {
    url: String,
    bytes: Arc<AtomicU64>,
    _running: AbortOnDropHandle<()>,
}

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let bytes = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&bytes);
        let accept = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                // Broken connections are the sender's business: too few bytes are noticed at the end.
                tokio::spawn(async move { drop(take(stream, &counted).await) });
            }
        };
        Ok(Self { url, bytes, _running: AbortOnDropHandle::new(tokio::spawn(accept)) })
    }

    fn received(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Takes what comes over a connection, request after request.
async fn take(stream: TcpStream, counted: &AtomicU64) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        // An empty line ends the head.
        while stream.read_line(&mut head).await? > 2 {}
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: u64 = length.context("the request has no length")?.trim().parse()?;
        tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
        counted.fetch_add(length, Ordering::Relaxed);
        stream.get_mut().write_all(TAKEN).await?;
    }
}

fn findings(results: &Results) -> Vec<Finding> {
    let values = ratio(results, &Eyes::On.series(), &Eyes::Off.series());
    vec![Finding::new("on_over_off", "with / without metrics and traces", values).with(Goal::AtLeast(0.99))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_less_is_too_much() {
        let mut results = Results::default();
        results.add(vec![Eyes::Off.series().sample(1000.0), Eyes::On.series().sample(900.0)]);
        let findings = findings(&results);
        assert_eq!((&findings[0].values[..], findings[0].is_reached()), (&[0.9][..], Some(false)));
    }
}
