//! The documents of a Disbatch database as types. Pure: nothing here does I/O.
//!
//! Perl programs, the REST API and people with a MongoDB shell all write these documents, so reading is
//! liberal: an odd representation (a string where an integer belongs, a field of an older release) is kept
//! as it is and interpreted, and fields that this release does not know are carried along unchanged.

mod canary;
pub mod document;
mod files;
mod id;
mod json;
mod node;
mod node_selector;
mod queue;
mod retention;
mod rules;
mod sample;
mod shadow;
mod step;
mod task;
mod trace;
mod version;

pub use canary::{BEGAN, CANARY, CANARY_RETURNED, Canary, Trial};
pub use disbatch_values::liberal::{Count, Moment, integer as whole_number, number};
pub use disbatch_values::status::{Phase, Status};
pub use files::{FILES, FileInput, FileOutput, TaskFiles};
pub use id::{
    ArrayId, FileSetId, IdError, NodeName, PluginName, PluginNameError, QueueId, ScheduleId, Selector, TaskId,
};
pub use json::{from_extended, into_document, to_bson, to_document};
pub use node::Node;
pub use node_selector::{Labels, NODES, NodeSelector, SelectorError};
pub use queue::{Policy, Queue, STOPPED, Sort};
pub use retention::Retention;
pub use rules::{Backoff, OnLostLease, OnOrphan, REQUEUE_ATTEMPTS, Rules};
pub use sample::{LONGEST_KEPT, RECORD, Sample, drawn};
pub use shadow::{SHADOW, SHADOW_OF, SHADOW_TENANT, Shadow, shadow_id};
pub use step::{LONGEST_STEP_NAME, MOST_STEPS, STEPS, Step};
pub use task::{AWAITING, Task};
pub use trace::{Place, TRACE, TraceContext, VARIABLES as TRACE_VARIABLES};
pub use version::{LONGEST_VERSION, PLUGIN_VERSION, UnusablePlugin, VERSION, Version, VersionError};
