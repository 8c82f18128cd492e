//! What is told of an attempt in traces.

use bson::{DateTime, Document, RawDocumentBuf};
use disbatch_core::measure::cause;
use disbatch_core::metrics::labels::{Cause, Label};
use disbatch_core::model::{Queue, Status, TRACE, Task};
use disbatch_core::task::{Finish, Run, Waiting};
use disbatch_traces::{Attempt, Ended, Tracer};

use super::{Work, run_of};

/// An attempt that a runner has.
pub(super) struct Traced {
    attempt: Attempt,
    /// When its runner has said what came out.
    pub(super) ended: Option<DateTime>,
}

impl Traced {
    /// With the task as its runner gets it: with the place of its plugin in the trace. `None`: the task is odd, which is for its runner to
    /// say.
    pub(super) fn begin(tracer: &Tracer, work: &Work, at: DateTime) -> Option<(Self, RawDocumentBuf)> {
        let claim = &work.claim;
        let text = |name| work.queue.get_str(name).unwrap_or_default().to_owned();
        let mut task = Document::try_from(claim.document.as_ref()).ok()?;
        let waiting = Waiting::of_document(claim.queue, &claim.document);
        let attempt = Attempt::new(run_of(claim), (text("name"), text("plugin")), &task, at);
        let attempt = attempt.queued(waiting.map(|waiting| waiting.since));
        task.insert(TRACE, attempt.context(tracer).field());
        let task = RawDocumentBuf::try_from(&task).ok()?;
        Some((Self { attempt, ended: None }, task))
    }

    /// Its end is stored.
    pub(super) fn end(self, tracer: &Tracer, finish: &Finish, now: DateTime) {
        let ended = Ended {
            at: self.ended,
            stored: now,
            ran: finish.ran(),
            status: finish.status,
            error: cause(finish).map(word),
        };
        tracer.attempted(&self.attempt, ended);
    }
}

fn word(cause: Cause) -> &'static str {
    Cause::VALUES[cause.index()]
}

/// The runner of a task is gone, and somebody has looked after that.
pub fn buried(tracer: &Tracer, task: &Task, queue: Option<&Queue>, now: DateTime) {
    let names = queue.map(|queue| {
        let plugin = queue.plugin_name().ok().flatten().map(|plugin| plugin.to_string());
        (queue.display_name(), plugin.unwrap_or_default())
    });
    let begun = task.rest.get_datetime("started").ok().copied();
    let begun = begun.or_else(|| task.mtime.as_ref().and_then(|mtime| mtime.get())).unwrap_or(now);
    let attempt = Attempt::new(Run::of(task), names.unwrap_or_default(), &task.rest, begun);
    let ended =
        Ended { at: None, stored: now, ran: None, status: Status::Orphaned, error: Some(word(Cause::Lost)) };
    tracer.attempted(&attempt, ended);
}
