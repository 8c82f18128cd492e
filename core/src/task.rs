//! A task's life, one file per step.
//!
//! Each transition is one conditional update whose filter names the status and the node that the task must
//! have. When nothing matches, somebody else was faster; that is an outcome, not an error.

mod ahead;
pub(crate) mod archive;
pub(crate) mod aside;
mod attempts;
mod batch;
mod cancel;
mod candidates;
mod claim;
pub(crate) mod commit;
mod created;
mod delete;
mod each;
mod error_line;
mod external;
mod files;
mod finish;
mod handover;
mod held;
mod history;
mod longest;
mod on_node;
mod orphan;
pub mod pages;
pub mod question;
mod renew;
mod results;
pub(crate) mod retention;
mod retry;
mod search;
mod start;
mod statements;
mod steer;
mod steps;
mod storage;
mod submit;
mod sweep;
pub(crate) mod transition;
mod tries;
mod unowned;
mod upkeep;
mod waiting;

pub use ahead::Ahead;
pub use archive::Archived;
pub use aside::{SetAside, Unfit};
pub use batch::{RunWrite, Written};
pub use cancel::{CancelRequest, Cancelled};
pub use claim::{Batch, Claim, Claimant, Unclaimed};
pub use commit::{Commit, name_of as commit_name, note_of as commit_note};
pub use created::Created;
pub use error_line::{ERROR, last_line};
pub use external::{Detached, EXTERNAL, is_detached};
pub use finish::{COMMAND_FIELDS, Finish, Finished};
pub use handover::{Queued, Take};
pub use history::{Submission, history};
pub use orphan::{Buried, Evidence, long_ago, unleased_limit};
pub use renew::{Renewed, Run};
pub use retention::Place;
pub use retry::Retried;
pub use search::TaskQuery;
pub use start::{Start, Started};
pub use steer::Prioritised;
pub use storage::STORAGE;
pub use submit::{Once, StartAt, SubmitError, Submitted, SubmittedArray, TaskOptions, within_budget};
pub use sweep::Swept;
pub use tries::Slot;
pub use upkeep::{Outlook, Question};
pub use waiting::Waiting;

pub(crate) use claim::{MOST_PASSES, claimable, claimable_of_any, is_newest_first};
pub(crate) use error_line::MOST as MOST_OF_LINE;
pub(crate) use external::{DETACHED, Ending, FREED, Reason, attached, silence};
pub(crate) use submit::Given;
pub(crate) use tries::{MOST_ALONE, Outcome, Try, one_member};
