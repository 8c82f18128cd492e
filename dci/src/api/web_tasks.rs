//! The deprecated routes of the web extension `Disbatch::Web::Tasks`.

pub mod create;
pub mod create_from_collection;
pub mod search;
