//! Commit: a plugin ends its task in a transaction of its own, together with the effects of the task.
//!
//! It inserts a document under the name of its attempt ([`name_of`]) with the status that the task is to end with. Whoever else is about to end or
//! retry that attempt inserts one without a status under the same name before, or finds the plugin's. The server lets one of them in, so what the
//! attempt comes to is decided once: either its effects and its status are there, or neither, and no later attempt begins beside them. Only then the
//! task is changed, by the conditional updates as ever.
//!
//! The document is another one than the task, so neither a lease nor what is written for other tasks ever waits for a plugin's transaction.

use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;

use super::Run;
use crate::model::{Status, TaskId, whole_number};
use crate::store::collections::COMMITS;
use crate::store::{Store, StoreError};

/// How long a document is kept after it was decided what its attempt comes to: nobody stops for so long and then goes on.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// So long it is waited for a transaction that has not ended, in milliseconds: that of a living plugin takes moments.
const TRANSACTION_TAKES_MS: i64 = 1_000;

/// When it was decided. The server removes the document by it, so one that nobody has asked for yet stays.
pub(crate) const SETTLED: &str = "settled";

/// What a plugin has made of its attempt by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    Done(Status),
    /// Nothing, and it cannot do so any more.
    Never,
    /// A transaction of it has not ended. Its server ends it after a while, 60 s unless it is told otherwise.
    Open,
}

/// Under what name a plugin ends its task in this attempt.
pub fn name_of(task: TaskId, attempt: i64) -> String {
    format!("{task}.{attempt}")
}

impl Store {
    /// Decides what an attempt comes to: what its plugin has committed, and nothing else from now on. May be repeated.
    #[operation(%task, attempt)]
    pub async fn settle_commit(&self, task: TaskId, attempt: i64) -> Result<Commit, StoreError> {
        let name = name_of(task, attempt);
        let settled = doc! { "$set": { SETTLED: { "$ifNull": [format!("${SETTLED}"), "$$NOW"] } } };
        loop {
            match self.forbid_commit(&name).await {
                Ok(()) => return Ok(Commit::Never),
                Err(error) if error.is_out_of_time() => return Ok(Commit::Open),
                // It was decided, by the plugin or by somebody else.
                Err(error) if error.is_duplicate_key() => {}
                // A user that an older release or Perl Disbatch made. Runners of such a user start no plugin that commits.
                Err(error) if error.is_forbidden() => {
                    let found = self.visible_commit(&name).await?.flatten();
                    return Ok(found.as_ref().map_or(Commit::Never, committed));
                }
                Err(error) => return Err(error),
            }
            let commits = self.commits();
            let decided = commits
                .find_one_and_update(doc! { "_id": &name }, vec![settled.clone()])
                .return_document(ReturnDocument::After)
                .await?;
            // If it is gone, its time was up a moment ago.
            if let Some(decided) = decided {
                return Ok(committed(&decided));
            }
        }
    }

    /// Sees to it that the plugin cannot commit any more. A plain insert: the server waits for an open transaction in any case, but only here it
    /// looks how long.
    ///
    /// # Errors
    /// There is a document (a duplicate key), or a transaction with one is open (out of time).
    async fn forbid_commit(&self, name: &str) -> Result<(), StoreError> {
        let insert = doc! {
            "insert": COMMITS.name,
            "documents": [{ "_id": name, SETTLED: self.now() }],
            "maxTimeMS": TRANSACTION_TAKES_MS,
            "writeConcern": { "w": "majority" },
        };
        let answer = self.database().run_command(insert).await?;
        let refused = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
        if let Some(refused) = refused {
            return Err(StoreError::of_write(refused).unwrap_or_else(|| unconfirmed(refused)));
        }
        answer.get_document("writeConcernError").map_or(Ok(()), |late| Err(unconfirmed(late)))
    }

    /// What there is under this name. `None`: this user may not look.
    async fn visible_commit(&self, name: &str) -> Result<Option<Option<Document>>, StoreError> {
        StoreError::unless_forbidden(self.commits().find_one(doc! { "_id": name }).await)
    }

    /// Whether what the plugin of a run commits can be seen.
    #[operation(task = %run.task)]
    pub async fn sees_commits(&self, run: &Run) -> Result<bool, StoreError> {
        Ok(self.visible_commit(&name_of(run.task, run.attempt)).await?.is_some())
    }

    #[operation(task = %run.task)]
    pub async fn settle_commit_of(&self, run: &Run) -> Result<Commit, StoreError> {
        self.settle_commit(run.task, run.attempt).await
    }
}

/// As with a status that is announced, what is none is a failure.
fn committed(decided: &Document) -> Commit {
    let done = |status: &Bson| {
        let code = whole_number(status).filter(|code| *code >= 1);
        Commit::Done(code.map_or(Status::Failed, Status::from_code))
    };
    decided.get("status").map_or(Commit::Never, done)
}

fn unconfirmed(why: &Document) -> StoreError {
    StoreError::unconfirmed(why.get_str("errmsg").unwrap_or("the server does not say why"))
}

/// What a task's history says of an end that its plugin has committed, where its run has ended as `otherwise`.
pub fn note_of(status: Status, otherwise: &str) -> String {
    format!("its plugin had committed status {}; {otherwise}", status.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_final_status_is_a_failure() {
        let cases = [(Bson::from(1), 1), (Bson::from(3.0), 3), (Bson::from(7_i64), 7)];
        let odd = [Bson::from(0), Bson::from(-6), Bson::from("done"), Bson::Null, Bson::from(1.5)];
        for (value, code) in cases.into_iter().chain(odd.map(|odd| (odd, 2))) {
            let document = doc! { "_id": "x", "status": value };
            assert_eq!(committed(&document), Commit::Done(Status::from_code(code)), "{document}");
        }
        assert_eq!(committed(&doc! { "_id": "x", SETTLED: 1 }), Commit::Never);
    }
}
