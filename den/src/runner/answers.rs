//! What runners are answered, and what is written for them one by one.

use std::time::Duration;

use bson::oid::ObjectId;
use disbatch_core::clock::boot_time;
use disbatch_core::link::{Answer, Ask};
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{Commit, Detached, Finished, Renewed, Run, Written};

use super::Work;
use crate::scribe::WriteOutcome;

/// Writes what does not go together with others.
pub(super) async fn alone(store: &Store, run: &Run, ask: Ask) -> Answer {
    let done = match ask {
        Ask::Live { stream, offset, bytes } => {
            let of = LiveStream { task: run.task, attempt: run.attempt, stream };
            append_live(store, of, u64::try_from(offset).unwrap_or(0), &bytes).await
        }
        Ask::Upload { file, stream, encoding, bytes } => {
            upload(store, run, file, (stream, encoding), &bytes).await
        }
        Ask::RetryLater { finish, pause_ms } => {
            let pause = Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0));
            let stored = store.end_attempt(run, &finish, Some(pause)).await;
            return finished(stored.map(Written::Finished).map_err(|error| error.to_string()));
        }
        Ask::Register { token, timeout_ms } => {
            let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
            return registered(store.register_external(run, &token, timeout).await);
        }
        Ask::KeepCommon { part, text } => {
            return if store.keep_common(&part, &text).await { Answer::Done } else { Answer::Lost };
        }
        Ask::Settle => {
            return match store.settle_commit_of(run).await {
                Ok(Commit::Done(status)) => Answer::Committed(Some(status)),
                Ok(Commit::Never) => Answer::Committed(None),
                // The runner asks by itself until it knows.
                Ok(Commit::Open) => Answer::Trouble("a transaction of the plugin has not ended".to_owned()),
                Err(error) => Answer::Trouble(error.to_string()),
            };
        }
        Ask::Detach => return detached(store.detach_external(run).await),
        Ask::Renew
        | Ask::Progress(_)
        | Ask::Steps { .. }
        | Ask::Storage { .. }
        | Ask::Finish(_)
        | Ask::RemoveLive { .. }
        | Ask::LetGo => {
            return Answer::Trouble("this is not written like that".to_owned());
        }
    };
    answer(done)
}

/// Removes what was shown of an attempt that is over.
pub(super) async fn remove_live(store: &Store, task: TaskId, attempt: i64) -> Answer {
    answer(store.remove_live(task, Some(attempt)).await)
}

fn registered(written: Result<bool, StoreError>) -> Answer {
    match written {
        Ok(true) => Answer::Done,
        Ok(false) => Answer::Lost,
        Err(error) => Answer::Trouble(error.to_string()),
    }
}

fn detached(written: Result<Detached, StoreError>) -> Answer {
    match written {
        Ok(Detached::Done | Detached::Ended) => Answer::Stored,
        Ok(Detached::NotRunning) => Answer::NotRunning,
        Err(error) => Answer::Trouble(error.to_string()),
    }
}

fn answer(done: Result<(), StoreError>) -> Answer {
    done.map_or_else(|error| Answer::Trouble(error.to_string()), |()| Answer::Done)
}

async fn append_live(store: &Store, of: LiveStream, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let written = async {
        store.append_live(of, offset, bytes).await?;
        store.trim_live(of, offset + bytes.len() as u64).await
    };
    match written.await {
        // With users that Perl Disbatch has made nobody can see it; nothing else is wrong.
        Err(error) if error.is_forbidden() => Ok(()),
        other => other,
    }
}

async fn upload(
    store: &Store,
    run: &Run,
    file: ObjectId,
    (stream, encoding): (StreamName, Encoding),
    bytes: &[u8],
) -> Result<(), StoreError> {
    store.announce_upload(run, file).await?;
    store.put_output(file, (run.task, stream), encoding, bytes).await
}

pub(super) fn renewal(outcome: &WriteOutcome, lease: Duration) -> Answer {
    match &outcome.written {
        Ok(Written::Renewed(Renewed::Held(wishes))) => {
            Answer::Held { until_ms: plugin_until(outcome.asked, lease), wishes: *wishes }
        }
        Ok(Written::Renewed(Renewed::Lost)) => Answer::Lost,
        Ok(other) => unexpected(other),
        Err(why) => Answer::Trouble(why.clone()),
    }
}

pub(super) fn finished(written: Result<Written, String>) -> Answer {
    match written {
        Ok(Written::Finished(Finished::Stored)) => Answer::Stored,
        Ok(Written::Finished(Finished::NotRunning)) => Answer::NotRunning,
        Ok(other) => unexpected(&other),
        Err(why) => Answer::Trouble(why),
    }
}

pub(super) fn done(written: Result<Written, String>) -> Answer {
    match written {
        Ok(Written::Done) => Answer::Done,
        Ok(other) => unexpected(&other),
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

fn unexpected(written: &Written) -> Answer {
    Answer::Trouble(format!("something else was written: {written:?}"))
}

/// Until when a plugin may live whose lease was asked for at that time: less than the lease, so that it has been
/// killed when that is over. In milliseconds.
pub(super) fn plugin_until(asked: Duration, lease: Duration) -> i64 {
    millis(asked.saturating_add(lease.mul_f64(0.9)))
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

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
