//! Whether what was recorded is of attempts that were, and can be read.

use bson::{Document, doc};
use disbatch_core::model::TaskId;
use futures::TryStreamExt;
use serde_json::Value;

use super::{Evidence, Verdict};
use crate::faults::world::RECORDED;

pub async fn recordings(evidence: &Evidence<'_>) -> anyhow::Result<Verdict> {
    let all = evidence.world.database.collection::<Document>("tasks.recordings");
    let mut all = all.find(doc! {}).await?;
    let (mut violations, mut count) = (Vec::new(), 0);
    while let Some(recording) = all.try_next().await? {
        count += 1;
        violations.extend(wrong(evidence, &recording));
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

fn wrong(evidence: &Evidence<'_>, recording: &Document) -> Option<String> {
    let (Ok(id), Ok(attempt)) = (recording.get_object_id("task"), recording.get_i64("attempt")) else {
        return Some(format!("a recording is of no task: {recording}"));
    };
    let Some(task) = evidence.tasks.get(&TaskId(id)) else {
        return Some(format!("a recording is of task {id}, which is gone"));
    };
    if attempt < 1 || attempt > Evidence::attempt(task) {
        return Some(format!("a recording is of attempt {attempt} of task {id}, which was never begun"));
    }
    let queue = evidence.queue_of(TaskId(id)).map_or("", |queue| &queue.name);
    if !RECORDED.contains(&queue) {
        return Some(format!("a recording is of task {id}, whose queue {queue} records nothing"));
    }
    let text = recording.get_str("recording").unwrap_or_default();
    let is_whole =
        serde_json::from_str::<Value>(text).is_ok_and(|recording| recording["plugin"]["name"].is_string());
    (!is_whole).then(|| format!("the recording of task {id}, attempt {attempt}, cannot be read: {text}"))
}
