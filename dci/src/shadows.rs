//! Compares tasks of a queue with their shadows, as a replay is compared with what was recorded.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_compare::{AttemptOutcome, Comparison, Masks, Speed, Thresholds, diff};
use disbatch_core::accounts::Role;
use disbatch_core::model::{PluginName, Queue, Shadow, Status, whole_number};
use disbatch_core::private_folder::PREFIX;
use disbatch_core::shadow::Pair;
use disbatch_core::store::StoreError;
use disbatch_values::words;
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::access::Who;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::output::{self, Excerpt};
use crate::state::State;

/// Of so many pairs it is told how they differ.
const SHOWN: usize = 20;

/// Of each stream so many bytes are compared.
const COMPARED: usize = 64 * 1024;

/// So many bytes of a difference are told.
const LONGEST: usize = 16 * 1024;

/// So long it may take to find one.
const TAKES: Duration = Duration::from_millis(100);

/// Two of a pair, and what came out of both.
#[derive(Debug)]
pub struct Compared {
    pub task: ObjectId,
    pub shadow: ObjectId,
    pub comparison: Comparison,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict {
        Same = "same",
        Different = "different",
        Slower = "slower",
        Faster = "faster",
    }
}

impl Compared {
    pub fn verdict(&self) -> Verdict {
        if !self.comparison.is_same() {
            return Verdict::Different;
        }
        match self.comparison.duration.speed(&Thresholds::default()) {
            Speed::Same => Verdict::Same,
            Speed::Slower => Verdict::Slower,
            Speed::Faster => Verdict::Faster,
        }
    }

    /// Whether one of them alone has failed: the task, or its shadow.
    pub fn failed(&self) -> [bool; 2] {
        let status = &self.comparison.status;
        let succeeded = [status.was, status.is].map(|status| status == Status::Succeeded.code());
        [succeeded == [false, true], succeeded == [true, false]]
    }
}

/// One of a pair, as it is compared.
#[derive(Debug, Default)]
struct Side {
    status: i64,
    exit: Option<Value>,
    result: Option<Value>,
    output: [Vec<u8>; 2],
    whole: [Option<u64>; 2],
}

impl Side {
    fn outcome(&self) -> AttemptOutcome<'_> {
        AttemptOutcome {
            status: self.status,
            exit: self.exit.as_ref(),
            result: self.result.as_ref(),
            output: [&self.output[0], &self.output[1]],
            whole: self.whole,
        }
    }
}

/// The latest pairs of a queue whose shadow has ended, at most so many. One pair after the other: their output may be much.
pub async fn compare(
    state: &State,
    queue: &Queue,
    other: &Queue,
    limit: usize,
) -> Result<Vec<Compared>, HttpError> {
    let (mut all, mut room) = (Vec::new(), SHOWN);
    for Pair { task, shadow } in state.store.shadow_pairs(queue, other, limit).await? {
        let ids = (task.get_object_id("_id"), shadow.get_object_id("_id"));
        let (Ok(task_id), Ok(shadow_id)) = ids else { continue };
        let sides = [side(state, &task).await?, side(state, &shadow).await?];
        let takes = (room > 0).then_some(TAKES);
        let compared = spawn_blocking(move || compared([task_id, shadow_id], &sides, takes)).await;
        let compared = compared.map_err(|error| HttpError::internal(&error.to_string()))?;
        let Some(compared) = compared else { return Err(HttpError::internal("a mask is no pattern")) };
        room -= usize::from(takes.is_some() && !compared.comparison.is_same());
        all.push(compared);
    }
    Ok(all)
}

fn compared([task, shadow]: [ObjectId; 2], sides: &[Side; 2], takes: Option<Duration>) -> Option<Compared> {
    // Ids of both may be in what they print, and so may their folders.
    let own = [task, shadow].map(ObjectId::to_hex);
    let masks = Masks::new(&[own.join("|")], PREFIX).ok()?;
    let [was, is] = sides;
    let mut comparison = Comparison::between(&was.outcome(), &is.outcome(), &masks, takes);
    for text in &mut comparison.texts {
        text.difference = diff::cut(std::mem::take(&mut text.difference), LONGEST);
    }
    Some(Compared { task, shadow, comparison })
}

