//! The plugins of the measured tasks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::Programs;

/// `/bin/true`, a process for each task.
pub const TRUE: &str = "Bench::True";

/// Says when it began.
pub const STARTS: &str = "Bench::Starts";

/// Sleeps until it is ended.
pub const SLEEPS: &str = "Bench::Sleeps";

/// The demo plugin, one process for many tasks.
pub const WARM: &str = "Bench::Warm";

/// Writes the text of [`text_file`].
pub const WRITES: &str = "Bench::Writes";

/// The program of [`TRUE`].
pub const TRUE_PROGRAM: &str = "/bin/true";

/// Writes the manifests into `folder`.
///
/// # Errors
/// They cannot be written.
pub fn write(folder: &Path, programs: &Programs) -> anyhow::Result<()> {
    let starts = programs.starts.to_str().context("the path of this program is no text")?;
    let pipe = starts_pipe(folder);
    let pipe = pipe.to_str().context("the path of the folder for temporary files is no text")?;
    let text = text_file(folder);
    let text = text.to_str().context("the path of the folder for temporary files is no text")?;
    let manifests = [
        json!({ "name": TRUE, "command": [TRUE_PROGRAM] }),
        json!({ "name": STARTS, "command": [starts, pipe] }),
        json!({ "name": SLEEPS, "command": ["/bin/sleep", "3600"] }),
        json!({ "name": WRITES, "command": ["/bin/cat", text] }),
        json!({ "name": WARM, "command": ["disbatch-plugin-demo"], "warm": true }),
    ];
    for (number, manifest) in manifests.iter().enumerate() {
        let plugin = own_folder(folder).join(number.to_string());
        fs::create_dir_all(&plugin)?;
        fs::write(plugin.join("plugin.json"), manifest.to_string())?;
    }
    Ok(())
}

/// The named pipe to which [`STARTS`] writes.
pub fn starts_pipe(folder: &Path) -> PathBuf {
    folder.join("starts")
}

/// The file that [`WRITES`] writes to its standard output.
pub fn text_file(folder: &Path) -> PathBuf {
    folder.join("text")
}

/// Where the plugins are.
pub fn own_folder(folder: &Path) -> PathBuf {
    folder.join("plugins")
}
