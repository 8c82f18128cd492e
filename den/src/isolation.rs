//! What the DEN makes sure of so that its runners can keep plugins from what is not theirs. The runners do it.

use disbatch_core::cgroup;
use disbatch_core::config::{Config, ConfigError};
use disbatch_core::identity::Identity;

use crate::processes::Ours;

/// Refuses a configuration with which no runner could start a plugin. Returns whose processes plugins are.
pub fn check(config: &Config) -> Result<Ours, ConfigError> {
    let user = Identity::of(config)?;
    if let Some(user) = &user {
        tracing::info!(user = %user.name, uid = user.uid, gid = user.gid, "plugins run as another user");
    }
    cgroup::prepare(config)?;
    cgroup::remove_left(config);
    if let Some(runner) = &config.task_runner {
        // Whatever is configured: by default, too, plugins are kept from privileges and variables.
        let runner = runner.display();
        tracing::warn!(
            "task_runner is {runner}: unless it is a dtr, run_as, limits, cgroup, no_new_privs and \
             plugin_environment mean nothing to it"
        );
    }
    Ok(Ours::new(config, user.map(|user| user.uid)))
}

/// Warns of what is allowed, and should not be.
pub fn warn(config: &Config) {
    if config.run_as.is_none() && nix::unistd::Uid::effective().is_root() {
        tracing::warn!("plugins run as root: name another user as run_as in the configuration");
    }
}
