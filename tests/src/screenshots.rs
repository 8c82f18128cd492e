//! Pictures of all pages, in front of an example that is filled in by real DENs and plugins.

mod camera;
mod example;
mod past;
mod plugins;
mod schedules;
mod versions;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

pub async fn run(args: Args) -> anyhow::Result<()> {
    let names = example::names(&args.only)?;
    let server = testing::start_ephemeral(true).await?;
    let mut term = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = Box::pin(with_database(&args.folder, &names, server.uri())) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = term.recv() => Err(anyhow::anyhow!("told to end")),
    };
    server.stop().await?;
    outcome
}

async fn with_database(folder: &Path, names: &[&str], uri: String) -> anyhow::Result<()> {
    let name = "disbatch".to_owned();
    let database = Client::with_uri_str(&uri).await?.database(&name);
    let world = World::with(TestDatabase { uri, name, database })?;
    let example = Example::fill(&world).await?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let camera = Camera::new(folder).await?;
    let mut failed = Vec::new();
    for name in names {
        match camera.picture(&example.url(name)?, name).await {
            Ok(()) => say(name),
            Err(error) => failed.push(format!("{name}: {error:#}")),
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
