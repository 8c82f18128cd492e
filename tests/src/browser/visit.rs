//! A test with a browser, from its start to the evidence of what went wrong.

use std::any::Any;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures::FutureExt;
use serde_json::json;

use super::Browser;

/// The folder in which tests that fail leave a picture of the page, its source, and the browser's console.
pub const ARTIFACTS: &str = "DISBATCH_TEST_ARTIFACTS";

/// How a test ended: as it says, or with a panic.
type Outcome = Result<anyhow::Result<()>, Box<dyn Any + Send>>;

/// Runs `test` with a browser of its own. Where it fails, the folder that [`ARTIFACTS`] names gets the evidence.
pub async fn visit(test: impl AsyncFnOnce(&Browser) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = test_name();
    let browser = Browser::start().await?;
    let outcome: Outcome = AssertUnwindSafe(test(&browser)).catch_unwind().await;
    let complaints = browser.complaints().await;
    let complaints = complaints.unwrap_or_else(|error| vec![format!("they cannot be read: {error:#}")]);
    if complaints.is_empty() && matches!(outcome, Ok(Ok(()))) {
        return Ok(());
    }
    let folder = std::env::var_os(ARTIFACTS).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = folder
        && let Err(error) = leave(&browser, &folder, &name, &complaints).await
    {
        // It is not what the test failed of.
        let _nobody_reads = writeln!(io::stderr(), "no evidence of {name}: {error:#}");
    }
    let told = || format!("the browser's console has errors: {}", complaints.join("; "));
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(Err(error)) if complaints.is_empty() => Err(error),
        Ok(Err(error)) => Err(error.context(told())),
        Ok(Ok(())) => bail!(told()),
    }
}

/// The running test's, as the thread that it runs in is called.
fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("browser").replace("::", "-")
}

/// Writes what there is to see.
async fn leave(browser: &Browser, folder: &Path, name: &str, complaints: &[String]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{ARTIFACTS}={}", folder.display()))?;
    let path = |ending: &str| folder.join(format!("{name}.{ending}"));
    fs::write(path("console.txt"), complaints.join("\n"))?;
    fs::write(path("png"), browser.screenshot().await?)?;
    let source = browser.script("return document.documentElement.outerHTML", json!([])).await?;
    fs::write(path("html"), source.as_str().unwrap_or_default())?;
    Ok(())
}
