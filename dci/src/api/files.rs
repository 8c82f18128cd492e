//! The operations on file sets. One file each.

pub mod add;
pub mod commit;
pub mod content;
pub mod contents;
pub mod delete;
pub mod get;
pub mod list;
pub mod open;
