//! What plugins say over their control channel, in whatever pieces it comes.

use disbatch_core::model::TaskId;
use disbatch_dtr::input::{Said, listen};
use futures::executor::block_on;

use crate::choice;

/// The task that a warm plugin has.
const TASK: &str = "6b0003bb686c8275d8013333";

/// The largest result, and the most that is saved, as BSON.
const LARGEST: usize = 1024 * 1024;

/// So many lines tell of mistakes at most, and so many characters each has at most.
const MOST_NOTES: (usize, usize) = (11, 320);

/// The first byte says whether the plugin is warm, the second how long the pieces are, and the rest is what it says.
///
/// # Panics
/// It depends on the pieces what was said; more is kept of it than there should be; or a task is done that nobody said was.
pub fn check(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = choice(bytes) else { return false };
    let Some((length, text)) = rest.split_first() else { return false };
    let task = (kind % 2 == 1).then(|| TASK.parse::<TaskId>().ok()).flatten();
    let said = block_on(listen([text], task));
    let in_pieces = block_on(listen(text.chunks(usize::from(*length).max(1)), task));
    assert_eq!(said, in_pieces);
    check_bounds(&said, text);
    assert!(said.done.is_none() || task.is_some(), "a plugin for one task says that it is done: {said:?}");
    said.notes.is_empty()
}

fn check_bounds(said: &Said, text: &[u8]) {
    let (lines, characters) = MOST_NOTES;
    assert!(said.notes.len() <= lines, "{said:?}");
    for note in &said.notes {
        assert!(note.starts_with("disbatch: ") && note.ends_with('\n'), "{note:?}");
        assert!(note.chars().count() <= characters, "{note:?}");
    }
    if let Some(result) = &said.result {
        assert!(bson::serialize_to_vec(result).is_ok_and(|bytes| bytes.len() <= LARGEST));
    }
    if let Some(storage) = &said.storage {
        let document = bson::doc! { "storage": storage };
        assert!(bson::serialize_to_vec(&document).is_ok_and(|bytes| bytes.len() <= LARGEST));
    }
    assert!(said.stray <= text.len());
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    // One object can name a report once.
    assert!(said.reports.len() <= lines, "{said:?}");
}
