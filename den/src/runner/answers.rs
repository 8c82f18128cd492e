//! What runners are answered, and what is written for them one by one.

use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::link::{Answer, Ask, plugin_share};
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::store::{Store, StoreError, millis, of_millis};
use disbatch_core::task::{Commit, Detached, Finished, Renewed, Run, Written};

use super::Work;
use crate::scribe::WriteOutcome;

/// Writes what does not go together with others.
pub(super) async fn alone(store: &Store, run: &Run, ask: Ask) -> Answer {
    write(store, run, ask).await.unwrap_or_else(trouble)
}

/// Removes what was shown of an attempt that is over.
pub(super) async fn remove_live(store: &Store, task: TaskId, attempt: i64) -> Answer {
    store.remove_live(task, Some(attempt)).await.map_or_else(trouble, |()| Answer::Done)
}

async fn write(store: &Store, run: &Run, ask: Ask) -> Result<Answer, StoreError> {
    Ok(match ask {
        Ask::Live { stream, offset, bytes } => {
            let of = LiveStream { task: run.task, attempt: run.attempt, stream };
            append_live(store, of, u64::try_from(offset).unwrap_or(0), &bytes).await?;
            Answer::Done
        }
        Ask::Upload { file, stream, encoding, bytes } => {
            store.announce_upload(run, file).await?;
            store.put_output(file, (run.task, stream), encoding, bytes.as_slice()).await?;
            Answer::Done
        }
        Ask::RetryLater { finish, pause_ms } => {
            ended(store.end_attempt(run, &finish, Some(of_millis(pause_ms))).await?)
        }
        Ask::Register { token, timeout_ms } => {
            done_or_lost(store.register_external(run, &token, of_millis(timeout_ms)).await?)
        }
        Ask::KeepCommon { part, text } => done_or_lost(store.keep_common(&part, &text).await),
        Ask::Settle => match store.settle_commit_of(run).await? {
            Commit::Done(status) => Answer::Committed(Some(status)),
            Commit::Never => Answer::Committed(None),
            // The runner asks by itself until it knows.
            Commit::Open => Answer::Trouble("a transaction of the plugin has not ended".to_owned()),
        },
        Ask::Detach => match store.detach_external(run).await? {
            Detached::Done | Detached::Ended => Answer::Stored,
            Detached::NotRunning => Answer::NotRunning,
        },
        Ask::Renew
        | Ask::Progress(_)
        | Ask::Steps { .. }
        | Ask::Storage { .. }
        | Ask::Finish(_)
        | Ask::RemoveLive { .. }
        | Ask::LetGo => Answer::Trouble("this is not written like that".to_owned()),
    })
}

async fn append_live(store: &Store, of: LiveStream, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let written = async {
        store.append_live(of, offset, bytes).await?;
        store.trim_live(of, offset + bytes.len() as u64).await
    };
    // With users that Perl Disbatch has made nobody can see it; nothing else is wrong.
    StoreError::unless_forbidden(written.await).map(|_| ())
}

fn trouble(error: StoreError) -> Answer {
    Answer::Trouble(error.to_string())
}

fn done_or_lost(is_done: bool) -> Answer {
    if is_done { Answer::Done } else { Answer::Lost }
}

fn ended(finished: Finished) -> Answer {
    match finished {
        Finished::Stored => Answer::Stored,
        Finished::NotRunning => Answer::NotRunning,
    }
}

/// What is answered to what was written together with others, about a run with that lease.
pub(super) fn written(outcome: WriteOutcome, lease: Duration) -> Answer {
    match outcome.written {
        Ok(Written::Renewed(Renewed::Held(wishes))) => {
            Answer::Held { until_ms: plugin_until(outcome.asked, lease), wishes }
        }
        Ok(Written::Renewed(Renewed::Lost)) => Answer::Lost,
        Ok(Written::Finished(finished)) => ended(finished),
        Ok(Written::Done) => Answer::Done,
        Ok(other @ (Written::Started | Written::NotClaimed | Written::SlotTaken)) => {
            Answer::Trouble(format!("something else was written: {other:?}"))
        }
        Err(why) => Answer::Trouble(why),
    }
}

/// What is answered to what comes too late.
pub(super) fn outdated(ask: &Ask) -> Answer {
    match ask {
        Ask::Renew | Ask::Register { .. } | Ask::KeepCommon { .. } => Answer::Lost,
        Ask::Finish(_) | Ask::RetryLater { .. } | Ask::Detach => Answer::NotRunning,
        Ask::Settle => Answer::Committed(None),
        Ask::Progress(_)
        | Ask::Steps { .. }
        | Ask::Storage { .. }
        | Ask::Live { .. }
        | Ask::RemoveLive { .. }
        | Ask::Upload { .. }
        | Ask::LetGo => Answer::Done,
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
