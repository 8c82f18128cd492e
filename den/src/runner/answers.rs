//! What runners are answered, and what is written for them one by one.

use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::link::{Answer, Ask, plugin_share};
use disbatch_core::model::TaskId;
use disbatch_core::store::{Store, StoreError, millis};
use disbatch_core::task::{Renewed, Run, Written};

use super::Work;
use crate::scribe::WriteOutcome;

/// Writes what does not go together with others.
pub(super) async fn alone(store: &Store, run: &Run, ask: &Ask) -> Answer {
    match store.carry_out(run, ask).await {
        // With users that Perl Disbatch has made nobody can see it; nothing else is wrong.
        Err(error) if matches!(ask, Ask::Live { .. }) && error.is_forbidden() => Answer::Done,
        done => done.unwrap_or_else(trouble),
    }
}

/// Removes what was shown of an attempt that is over.
pub(super) async fn remove_live(store: &Store, task: TaskId, attempt: i64) -> Answer {
    store.remove_live(task, Some(attempt)).await.map_or_else(trouble, |()| Answer::Done)
}

fn trouble(error: StoreError) -> Answer {
    Answer::Trouble(error.to_string())
}

/// What is answered to what was written together with others, about a run with that lease.
pub(super) fn written(outcome: WriteOutcome, lease: Duration) -> Answer {
    match outcome.written {
        Ok(Written::Renewed(Renewed::Held(wishes))) => {
            Answer::Held { until_ms: plugin_until(outcome.asked, lease), wishes }
        }
        Ok(Written::Renewed(Renewed::Lost)) => Answer::Lost,
        Ok(Written::Finished(finished)) => finished.into(),
        Ok(Written::Done) => Answer::Done,
        Ok(other @ (Written::Started | Written::NotClaimed | Written::SlotTaken)) => {
            Answer::Trouble(format!("something else was written: {other:?}"))
        }
        Err(why) => Answer::Trouble(why),
    }
}

/// Until when a plugin may live whose lease was asked for at that time. In milliseconds.
pub(super) fn plugin_until(asked: Duration, lease: Duration) -> i64 {
    millis(asked.saturating_add(plugin_share(lease)))
}

/// How long there is until the task's deadline, in milliseconds. The server's time is known from the claim's lease,
/// which began after the claim was asked for: so this is rather too short than too long.
pub(super) fn deadline_in(work: &Work) -> Option<i64> {
    let time = |field| work.claim.document.get_datetime(field).ok().map(|time| time.timestamp_millis());
    let (deadline, until) = (time("deadline")?, time("lease_until")?);
    let claimed = until.saturating_sub(millis(work.lease));
    let since = millis(boot_time().saturating_sub(work.asked));
    Some(deadline.saturating_sub(claimed).saturating_sub(since).max(0))
}
