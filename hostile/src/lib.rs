//! What must hold of input from outside, whatever it is.
//!
//! Each module has a function `check` that takes bytes, reads them as one kind of input, and panics if something does
//! not hold that must. It tells whether the input made sense. The targets in the folder `fuzz` call these functions with
//! what a fuzzer makes up; the tests here with its seeds and with what is random.

pub mod control;
pub mod documents;
pub mod link;
pub mod parameters;
pub mod relaxed_json;
pub mod terminal;

use disbatch_dci::input::written;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Looks at an input. Returns whether it made sense.
pub type Check = fn(&[u8]) -> bool;

/// All of them, by the names of their targets.
pub const CHECKS: [(&str, Check); 6] = [
    ("control", control::check),
    ("documents", documents::check),
    ("link", link::check),
    ("parameters", parameters::check),
    ("relaxed_json", relaxed_json::check),
    ("terminal", terminal::check),
];

/// What the DCI writes of a value is JSON, and the same on one line and on many.
fn check_json(value: &Value) {
    let texts = written(value);
    for text in &texts {
        let read = serde_json::from_str::<IgnoredAny>(text);
        assert!(read.is_ok(), "no JSON: {text}");
    }
    // What is nested too deep, or a number that is beyond all others once it is rounded, is JSON and cannot be read.
    let [line, lines] = texts.map(|text| serde_json::from_str::<Value>(&text).ok());
    assert_eq!(line, lines);
}

/// Cuts off a byte that says how the rest is to be read; digits mean themselves.
fn choice(bytes: &[u8]) -> Option<(usize, &[u8])> {
    bytes.split_first().map(|(choice, rest)| (usize::from(choice.wrapping_sub(b'0')), rest))
}
