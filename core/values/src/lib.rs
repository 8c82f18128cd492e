//! Values that all programs read and write alike: statuses, names, paths, patterns, what adapters are told. Nothing here needs the database, so that
//! the command line has them without its driver. All but the command line know them by way of `disbatch-core`.

pub mod config;
pub mod engine;
pub mod files;
pub mod json;
pub mod liberal;
pub mod sections;
pub mod secure;
pub mod status;
pub mod text;
mod words;
