//! Tasks that web services work on and that no runner looks after: nothing was heard of the service in time, or whoever had
//! noted the end of the task has died before it was made.
//!
//! Any DEN ends them. It does so next to the node's loop, as what a service has logged may be long.

use disbatch_core::model::Task;
use disbatch_core::store::Store;
use futures::StreamExt;
use tokio::sync::Semaphore;

/// So many tasks at once.
const AT_ONCE: usize = 4;

/// One round at a time: what it does not come to is found again.
static ROUND: Semaphore = Semaphore::const_new(1);

/// Ends these, in the background, unless others are being ended.
pub fn end_lapsed(store: &Store, tasks: Vec<Task>) {
    if tasks.is_empty() {
        return;
    }
    let Ok(round) = ROUND.try_acquire() else { return };
    let store = store.clone();
    tokio::spawn(async move {
        let one = |task: Task| end(&store, task);
        futures::stream::iter(tasks).for_each_concurrent(AT_ONCE, one).await;
        drop(round);
    });
}

async fn end(store: &Store, task: Task) {
    match store.end_lapsed_external(&task).await {
        Ok(true) => tracing::warn!(task = %task.id, "a task of a web service had no time left: it is ended"),
        // It was heard of after all, or another DEN does it.
        Ok(false) => {}
        Err(error) => tracing::warn!(task = %task.id, %error, "cannot end a task of a web service yet"),
    }
}
