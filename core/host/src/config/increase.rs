//! How fast a node may take on work.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// How many tasks may be started in a second: 1 and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Increase(pub u64);

impl<'de> Deserialize<'de> for Increase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let tasks = value.as_u64().filter(|tasks| *tasks > 0);
        tasks
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("expected a whole number from 1 on, got {value}")))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing;

    #[test]
    fn an_increase_is_a_whole_number_from_one_on() {
        let parse = |key: &str, value: &str| testing::parse(&format!(r#""{key}":{value}"#));
        for key in ["node_increase", "queue_increase"] {
            let config = parse(key, "5").unwrap();
            let (node, queue) = (config.node_increase, config.queue_increase);
            assert_eq!(node.or(queue).map(|increase| increase.0), Some(5));
            assert!(node.is_none() || queue.is_none());
            assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
            for wrong in ["0", "-1", "1.5", "\"5\"", "true", "[]"] {
                let error = parse(key, wrong).unwrap_err().to_string();
                let end = format!("{key}: expected a whole number from 1 on, got {wrong}");
                assert!(error.ends_with(&end), "{error}");
            }
            assert!(parse(key, "null").unwrap().node_increase.is_none(), "null is like not given");
        }
    }
}
