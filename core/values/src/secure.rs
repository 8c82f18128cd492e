//! What only a plugin may see.

mod erase;

use std::fmt;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use erase::{erase, length};

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

impl fmt::Debug for SecureParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecureParams(not shown)")
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
}
