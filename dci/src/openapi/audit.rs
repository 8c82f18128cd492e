//! What the audit looks like. These types are never made: they only describe.

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Something that was done, and by whom.
#[derive(ToSchema)]
#[schema(example = json!({
    "key": "1795163067344-6b0003bb686c8275d8016666", "at": "2026-11-20T08:24:27", "by": "alice from 10.0.0.1",
    "user": "alice", "via": "session", "from": "10.0.0.1", "what": "queue update",
    "object": {"kind": "queue", "id": "6b0003bb686c8275d70dc2f1", "name": "mail"},
    "queue": "6b0003bb686c8275d70dc2f1", "before": {"threads": 2}, "after": {"threads": 4},
}))]
pub struct AuditEntry {
    /// Its place: `.after` or `.before` of another search.
    key: String,
    /// UTC, by the clock of the host that has recorded it.
    at: String,
    /// Who did it, and from where.
    by: String,
    /// The user's name; missing where nobody is asked.
    user: Option<String>,
    /// How they were recognised: `open` (nobody is asked), `session`, `password`, `token`, `proxy`, `command line`, or
    /// `refused`.
    via: Option<String>,
    /// The token that they were recognised by.
    token_name: Option<String>,
    /// The address that they came from; for the command line an account and a host.
    from: Option<String>,
    /// For a bulk job: `bulk` and its action, when it was made; the same and `ended` or `cancelled`.
    what: String,
    /// `kind`, and `id` and `name` if it has them. Missing in entries of older releases.
    #[schema(value_type = Option<Object>)]
    object: Option<Value>,
    /// The queue that it is about.
    queue: Option<String>,
    /// The fields that have changed, as they were.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// The fields that have changed, as they are since.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
    /// Why, if that was said.
    reason: Option<String>,
    /// How many tasks were submitted, or matched a bulk job; how many logins were refused since the entry before.
    count: Option<u64>,
    /// The first tasks that were submitted.
    tasks: Option<Vec<String>>,
    /// The collection that tasks were made of.
    collection: Option<String>,
    /// The filter of a bulk job.
    #[schema(value_type = Option<Object>)]
    filter: Option<Value>,
    /// The bulk job.
    job: Option<String>,
    /// The state of a bulk job that is over.
    state: Option<String>,
    /// How many tasks it has changed.
    done: Option<u64>,
    /// How many needed nothing, or could not be acted on.
    skipped: Option<u64>,
}

/// Which entries.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditSearch {
    /// What was done, or what that begins with: `queue` finds `queue update` too, and `bulk cancel` finds `bulk cancel ended`.
    /// `changes` finds all but logins, logouts and audits of counters.
    #[param(example = "queue update")]
    what: Option<String>,
    /// Text that `by` has somewhere.
    by: Option<String>,
    /// A user's name.
    user: Option<String>,
    /// The queue that it is about, by name or id.
    queue: Option<String>,
    /// The kind of object: `queue`, `node`, `balance`, `task`, `bulk`, `user`, `token`, `session` or `counters`.
    object: Option<String>,
    /// The object's name.
    name: Option<String>,
    /// The id of anything that it is about: an object, a queue, a bulk job, or one of the first tasks of a submission.
    #[param(pattern = "^[0-9a-f]{24}$")]
    about: Option<String>,
    /// From this time on: a day as `2026-11-20`, ISO 8601, or seconds since 1970. UTC unless it has a zone.
    #[param(example = "2026-11-20")]
    from: Option<String>,
    /// Until before this time. A day is meant with all of it.
    to: Option<String>,
    /// At most so many, the latest first: 100 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Those that are older than the one with this `key`.
    #[param(rename = ".after")]
    after: Option<String>,
    /// Those that are newer than the one with this `key`, and next to it.
    #[param(rename = ".before")]
    before: Option<String>,
}
