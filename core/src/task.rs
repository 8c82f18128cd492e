//! A task's life, one file per step.
//!
//! Each transition is one conditional update whose filter names the status and the node that the task must
//! have. When nothing matches, somebody else was faster; that is an outcome, not an error.

pub(crate) mod archive;
pub(crate) mod aside;
mod batch;
mod claim;
mod claim_updates;
pub(crate) mod commit;
pub(crate) mod cover;
mod delete;
mod external;
mod finish;
mod handover;
mod history;
mod orphan;
pub mod pages;
pub mod question;
mod read_ahead;
pub mod rerun;
mod retry;
mod run;
mod search;
mod statements;
mod steer;
mod steps;
mod submit;
mod sweep;
pub(crate) mod transition;
mod upkeep;
mod waiting;

pub use archive::{Archived, Place};
pub use aside::{SetAside, Unfit};
pub use batch::{RunWrite, Written};
pub use claim::{Batch, Claim, Claimant, Unclaimed};
pub use claim_updates::Slot;
pub use commit::{Commit, name_of as commit_name, note_of as commit_note};
pub use cover::SilentOwners;
pub use external::{Detached, EXTERNAL, is_detached};
pub use finish::{COMMAND_FIELDS, Finish, Finished};
pub use handover::{MOST_READ_AHEAD, Queued, StartedAhead, Take};
pub use history::{Submission, history};
pub use orphan::{Buried, Evidence, long_ago, unleased_limit};
pub use pages::Created;
pub use question::Pause;
pub use read_ahead::{Ahead, Share};
pub use retry::Retried;
pub use run::{Interim, Renewed, Run, STORAGE, Start, Started, Wishes};
pub use search::TaskQuery;
pub use steer::{CancelRequest, Cancelled, Prioritised};
pub use submit::{Once, StartAt, SubmitError, Submitted, SubmittedArray, TaskOptions, within_budget};
pub use sweep::Swept;
pub use transition::{ERROR, last_line};
pub use upkeep::{Outlook, Question};
pub use waiting::Waiting;

pub(crate) use aside::is_taken;
pub(crate) use claim::{MOST_PASSES, claimable, claimable_of_any, is_newest_first, occupying};
pub(crate) use claim_updates::{ClaimOutcome, MOST_ALONE, Try, one_member};
pub(crate) use external::{DETACHED, Ending, FREED, Reason, attached, silence};
pub(crate) use run::INTERRUPT;
pub(crate) use submit::Given;
pub(crate) use transition::{MOST_OF_LINE, of_runs};
