//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Parser;

const ABOUT: &str = "\
The programs dci, den, dtr and the plugins are taken from beside this one; a private MongoDB server is started,
or fetched and started where there is none.

Exit status:
  0  everything was measured, whatever the figures are
  1  something failed: a task that did not succeed, for instance
  2  wrong command line";

/// Measures how fast Disbatch runs tasks that do nothing, and what it costs.
#[derive(Debug, Clone, Parser)]
#[command(name = "disbatch-bench", version, after_help = ABOUT)]
pub struct Args {
    /// Only the figures whose names contain this; --list tells them
    #[arg(value_name = "FIGURE")]
    pub filter: Option<String>,

    /// List the figures and how each is measured, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Tasks, or processes, of each system in each round; each figure has its own number unless this is given
    #[arg(long, value_name = "N")]
    pub tasks: Option<NonZeroU32>,

    /// How many run at once; may be repeated; each figure has its own widths unless this is given
    #[arg(long, value_name = "N")]
    pub width: Vec<NonZeroU32>,

    /// How often each figure is measured
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZeroU32,

    /// Up to how many finished tasks `growth` and `scrape` measure
    #[arg(long, value_name = "N", default_value = "10000000")]
    pub grow: NonZeroU32,

    /// How many tasks a queue has run before `drained` measures it again
    #[arg(long, value_name = "N", default_value = "100000")]
    pub drained: NonZeroU32,

    /// How many groups `shares` and `fair` have; each has its own number unless this is given
    #[arg(long, value_name = "N")]
    pub groups: Option<NonZeroU32>,

    /// Where `shares` draws its picture
    #[arg(long, value_name = "FILE", default_value = "docs/images/fair-share.svg")]
    pub svg: PathBuf,

    /// Where to write the figures for programs
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    pub json: PathBuf,
}

impl Args {
    /// How many tasks a round has, where a figure has `usual` of them.
    pub fn tasks_or(&self, usual: u32) -> u32 {
        self.tasks.map_or(usual, NonZeroU32::get)
    }

    /// How many groups there are, where a figure has `usual` of them.
    pub fn groups_or(&self, usual: u32) -> u32 {
        self.groups.map_or(usual, NonZeroU32::get)
    }

    /// How many run at once, where a figure has the `usual` widths.
    pub fn widths_or(&self, usual: &[u32]) -> Vec<u32> {
        match &self.width[..] {
            [] => usual.to_vec(),
            given => given.iter().map(|width| width.get()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_own_numbers_unless_others_are_given() {
        let args = Args::parse_from(["disbatch-bench"]);
        assert_eq!((args.tasks_or(500), args.widths_or(&[8, 64])), (500, vec![8, 64]));
        let args = Args::parse_from(["disbatch-bench", "--tasks", "9", "--width", "3", "--width", "4"]);
        assert_eq!((args.tasks_or(500), args.widths_or(&[8])), (9, vec![3, 4]));
        assert_eq!(args.groups_or(7), 7);
        assert_eq!(Args::parse_from(["disbatch-bench", "--groups", "20"]).groups_or(7), 20);
    }
}
