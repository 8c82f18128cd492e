//! What is told of a submission in traces.

use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::model::{Place, Queue, QueueId, TaskId, TraceContext};
use disbatch_traces::Submission;

use crate::access::Who;
use crate::state::State;

/// A submission that is being made.
pub struct Sent {
    place: Place,
    context: TraceContext,
    request: Option<TraceContext>,
    queue: (QueueId, String),
    begun: DateTime,
}

impl Sent {
    /// `None`: nobody wants traces.
    pub fn begin(state: &State, who: &Who, queue: &Queue) -> Option<Self> {
        let (place, context) = state.tracer.as_ref()?.submission(who.trace.as_ref(), ObjectId::new().bytes());
        let (request, begun) = (who.trace.clone(), state.store.now());
        Some(Self { place, context, request, queue: (queue.id, queue.display_name()), begun })
    }

    pub fn context(&self) -> TraceContext {
        self.context.clone()
    }

    /// These tasks were made, or none.
    pub fn end(self, state: &State, tasks: Option<&[TaskId]>) {
        let Some(tracer) = &state.tracer else { return };
        tracer.submitted(&Submission {
            place: self.place,
            request: self.request,
            queue: self.queue.0,
            queue_name: &self.queue.1,
            tasks: tasks.unwrap_or_default(),
            times: (self.begun, state.store.now()),
            failed: tasks.is_none(),
        });
    }
}
