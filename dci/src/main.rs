//! `dci`: starts the web server.

use std::process::ExitCode;

fn main() -> ExitCode {
    disbatch_dci::main()
}
