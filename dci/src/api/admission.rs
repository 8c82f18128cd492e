//! The operations on rules of admission, one file each.

pub mod lift;
pub mod list;
pub mod set;
