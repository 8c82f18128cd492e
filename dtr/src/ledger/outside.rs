//! What is to be written about plugins whose work goes on, or whose answer comes, outside of the runner.

use std::time::Duration;

use bson::Document;
use disbatch_core::link::{Answer, Ask};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Detached, Run};

use super::{ANSWER_TAKES, Ledger, START_PATIENCE};
use crate::retry::{Patience, retry};

impl Ledger {
    /// Notes that the plugin of `run` is about to give the task to a web service, which will show a token with this
    /// `fingerprint`, and of which nothing may be heard for so long. Tells whether the run still has the task. Keeps trying
    /// for a while.
    pub async fn register(
        &self,
        run: &Run,
        fingerprint: &str,
        silence: Duration,
    ) -> Result<bool, StoreError> {
        if self.is_linked() {
            let timeout_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
            let ask = Ask::Register { token: fingerprint.to_owned(), timeout_ms };
            match self.ask(ask, ANSWER_TAKES).await {
                Some(Answer::Done) => return Ok(true),
                Some(Answer::Lost) => return Ok(false),
                Some(other) => {
                    let _nothing: Option<()> = self.misunderstood(&other);
                }
                None => {} // There is no DEN any more.
            }
        }
        retry("registering the task for its web service", START_PATIENCE, &self.0.lifecycle, |_| async {
            self.store().await?.register_external(run, fingerprint, silence).await
        })
        .await
    }

    /// Takes the task of `run` back from its web service, so that it can be ended here. Tells whether that is so: a service that
    /// has called back keeps it. Keeps trying.
    pub async fn withdraw(&self, run: &Run) -> Result<bool, StoreError> {
        retry("taking the task back from its web service", Patience::Endless, &self.0.lifecycle, |_| async {
            self.store().await?.withdraw_external(run).await
        })
        .await
    }

    /// Ends the task of `run` as failed, with what its web service has logged: it has called back, and has refused the task
    /// since. Keeps trying.
    pub async fn fail_external(&self, run: &Run, why: &str) -> Result<(), StoreError> {
        retry("ending a task that was refused", Patience::Endless, &self.0.lifecycle, |_| async {
            self.store().await?.fail_external(run, why).await
        })
        .await
    }

    /// Hands the task of `run` over to the web service that has taken it. Tells whether it is the service's, or over. Keeps
    /// trying.
    pub async fn detach(&self, run: &Run) -> Result<bool, StoreError> {
        if self.is_linked() {
            match self.ask(Ask::Detach, ANSWER_TAKES).await {
                Some(Answer::Stored) => return Ok(true),
                Some(Answer::NotRunning) => return Ok(false),
                Some(other) => {
                    let _nothing: Option<()> = self.misunderstood(&other);
                }
                None => {} // There is no DEN any more.
            }
        }
        let detached = retry("handing the task over", Patience::Endless, &self.0.lifecycle, |_| async {
            self.store().await?.detach_external(run).await
        });
        Ok(match detached.await? {
            Detached::Done | Detached::Ended => true,
            Detached::NotRunning => false,
        })
    }

    /// What a program has answered in the database. Keeps trying.
    pub async fn answer(&self, run: &Run) -> Result<Option<Document>, StoreError> {
        retry("reading the answer", Patience::Endless, &self.0.lifecycle, |_| async {
            self.store().await?.find_result(run.task).await
        })
        .await
    }

    /// Removes what the program of an earlier attempt has answered there. Keeps trying for a while.
    pub async fn forget_answer(&self, run: &Run) -> Result<(), StoreError> {
        retry("removing an earlier answer", START_PATIENCE, &self.0.lifecycle, |_| async {
            self.store().await?.remove_result(run.task).await
        })
        .await
    }
}
