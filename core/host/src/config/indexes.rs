//! Which indexes a database gets.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// Which of its indexes a DEN creates. Those that are there stay, whatever it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Indexes {
    /// Those of Perl Disbatch, all of them, and those of this project.
    #[default]
    Exact,
    /// The same without those that only programs of Perl Disbatch need.
    Lean,
}

impl<'de> Deserialize<'de> for Indexes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::Null => Ok(Self::default()),
            Value::String(word) if word == "exact" => Ok(Self::Exact),
            Value::String(word) if word == "lean" => Ok(Self::Lean),
            other => Err(D::Error::custom(format!("expected \"exact\" or \"lean\", got {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Indexes;
    use crate::config::testing::parse;

    #[test]
    fn indexes_are_exact_unless_they_are_lean() {
        for (text, indexes) in [
            (r#""indexes":"lean""#, Indexes::Lean),
            (r#""indexes":"exact""#, Indexes::Exact),
            (r#""indexes":null"#, Indexes::Exact),
            (r#""quiet":0"#, Indexes::Exact),
        ] {
            let config = parse(text).unwrap();
            assert_eq!(config.indexes, indexes, "{text}");
            assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
        }
        for wrong in ["\"Lean\"", "true", "[\"lean\"]", "\"\""] {
            let error = parse(&format!("\"indexes\":{wrong}")).unwrap_err().to_string();
            let end = format!("indexes: expected \"exact\" or \"lean\", got {wrong}");
            assert!(error.ends_with(&end), "{error}");
        }
    }
}
