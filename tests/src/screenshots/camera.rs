//! Pictures of one page: in two themes and two widths.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::browser::{Browser, Theme};

/// No picture has more bytes: it is cut off below until it has fewer.
const MOST_BYTES: usize = 150_000;

/// The widths of pictures, and how high they are at most.
const SIZES: [(u32, u32); 2] = [(1440, 1500), (360, 1600)];

/// No picture is lower.
const LEAST: u32 = 300;

/// The height of a window, in which what is as high as the window has its place.
const WINDOW: u32 = 900;

/// Whether all that the page asks for is there, and drawn.
const SETTLED: &str = "return document.readyState === 'complete' && document.fonts.status === 'loaded'
    && !document.querySelector('[aria-busy=true], .htmx-request')";

/// Makes pictures of pages in a folder.
pub(super) struct Camera {
    browser: Browser,
    folder: PathBuf,
}

impl Camera {
    pub async fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { browser: Browser::start().await?, folder: folder.to_owned() })
    }

    /// Makes `NAME-THEME-WIDTH.webp` of the page at `url`.
    pub async fn picture(&self, url: &str, name: &str) -> anyhow::Result<()> {
        for theme in [Theme::Light, Theme::Dark] {
            for (width, most) in SIZES {
                self.browser.theme(theme).await?;
                self.browser.resize(width, WINDOW).await?;
                self.browser.open(url).await?;
                self.settle().await?;
                let picture = self.small_picture(width, most).await?;
                let path = self.folder.join(format!("{name}-{}-{width}.webp", theme.name()));
                fs::write(&path, picture).with_context(|| path.display().to_string())?;
            }
        }
        let complaints = self.browser.complaints().await?;
        ensure!(complaints.is_empty(), "the browser's console has errors: {}", complaints.join("; "));
        Ok(())
    }

    async fn settle(&self) -> anyhow::Result<()> {
        let kind = self.browser.script("return document.contentType", json!([])).await?;
        ensure!(kind == "text/html", "it is no page, but {kind}");
        self.browser.until("the page to be complete", SETTLED).await?;
        // Two frames later what has come last is drawn.
        let drawn = "const done = arguments[arguments.length - 1];
            requestAnimationFrame(() => requestAnimationFrame(() => done(true)))";
        self.browser.script_that_calls_back(drawn).await.map(drop)
    }

    /// As much of the page from its top on as fits.
    async fn small_picture(&self, width: u32, most: u32) -> anyhow::Result<Vec<u8>> {
        // The document itself is never lower than the window.
        let height = "return Math.ceil(document.body.getBoundingClientRect().bottom + scrollY)";
        let height = self.browser.script(height, json!([])).await?;
        let height = height.as_u64().and_then(|height| u32::try_from(height).ok()).unwrap_or(most);
        let mut height = height.clamp(LEAST, most);
        loop {
            self.browser.resize(width, height).await?;
            let picture = self.browser.small_screenshot().await?;
            if picture.len() <= MOST_BYTES {
                return Ok(picture);
            }
            height = height * 9 / 10;
            ensure!(height >= LEAST, "a picture of {width} by {height} has {} bytes", picture.len());
        }
    }
}
