//! What the operations of the store add to the metrics of their process: see [`disbatch_metrics`].

use std::time::Duration;

use disbatch_metrics::labels::{Burial, Cause, Outcome, RetriedBy, Worker};

use crate::model::{Queue, QueueId, Status, number};
use crate::store::{Store, of_millis};
use crate::task::{Buried, Evidence, Finish};

impl Store {
    /// These are all queues.
    pub(crate) fn measure_queues(&self, queues: &[Queue]) {
        // Most names are text, and are compared as they are.
        let odd: Vec<Option<String>> = queues.iter().map(odd_name).collect();
        let named = queues.iter().zip(&odd).map(|(queue, odd)| {
            let name = odd.as_deref().or_else(|| queue.rest.get("name")?.as_str());
            (queue.id.0.bytes(), name.unwrap_or_default())
        });
        self.metrics().queues.are(named);
    }

    pub fn measure_worker(&self, worker: Worker, took: Duration, is_done: bool) {
        let metrics = self.metrics();
        metrics.worker_seconds.of(worker).observe_time(took);
        if is_done {
            metrics.worker_success.of(worker).set_time(of_millis(self.now().timestamp_millis()));
        }
    }

    pub(crate) fn measure_move(
        &self,
        queue: QueueId,
        (from, to): (Option<Status>, Option<Status>),
        tasks: u64,
    ) {
        let (Some(from), Some(to)) = (from, to) else { return };
        let is_end = !from.has_ended() && to.has_ended();
        let is_known = is_end
            || matches!(
                (from, to),
                (Status::Queued, Status::Claimed | Status::Running)
                    | (Status::Claimed | Status::Running, Status::Queued)
            );
        if tasks == 0 || !is_known {
            return;
        }
        let series = self.metrics().queues.of(queue.0.bytes());
        match to {
            Status::Claimed | Status::Running => series.claimed.add(tasks),
            Status::Queued => series.returned.add(tasks),
            ended => series.ended.of(outcome(ended)).add(tasks),
        }
    }

    /// A task is to be tried again, as its rules say. One that pauses is deferred, too, and is none of these.
    pub(crate) fn measure_retry(&self, queue: QueueId) {
        self.metrics().queues.of(queue.0.bytes()).retried.of(RetriedBy::Policy).inc();
    }

    /// An attempt is over, whether or not another one follows, as `then` says of one that its runner has ended because its lease ran
    /// out: nobody buries that.
    pub(crate) fn measure_attempt(&self, queue: QueueId, finish: &Finish, then: Burial) {
        let series = self.metrics().queues.of(queue.0.bytes());
        if let Some(cause) = cause(finish) {
            series.attempts_failed.of(cause).inc();
            if cause == Cause::Lost {
                self.metrics().leases_lost.of(then).inc();
            }
        }
        if let Some(ran) = finish.ran() {
            series.run.of(outcome(finish.status)).observe_time(ran);
        }
        let of_exit = |name| finish.exit.as_ref()?.get(name).and_then(number);
        series.cpu.add_seconds(of_exit("cpu").unwrap_or(0.0));
        if let Some(memory) = of_exit("peak_memory") {
            series.memory.observe(memory);
        }
    }

    /// Somebody has looked after a task whose runner is gone.
    pub(crate) fn measure_burial(&self, queue: QueueId, evidence: Evidence, what: Buried) {
        let burial = match what {
            Buried::Orphaned | Buried::Committed(_) => Burial::Ended,
            Buried::Again => Burial::Requeued,
            Buried::LeftToService | Buried::Open | Buried::NotRunning => return,
        };
        self.metrics().buried.of(burial).inc();
        if evidence == Evidence::LeaseExpired {
            self.metrics().leases_lost.of(burial).inc();
        }
        if what == Buried::Again {
            self.measure_retry(queue);
        }
        if what != Buried::Committed(Status::Succeeded) {
            self.metrics().queues.of(queue.0.bytes()).attempts_failed.of(Cause::Lost).inc();
        }
    }
}

/// A name that is no text.
fn odd_name(queue: &Queue) -> Option<String> {
    queue.rest.get("name").filter(|name| name.as_str().is_none()).map(|_| queue.display_name())
}

fn outcome(ended: Status) -> Outcome {
    match ended {
        // One that has asked something has done what it should.
        Status::Succeeded | Status::Deferred => Outcome::Succeeded,
        Status::Terminated => Outcome::Terminated,
        Status::Cancelled => Outcome::Cancelled,
        Status::Orphaned => Outcome::Orphaned,
        // What plugins end with besides.
        _ => Outcome::Failed,
    }
}

/// Why an attempt has failed. `None`: it has not, or somebody wanted its end.
pub fn cause(finish: &Finish) -> Option<Cause> {
    if matches!(finish.status, Status::Succeeded | Status::Cancelled) || finish.pause.is_some() {
        return None;
    }
    let Some(exit) = &finish.exit else {
        return match finish.status {
            Status::Failed => Some(Cause::Start),
            Status::Orphaned => Some(Cause::Lost), // Its lease ran out before its plugin was started.
            _ => None,                             // It was made to end.
        };
    };
    match exit.get_str("reason") {
        Ok("cancel") => None,
        // A web service was silent for as long as its task may take.
        Ok("timeout" | "silence") => Some(Cause::Timeout),
        Ok("deadline") => Some(Cause::Deadline),
        Ok("lease") => Some(Cause::Lost),
        _ if exit.get_bool("oom").unwrap_or(false) => Some(Cause::Oom),
        _ if exit.contains_key("signal") => Some(Cause::Signal),
        _ => Some(Cause::Exit),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc};

    use super::*;

    fn cause_of(status: Status, exit: Option<Document>) -> Option<Cause> {
        let (stdout, stderr) = (Bson::Null, Bson::Null);
        cause(&Finish {
            status,
            stdout,
            stderr,
            complete: true,
            result: None,
            exit,
            note: None,
            last_line: None,
            pause: None,
            recorded: None,
            trial: None,
        })
    }

    #[test]
    fn attempts_fail_for_one_reason() {
        assert_eq!(cause_of(Status::Succeeded, Some(doc! { "code": 0 })), None);
        assert_eq!(cause_of(Status::Failed, None), Some(Cause::Start));
        assert_eq!(cause_of(Status::Orphaned, None), Some(Cause::Lost));
        assert_eq!(cause_of(Status::Cancelled, None), None);
        let killed = |more: Document| {
            let mut exit = doc! { "signal": 9, "oom": false };
            exit.extend(more);
            Some(exit)
        };
        for (status, exit, cause) in [
            (Status::Failed, Some(doc! { "code": 3, "oom": false }), Some(Cause::Exit)),
            (Status::Other(7), Some(doc! { "code": 0 }), Some(Cause::Exit)),
            (Status::Failed, killed(doc! {}), Some(Cause::Signal)),
            (Status::Failed, killed(doc! { "oom": true }), Some(Cause::Oom)),
            (Status::Terminated, killed(doc! { "reason": "timeout" }), Some(Cause::Timeout)),
            (Status::Terminated, killed(doc! { "reason": "deadline" }), Some(Cause::Deadline)),
            (Status::Terminated, killed(doc! { "reason": "cancel" }), None),
            (Status::Orphaned, killed(doc! { "reason": "lease" }), Some(Cause::Lost)),
        ] {
            assert_eq!(cause_of(status, exit.clone()), cause, "{status:?} {exit:?}");
        }
    }
}
