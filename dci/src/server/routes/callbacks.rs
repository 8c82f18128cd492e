//! The routes of web services, which show the token of their task.

use crate::access::Need::Token;
use crate::api::callbacks::{job_storage, log, status};
use crate::server::route::{Routes, at};

/// Adds them. Where services show no token in a header, it is behind the id.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/job_storage")
                .post(Token, job_storage::handle)
                .put(Token, job_storage::put),
        )
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/log")
                .post(Token, log::handle)
                .put(Token, log::put),
        )
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/status")
                .post(Token, status::handle)
                .put(Token, status::put),
        );
}
