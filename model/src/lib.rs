//! The protocol by which tasks are claimed, limited and leased, as a model that a checker goes through completely.
//!
//! The processes share nothing but a database, and each can stand still, for any time, between any two of its
//! steps. So the question is never how long something takes, but what the others may have done meanwhile. The
//! model makes every step of every process one transition and lets them come in every possible order; a process
//! that is stopped, starved, or waiting for a network is one whose next step comes late.
//!
//! # What holds
//!
//! *Of all tasks of a queue that run together, look at the one that was claimed last. If it is one of ours, no more
//! run than the queue's `threads` was when that claim was confirmed.* ([`properties::LIMIT`].) Perl's DENs do not
//! confirm, so they can still overshoot by themselves; they cannot make us overshoot.
//!
//! As long as nobody lowers `threads` and no Perl DEN claims, not even the number of claimed and running tasks
//! exceeds it at any moment ([`properties::SLOTS`]).
//!
//! *A plugin works only while its task is in status 0 and in the attempt for which the plugin was begun*
//! ([`properties::OWNED`]), where `on_lost_lease` is `stop`. So there is one plugin per task, and counting tasks is
//! counting plugins. With `keep` this holds as long as the database is away from all of them or from none.
//!
//! *A write for a claim that is over changes nothing* ([`properties::START_FENCED`], [`properties::END_FENCED`]); a
//! task is started no more than `max_attempts` times ([`properties::ATTEMPTS`]); an outage of the database alone
//! costs no task ([`properties::NOT_ROBBED`]); and from every state some path leads to the end of all tasks
//! ([`reach::stuck`]).
//!
//! # Why
//!
//! **The limit.** A claim is confirmed after it was made: its DEN reads `threads` again, then counts what is in
//! status -1 and 0. Let some tasks run together, and let `c` be the last claim among theirs. All others had been
//! claimed before `c` was, and have been in status -1 or 0 since then, so the count that confirmed `c` counted all
//! of them, and `c`. What it found too many was given back, and did not run. Hence they are no more than the
//! `threads` that was read between the claim and that count. Nothing in this needs clocks, or DENs that know of
//! each other.
//!
//! **The slots.** The confirmation alone would let two DENs claim too much, notice, and give back. So a claim takes
//! a slot below `threads` as well, and an index makes slots of claimed and running tasks unique. There are no more
//! claims than slots; and of several DENs that race for the last slot, exactly one gets it.
//!
//! **The lease.** Nobody but its runner changes a running task before its lease is over, or before the DEN of its
//! node saw that no process of it is left. Each runner has a guard that ends the plugin when the runner has died, or
//! has been silent for nearly a lease. The guard counts from the sending of the last successful renewal, thus from
//! before the moment at which the database began to count; it exists before the task is started, and begins no
//! plugin when it is late. So whoever may take a task finds its plugin gone ([`timing`] looks at the clocks).
//!
//! **The fence.** Each claim of ours raises `attempt`, and each later write names it, so a runner that slept through
//! the loss of its task finds nothing to write to. Perl's DENs do not raise `attempt`: a late runner of ours would
//! take a Perl claim on the same node for its own. So writes name `instance` too, which a claim by Perl leaves unset.
//! Perl's runner, if our DEN is configured to start it, names neither; such claims therefore have no lease, and are
//! not taken away while the runner may live.
//!
//! **An outage** ends all leases, through no fault of the runners. So a DEN, the task's own included, sweeps running
//! tasks only when the database has answered it for a whole lease, in which every runner that is well has renewed.
//!
//! # Who writes
//!
//! All of this is about runners that write for themselves. A DEN keeps its runners, and writes for them; [`link`] is
//! about who has written what when one of the two dies or does not answer, and [`mark`] about how the DEN knows that
//! nothing is left of a runner.
//!
//! And all of it is about DENs that count after each claim. [`limits`] is about when they need not. [`holds`] is about slots that
//! documents of their own give to DENs, in place of an index over running tasks. [`cover`] is about runs that have no lease.
//!
//! [`keys`] is about something else: which of several tasks has a key that only one live task may have. And [`commits`] is about tasks that
//! their plugins end in transactions of their own.
//!
//! # What is left out
//!
//! A task that waits for its retry (-7) is queued here; a paused queue is one with `threads` 0; there is one queue.
//! That a guard dies without its plugin is not modelled: nothing would be left to notice it but the DEN of that node.
//! Other DENs take a task only if its own DEN seems dead; the model lets them take it at any time, since seeming
//! dead proves nothing, and nothing rests on it. A count is one moment here; MongoDB's is a scan, which is as good if
//! no task can pass it by unseen: one that is started meanwhile must move the way the scan goes. Runners are few ([`protocol::Setting::runners`]).
//!
//! # How to read it
//!
//! [`state`] is what there is, [`model::Action`] is what can happen, [`properties`] is what must hold,
//! [`protocol::Rules`] are the rules, each of which can be left out. `tests/holds.rs` goes through all states with all
//! rules; `tests/must_fail.rs` leaves out one rule at a time and expects the checker to find what goes wrong.
//! `tests/linked.rs` and `tests/linked_must_fail.rs` do the same for [`link`] and [`mark`], `tests/limits.rs` for [`limits`],
//! `tests/slot_holds.rs` for [`holds`], `tests/cover.rs` for [`cover`], `tests/keys.rs` for [`keys`], and `tests/commits.rs` for [`commits`].

/// All that the checker does is to make and drop states.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod commits;
pub mod cover;
mod den;
pub mod holds;
pub mod keys;
pub mod limits;
pub mod link;
pub mod mark;
pub mod model;
pub mod properties;
pub mod protocol;
pub mod reach;
mod runner;
pub mod state;
pub mod timing;
mod world;
