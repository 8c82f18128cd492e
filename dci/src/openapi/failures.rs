//! The failures that whole kinds of operations have in common.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::json::CONTENT_TYPE;

type Responses = BTreeMap<String, RefOr<Response>>;

/// Of an operation that is for everybody, whoever they are.
pub enum OfAnybody {}

impl IntoResponses for OfAnybody {
    fn responses() -> Responses {
        [failure(405, "This address does not have this method; `Allow` tells which it has.")].into()
    }
}

/// Of an operation that answers without the database, once it is known who asks.
pub enum OfFixed {}

impl IntoResponses for OfFixed {
    fn responses() -> Responses {
        let mut responses = OfAnybody::responses();
        responses.extend([
            failure(401, "It is not known who asks. Browsers that ask for a page are led to `/login` instead."),
            failure(403, "Who asks may not do this."),
            failure(
                429,
                "There were too many wrong passwords or tokens; `Retry-After` tells when the next may be tried.",
            ),
        ]);
        responses
    }
}

/// Of an operation that reads.
pub enum OfRead {}

impl IntoResponses for OfRead {
    fn responses() -> Responses {
        let mut responses = OfFixed::responses();
        responses
            .extend([failure(503, "The database cannot be reached; `Retry-After` tells when to try again.")]);
        responses
    }
}

/// Of an operation that reads and takes parameters in a body.
pub enum OfSearch {}

impl IntoResponses for OfSearch {
    fn responses() -> Responses {
        let mut responses = OfRead::responses();
        responses.extend([failure(
            413,
            "The body is longer than 16 MiB, or what it has would take more than 64 MiB of memory.",
        )]);
        responses
    }
}

/// Of an operation that changes something.
pub enum OfWrite {}

impl IntoResponses for OfWrite {
    fn responses() -> Responses {
        let mut responses = OfSearch::responses();
        responses.extend([failure(
            403,
            "Who asks may not do this, or a browser says that a page of another site makes the request.",
        )]);
        responses
    }
}

/// Of what a web service says about its task.
pub enum OfCallback {}

impl IntoResponses for OfCallback {
    fn responses() -> Responses {
        let mut responses = OfAnybody::responses();
        responses.extend([
            failure(400, "The body makes no sense."),
            failure(401, "The token is not that of the task, or there is no such task."),
            failure(403, "A browser says that a page of another site makes the request."),
            failure(404, "This is no id of a task."),
            failure(408, "The body did not come in time."),
            failure(410, "The task has ended, or another attempt of it is on its way."),
            failure(413, "The body is longer than 1 MiB, or the log of the task is as long as it may be."),
            failure(503, "The database cannot be reached; `Retry-After` tells when to try again."),
        ]);
        responses
    }
}

fn failure(status: u16, description: &str) -> (String, RefOr<Response>) {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
    let response = ResponseBuilder::new().description(description).content(CONTENT_TYPE, body);
    (status.to_string(), response.build().into())
}
