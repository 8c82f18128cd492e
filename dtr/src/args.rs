//! The command line: Disbatch's `task_runner`, and `--node`.

use std::io;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use disbatch_core::config::{DEFAULT_PATH, Gfs};

const EXIT_CODES: &str = "\
Exit status:
  0  the result is stored, whatever the plugin's status; with --link: no task is left undone
  1  the task is not this node's: not claimed for it, and nothing was touched; or taken away while it
     ran, and its result is discarded
  2  wrong command line
  3  the configuration cannot be used
  4  the database cannot be reached or refuses an operation
  5  no private folder can be made for the task
  6  the result is stored, but not all of its output";

/// Runs one claimed task of a Disbatch queue and stores its result; or, for a DEN, one after the other.
#[derive(Debug, Parser)]
#[command(name = "dtr", version, after_help = EXIT_CODES)]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,

    /// Id of the task: 24 hexadecimal digits
    #[arg(long, value_name = "ID", required_unless_present = "link")]
    pub task: Option<String>,

    /// Run the tasks that a DEN assigns over the socket which this process has inherited as descriptor FD
    #[arg(long, value_name = "FD", conflicts_with_all = ["task", "attempt"], requires = "no_echo",
          value_parser = clap::value_parser!(i32).range(0..))]
    pub link: Option<i32>,

    /// The node that claimed the task [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Which claim of the task this runner is for; a DEN says it, so that a late runner finds out
    #[arg(long, value_name = "N", requires = "instance")]
    pub attempt: Option<i64>,

    /// The start of the DEN that claimed it, with --attempt
    #[arg(long, value_name = "ID", requires = "attempt")]
    pub instance: Option<String>,

    /// Store output in GridFS: "auto" if it is large, 1 (or no value) always, 0 never
    /// [default: the configuration's `gfs`, else 0]
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_missing_value = "1")]
    pub gfs: Option<Gfs>,

    /// Do not write the result to standard error, nor any log below warnings
    #[arg(long)]
    pub quiet: bool,

    /// Do not write the result to standard error
    #[arg(long)]
    pub no_echo: bool,

    /// Accepted for Disbatch's sake; changes nothing
    #[arg(long, hide = true)]
    pub testing: bool,

    /// Print the manual page, for packages
    #[arg(long, exclusive = true, hide = true)]
    pub man_page: bool,
}

impl Args {
    pub fn print_man_page() -> io::Result<()> {
        clap_mangen::Man::new(Self::command()).render(&mut io::stdout())
    }
}
