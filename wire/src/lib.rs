//! Requests and answers of the REST API, one type for each. The DCI reads and writes them, OpenAPI describes them, forms have their fields,
//! and the command line has them as options: a field is declared here, and nowhere else.

pub mod accounts;
pub mod admission;
pub mod arrays;
pub mod bulk;
pub mod bundles;
pub mod calendars;
pub mod definitions;
pub mod explanations;
pub mod files;
pub mod history;
pub mod liberal;
pub mod locks;
pub mod options;
pub mod queues;
pub mod schedules;
pub mod search;
pub mod seconds;
pub mod subscriptions;
pub mod task_actions;
pub mod tenants;
