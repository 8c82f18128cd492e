//! What every Disbatch process shares: the model of the documents, the configuration, and the only code
//! that talks to the database.
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
pub mod cgroup;
pub mod clock;
pub mod config;
pub mod core_dumps;
pub mod counters;
pub mod database_info;
pub mod definitions;
pub mod descriptors;
pub mod doctor;
pub mod explain;
pub mod fair;
pub mod files;
pub mod gates;
pub mod health;
pub mod identity;
pub mod inbox;
pub mod keys;
pub mod lease;
pub mod lifecycle;
pub mod link;
pub mod live;
pub mod measure;
pub mod model;
pub mod moment;
pub mod node;
mod notebook;
pub mod notifications;
pub mod observe;
pub mod output;
pub mod plugin;
pub mod private_folder;
pub mod queue;
pub mod rate;
pub mod recordings;
pub mod remove_tree;
pub mod request;
pub mod schedules;
pub mod schema;
pub mod secrets;
pub mod series;
pub mod service_manager;
pub mod shadow;
pub mod store;
pub mod suggestion;
pub mod tags;
pub mod task;
pub mod telemetry;
pub mod tenants;
pub mod users;
pub mod wake;

pub use disbatch_metrics as metrics;
pub use disbatch_values::text;
