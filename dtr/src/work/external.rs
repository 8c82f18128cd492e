//! Whether a web service goes on with a task whose plugin, which has asked it, has ended.

use disbatch_core::model::{Status, whole_number};
use disbatch_core::store::StoreError;

use super::Work;
use crate::outcome::Outcome;

/// Answers of proxies, which do not know what became of the request.
const OF_PROXIES: [i64; 2] = [502, 504];

/// So many characters of what is said about a refusal are kept at most.
const LONGEST: usize = 16 * 1024;

impl Work<'_> {
    /// Whether a web service goes on with the task, or has ended it: it has taken it, or it has called back, whatever became
    /// since of who has asked it. What it has logged would be lost if the task ended here, and its work would be done twice if
    /// the task was tried again. If it has refused the task after that, the task fails as others do, with what was logged.
    pub(super) async fn is_elsewhere(
        &self,
        outcome: &Outcome,
        asks_service: bool,
    ) -> Result<bool, StoreError> {
        if outcome.detached {
            return Ok(true);
        }
        let run = &self.begun.run;
        if !asks_service || self.ledger.withdraw(run).await? {
            return Ok(false);
        }
        if let Some(why) = refusal(outcome).await {
            self.ledger.fail_external(run, &why).await?;
        }
        Ok(true)
    }
}

/// What there is to say about it if the service itself has answered that it does not take the task.
async fn refusal(outcome: &Outcome) -> Option<String> {
    let facts = outcome.exit.as_ref()?.get_document("engine").ok()?;
    let answered = facts.get("http_status").and_then(whole_number)?;
    if outcome.status != Status::Failed || OF_PROXIES.contains(&answered) {
        return None;
    }
    // It is short, and what cannot be read of it is no reason to do anything else.
    let text = outcome.stderr.text().await.unwrap_or_default();
    Some(text.trim_end().chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn failed(exit: Option<Document>) -> Outcome {
        Outcome::unable_to_start("it has answered with 500").with_exit(exit)
    }

    #[tokio::test]
    async fn only_the_service_itself_refuses() {
        let answered = |status: i32| Some(doc! { "code": 1, "engine": { "http_status": status } });
        let said = refusal(&failed(answered(500))).await;
        assert_eq!(said.as_deref(), Some("it has answered with 500"));
        for nothing in [answered(502), answered(504), Some(doc! { "code": 1 }), None] {
            assert_eq!(refusal(&failed(nothing.clone())).await, None, "{nothing:?}");
        }
        let mut cancelled = failed(answered(500));
        cancelled.status = Status::Terminated;
        assert_eq!(refusal(&cancelled).await, None);
    }
}
