//! What a DEN and its runners tell each other, and what a runner and its guard do.

use disbatch_core::link::{ToDen, ToRunner, encode, read};
use disbatch_dtr::input::{orders, report};
use futures::executor::block_on;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice;

/// The first byte says who listens: a runner, a DEN, a guard, or a runner to its guard. The second says how long the pieces
/// are, where it comes in pieces; the rest is what they are told.
///
/// # Panics
/// What was understood is another thing when it is told on; or it depends on the pieces what is understood.
pub fn check(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = choice(bytes) else { return false };
    let Some((length, told)) = rest.split_first() else { return false };
    match kind % 4 {
        0 => messages::<ToRunner>(told) > 0,
        1 => messages::<ToDen>(told) > 0,
        2 => check_orders(told, usize::from(*length).max(1)),
        _ => check_report(told),
    }
}

/// How many messages there are.
fn messages<T: Serialize + DeserializeOwned>(mut told: &[u8]) -> usize {
    let mut understood = 0;
    while let Ok(Some(message)) = block_on(read::<T>(&mut told)) {
        let Ok(sent) = encode(&message) else { panic!("what was understood cannot be told on") };
        let Ok(Some(again)) = block_on(read::<T>(&mut sent.as_slice())) else {
            panic!("{sent:?} is told on")
        };
        assert_eq!(encode(&again).ok(), Some(sent));
        understood += 1;
    }
    understood
}

fn check_orders(told: &[u8], length: usize) -> bool {
    let whole = orders([told]);
    assert_eq!(orders(told.chunks(length)), whole);
    let again = orders([whole.sent.concat().as_slice()]);
    assert!(again.sensible && again.sent == whole.sent, "{whole:?}");
    whole.sensible && !whole.sent.is_empty()
}

fn check_report(frame: &[u8]) -> bool {
    let Some(sent) = report(frame) else { return false };
    let Some((length, told_on)) = sent.split_first_chunk::<4>() else { panic!("{sent:?} has no length") };
    assert_eq!(usize::try_from(u32::from_le_bytes(*length)), Ok(told_on.len()));
    assert_eq!(report(told_on).as_deref(), Some(sent.as_slice()));
    true
}
