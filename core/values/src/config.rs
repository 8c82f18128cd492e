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

/// The least memory that a plugin can be given: less, and no program starts.
const LEAST_MEMORY: u64 = 1024 * 1024;

/// No limit is larger: the kernel reckons with signed numbers in places.
pub const MOST_BYTES: u64 = i64::MAX.unsigned_abs();

pub fn memory_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(&Value::deserialize(deserializer)?, LEAST_MEMORY).map_err(D::Error::custom)
}

/// A number of bytes, or text with a unit; null is none.
pub fn bytes(value: &Value, least: u64) -> Result<Option<u64>, String> {
    let size = match value {
        Value::Null => return Ok(None),
        Value::String(text) => with_unit(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.as_u64(),
    };
    let expected =
        || format!("expected a number of bytes, at least {least}, or text such as \"512M\", got {value}");
    size.filter(|size| (least..=MOST_BYTES).contains(size)).map(Some).ok_or_else(expected)
}

/// `512`, `512K`, `512M`, `512G` or `512T`, each 1024 times as much as the one before. `iB` may follow.
fn with_unit(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_uppercase().trim_end_matches("IB") {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [("7", 7), ("7k", 7 << 10), ("7KiB", 7 << 10), ("1T", 1 << 40)] {
            assert_eq!(with_unit(text), Some(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "7 parsecs", "99999999999T", "1e3"] {
            assert_eq!(with_unit(text).filter(|bytes| *bytes <= MOST_BYTES), None, "{text}");
        }
    }
}
