//! Client of the batch system Disbatch: [`Client`], or `blocking::Client` with the feature `blocking`; and `inbox` with the feature `mongodb`.
//!
//! The README shows how it is used, `docs/clients.md` has what all languages have in common.

#[cfg(feature = "blocking")]
pub mod blocking;
mod call;
mod client;
#[cfg(feature = "mongodb")]
mod contract;
mod error;
mod files;
mod follow;
#[cfg(feature = "mongodb")]
pub mod inbox;
mod retries;
mod settings;
mod task;

pub use client::Client;
pub use error::{ApiError, Error, Result};
pub use files::Source;
pub use follow::{Event, OutputStream};
pub use settings::{OnWarning, Settings, Traceparent};
pub use task::Task;

/// Of this library. A server fits that has the same major version, and below 1.0 the same minor version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
