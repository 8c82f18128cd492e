//! The REST API, one file per operation. A handler reads its parameters, calls the store, and renders.

pub mod admission;
pub mod answers;
pub mod archive_task;
pub mod archive_tasks;
pub mod arrays;
pub mod audit_counters;
pub mod balance;
pub mod bulk;
pub mod calendars;
pub mod callbacks;
pub mod cancel_task;
pub mod create_batch;
pub mod create_queue;
pub mod create_tasks;
pub mod definitions;
pub mod delete_node;
pub mod delete_queue;
pub mod doctor;
pub mod explain_queue;
pub mod explain_task;
pub mod files;
pub mod find_tasks;
pub mod follow_events;
pub mod get_bundle;
pub mod get_events;
pub mod get_moment;
pub mod get_node;
pub mod get_queue;
pub mod get_stderr;
pub mod get_stdout;
pub mod get_task;
pub mod health;
pub mod info;
pub mod list_attempts;
pub mod list_audit;
pub mod list_counters;
pub mod list_groups;
pub mod list_nodes;
pub mod list_plugins;
pub mod list_queues;
pub mod list_recordings;
pub mod list_tasks;
pub mod locks;
pub mod metrics;
pub mod monitoring;
pub mod query_tasks;
pub mod redirect;
pub mod rerun_task;
pub mod retry_task;
pub mod schedules;
pub mod set_priority;
pub mod shadows;
pub mod subscriptions;
pub mod task_action;
pub mod tenants;
pub mod update_node;
pub mod update_queue;
pub mod v3;
pub mod wait_for_task;
pub mod web_tasks;

use actix_web::HttpResponse;

use crate::error::HttpError;

/// What a handler gives back.
pub type Answer = Result<HttpResponse, HttpError>;
