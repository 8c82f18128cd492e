//! The names of the web server.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, de::Error};

/// The names and addresses that requests may use for the DCI, without port, besides those of its own host for itself.
/// At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNames(pub Vec<String>);

impl<'de> Deserialize<'de> for HostNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<HostName>::deserialize(deserializer)?;
        if names.is_empty() {
            return Err(D::Error::custom(
                "expected at least one name; without this key there is no such list",
            ));
        }
        Ok(Self(names.into_iter().map(|name| name.0).collect()))
    }
}

/// One of them.
struct HostName(String);

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = !text.is_empty() && text.bytes().all(is_of_name);
        if is_name || text.parse::<IpAddr>().is_ok() {
            return Ok(Self(text));
        }
        Err(D::Error::custom(format!("expected a name or an address without scheme and port, got {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        serde_json::from_str::<HostNames>(text).map(|names| names.0).map_err(|error| error.to_string())
    }

    #[test]
    fn names_and_addresses_are_taken_as_they_are() {
        let text = r#"["disbatch.example.com", "den_1", "10.0.0.5", "2001:db8::5", "xn--caf-dma.example"]"#;
        assert_eq!(names(text).unwrap().len(), 5);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for odd in ["https://a.example", "a.example:443", "[::1]", "*.example", "a b", ""] {
            let error = names(&serde_json::json!([odd]).to_string()).unwrap_err();
            assert!(error.contains("expected a name or an address"), "{odd}: {error}");
        }
        assert!(names("[]").unwrap_err().contains("at least one name"));
        assert!(names(r#""a.example""#).is_err());
    }
}
