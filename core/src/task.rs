//! A task's life, one file per step.
//!
//! Each transition is one conditional update whose filter names the status and the node that the task must
//! have. When nothing matches, somebody else was faster; that is an outcome, not an error.

pub(crate) mod archive;
mod attempts;
mod cancel;
mod claim;
mod delete;
mod finish;
mod orphan;
mod renew;
pub(crate) mod retention;
mod retry;
mod search;
mod start;
mod submit;
mod sweep;
mod transition;

pub use archive::Archived;
pub use cancel::{CancelRequest, Cancelled};
pub use claim::{Claim, Claimant, Claimed, Unclaimed};
pub use finish::{Finish, Finished};
pub use orphan::{Buried, Evidence, unleased_limit};
pub use renew::{Renewed, Run};
pub use retention::Place;
pub use retry::Retried;
pub use search::TaskQuery;
pub use start::{Start, Started};
pub use submit::{Once, StartAt, SubmitError, Submitted, TaskOptions};
pub use sweep::Swept;
