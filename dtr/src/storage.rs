//! What a plugin saves for the next run of its task's schedule: any JSON value, said over the control channel or on a line of
//! standard output.

mod ear;

use bson::{Bson, doc};
use disbatch_core::budget;
use disbatch_core::model::to_bson;
use disbatch_core::task::STORAGE;
use serde_json::Value;

pub use ear::Ear;

/// The most that is saved, as BSON, in bytes.
pub const LARGEST: usize = budget::STORAGE;

pub fn stored(value: &Value) -> Result<Bson, String> {
    let storage = to_bson(value);
    let bytes = bson::serialize_to_vec(&doc! { STORAGE: &storage }).map_err(|error| error.to_string())?;
    if bytes.len() > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    Ok(storage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_value_can_be_saved_that_is_not_too_large() {
        for value in
            [json!(null), json!(7), json!("x"), json!([1, { "$oid": "x" }]), json!({ "a.b": { "": 1 } })]
        {
            assert_eq!(stored(&value).unwrap().into_relaxed_extjson(), value);
        }
        let of = |length| json!("x".repeat(length));
        assert!(stored(&of(LARGEST - 100)).is_ok());
        assert_eq!(stored(&of(LARGEST)).unwrap_err(), "it has more than 1048576 bytes");
        assert!(stored(&json!({ "a\0b": 1 })).is_err(), "MongoDB has no such names");
    }
}
