//! A headless Chromium for tests of the pages, driven through chromedriver.
//!
//! Nothing here knows how the pages are made: things are found as people and screen readers find them, by role, name,
//! label and text. Whatever is asked for is waited for, with a deadline; what came in vain is told together with what
//! the page shows.

mod axe;
mod console;
mod devtools;
mod keys;
mod part;
mod process;
mod session;
mod visit;

pub use part::Part;
pub use visit::{ARTIFACTS, visit};

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::Binary;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::PATIENCE;
use process::Process;
use session::Session;

/// How often a page is looked at that something is to appear on.
const LOOK: Duration = Duration::from_millis(50);

/// So many bytes of a page's text are in the error of a test at most.
const SHOWN: usize = 3000;

/// What a person's system asks pages to look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    Light,
    Dark,
}

impl Theme {
    /// As media queries name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// A browser of one's own, with one window. It ends when dropped, and when this process ends.
#[derive(Debug)]
pub struct Browser {
    session: Session,
    /// How many there were since somebody has asked.
    clicks: AtomicU32,
    _process: Process,
}

impl Browser {
    /// Starts one: light, without movement, 1280 by 800 pixels.
    pub async fn start() -> anyhow::Result<Self> {
        let process = Process::start().await?;
        let session = Session::start(process.url(), process.capabilities()).await?;
        let browser = Self { session, clicks: AtomicU32::new(0), _process: process };
        browser.theme(Theme::Light).await?;
        browser.resize(1280, 800).await?;
        Ok(browser)
    }

    /// Goes to an address and waits until the page is loaded.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.session.post("/url", &json!({ "url": url })).await.with_context(|| format!("GET {url}"))?;
        let arrived = self.url().await?;
        ensure!(!arrived.starts_with("chrome-error:"), "nothing answers at {url}");
        Ok(())
    }

    pub async fn url(&self) -> anyhow::Result<String> {
        let url = self.script("return location.href", json!([])).await?;
        Ok(url.as_str().context("a page without an address")?.to_owned())
    }

    /// How many clicks there were since this was asked last. What is typed or chosen in a field is none.
    pub fn clicks(&self) -> u32 {
        self.clicks.swap(0, Ordering::Relaxed)
    }

    pub fn page(&self) -> Part<'_> {
        Part::whole(self)
    }

    /// The first element of a CSS selector that shows `text`: a row of a table, for instance.
    pub fn part(&self, selector: &str, text: &str) -> Part<'_> {
        Part::showing(self, selector, text)
    }

    /// What the body of a function returns that runs in the page. Its `arguments` are those of the array.
    pub async fn script(&self, body: &str, arguments: Value) -> anyhow::Result<Value> {
        self.session.post("/execute/sync", &json!({ "script": body, "args": arguments })).await
    }

    /// What the body of a function gives to its last argument, a function that it calls when it is done.
    pub async fn script_that_calls_back(&self, body: &str) -> anyhow::Result<Value> {
        self.session.post("/execute/async", &json!({ "script": body, "args": [] })).await
    }

    /// Waits until the body of a function returns something true, and returns that. Meanwhile it may throw.
    pub async fn until(&self, what: &str, body: &str) -> anyhow::Result<Value> {
        self.retry(what, async || {
            let value = self.script(body, json!([])).await?;
            let is_false = matches!(&value, Value::Null | Value::Bool(false));
            ensure!(!is_false && value != 0 && value != "", "it is {value}");
            Ok(value)
        })
        .await
    }

    /// Presses a key, or several together, for whatever has the focus: `j`, `Enter`, `Shift+Tab`.
    pub async fn press(&self, keys: &str) -> anyhow::Result<()> {
        let keys = keys::parse(keys)?;
        let down = keys.iter().map(|key| json!({ "type": "keyDown", "value": key }));
        let up = keys.iter().rev().map(|key| json!({ "type": "keyUp", "value": key }));
        let actions: Vec<Value> = down.chain(up).collect();
        let device = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.session.post("/actions", &json!({ "actions": [device] })).await?;
        Ok(())
    }

    /// Asks pages for a theme, as the system does.
    pub async fn theme(&self, theme: Theme) -> anyhow::Result<()> {
        let features = json!([
            { "name": "prefers-color-scheme", "value": theme.name() },
            // What moves may be anywhere when it is looked at.
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.session.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await?;
        Ok(())
    }

    /// Has pages take the clock of this time zone for that of the person.
    pub async fn time_zone(&self, name: &str) -> anyhow::Result<()> {
        self.session.devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": name })).await?;
        Ok(())
    }

    /// Makes the page so large, in CSS pixels.
    pub async fn resize(&self, width: u32, height: u32) -> anyhow::Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.session.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        Ok(())
    }

    /// What is seen of the page, as a PNG file.
    pub async fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        let text = self.session.get("/screenshot").await?;
        let text = text.as_str().context("a screenshot that is no text")?;
        Ok(Binary::from_base64(text, None)?.bytes)
    }

    /// What is seen of the page, as a WebP file, which is a fraction of a PNG file and shows text as well.
    pub async fn small_screenshot(&self) -> anyhow::Result<Vec<u8>> {
        let how = json!({ "format": "webp", "quality": 85 });
        let answer = self.session.devtools("Page.captureScreenshot", how).await?;
        let text = answer["data"].as_str().context("a screenshot that is no text")?;
        Ok(Binary::from_base64(text, None)?.bytes)
    }

    /// Errors in the browser's console since the last call: of scripts, of requests, and violations of the
    /// Content-Security-Policy.
    pub async fn complaints(&self) -> anyhow::Result<Vec<String>> {
        console::complaints(&self.session).await
    }

    /// What axe-core finds wrong with the page, a text for each element and rule.
    pub async fn violations(&self) -> anyhow::Result<Vec<String>> {
        axe::violations(&self.session, None).await
    }

    /// The same in the light, and then of colours in the dark: nothing else differs there.
    pub async fn violations_in_both_themes(&self) -> anyhow::Result<Vec<String>> {
        self.theme(Theme::Light).await?;
        let mut found = self.violations().await?;
        self.theme(Theme::Dark).await?;
        let in_the_dark = axe::violations(&self.session, Some(&["color-contrast"])).await?;
        found.extend(in_the_dark.into_iter().map(|text| format!("in the dark: {text}")));
        Ok(found)
    }

    /// Repeats `look` until it succeeds, or cannot any more.
    async fn retry<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let began = Instant::now();
            let error = match look().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if session::is_final(&error) {
                return Err(error.context(what.to_owned()));
            }
            if Instant::now() > deadline {
                bail!("waited {} s in vain: {what}: {error:#}\n{}", PATIENCE.as_secs(), self.sight().await);
            }
            // Of a large page each takes long, and the page is to come to its own work meanwhile.
            sleep(began.elapsed().max(LOOK)).await;
        }
    }

    /// What there is to see, for people who have to understand why a test failed.
    async fn sight(&self) -> String {
        let script = "return `${location.href}\n${document.body.innerText}`";
        match self.script(script, json!([])).await {
            Ok(Value::String(text)) => text.chars().take(SHOWN).collect(),
            Ok(other) => format!("the page is {other}"),
            Err(error) => format!("the page cannot be read: {error:#}"),
        }
    }
}
