//! The documents of a Disbatch database as types. Pure: nothing here does I/O.
//!
//! Perl programs, the REST API and people with a MongoDB shell all write these documents, so reading is
//! liberal: an odd representation (a string where an integer belongs, a field of an older release) is kept
//! as it is and interpreted, and fields that this release does not know are carried along unchanged.

pub mod document;
mod files;
mod id;
mod node;
mod queue;
mod rules;
mod share;
mod task;
mod trace;

pub use disbatch_values::liberal::{as_text, count, date_time, integer as whole_number, number};
pub use disbatch_values::status::{Phase, Status};
pub use document::{extended, from_extended, into_document, to_bson, to_document};
pub use files::{FILES, FileInput, FileOutput, TaskFiles};
pub use id::{
    ArrayId, FileSetId, IdError, LONGEST_VERSION, NodeName, PLUGIN_VERSION, PluginName, PluginNameError,
    QueueId, ScheduleId, Selector, TaskId, UnusablePlugin, VERSION, Version, VersionError,
};
pub use node::{Labels, NODES, Node, NodeSelector, SelectorError};
pub use queue::{Policy, Queue, Retention, STOPPED, Sort};
pub use rules::{Backoff, OnLostLease, OnOrphan, REQUEUE_ATTEMPTS, Rules};
pub use share::{
    BEGAN, CANARY, CANARY_RETURNED, Canary, LONGEST_KEPT, RECORD, SHADOW, SHADOW_OF, SHADOW_TENANT, Sample,
    Shadow, Trial, drawn, shadow_id,
};
pub use task::{AWAITING, LONGEST_STEP_NAME, MOST_STEPS, STEPS, Step, Task};
pub use trace::{Place, TRACE, TraceContext, VARIABLES as TRACE_VARIABLES};
