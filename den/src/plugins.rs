//! Which queues have a plugin here, looked at again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::model::{PluginName, Queue, QueueId};
use disbatch_core::plugin::Plugins;

/// How often to look when every queue has its plugin.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often to look when a queue waits for its plugin to be installed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(1);

/// The plugins of this node, and what is wrong with the queues that have none.
#[derive(Debug)]
pub struct Availability {
    plugins: Plugins,
    looked: Instant,
    /// Queues without a plugin here, with the reason that was logged.
    missing: BTreeMap<QueueId, String>,
}

impl Availability {
    /// Looks for the first time, and logs what is found.
    pub fn look(config: &Config) -> Self {
        let plugins = Plugins::discover(config);
        for problem in &plugins.problems {
            tracing::warn!("{problem}");
        }
        let names: Vec<&str> = plugins.names().map(PluginName::as_str).collect();
        tracing::info!(plugins = names.join(" "), "plugins of this node");
        Self { plugins, looked: Instant::now(), missing: BTreeMap::new() }
    }

    /// The names of all plugins here.
    pub fn names(&self) -> Vec<String> {
        self.plugins.names().map(|name| name.as_str().to_owned()).collect()
    }

    /// Looks again if it is time.
    pub fn refresh(&mut self, config: &Config) {
        let every = if self.missing.is_empty() { LOOK_AGAIN } else { LOOK_AGAIN_SOON };
        if self.looked.elapsed() >= every {
            self.plugins = Plugins::discover(config);
            self.looked = Instant::now();
        }
    }

    /// Forgets queues that are gone.
    pub fn keep_only(&mut self, queues: &[Queue]) {
        self.missing.retain(|id, _| queues.iter().any(|queue| queue.id == *id));
    }

    /// Whether this node can run the queue's tasks. Logs when that has changed.
    pub fn serves(&mut self, config: &Config, queue: &Queue) -> bool {
        match self.reason_against(config, queue) {
            None => {
                if self.missing.remove(&queue.id).is_some() {
                    tracing::info!(queue = queue.display_name(), "the queue's plugin is available now");
                }
                true
            }
            Some(reason) => {
                if self.missing.get(&queue.id) != Some(&reason) {
                    tracing::warn!(queue = queue.display_name(), "ignoring the queue: {reason}");
                    self.missing.insert(queue.id, reason);
                }
                false
            }
        }
    }

    fn reason_against(&self, config: &Config, queue: &Queue) -> Option<String> {
        let name = match queue.plugin_name() {
            Ok(Some(name)) => name,
            Ok(None) => return Some("it names no plugin".to_owned()),
            Err(error) => return Some(error.to_string()),
        };
        // Another runner finds plugins by its own rules; the configuration says which there are.
        let runs_elsewhere = config.task_runner.is_some()
            && config.plugins.as_ref().is_some_and(|allowed| allowed.allows(name.as_str()));
        if runs_elsewhere || self.plugins.get(&name).is_some() {
            return None;
        }
        Some(format!("plugin {name} is not available on this node"))
    }
}
