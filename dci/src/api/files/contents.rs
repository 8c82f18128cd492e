//! The operations on contents, which versions have. One file each.

pub mod finish;
pub mod get;
pub mod put;

use disbatch_core::files::ContentId;

use crate::error::HttpError;

/// The content that an address names.
fn named(id: &str) -> Result<ContentId, HttpError> {
    id.parse::<ContentId>().map_err(|error| HttpError::not_found(error.to_string()))
}
