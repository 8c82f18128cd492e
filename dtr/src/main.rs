//! `dtr`: starts the task runner.

use std::process::ExitCode;

fn main() -> ExitCode {
    disbatch_dtr::main()
}
