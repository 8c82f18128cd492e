//! What plugins of other engines are started with besides what every plugin gets.

mod configuration;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use disbatch_core::model::TaskId;
use disbatch_core::plugin::{Engine, Plugin, ProgramType};

use super::{Job, task_json};
use crate::answer;
use crate::harness;
use crate::isolation::Isolation;
use crate::own_file;
use configuration::of_plugins;

/// The variable in which what runs Perl modules finds the configuration.
const PERL_CONFIG: &str = "DISBATCH_PERL_CONFIG";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub arguments: Vec<OsString>,
    /// Further variables.
    pub environment: Vec<(OsString, OsString)>,
}

/// Makes what a plugin is given for a job, and the files that it needs in the private folder.
pub fn prepare(plugin: &Plugin, job: &Job<'_>, isolation: &Isolation) -> io::Result<Given> {
    if plugin.answers && !job.is_first() {
        // What an earlier plugin has put there is not this one's.
        own_file::remove(job.folder, &answer::file_name(job.task.id))?;
    }
    let own = plugin.arguments.iter().map(OsString::from);
    match plugin.manifest.engine {
        Engine::Perl => {
            let config = config_file(job, isolation)?;
            let harness = harness_file(job, harness::path()?, isolation)?;
            let arguments = [OsString::from(harness)].into_iter().chain(own).collect();
            Ok(Given { arguments, environment: vec![(PERL_CONFIG.into(), config.into())] })
        }
        Engine::Program => {
            let kind = plugin.manifest.program_type().unwrap_or_default();
            let arguments = own.chain(of_program(kind, job, isolation)?).collect();
            Ok(Given { arguments, environment: Vec::new() })
        }
        Engine::Exec | Engine::Container | Engine::Http | Engine::Kubernetes => {
            Ok(Given { arguments: own.collect(), environment: Vec::new() })
        }
    }
}

/// Removes the files that were made for a plugin that has ended, and its answer: others have nothing to do with them.
pub fn clear_away(folder: &Path, task: TaskId) {
    for name in [task_name(task), config_name(task), harness_name(task), answer::file_name(task)] {
        if let Err(error) = own_file::remove(folder, &name) {
            tracing::debug!(%error, name, "cannot remove a file of the plugin's");
        }
    }
}

fn task_name(task: TaskId) -> String {
    format!("{task}.json")
}

fn config_name(task: TaskId) -> String {
    format!("{task}-config.json")
}

fn harness_name(task: TaskId) -> String {
    format!("{task}-harness.pl")
}

/// What loads Perl modules: `shared`, which all tasks use, or a file of the task's own where there can be none.
fn harness_file(job: &Job<'_>, shared: Option<PathBuf>, isolation: &Isolation) -> io::Result<PathBuf> {
    if let Some(shared) = shared {
        return Ok(shared);
    }
    let name = harness_name(job.task.id);
    own_file::write(job.folder, &name, harness::TEXT.as_bytes(), isolation.user())?;
    Ok(job.folder.join(name))
}

/// The arguments of a program of Disbatch 4.4.
fn of_program(kind: ProgramType, job: &Job<'_>, isolation: &Isolation) -> io::Result<Vec<OsString>> {
    let task: OsString = match kind {
        ProgramType::Default | ProgramType::Nomongo => task_file(job, isolation)?.into(),
        ProgramType::Mongo => job.task.id.to_string().into(),
        ProgramType::Handoff => {
            return Err(io::Error::other("it is a runner itself, and only a DEN starts it"));
        }
    };
    let mut arguments: Vec<OsString> = vec!["--task".into(), task];
    if kind != ProgramType::Nomongo {
        arguments.extend(["--config".into(), config_file(job, isolation)?.into()]);
    }
    Ok(arguments)
}

/// The task in a file. Secure parameters are on standard input only.
fn task_file(job: &Job<'_>, isolation: &Isolation) -> io::Result<PathBuf> {
    let name = task_name(job.task.id);
    own_file::write(job.folder, &name, &task_json(job, None)?, isolation.user())?;
    Ok(job.folder.join(name))
}

/// A configuration that the plugin can read: that of the runner where it runs as the same user, else what of it is for
/// plugins.
fn config_file(job: &Job<'_>, isolation: &Isolation) -> io::Result<PathBuf> {
    let Some(user) = isolation.user() else { return Ok(job.about.config.clone()) };
    let name = config_name(job.task.id);
    own_file::write(job.folder, &name, of_plugins(&job.about.config)?.as_bytes(), Some(user))?;
    Ok(job.folder.join(name))
}
