//! How long it is remembered who did what.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// How long entries are kept unless configured otherwise: days.
const KEPT: u64 = 400;

/// The longest time that the server can be told: days.
const LONGEST: u64 = 24_855;

/// The section `audit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Audit {
    /// After how many days entries go away.
    #[serde(default)]
    keep_days: Days,
}

impl Audit {
    /// How long entries are kept: 400 days unless configured otherwise. `None`: for ever.
    pub fn kept(self) -> Option<Duration> {
        (self.keep_days.0 > 0).then(|| Duration::from_secs(self.keep_days.0.saturating_mul(86_400)))
    }
}

/// Whole days. 0 stands for no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days(u64);

impl Default for Days {
    fn default() -> Self {
        Self(KEPT)
    }
}

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let days = value.as_u64().filter(|days| *days <= LONGEST);
        days.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "expected a whole number of days from 1 to {LONGEST}, or 0 for ever, got {value}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_as_long_as_configured() {
        let kept = |text: &str| {
            let audit: Result<Audit, _> = serde_json::from_str(text);
            audit
                .map(|audit| audit.kept().map(|kept| kept.as_secs() / 86_400))
                .map_err(|error| error.to_string())
        };
        assert_eq!(kept("{}"), Ok(Some(400)));
        assert_eq!(kept(r#"{"keep_days": 30}"#), Ok(Some(30)));
        assert_eq!(kept(r#"{"keep_days": 0}"#), Ok(None));
        assert_eq!(kept(r#"{"keep_days": 24855}"#), Ok(Some(24_855)));
        for wrong in ["-1", "24856", "1.5", "\"30\"", "null", "[]"] {
            let error = kept(&format!(r#"{{"keep_days": {wrong}}}"#)).unwrap_err();
            assert!(error.contains("expected a whole number of days"), "{error}");
        }
    }
}
