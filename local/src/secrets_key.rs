//! `disbatch secrets-key`

use anyhow::Context;
use disbatch_cli::output::print;
use disbatch_core::secrets::new_key;

/// Prints a new key for secure parameters, as a line of the file that configurations name as `secrets.key_file`.
pub fn run() -> anyhow::Result<()> {
    let key = new_key().context("cannot make a key")?;
    print(&format!("{}\n", *key))
}
