//! A task's life, one file per step.
//!
//! Each transition is one conditional update whose filter names the status and the node that the task must
//! have. When nothing matches, somebody else was faster; that is an outcome, not an error.

mod claim;
mod finish;
mod orphan;
mod search;
mod start;
mod submit;

pub use claim::{Claim, Unclaimed};
pub use finish::{Finish, Finished};
pub use search::TaskQuery;
pub use start::Started;
pub use submit::Submitted;
