//! The parts of a page that changes by itself.

use askama::Template;

use crate::error::HttpError;
use crate::ui::{self, assets};

/// An element of a page.
#[derive(Debug, Clone)]
pub struct Part {
    pub(super) id: String,
    pub(super) html: String,
    /// What tells whether it has changed.
    pub(super) stamp: u64,
    /// The id of the table that it is a row of.
    pub(super) within: Option<&'static str>,
}

impl Part {
    /// The element with this id, sent whenever it has changed.
    pub fn new(id: impl Into<String>, template: &impl Template) -> Result<Self, HttpError> {
        let html = ui::html(template)?;
        Ok(Self { id: id.into(), stamp: assets::digest(html.as_bytes()), html, within: None })
    }

    /// A table, which is sent when there are other rows in it, and each of its rows, of which `key` tells the id.
    pub fn table<R: Template>(
        id: &'static str,
        table: &impl Template,
        rows: &[R],
        key: impl Fn(&R) -> String,
    ) -> Result<Vec<Self>, HttpError> {
        let keys: Vec<String> = rows.iter().map(&key).collect();
        let whole = Self { stamp: assets::digest(keys.join(",").as_bytes()), ..Self::new(id, table)? };
        let rows = keys.into_iter().zip(rows);
        let rows = rows.map(|(key, row)| Ok(Self { within: Some(id), ..Self::new(key, row)? }));
        std::iter::once(Ok(whole)).chain(rows).collect()
    }
}

#[cfg(test)]
impl Part {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn html(&self) -> &str {
        &self.html
    }

    /// Whether the part with this id has it in it.
    pub fn is_within(&self, id: &str) -> bool {
        self.within == Some(id)
    }

    pub fn stamp(&self) -> u64 {
        self.stamp
    }
}

/// Sees to it that each part is on a page once, under its id.
#[cfg(test)]
pub fn assert_on_page(parts: &[Part], html: &str) {
    for part in parts {
        let id = format!(" id=\"{}\"", part.id);
        assert_eq!(html.matches(&id).count(), 1, "{id} in {html}");
        assert!(part.html.contains(&id), "{part:?}");
    }
}