async fn side(state: &State, task: &Document) -> Result<Side, StoreError> {
    let value = |name: &str| {
        let value = task.get(name).filter(|value| **value != Bson::Null);
        value.map(|value| json::from_bson(value, Dates::Text))
    };
    let mut side = Side {
        status: task.get("status").and_then(whole_number).unwrap_or_default(),
        exit: value("exit"),
        result: value("result"),
        ..Side::default()
    };
    for (number, name) in ["stdout", "stderr"].into_iter().enumerate() {
        let (excerpt, length) = match task.get(name) {
            Some(Bson::ObjectId(file)) => {
                let length = state.store.find_output(*file).await?.map(|file| file.length);
                (output::excerpt(&state.store, *file, COMPARED).await?, length)
            }
            Some(Bson::String(text)) => {
                (output::cut(text.clone().into_bytes(), COMPARED), u64::try_from(text.len()).ok())
            }
            _ => (Excerpt::default(), None), // It has none.
        };
        side.whole[number] = length.filter(|_| excerpt.cut);
        side.output[number] = excerpt.text.into_bytes();
    }
    Ok(side)
}

/// Sees to it that a queue may have this setting: its tasks would run in another queue, without effects, where whoever asks may submit some.
pub async fn check(state: &State, who: &Who, queue: &Queue, shadow: &Shadow) -> Result<(), HttpError> {
    let refused = |why: String| HttpError::bad_request(format!("shadow.queue: {why}"));
    let other = state.store.find_queue(&shadow.selector()).await?;
    let other = other.filter(|other| who.sees(other));
    let other = other.ok_or_else(|| refused(format!("there is no queue '{}'", shadow.queue)))?;
    who.check(Role::Operator, &other)?;
    if other.id == queue.id {
        return Err(refused("a queue is not its own shadow".to_owned()));
    }
    if Shadow::of(&other).is_some() {
        return Err(refused(format!("the queue {} has a shadow itself", other.display_name())));
    }
    if other.rest.contains_key(disbatch_core::model::FILES) {
        return Err(refused(format!("tasks of the queue {} have file sets", other.display_name())));
    }
    let plugin = other.plugin_name().ok().flatten();
    check_plugin(state, plugin.as_ref()).await
}

/// Sees to it that a queue of shadows may have this plugin.
pub async fn check_of_shadow(state: &State, queue: &Queue, plugin: &Value) -> Result<(), HttpError> {
    let all = state.store.shadowed_queues().await?;
    if all.iter().all(|shadowed| shadowed.other.id != queue.id) {
        return Ok(());
    }
    let plugin = plugin.as_str().and_then(|plugin| plugin.parse().ok());
    check_plugin(state, plugin.as_ref()).await
}

async fn check_plugin(state: &State, plugin: Option<&PluginName>) -> Result<(), HttpError> {
    let Some(plugin) = plugin else {
        return Err(HttpError::bad_request("shadow.queue: the queue names no plugin"));
    };
    let is_known = state.store.offered().await?.shadows.contains(plugin.as_str());
    let why = format!(
        "shadow.queue: no node reports a plugin {plugin} whose manifest says \"shadow\": true: nobody knows whether it has effects"
    );
    is_known.then_some(()).ok_or_else(|| HttpError::bad_request(why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn side(status: i64, duration: f64, stdout: &str) -> Side {
        let exit = Some(json!({ "code": 0, "duration": duration }));
        Side { status, exit, output: [stdout.into(), Vec::new()], ..Side::default() }
    }

    fn of(was: Side, is: Side) -> Compared {
        let ids = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        compared(ids, &[was, is], Some(TAKES)).unwrap()
    }

    #[test]
    fn a_pair_is_the_same_different_or_takes_another_time() {
        let with_id = |number: u8| format!("I am {}\n", ObjectId::from_bytes([number; 12]));
        let same = of(side(1, 1.0, &with_id(1)), side(1, 1.1, &with_id(2)));
        assert_eq!((same.verdict(), same.failed()), (Verdict::Same, [false; 2]));
        assert_eq!(of(side(1, 1.0, ""), side(1, 3.0, "")).verdict(), Verdict::Slower);
        assert_eq!(of(side(1, 3.0, ""), side(1, 1.0, "")).verdict(), Verdict::Faster);
        let different = of(side(1, 1.0, "two\n"), side(2, 1.0, "2\n"));
        assert_eq!((different.verdict(), different.failed()), (Verdict::Different, [false, true]));
        assert!(different.comparison.texts[1].difference.contains("-two\n+2\n"));
    }
}
