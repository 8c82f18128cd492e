//! The queue or schedule that an address names, and whose it is; and which queues somebody may see, where tasks of any queue are
//! mentioned.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::pin::Pin;

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev, web};
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::model::{QueueId, ScheduleId, Selector, TaskId};
use disbatch_core::schedules::Schedule;
use disbatch_core::store::{Store, StoreError};

use super::Who;
use crate::error::HttpError;
use crate::state::State;

/// The queue or schedule that an address names. For those who may not use all of them, it is the one that was looked at when they were
/// let through, whatever has that name by now.
#[derive(Debug, Clone)]
pub struct Named<Id> {
    /// As it stands in the address.
    pub name: String,
    pub selector: Selector,
    of: PhantomData<Id>,
}

pub type NamedQueue = Named<QueueId>;

pub type NamedSchedule = Named<ScheduleId>;

impl<Id> Named<Id> {
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), selector: Selector::parse(name), of: PhantomData }
    }

    /// What was found: a name may stand for another one in a moment.
    pub fn found(&self, id: ObjectId) -> Self {
        Self { name: self.name.clone(), selector: Selector::Id(id), of: PhantomData }
    }
}

impl<Id: Clone + 'static> FromRequest for Named<Id> {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload);
        let admitted = request.extensions().get::<Self>().cloned();
        Box::pin(async move {
            let name = name.await.map_err(|_| HttpError::bad_request("the address cannot be read"))?;
            Ok(admitted.unwrap_or_else(|| Self::parse(&name)))
        })
    }
}

/// There is no such schedule, or not for whoever asks.
pub fn no_such_schedule(name: &str) -> HttpError {
    HttpError::not_found(format!("no schedule '{name}'"))
}

/// Sees to it that somebody may change a schedule, pause it or delete it: who may submit tasks to its queue and has made it,
/// and operators of its queue.
pub async fn may_change_schedule(who: &Who, schedule: &Schedule, state: &State) -> Result<(), HttpError> {
    if who.is_everywhere(Role::Operator) {
        return Ok(());
    }
    let queue = state.queue_by_id(schedule.settings.queue).await?;
    let role = if owns_schedule(who, schedule) { Role::Submitter } else { Role::Operator };
    who.check(role, &queue)
}

pub fn owns_schedule(who: &Who, schedule: &Schedule) -> bool {
    who.name.is_some() && who.name == schedule.settings.owner
}

/// Fields of a task that have ids of others.
const LINKS: [&str; 2] = ["after", "waiting_for"];

/// The queues whose tasks somebody may see. Others are mentioned as tasks of another queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Those of all, and of none.
    All,
    Only(HashSet<QueueId>),
}

impl Sight {
    pub async fn of(store: &Store, reach: &Reach) -> Result<Self, StoreError> {
        let Reach::Some { queues, only, .. } = reach else { return Ok(Self::All) };
        let there = store.queues_within(reach).await?;
        // A queue that was deleted may still have tasks.
        let is_allowed = |queue: &&QueueId| only.as_ref().is_none_or(|only| only.contains(*queue));
        let named = queues.iter().filter(is_allowed).copied();
        Ok(Self::Only(there.iter().map(|queue| queue.id).chain(named).collect()))
    }

    pub fn sees(&self, queue: Option<QueueId>) -> bool {
        match self {
            Self::All => true,
            Self::Only(queues) => queue.is_some_and(|queue| queues.contains(&queue)),
        }
    }

    /// Takes out of a task the ids of others that they may not see. Of which queue one was that is gone is not known.
    pub async fn conceal(&self, store: &Store, task: &mut Document) -> Result<(), StoreError> {
        let named: Vec<TaskId> = match self {
            Self::All => return Ok(()),
            Self::Only(_) => LINKS.iter().filter_map(|name| task.get(name)).flat_map(ids).collect(),
        };
        if named.is_empty() {
            return Ok(());
        }
        let queues = store.queues_of_tasks(&named).await?;
        for name in LINKS {
            if let Some(Bson::Array(items)) = task.get_mut(name) {
                let is_seen =
                    |item: &Bson| ids(item).iter().all(|id| self.sees(queues.get(id).copied().flatten()));
                items.retain(is_seen);
            }
        }
        Ok(())
    }
}

fn ids(value: &Bson) -> Vec<TaskId> {
    match value {
        Bson::ObjectId(id) => vec![TaskId(*id)],
        Bson::Array(items) => items.iter().flat_map(ids).collect(),
        _ => Vec::new(), // Nothing else is an id.
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_task_of_no_queue_is_for_those_who_see_all() {
        let [mine, other] = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let some = Sight::Only(HashSet::from([mine]));
        assert!(some.sees(Some(mine)) && !some.sees(Some(other)) && !some.sees(None));
        assert!(Sight::All.sees(None) && Sight::All.sees(Some(other)));
    }
}
