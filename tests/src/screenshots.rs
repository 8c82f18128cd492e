//! Pictures of all pages, in front of an example that is filled in by real DENs and plugins.

mod camera;
mod example;
mod past;
mod plugins;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use disbatch_mongod::testing::{self, TestDatabase};
use mongodb::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::World;
use camera::Camera;
use example::Example;

const ABOUT: &str = "\
The programs dci, den and dtr are taken from beside this one; a private MongoDB server is started, or fetched and
started where there is none. Chromium and chromedriver must be there: 'scripts/prepare browser' installs them.";

/// Fills a database with an example, and makes pictures of all pages: light and dark, narrow and wide.
#[derive(Debug, Clone, Parser)]
#[command(name = "disbatch-screenshots", version, after_help = ABOUT)]
pub struct Args {
    /// The folder for the pictures
    #[arg(long, value_name = "FOLDER", default_value = "docs/images")]
    pub folder: PathBuf,

    /// Only the pages of this name, like 'tasks'; may be given several times
    #[arg(long, value_name = "PAGE")]
    pub only: Vec<String>,
}

/// Makes the pictures.
///
/// # Errors
/// There is no MongoDB or no browser, the example does not come about, or a page is missing.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let server = testing::start_ephemeral(true).await?;
    let mut term = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = Box::pin(with_database(&args, server.uri())) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = term.recv() => Err(anyhow::anyhow!("told to end")),
    };
    server.stop().await?;
    outcome
}

async fn with_database(args: &Args, uri: String) -> anyhow::Result<()> {
    let name = "disbatch".to_owned();
    let database = Client::with_uri_str(&uri).await?.database(&name);
    let world = World::with(TestDatabase { uri, name, database })?;
    let example = Example::fill(&world).await?;
    let pages = example.pages();
    let unknown: Vec<&String> =
        args.only.iter().filter(|name| !pages.iter().any(|p| p.name == **name)).collect();
    ensure!(unknown.is_empty(), "there is no page {unknown:?}");
    std::fs::create_dir_all(&args.folder).with_context(|| args.folder.display().to_string())?;
    let camera = Camera::new(&args.folder).await?;
    let mut failed = Vec::new();
    for page in pages.iter().filter(|page| args.only.is_empty() || args.only.iter().any(|n| n == page.name)) {
        match camera.picture(&example.url(&page.path), page.name).await {
            Ok(()) => say(&format!("{}: {}", page.name, page.path)),
            Err(error) => failed.push(format!("{}: {error:#}", page.name)),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// A line on standard output.
fn say(line: &str) {
    // Whoever has stopped reading misses it.
    let _nobody_reads = writeln!(io::stdout(), "{line}");
}
