//! Where traces are to be seen.

use serde::{Deserialize, Deserializer, de::Error};

/// What stands for the id of a trace.
const ID: &str = "{trace_id}";

/// Where people look at traces. Where they are sent is said by the variables of OpenTelemetry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Traces {
    /// The address of a trace; pages have no links to traces when unset.
    #[serde(default)]
    pub url: Option<TraceUrl>,
}

/// The address of a trace, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceUrl(String);

impl TraceUrl {
    /// The address of the trace with this id.
    pub fn of(&self, id: &str) -> String {
        self.0.replace(ID, id)
    }
}

impl<'de> Deserialize<'de> for TraceUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let url = String::deserialize(deserializer)?;
        let is_address = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        if is_address && url.contains(ID) {
            return Ok(Self(url));
        }
        Err(D::Error::custom(format!(
            "expected an address with http:// or https:// that has {ID}, got {url:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::parse;

    #[test]
    fn traces_have_an_address_by_their_id() {
        let config = parse(r#""traces":{"url":"https://t.example/trace/{trace_id}?a=1"}"#).unwrap();
        let url = config.traces.url.map(|url| url.of("0af7"));
        assert_eq!(
            (url.as_deref(), config.unknown_keys.len()),
            (Some("https://t.example/trace/0af7?a=1"), 0)
        );
        assert_eq!(parse(r#""quiet":0"#).unwrap().traces.url, None);
        for wrong in ["https://t.example/", "javascript:{trace_id}", "", "/trace/{trace_id}"] {
            let error = parse(&format!(r#""traces":{{"url":"{wrong}"}}"#)).unwrap_err().to_string();
            assert!(error.contains("traces.url: expected an address"), "{error}");
        }
    }
}
