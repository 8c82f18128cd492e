//! A command in the parameters of a task that takes the plugin's place: see `command_in_params` in `docs/plugins.md`.
//!
//! It is only begun like that where nothing is in the way. In all other cases the plugin's program is started, with the
//! task: for parameters that are wrong, a command that is not there, or a plugin that is to be another user. So what is said of
//! these is said in one place.

use disbatch_core::plugin::Plugin;
pub use disbatch_shell::Params;

use super::Job;
use crate::guard::protocol::{Direct, Spawn};
use crate::isolation::Isolation;

/// Longer ones, in bytes, are for the plugin's program: the system starts no program with much more, and the guard is to be
/// told of none that makes it large.
const LONGEST: usize = 1024 * 1024;

/// The command, if the task is done by one.
pub fn command_of(plugin: &Plugin, job: &Job<'_>, isolation: &Isolation) -> Option<Params> {
    if !plugin.manifest.command_in_params || isolation.confinement(&plugin.manifest).is_some() {
        return None;
    }
    let params = Params::check(&job.task.params().clone().into_relaxed_extjson()).ok()?;
    let words = params.command.iter().map(String::len).sum::<usize>();
    let variables = params.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    (words + variables <= LONGEST).then_some(params)
}

/// Has the command started in place of the plugin.
pub fn spawn(of_plugin: Spawn, params: Params) -> Spawn {
    let Params { command, env, cwd } = params;
    let mut words = command.into_iter();
    Spawn {
        program: words.next().unwrap_or_default().into(),
        arguments: words.map(Into::into).collect(),
        direct: Some(Direct { env, cwd }),
        ..of_plugin
    }
}
