//! The commands about a task's life, with a server that answers as each test wants it: what they ask for, what they
//! print, and their exit status.

mod arrays;
mod beside;
mod follow;
mod many;
mod one;
mod plugin;
mod schedules;
mod server;
mod steer;
mod wait;
mod who;
mod workers;

/// A task.
pub const ID: &str = "6b0003bb686c8275d8013333";

/// Another one.
pub const OTHER: &str = "6b0003bb686c8275d8013334";
