//! A chart as a page has it at first: scripts draw it in more detail, and keep it up to date.

use crate::ui::parts::Spark;

#[derive(Debug)]
pub struct Chart {
    /// What it is of, as addresses have it.
    pub of: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// What is seen without script.
    pub picture: Spark,
    /// The same in words.
    pub words: String,
}
