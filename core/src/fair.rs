//! Whose task is next: queues in which groups take turns, or share what they use, and queues that go by priority.
//!
//! **Groups.** A task may have a group, whose name may have parts: `tenant/user`. Tasks without one, as those of Perl's
//! programs, are together a group that has no name. In a fair queue, groups take turns ([`turns`]), in the order of their
//! names; or the one comes next that has used the least ([`shares`]). Within its turn a group gives its tasks in an order of
//! their own ([`order`]): one that is tried again first, then by priority, then by age.
//!
//! **Turns are taken before tasks are claimed.** All DENs share the rotation of a queue, a small document (`queue_turns`): by
//! one update that names where it stood, a DEN takes the next turns, and nobody else has them. So however many DENs claim, and
//! however many tasks a group has, between two turns of a group that waits every other has one turn at most. What this rests
//! on is tested on the functions themselves, which are pure.
//!
//! **Reading.** Who waits is found in an index that has one entry for each task with a group: the server skips from one
//! group to the next, so the cost is that of the number of groups. A DEN remembers the answer for about a second
//! (`window.rs`). The first task of each group comes with it; further ones are read ahead, as long as no other DEN has had a
//! turn of the group in between. Tasks without a group are not in that index, so that queues that are not fair pay nothing
//! for it; they are found by reading on in the index that has all tasks (`unindexed_tasks.rs`).
//!
//! **Limits.** `group_threads` limits what a group has claimed or running, as `threads` does for the queue: each claim takes
//! a place of its group, which a unique index gives once, and is confirmed before it is launched. What a `group_rate` does not
//! allow is passed over as a group without tasks is.

mod by_priority;
mod claim;
mod group;
mod ledger;
pub mod order;
mod position;
mod priority_window;
mod read;
mod rotation;
mod rows;
mod scheme;
mod settings;
pub mod shares;
mod spread;
pub mod turns;
mod unindexed_tasks;
mod uses;
mod window;

pub use group::{GroupError, LONGEST_GROUP, NO_GROUP, check_group, tenant_of};
pub use ledger::Stay;
pub use rows::{GroupFilter, GroupPage, GroupRow, Turns, Why};
pub use scheme::{MOST_CLASSES, Scheme};
pub use settings::{HALF_LIFE, LONGEST_HALF_LIFE, MOST_WEIGHT, Settings, Share};

pub(crate) use by_priority::index_of_priorities;
pub(crate) use group::group_of;
pub(crate) use ledger::{KEPT, Ledger};
pub(crate) use priority_window::Ranked as RankedWindow;
pub(crate) use read::index_of_groups;
pub(crate) use window::Window as FairWindow;
