//! The operations on tenants, one file each.

pub mod delete;
pub mod get;
pub mod list;
pub mod set;

use crate::error::HttpError;

/// There is no such tenant.
pub fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no tenant '{name}'"))
}
