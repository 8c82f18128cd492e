//! Values that configurations have in many places.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A switch: `true`, `false`, or Perl's 1, 0, "1", "0", "" and null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flag(pub bool);

impl Flag {
    pub fn from_value(value: &Value) -> Option<bool> {
        match (value, value.as_i64(), value.as_str()) {
            (Value::Bool(flag), ..) => Some(*flag),
            (Value::Null, ..) | (_, Some(0), _) | (.., Some("" | "0")) => Some(false),
            (_, Some(1), _) | (.., Some("1")) => Some(true),
            _ => None, // No other number or text is one, and no array or object.
        }
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("expected true, false, 1 or 0, got {value}")))
    }
}

/// A switch that is on unless it is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnByDefault(pub bool);

impl Default for OnByDefault {
    fn default() -> Self {
        Self(true)
    }
}

impl<'de> Deserialize<'de> for OnByDefault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Flag::deserialize(deserializer).map(|Flag(on)| Self(on))
    }
}

pub fn is_address(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Reads an address of the web; null is none.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let url = Option::<String>::deserialize(deserializer)?;
    match url {
        Some(url) if !is_address(&url) => {
            Err(D::Error::custom(format!("expected an address with http:// or https://, got {url:?}")))
        }
        url => Ok(url),
    }
}
