//! Whether what was recorded is of attempts that were, and can be read.

use bson::{Document, doc};
use disbatch_core::model::TaskId;
use futures::TryStreamExt;

use super::{Evidence, Verdict};
use crate::faults::world::RECORDED;

pub async fn recordings(evidence: &Evidence<'_>) -> anyhow::Result<Verdict> {
    let all = evidence.world.database.collection::<Document>("tasks.recordings");
    let mut all = all.find(doc! { "task": { "$exists": true } }).await?;
    let (mut violations, mut count) = (Vec::new(), 0);
    while let Some(recording) = all.try_next().await? {
        count += 1;
        violations.extend(wrong(evidence, &recording).await?);
    }
    let succeeded = |(id, task): (&TaskId, &Document)| {
        let queue = evidence.queue_of(*id).map(|queue| queue.name.as_str());
        Evidence::status(task) == 1 && queue.is_some_and(|queue| RECORDED.contains(&queue))
    };
    // Each by chance: that of twenty none is, once in a million.
    if count == 0 && evidence.tasks.iter().filter(|task| succeeded(*task)).count() >= 20 {
        violations.push("nothing was recorded".to_owned());
    }
    Ok(Verdict { name: "recordings are of attempts made", violations })
}

async fn wrong(evidence: &Evidence<'_>, recording: &Document) -> anyhow::Result<Option<String>> {
    let (Ok(id), Ok(attempt)) = (recording.get_object_id("task"), recording.get_i64("attempt")) else {
        return Ok(Some(format!("a recording is of no task: {recording}")));
    };
    let Some(task) = evidence.tasks.get(&TaskId(id)) else {
        return Ok(Some(format!("a recording is of task {id}, which is gone")));
    };
    if attempt < 1 || attempt > Evidence::attempt(task) {
        let why = format!("a recording is of attempt {attempt} of task {id}, which was never begun");
        return Ok(Some(why));
    }
    let queue = evidence.queue_of(TaskId(id)).map_or("", |queue| &queue.name);
    if !RECORDED.contains(&queue) {
        let why = format!("a recording is of task {id}, whose queue {queue} records nothing");
        return Ok(Some(why));
    }
    // With what it has in common with others.
    let whole = evidence.world.store.find_recording(TaskId(id), attempt).await?;
    let is_whole = whole.is_some_and(|whole| !whole.plugin.name.is_empty() && !whole.queue.is_null());
    Ok((!is_whole)
        .then(|| format!("the recording of task {id}, attempt {attempt}, cannot be read: {recording}")))
}
