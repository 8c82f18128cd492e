//! The REST API, one file for a topic. A handler reads its parameters, calls the store, and renders.

pub mod admission;
pub mod answers;
pub mod arrays;
pub mod balance;
pub mod bulk;
pub mod calendars;
pub mod callbacks;
pub mod create_tasks;
pub mod definitions;
pub mod events;
pub mod explain;
pub mod files;
pub mod find_tasks;
pub mod nodes;
pub mod queues;
pub mod redirect;
pub mod schedules;
pub mod service;
pub mod shadows;
pub mod subscriptions;
pub mod task;
pub mod task_actions;
pub mod tasks;
pub mod tenants;
pub mod update_queue;
pub mod v3;
pub mod web_tasks;

use actix_web::HttpResponse;

use crate::error::HttpError;

pub type Answer = Result<HttpResponse, HttpError>;
