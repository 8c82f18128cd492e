//! The routes of web services, which show the token of their task.

use crate::access::Need::Token;
use crate::api::callbacks::{end, log, put_end, put_log, put_storage, store};
use crate::server::route::{Routes, at};

/// Adds them. Where services show no token in a header, it is behind the id.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/job_storage")
                .post(Token, store)
                .put(Token, put_storage),
        )
        .add(at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/log").post(Token, log).put(Token, put_log))
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/status").post(Token, end).put(Token, put_end),
        );
}
