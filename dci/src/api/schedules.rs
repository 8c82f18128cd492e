//! The operations on schedules, one file each.

pub mod backfill;
pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod pause;
pub mod preview;
pub mod run;
pub mod runs;
pub mod update;
