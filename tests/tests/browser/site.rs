//! What is looked at: a database, and a DCI in front of it.

use anyhow::ensure;
use bson::Document;
use disbatch_core::model::TaskId;
use disbatch_tests::browser::Browser;
use disbatch_tests::{Dci, Den, Script, World};

/// A DCI with a database of its own.
pub struct Site {
    /// The database, and what works on it.
    pub world: World,
    dci: Dci,
}

impl Site {
    /// A site where nothing has happened yet.
    pub async fn new() -> anyhow::Result<Self> {
        Self::with(|_| Ok(())).await
    }

    /// A site whose DCI starts when `prepare` has been there: it reads descriptions of plugins when it starts.
    pub async fn with(prepare: impl FnOnce(&World) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let world = World::new().await?;
        prepare(&world)?;
        world.store().ensure_indexes().await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        Ok(Self { world, dci })
    }

    /// A running task of a queue for `script`, on a DEN that works as long as it is kept.
    pub async fn running(&self, script: Script<'_>, params: Document) -> anyhow::Result<(TaskId, Den)> {
        let queue = self.world.script_queue(script, 1).await?;
        let id = self.world.submit(queue, vec![params]).await?[0];
        let den = self.world.den_at_work("node1").await?;
        self.world.until_status(id, 0).await?;
        Ok((id, den))
    }

    /// The address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.dci.url())
    }

    /// Posts JSON, as programs do.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<()> {
        let request = self.dci.request(reqwest::Method::POST, path).json(body);
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// Removes the database. A test that fails leaves it for a look.
    pub async fn end(self) -> anyhow::Result<()> {
        self.world.end().await
    }
}

/// Checks that there were no more clicks since the last time than a job may take.
pub fn few(browser: &Browser, most: u32) -> anyhow::Result<()> {
    let clicks = browser.clicks();
    ensure!(clicks <= most, "{clicks} clicks, and {most} are to be enough");
    Ok(())
}

/// Checks that the server has refused something, as it was meant to, and nothing worse was in the console.
pub async fn was_refused(browser: &Browser) -> anyhow::Result<()> {
    let complaints = browser.complaints().await?;
    let others =
        complaints.iter().any(|text| !text.contains("status of 400") && !text.contains("Error Code 400"));
    ensure!(!others && !complaints.is_empty(), "{complaints:?}");
    Ok(())
}
