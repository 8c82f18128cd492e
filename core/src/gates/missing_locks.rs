//! Tasks that were queued without their locks: by a program that knows nothing of them, or by hand.

use disbatch_operation::operation;
use std::collections::{BTreeSet, HashSet};

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use super::blocked::round_of;
use super::plan::Holder;
use super::request::LockRequest;
use crate::model::Status;
use crate::store::{Store, StoreError};
use crate::task::transition::Transition;
use crate::task::{Claim, Unclaimed};

impl Claim {
    /// Whether its task asks for locks that it has not got: it must not run.
    pub fn lacks_locks(&self) -> bool {
        let field = |name: &str| self.document.get(name).ok().flatten();
        let holds = field("holds_locks").and_then(|holds| holds.as_bool()).unwrap_or(false);
        let lacks = !holds || field("needs_lock").is_some() || self.has_lost_locks;
        lacks && !self.locks().is_empty()
    }

    /// What its task asks for. What is none, as a text that Perl's programs have put there for themselves, is not asked for at
    /// the gates either: the task would be blocked and let go for ever.
    fn locks(&self) -> Vec<LockRequest> {
        LockRequest::stored(&self.field("locks"))
    }

    /// A field of the task, if it has it, and nothing else.
    fn field(&self, name: &str) -> Document {
        let value = self.document.get(name).ok().flatten().and_then(|value| Bson::try_from(value).ok());
        value.map(|value| doc! { name: value }).unwrap_or_default()
    }
}

impl Store {
    /// Looks whether the locks of claimed tasks know of them. Between the end of a task and the moment at which it is noted that
    /// its locks were taken back, a program that knows nothing of locks may queue it again as it was. Where no task has locks,
    /// nothing is read.
    pub(crate) async fn look_at_locks(&self, claims: &mut [Claim]) -> Result<(), StoreError> {
        let names: BTreeSet<String> =
            claims.iter().flat_map(Claim::locks).map(|lock| lock.name().to_owned()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let tasks: Vec<ObjectId> = claims.iter().map(|claim| claim.task.0).collect();
        let ours = doc! { "$filter": { "input": "$holders", "cond": { "$in": ["$$this.task", tasks] } } };
        let pipeline = [
            doc! { "$match": { "_id": { "$in": Vec::from_iter(names) }, "holders": { "$type": "array" } } },
            doc! { "$project": { "holders": ours } },
        ];
        let found: Vec<Document> = match self.locks().aggregate(pipeline).await.map_err(StoreError::from) {
            Ok(found) => found.try_collect().await?,
            // Nor has anybody given it locks then.
            Err(error) if error.is_forbidden() => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut held: HashSet<(&str, ObjectId, i64)> = HashSet::new();
        for lock in &found {
            let (Ok(name), Ok(holders)) = (lock.get_str("_id"), lock.get_array("holders")) else { continue };
            let holders = holders.iter().filter_map(Holder::stored);
            held.extend(holders.map(|holder| (name, holder.task, holder.round)));
        }
        for claim in claims {
            let round = round_of(&claim.field("lock_round"));
            let has = |lock: &LockRequest| held.contains(&(lock.name(), claim.task.0, round));
            claim.has_lost_locks = !claim.locks().iter().all(has);
        }
        Ok(())
    }

    /// Sends a claimed task to its locks (-1 -> -4). Nothing happens if its runner has started it meanwhile.
    #[operation(task = %claim.task)]
    pub async fn block_claim(&self, claim: &Claim) -> Result<Unclaimed, StoreError> {
        let mut claimed = doc! { "_id": claim.task };
        claimed.extend(claim.like());
        let update = Transition::to(Status::Blocked, self.now()).without_node().end_of_run().blocked_anew();
        let update = update.note("it was queued without its locks").pipeline();
        let blocked = self.tasks().update_one(claimed, update).await.map_err(StoreError::from);
        let is_blocked = match blocked {
            Ok(blocked) => blocked.matched_count == 1,
            Err(error) if error.is_about_one() => {
                self.end_unfit(claim.task, &claim.like(), Status::Terminated, error).await?;
                false
            }
            Err(error) => {
                self.doubt_counters();
                return Err(error);
            }
        };
        if !is_blocked {
            return Ok(Unclaimed::NotClaimed);
        }
        self.moved(claim.queue, Some(claim.status()), Some(Status::Blocked), 1);
        self.link_at_once(&[claim.task]).await;
        Ok(Unclaimed::Queued)
    }
}

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;
    use crate::model::{NodeName, QueueId, TaskId};

    fn lacks_locks(task: &Document) -> bool {
        let id = ObjectId::new();
        let claim = Claim {
            task: TaskId(id),
            queue: QueueId(id),
            node: NodeName::new("n1"),
            attempt: 1,
            instance: "i".to_owned(),
            document: RawDocumentBuf::try_from(task).unwrap(),
            is_started: false,
            has_lost_locks: false,
        };
        claim.lacks_locks()
    }

    #[test]
    fn what_is_no_lock_is_not_waited_for() {
        for locks in [doc! {}, doc! { "locks": [] }, doc! { "locks": "a" }, doc! { "locks": ["my lock", 5] }]
        {
            assert!(!lacks_locks(&locks), "{locks}");
        }
        assert!(lacks_locks(&doc! { "locks": ["my lock", "a/3"] }));
        assert!(lacks_locks(&doc! { "locks": ["a"], "holds_locks": true, "needs_lock": "a" }));
        assert!(!lacks_locks(&doc! { "locks": ["a"], "holds_locks": true }));
    }
}
