//! What a process needs of its host, and of no database: configuration, manifests of plugins and the schemas of their
//! parameters, keys of secure parameters, control groups, private folders, signals, logs.

pub mod cgroup;
pub mod clock;
pub mod config;
pub mod identity;
pub mod lifecycle;
pub mod plugin;
pub mod private_folder;
pub mod process;
pub mod remove_tree;
pub mod schema;
pub mod secrets;
pub mod service_manager;
pub mod telemetry;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also where somebody has panicked who had locked it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
