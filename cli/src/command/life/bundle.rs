//! `disbatch bundle ID`

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};

use crate::api::{ApiError, Client};
use crate::args::BundleOptions;
use crate::command::life::advise;

/// Writes the bundle of an attempt to standard output.
pub async fn run(client: &Client, options: &BundleOptions) -> anyhow::Result<()> {
    let mut target = std::io::stdout();
    if target.is_terminal() {
        bail!(
            "a bundle is a tar archive and nothing for a terminal: disbatch bundle {0} > {0}.tar",
            options.id
        );
    }
    let attempt = options.attempt.map(|attempt| format!("?.attempt={attempt}")).unwrap_or_default();
    let path = format!("/tasks/{}/bundle{attempt}", options.id);
    let mut answer = client.stream(&path, 0).await.map_err(advise)?;
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| ApiError::broken_off("getting", client.address(&path), &error))?
    {
        target.write_all(&bytes).context("cannot write the bundle")?;
    }
    target.flush().context("cannot write the bundle")
}
