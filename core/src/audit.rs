//! Who did what to which object, when and from where, and what it was before and after: the entries of `audit`.
//!
//! | field | |
//! | --- | --- |
//! | `at` | when it was done, by the clock of the host that has recorded it |
//! | `by` | who did it and from where, in words |
//! | `user`, `via`, `token_name`, `from` | the same in parts ([`Actor`]) |
//! | `what` | what was done, in words ([`Verb`]) |
//! | `object` | what it was done to: `kind`, `id`, `name` ([`Object`]) |
//! | `queue` | the queue that it is about |
//! | `before`, `after` | the fields that have changed, without secrets ([`AuditEntry`]) |
//!
//! There are others for some verbs: `reason`, `count`, and what bulk jobs have. Entries are only ever added: the MongoDB
//! user of the web server can neither change nor remove them. The server removes them when they are as old as
//! configured ([`Store::keep_audit`](crate::store::Store::keep_audit)).

mod actor;
mod difference;
mod entry;
mod object;
mod query;
mod record;
mod verb;

pub use actor::{Actor, Via};
pub(crate) use difference::is_same;
pub use entry::AuditEntry;
pub use object::{Object, ObjectKind};
pub use query::{AuditKey, AuditKeyError, AuditPage, AuditPosition, AuditQuery, CHANGES, Changed, PATIENCE};
pub use verb::Verb;

use crate::store::collections;

pub(crate) const COLLECTION: &str = collections::AUDIT.name;
