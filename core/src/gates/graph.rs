//! Which tasks come before and after another, for pictures.

use disbatch_operation::operation;
use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::show::few;
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError, ids_in, integer};

const FIELDS: [&str; 4] = ["queue", "status", "after", "waiting_for"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    pub id: TaskId,
    pub queue: Option<QueueId>,
    /// Its status. `None`: there is no such task any more.
    pub status: Option<Status>,
    /// How far it is: -1 for one that the task comes after, 1 for one that comes after it, and so on.
    pub distance: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The tasks, in the order of how far they are and of their ids.
    pub tasks: Vec<Neighbour>,
    /// Pairs of places in `tasks`: the second comes after the first. The third says whether it still waits for it.
    pub edges: Vec<(usize, usize, bool)>,
    pub more: bool,
}

#[derive(Debug, Default)]
struct Search {
    /// How far tasks are, and what they are; `None`: there is none any more.
    found: BTreeMap<ObjectId, (i32, Option<Document>)>,
    most: usize,
    more: bool,
}

impl Search {
    /// Takes as many as there is room for, and tells which.
    fn room_for(&mut self, ids: Vec<ObjectId>) -> Vec<ObjectId> {
        let mut new: Vec<ObjectId> = ids.into_iter().filter(|id| !self.found.contains_key(id)).collect();
        new.sort_unstable();
        new.dedup();
        let room = self.most.saturating_sub(self.found.len());
        self.more |= new.len() > room;
        new.truncate(room);
        new
    }

    fn add(&mut self, id: ObjectId, distance: i32, task: Option<Document>) {
        self.found.entry(id).or_insert((distance, task));
    }

    fn neighbours(self) -> Neighbours {
        let mut all: Vec<_> = self.found.into_iter().collect();
        all.sort_by_key(|(id, (distance, _))| (*distance, *id));
        let places: BTreeMap<ObjectId, usize> =
            all.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
        let mut edges = Vec::new();
        for (place, (_, (_, task))) in all.iter().enumerate() {
            let Some(task) = task else { continue };
            // One that was cancelled waits for nothing any more.
            let waits = Status::stored(task).is_none_or(|status| !status.has_ended());
            let waiting: Vec<ObjectId> = ids_in(task, "waiting_for").filter(|_| waits).collect();
            for parent in ids_in(task, "after") {
                if let Some(before) = places.get(&parent) {
                    edges.push((*before, place, waiting.contains(&parent)));
                }
            }
        }
        let neighbour = |(id, (distance, task)): (ObjectId, (i32, Option<Document>))| Neighbour {
            id: TaskId(id),
            queue: task.as_ref().and_then(|task| task.get_object_id("queue").ok()).map(QueueId),
            status: task.as_ref().and_then(Status::stored),
            distance,
        };
        Neighbours { tasks: all.into_iter().map(neighbour).collect(), edges, more: self.more }
    }
}

impl Store {
    /// A task with those that it comes after, those which they come after, and so on, up to `depth` of them; and those that
    /// come after it likewise. At most so many tasks altogether, archived ones among them.
    #[operation(task = %task)]
    pub async fn neighbours(&self, task: TaskId, depth: i32, most: usize) -> Result<Neighbours, StoreError> {
        let mut search = Search { most: most.max(1), ..Search::default() };
        let mut earlier = self.tasks_by_id(&[task.0], &FIELDS).await?;
        let Some(itself) = earlier.get(&task.0) else { return Ok(Neighbours::default()) };
        search.add(task.0, 0, Some(itself.clone()));
        for distance in 1..=depth {
            let ids = earlier.values().flat_map(|task| ids_in(task, "after")).collect();
            let ids = search.room_for(ids);
            earlier = self.tasks_by_id(&ids, &FIELDS).await?;
            for id in ids {
                search.add(id, -distance, earlier.get(&id).cloned());
            }
        }
        let mut ids = vec![task.0];
        for distance in 1..=depth {
            if ids.is_empty() {
                break;
            }
            let room = search.most.saturating_sub(search.found.len());
            let later = self.tasks_after(&ids, search.found.keys().copied().collect(), room).await?;
            search.more |= later.len() > room;
            let later = later.into_iter().take(room);
            let later = later.filter_map(|task| Some((task.get_object_id("_id").ok()?, task)));
            ids = Vec::new();
            for (id, task) in later {
                search.add(id, distance, Some(task));
                ids.push(id);
            }
        }
        Ok(search.neighbours())
    }

    /// Tasks that come after any of these, without those that are known, and one more than there is room for if there are
    /// more.
    async fn tasks_after(
        &self,
        ids: &[ObjectId],
        known: Vec<ObjectId>,
        room: usize,
    ) -> Result<Vec<Document>, StoreError> {
        let limit = integer(room + 1);
        let filter = doc! { "after": { "$in": ids }, "_id": { "$nin": known } };
        let mut found = few(&self.tasks(), filter.clone(), &FIELDS, limit).await?;
        for task in few(&self.archive(), filter, &FIELDS, limit).await? {
            // One that is on its way to the archive is there twice.
            if !found.iter().any(|other| other.get("_id") == task.get("_id")) {
                found.push(task);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ObjectId {
        ObjectId::from_bytes([number; 12])
    }

    #[test]
    fn edges_lead_from_those_that_are_known_to_those_that_come_after() {
        let mut search = Search { most: 9, ..Search::default() };
        let queue = ObjectId::new();
        search.add(
            id(5),
            0,
            Some(doc! { "status": -4, "queue": queue, "after": [id(1), id(9)], "waiting_for": [id(1)] }),
        );
        search.add(id(1), -1, None);
        search.add(id(7), 1, Some(doc! { "status": -4, "after": [id(5), id(8)], "waiting_for": [] }));
        search.add(id(6), 1, Some(doc! { "status": -5, "after": [id(5)], "waiting_for": [id(5)] }));
        let neighbours = search.neighbours();
        let ids: Vec<TaskId> = neighbours.tasks.iter().map(|task| task.id).collect();
        assert_eq!(ids, [1, 5, 6, 7].map(|number| TaskId(id(number))));
        let expected = [(0, 1, true), (1, 2, false), (1, 3, false)];
        assert_eq!(neighbours.edges, expected, "what was cancelled does not wait");
        assert_eq!((neighbours.tasks[0].status, neighbours.tasks[1].queue), (None, Some(QueueId(queue))));
    }

    #[test]
    fn there_are_no_more_than_were_asked_for() {
        let mut search = Search { most: 3, ..Search::default() };
        search.add(id(1), 0, None);
        assert_eq!(search.room_for(vec![id(1), id(3), id(2), id(3)]), [id(2), id(3)]);
        assert!(!search.more);
        assert_eq!(search.room_for(vec![id(4), id(3), id(2)]).len(), 2);
        assert!(search.more);
    }
}
