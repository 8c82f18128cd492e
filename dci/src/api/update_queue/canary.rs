//! What a change of versions has to do with the canary of a queue.

use bson::{Bson, Document};
use disbatch_core::model::{BEGAN, CANARY, CANARY_RETURNED, VERSION};

use crate::access::NamedQueue;
use crate::error::HttpError;
use crate::state::State;

/// Notes when a canary begins: it is told by that from those before, and its attempts are counted from then on. What has become of the last
/// one is of no interest any more when a version is pinned or tried.
pub(super) async fn begin(state: &State, named: &NamedQueue, fields: &mut Document) -> Result<(), HttpError> {
    if !fields.contains_key(VERSION) && !fields.contains_key(CANARY) {
        return Ok(());
    }
    let queue = state.store.find_queue(&named.selector).await?;
    let stored = |name: &str| queue.as_ref().and_then(|queue| queue.stored(name));
    let pinned = fields.get(VERSION).or_else(|| stored(VERSION)).and_then(Bson::as_str).map(str::to_owned);
    let version_in = |canary: &Document| canary.get_str("version").ok().map(str::to_owned);
    fields.insert(CANARY_RETURNED, Bson::Null);
    match fields.get_mut(CANARY) {
        Some(Bson::Document(canary)) => {
            canary.insert(BEGAN, state.store.now());
            if pinned.is_some() && version_in(canary) == pinned {
                let message = "canary.version is the version that the queue pins for all tasks";
                return Err(HttpError::bad_request(message));
            }
        }
        // What runs all tasks is not tried any more.
        None if pinned.is_some()
            && stored(CANARY).and_then(Bson::as_document).and_then(version_in) == pinned =>
        {
            fields.insert(CANARY, Bson::Null);
        }
        Some(_) | None => {}
    }
    Ok(())
}
