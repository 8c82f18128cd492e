//! The routes of web services, which show the token of their task.

use crate::access::Need::Token;
use crate::api::callbacks::{job_storage, log, status};
use crate::server::route::{Routes, at};

/// Adds them.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/callbacks/{id:[0-9a-f]{24}}/job_storage")
                .post(Token, job_storage::handle)
                .put(Token, job_storage::put),
        )
        .add(at("/callbacks/{id:[0-9a-f]{24}}/log").post(Token, log::handle).put(Token, log::put))
        .add(at("/callbacks/{id:[0-9a-f]{24}}/status").post(Token, status::handle).put(Token, status::put));
}
