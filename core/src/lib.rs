//! The only code that talks to the database, beside what lies below it under one name: the types of the documents
//! (`core/documents`) and what a process needs of its host (`core/host`).
//!
//! Follow one task through [`task`]: submit, claim, start, finish. `ARCHITECTURE.md` walks that path
//! through all processes and states the invariants.

pub mod accounts;
pub mod admission;
pub mod arrays;
pub mod audit;
pub mod balance;
pub mod budget;
pub mod bulk;
pub mod callbacks;
pub mod canary;
pub mod counters;
pub mod database_info;
pub mod definitions;
pub mod doctor;
pub mod explain;
pub mod fair;
pub mod files;
pub mod gates;
pub mod health;
pub mod inbox;
pub mod keys;
pub mod lease;
pub mod link;
pub mod live;
pub mod measure;
pub mod moment;
pub mod node;
mod notebook;
pub mod notifications;
pub mod observe;
pub mod output;
pub mod paging;
pub mod queue;
pub mod rate;
pub mod recordings;
pub mod request;
pub mod schedules;
pub mod series;
pub mod shadow;
pub mod slots;
pub mod store;
pub mod tags;
pub mod task;
pub mod tenants;
pub mod users;
pub mod wake;

pub use disbatch_documents as model;
pub use disbatch_host::{
    cgroup, clock, config, identity, lifecycle, lock, plugin, private_folder, process, remove_tree, schema,
    secrets, service_manager, telemetry,
};
pub use disbatch_metrics as metrics;
pub use disbatch_values::{json, text};
