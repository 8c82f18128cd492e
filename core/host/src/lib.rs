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
