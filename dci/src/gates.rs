//! Tasks that wait for others, and locks, as clients see them.

use disbatch_core::gates::{self as core, LockFilter, LockMode, LockRow, Neighbour, Neighbours, Relative};
use disbatch_core::model::Status;
use disbatch_wire::locks::{
    GraphEdge, GraphExtent, GraphNode, Lock, LockDetails, LockSearch, LockTask, TaskGraph,
};

use crate::access::{Sight, Who};
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::state::State;

pub async fn sight(state: &State, who: &Who) -> Result<Sight, HttpError> {
    Ok(Sight::of(&state.store, &who.reach(disbatch_core::accounts::Role::Viewer)).await?)
}

pub fn filter(params: &Params) -> Result<(LockFilter, i64), HttpError> {
    let LockSearch { prefix, after, limit } = params.options()?;
    Ok((LockFilter { prefix, after }, limit.unwrap_or(100)))
}

pub fn extent(params: &Params) -> Result<(i32, usize), HttpError> {
    let GraphExtent { depth, limit } = params.options()?;
    Ok((depth.unwrap_or(3), limit.unwrap_or(100)))
}

/// The locks that somebody may know of: all, or those that tasks which they see hold or wait for.
pub async fn locks(
    state: &State,
    sight: &Sight,
    (filter, limit): &(LockFilter, i64),
) -> Result<Vec<LockRow>, HttpError> {
    let store = &state.store;
    let mut rows = match sight {
        Sight::All => store.locks_list(filter, *limit).await,
        Sight::Only(queues) => {
            let queues: Vec<_> = queues.iter().copied().collect();
            store.locks_of_queues(&queues, filter, *limit).await
        }
    }
    .map_err(HttpError::from_search)?;
    rows.iter_mut().for_each(|row| row.conceal(&|queue| sight.sees(queue)));
    Ok(rows)
}

pub async fn lock(state: &State, sight: &Sight, name: &str) -> Result<core::LockDetails, HttpError> {
    let is_seen = match sight {
        Sight::All => true,
        Sight::Only(_) => {
            // Of those whose names begin so, it is the first.
            let its_name = LockFilter { prefix: Some(name.to_owned()), after: None };
            locks(state, sight, &(its_name, 1)).await?.iter().any(|row| row.name == name)
        }
    };
    let mut lock = if is_seen { state.store.lock(name).await? } else { None };
    if let Some(lock) = &mut lock {
        lock.conceal(|queue| sight.sees(queue));
    }
    lock.ok_or_else(|| HttpError::not_found("nobody holds this lock or waits for it"))
}

pub fn of_row(row: &LockRow) -> Lock {
    let holders = row.holders.iter().map(held).collect();
    Lock { name: row.name.clone(), held_by: row.held_by, waiting: row.waiting, holders }
}

pub fn of_details(details: &core::LockDetails) -> LockDetails {
    let Lock { name, held_by, waiting, holders } = of_row(&details.row);
    LockDetails { name, held_by, waiting, holders, waiters: details.waiters.iter().map(held).collect() }
}

fn held((mode, task): &(LockMode, Relative)) -> LockTask {
    let (status, word) = of_status(task.status);
    LockTask {
        id: task.id.map(|id| id.to_string()),
        queue: task.queue.map(|queue| queue.to_string()),
        mode: mode.as_str().to_owned(),
        places: if let LockMode::Places(places) = mode { Some(*places) } else { None },
        status,
        word,
        node: task.node.clone(),
        since: task.since.and_then(date_text),
        hidden: task.id.is_none().then_some(true),
    }
}

fn of_status(status: Option<Status>) -> (Option<i64>, String) {
    (status.map(Status::code), status.map_or("gone", Status::word).to_owned())
}

/// Tasks before and after another: those that may be seen with their ids.
pub fn of_graph(graph: &Neighbours, sight: &Sight) -> TaskGraph {
    let number = |key: usize| u32::try_from(key).unwrap_or(u32::MAX);
    let node = |(key, task): (usize, &Neighbour)| {
        let ((status, word), is_seen) = (of_status(task.status), is_seen(task, sight));
        GraphNode {
            key: number(key),
            id: is_seen.then(|| task.id.to_string()),
            queue: is_seen.then(|| task.queue.map(|queue| queue.to_string())),
            status,
            word,
            distance: task.distance,
            hidden: (!is_seen).then_some(true),
        }
    };
    let edge = |(from, to, waiting): &(usize, usize, bool)| GraphEdge {
        from: number(*from),
        to: number(*to),
        waiting: *waiting,
    };
    TaskGraph {
        nodes: graph.tasks.iter().enumerate().map(node).collect(),
        edges: graph.edges.iter().map(edge).collect(),
        more: graph.more,
    }
}

/// Whether who asks may know which task it is. Of which queue one was that is gone is not known.
pub fn is_seen(task: &Neighbour, sight: &Sight) -> bool {
    sight.sees(task.queue)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bson::oid::ObjectId;
    use disbatch_core::model::{QueueId, TaskId};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tasks_of_other_queues_are_nodes_without_a_name() {
        let [mine, other] = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let task = |number: u8, queue: Option<QueueId>, status: Option<i64>, distance| Neighbour {
            id: TaskId(ObjectId::from_bytes([number; 12])),
            queue,
            status: status.map(Status::from_code),
            distance,
        };
        let graph = Neighbours {
            tasks: vec![
                task(3, Some(other), Some(1), -1),
                task(4, Some(mine), Some(-4), 0),
                task(5, None, None, 1),
            ],
            edges: vec![(0, 1, false), (1, 2, true)],
            more: true,
        };
        let shown = of_graph(&graph, &Sight::Only(HashSet::from([mine])));
        let shown = serde_json::to_value(shown).unwrap();
        let expected = json!({ "key": 0, "status": 1, "word": "succeeded", "distance": -1, "hidden": true });
        assert_eq!(shown["nodes"][0], expected);
        assert_eq!(shown["nodes"][1]["id"], "040404040404040404040404");
        assert_eq!(
            (&shown["nodes"][2]["word"], &shown["nodes"][2]["status"]),
            (&json!("gone"), &Value::Null)
        );
        assert_eq!(shown["nodes"][2]["hidden"], true, "it may have been of any queue");
        assert_eq!(shown["edges"][1], json!({ "from": 1, "to": 2, "waiting": true }));
        assert!(!shown.to_string().contains("0202"), "{shown}");
    }

    #[test]
    fn options_are_within_bounds() {
        let of =
            |options: Value| Params { options: options.as_object().unwrap().clone(), ..Params::default() };
        let (found, limit) = filter(&of(json!({ "prefix": "db", "limit": "5", "after": "" }))).unwrap();
        assert_eq!((found.prefix.as_deref(), found.after, limit), (Some("db"), None, 5));
        assert_eq!(extent(&of(json!({}))).unwrap(), (3, 100));
        for wrong in
            [json!({ "depth": 0 }), json!({ "depth": 21 }), json!({ "limit": 501 }), json!({ "depth": "x" })]
        {
            assert_eq!(extent(&of(wrong.clone())).unwrap_err().status(), 400, "{wrong}");
        }
        for (wrong, why) in [
            (json!({ "limit": 1001 }), "'.limit' must be from 1 to 1000"),
            (json!({ "limit": "many" }), "'.limit' must be an integer"),
            (json!({ "prefix": ["a", "b"] }), ".prefix must be text of 1 to 200 characters"),
        ] {
            assert_eq!(filter(&of(wrong)).unwrap_err().to_string(), why);
        }
    }
}
