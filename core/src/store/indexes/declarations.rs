//! The indexes of tasks, and of archived ones.

use bson::doc;

use super::Index;
use crate::task::pages;
use crate::{fair, tags};

/// Those of Disbatch come first: of two that serve a query as well, the server takes the older one, and the order in
/// which tasks are found is that of the index. The others hold the few tasks that are on their way, save two for pages.
pub(in crate::store) fn of_tasks() -> Vec<Index> {
    let mut indexes = vec![
        // The next one begins with it.
        Index::of_perl(doc! { "node": 1, "status": 1, "queue": 1 }),
        Index::of_disbatch(doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 }),
        // The server reads the one before it backwards as well.
        Index::of_perl(doc! { "node": 1, "status": 1, "queue": 1, "_id": -1 }),
        Index::of_disbatch(doc! { "queue": 1, "status": 1 }),
    ];
    indexes.extend(of_claims());
    indexes.extend(of_gates());
    indexes.extend(of_policies());
    indexes.extend([
        of_times(),
        Index::on(doc! { "schedule": 1, "status": 1 }).only(doc! { "schedule": { "$exists": true } }),
        Index::on(doc! { "unsettled": 1, "status": 1 }).only(doc! { "unsettled": true }),
    ]);
    indexes
}

fn of_claims() -> Vec<Index> {
    let taken = doc! { "status": { "$gte": -1, "$lte": 0 } };
    vec![
        // Who has tasks of its own, and not those that web services work on: these may be many.
        Index::on(doc! { "node": 1, "status": 1, "external.detached": 1 }).only(taken.clone()),
        Index::on(doc! { "lease_until": 1 }).only(taken),
        Index::on(doc! { "run_at": 1 }).only(doc! { "status": -7 }),
        // By status first: those that must not have a place are found without reading the others.
        Index::on(doc! { "status": 1, "group_slot": 1 }).only(doc! { "group_slot": { "$exists": true } }),
        // By status first: the deadlines of tasks that wait, and not those of ended ones.
        Index::on(doc! { "status": 1, "deadline": 1 }).only(doc! { "deadline": { "$exists": true } }),
        // Pages in the order of ids, for the two phases that grow. A task moves from one to the other once, unless
        // it is given back or tried again.
        Index::on(pages::queued_index()).only(doc! { "status": { "$lte": -2 } }),
        Index::on(pages::completed_index()).only(doc! { "status": { "$gte": 1 } }),
        // Who has a unique key, whether or not the key names it: see [`crate::keys`].
        Index::on(doc! { "queue": 1, "unique": 1 }).only(doc! {
            "unique": { "$exists": true }, "status": { "$in": [-7, -4, -2, -1, 0] },
        }),
    ]
}

/// Blocked tasks by what they wait for, and what changes that; arrays, tags and tenants.
fn of_gates() -> Vec<Index> {
    vec![
        Index::on(doc! { "gate": 1, "_id": 1 }).only(doc! { "status": -4, "gate": { "$exists": true } }),
        Index::on(doc! { "waiting_for": 1, "_id": 1 })
            .only(doc! { "status": -4, "waiting_for": { "$exists": true } }),
        Index::on(doc! { "needs_lock": 1, "_id": 1 })
            .only(doc! { "status": -4, "needs_lock": { "$exists": true } }),
        Index::on(doc! { "dependents": 1, "status": 1 }).only(doc! { "dependents": true }),
        Index::on(doc! { "holds_locks": 1, "status": 1 }).only(doc! { "holds_locks": true }),
        // Those that wait for the answer of a person.
        Index::on(doc! { "awaiting.asked": 1 }).only(doc! { "awaiting.asked": { "$exists": true } }),
        after(),
        elements(),
        tags(),
        // What a tenant has that waits or runs, and under which reservation it came.
        Index::on(doc! { "tenant": 1, "status": 1, "reserved": 1 })
            .only(doc! { "tenant": { "$exists": true }, "status": { "$lte": 0 } }),
    ]
}

/// Tasks of queues that are fair or go by priority.
fn of_policies() -> Vec<Index> {
    let queued = |field: &str| doc! { "status": -2, field: { "$exists": true } };
    vec![
        Index::on(fair::index_of_groups()).only(queued("group")),
        Index::on(fair::index_of_priorities()).only(queued("priority")),
        // A place in a group is taken once: this keeps `group_threads`, as [`crate::slots`] keeps `threads`.
        Index::on(doc! { "queue": 1, "group": 1, "group_slot": 1 })
            .unique()
            .only(doc! { "status": { "$gte": -1, "$lte": 0 }, "group_slot": { "$exists": true } }),
    ]
}

fn of_times() -> Index {
    Index::on(doc! { "schedule": 1, "scheduled_for": 1 }).only(doc! { "scheduled_for": { "$exists": true } })
}

/// What comes after a task, for pictures.
fn after() -> Index {
    Index::on(doc! { "after": 1 }).only(doc! { "after": { "$exists": true } })
}

/// Elements of an array: by status first, to find one that has not ended.
fn elements() -> Index {
    Index::on(doc! { "array.id": 1, "status": 1, "array.index": 1 })
        .only(doc! { "array.id": { "$exists": true } })
}

/// Tasks by their tags, in the order of ids. What becomes of a task changes nothing in it.
fn tags() -> Index {
    Index::on(doc! { tags::TAGS: 1, "_id": -1 }).only(doc! { tags::TAGS: { "$exists": true } })
}

pub(in crate::store) fn of_archive() -> Vec<Index> {
    vec![
        after(),
        elements(),
        tags(),
        Index::on(doc! { "queue": 1, "status": 1 }),
        Index::on(doc! { "mtime": 1 }),
        // Copies whose move has not come to its end.
        Index::on(doc! { "moving": 1 }).sparse(),
        of_times(),
    ]
}
