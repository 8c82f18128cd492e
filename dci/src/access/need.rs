//! What a route needs.

use std::fmt;

use disbatch_core::accounts::Role;

/// What somebody must be to use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: whoever reaches the server.
    Nothing,
    /// The token of the task that the address names as `id`, which its web service has, or who may answer it by a link. The handler asks for it.
    Token,
    /// To be known, with whatever role.
    Login,
    /// This role, not only on some queues.
    Everywhere(Role),
    /// This role on some queue. The handler limits what it does to [`super::Who::reach`].
    Somewhere(Role),
    /// This role on the queue that the address names as `queue`, or as `id`.
    Queue(Role),
    /// This role on the queue of the task that the address names as `id`.
    Task(Role),
    /// This role on all queues of the bulk job that the address names as `id`.
    Bulk(Role),
    /// This role on the queue of the schedule that the address names as `id`.
    Schedule(Role),
    /// This role on the queue of the array that the address names as `id`.
    Array(Role),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Token => f.write_str("token of the task"),
            Self::Login => f.write_str("login"),
            Self::Everywhere(role) => write!(f, "{role}"),
            Self::Somewhere(role) => write!(f, "{role} on some queue"),
            Self::Queue(role) => write!(f, "{role} on the queue"),
            Self::Task(role) => write!(f, "{role} on the task's queue"),
            Self::Bulk(role) => write!(f, "{role} on the job's queue"),
            Self::Schedule(role) => write!(f, "{role} on the schedule's queue"),
            Self::Array(role) => write!(f, "{role} on the array's queue"),
        }
    }
}
