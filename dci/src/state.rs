//! What every handler may use.

use disbatch_core::config::Config;
use disbatch_core::plugin::Plugins;
use disbatch_core::store::Store;

/// Shared by all requests.
#[derive(Debug, Clone)]
pub struct State {
    /// The database.
    pub store: Store,
    /// The plugins that queues may be created with.
    pub plugins: Vec<String>,
}

impl State {
    /// The state for `config`: its `plugins`, or every plugin that is found when there is no such key.
    pub fn new(config: &Config, store: Store) -> Self {
        let plugins = match &config.plugins {
            Some(allowed) => allowed.0.clone(),
            None => Plugins::discover(config).names().map(ToString::to_string).collect(),
        };
        Self { store, plugins }
    }

    /// Whether a queue may be created with `plugin`.
    pub fn allows_plugin(&self, plugin: &str) -> bool {
        self.plugins.iter().any(|allowed| allowed == plugin)
    }
}
