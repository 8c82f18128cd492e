//! What only a plugin may see.

use std::hint::black_box;
use std::io;

use serde_json::{Map, Value};
use zeroize::{Zeroize, Zeroizing};

/// Secure parameters as a plugin gets them: a JSON object, overwritten when it is dropped.
#[derive(Clone, PartialEq)]
pub struct SecureParams(Value);

impl Drop for SecureParams {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
}

impl SecureParams {
    /// `None`: the object is empty, so there are none.
    pub fn new(object: Map<String, Value>) -> Option<Self> {
        (!object.is_empty()).then_some(Self(Value::Object(object)))
    }

    /// The object. It is not to be written anywhere but to the plugin.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Its JSON, which is overwritten when it is dropped. Keys are sorted, so that the same object has the same JSON.
    pub fn json(&self) -> Zeroizing<Vec<u8>> {
        // With room for all of it: one that grows leaves copies behind.
        let mut json = Zeroizing::new(Vec::with_capacity(length(&self.0)));
        // Objects of JSON can always be written, and memory takes them.
        let _written = serde_json::to_writer(&mut *json, &self.0);
        json
    }
}

crate::not_shown!(SecureParams);

/// Overwrites JSON that was secret, with all that is in it. What is left of it is empty. Its text is what matters most, and is overwritten in
/// a way that no compiler leaves out.
fn erase(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => {
            *value = Value::from(0_u64);
            // Else nobody would look at it again, and it need not be written.
            black_box(value);
        }
        Value::String(text) => text.zeroize(),
        Value::Array(items) => {
            items.iter_mut().for_each(erase);
            items.clear();
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(erase);
            for (mut name, _) in std::mem::take(fields) {
                name.zeroize();
            }
        }
    }
}

/// How long the JSON of a value is, in bytes.
fn length(value: &Value) -> usize {
    let mut counted = Counter(0);
    // Nothing can go wrong where nothing is written.
    let _counted = serde_json::to_writer(&mut counted, value);
    counted.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_shown_of_them_in_passing() {
        let object = json!({ "password": "correct horse" });
        let params = SecureParams::new(object.as_object().unwrap().clone()).unwrap();
        assert_eq!(format!("{params:?}"), "SecureParams(not shown)");
        assert_eq!(params.value(), &object);
        assert_eq!(SecureParams::new(Map::new()), None);
    }

    #[test]
    fn nothing_is_left() {
        let secret = "correct horse";
        let mut value =
            json!({ "password": secret, "deeper": [{ "pin": 1234, secret: true }, secret, null] });
        erase(&mut value);
        assert_eq!(value, json!({}));
        for (mut value, left) in
            [(json!(secret), json!("")), (json!(1234.5), json!(0)), (json!([secret]), json!([]))]
        {
            erase(&mut value);
            assert_eq!(value, left);
        }
    }

    #[test]
    fn text_is_overwritten_where_it_is() {
        let mut text = Value::from("correct horse");
        let capacity = |value: &Value| match value {
            Value::String(text) => text.capacity(),
            _ => 0, // It is text.
        };
        let before = capacity(&text);
        erase(&mut text);
        assert_eq!(capacity(&text), before, "it is not given back before it is overwritten");
    }

    #[test]
    fn the_length_is_that_of_the_json() {
        for value in [json!({}), json!({ "é": ["\n", 1.5, null] }), json!("\u{1}"), json!([true, -7])] {
            assert_eq!(length(&value), value.to_string().len(), "{value}");
        }
    }
}
