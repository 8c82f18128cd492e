//! The plugins of the measured tasks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::Programs;
use super::podman::IMAGE;

/// `/bin/true`, a process for each task.
pub const TRUE: &str = "Bench::True";

/// Says when it began.
pub const STARTS: &str = "Bench::Starts";

/// Sleeps until it is ended.
pub const SLEEPS: &str = "Bench::Sleeps";

/// The demo plugin, one process for many tasks.
pub const WARM: &str = "Bench::Warm";

/// The same, which is given many tasks at a time.
pub const BATCH: &str = "Bench::Batch";

/// Writes the text of [`text_file`].
pub const WRITES: &str = "Bench::Writes";

/// A Perl module that does nothing.
pub const PERL: &str = "Bench::Perl";

/// A shell script that is called as a program of Disbatch 4.4, and says that it has succeeded.
pub const PROGRAM: &str = "Bench::Program";

/// The only program of the image that the benchmark makes, in a container for each task.
pub const CONTAINER: &str = "Bench::Container";

/// The web service at the address that a task names.
pub const HTTP: &str = "Bench::Http";

/// The shipped plugin that runs `params.command`.
pub const SHELL: &str = "Disbatch::Plugin::Shell";

pub const TRUE_PROGRAM: &str = "/bin/true";

/// The program of [`PROGRAM`].
const ANSWER: &str = r#"#!/bin/sh
echo '{"status":1}' > "${2%.json}-response.json"
"#;

/// The module of [`PERL`].
const MODULE: &str = "package Bench::Perl;

use strict;
use warnings;

sub new {
    my $class = shift;
    my $self = {@_};
    return bless $self, $class;
}

sub run {
    return { status => 1, stdout => undef, stderr => undef };
}

1;
";

/// Writes the manifests into `folder`.
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
        json!({ "name": WARM, "command": ["disbatch-plugin-demo"], "warm": { "folder": false } }),
        json!({
            "name": BATCH, "command": ["disbatch-plugin-demo"],
            "warm": { "tasks": 1_000_000, "batch": { "max": 64, "wait_ms": 0 } },
        }),
    ];
    for (number, manifest) in manifests.iter().enumerate() {
        let plugin = own_folder(folder).join(number.to_string());
        fs::create_dir_all(&plugin)?;
        fs::write(plugin.join("plugin.json"), manifest.to_string())?;
    }
    write_engines(folder).context("cannot write the plugins of other engines")
}

/// A DEN that does not run all engines would complain about these; so they are apart.
fn write_engines(folder: &Path) -> std::io::Result<()> {
    let own = |name: &str, manifest: &Value| {
        let plugin = engines_folder(folder).join(name);
        fs::create_dir_all(&plugin)?;
        fs::write(plugin.join("plugin.json"), manifest.to_string())?;
        std::io::Result::Ok(plugin)
    };
    let perl = own("perl", &json!({ "name": PERL, "engine": "perl", "perl": { "lib": ["lib"] } }))?;
    fs::create_dir_all(perl.join("lib/Bench"))?;
    fs::write(perl.join("lib/Bench/Perl.pm"), MODULE)?;
    let program = json!({ "type": "nomongo", "path": "./answer.sh" });
    own("program", &json!({ "name": PROGRAM, "engine": "program", "program": program }))?;
    fs::write(program_file(folder), ANSWER)?;
    fs::set_permissions(program_file(folder), Permissions::from_mode(0o755))?;
    let container = json!({ "image": IMAGE, "network": "none", "pull": "never" });
    own("container", &json!({ "name": CONTAINER, "engine": "container", "container": container }))?;
    own("http", &json!({ "name": HTTP, "engine": "http" }))?;
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

/// The file of the program of [`PROGRAM`].
pub fn program_file(folder: &Path) -> PathBuf {
    engines_folder(folder).join("program/answer.sh")
}

/// Where the plugins are.
pub fn own_folder(folder: &Path) -> PathBuf {
    folder.join("plugins")
}

/// Where those of other engines than `exec` are.
pub fn engines_folder(folder: &Path) -> PathBuf {
    folder.join("engines")
}

#[cfg(test)]
mod tests {
    use disbatch_core::plugin::Manifest;

    use super::*;

    #[test]
    fn all_plugins_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = || PathBuf::from("/bin/false");
        write(folder.path(), &Programs { den: program(), dci: program(), starts: program() }).unwrap();
        let mut names = Vec::new();
        for plugins in [own_folder(folder.path()), engines_folder(folder.path())] {
            for plugin in fs::read_dir(plugins).unwrap() {
                let text = fs::read_to_string(plugin.unwrap().path().join("plugin.json")).unwrap();
                let manifest = Manifest::parse(&text).unwrap();
                assert!(manifest.unknown_keys.is_empty(), "{text}");
                names.push(manifest.name.to_string());
            }
        }
        names.sort();
        let mut expected = [TRUE, STARTS, SLEEPS, WARM, BATCH, WRITES, PERL, PROGRAM, CONTAINER, HTTP];
        expected.sort_unstable();
        assert_eq!(names, expected);
        let mode = fs::metadata(program_file(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
}
