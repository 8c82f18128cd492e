//! Where messages lead, and where they may go.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error};

/// What a node says about messages to people and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Notifications {
    /// The address of the pages, for the links in messages; there are none when unset.
    #[serde(deserialize_with = "address")]
    pub url: Option<String>,
    /// Private addresses that messages may be sent to: `host`, `host:port`, `*.domain`, a network such as `10.0.0.0/8`, or `*` for all.
    #[serde(deserialize_with = "places")]
    pub allow: Vec<String>,
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let url = Option::<String>::deserialize(deserializer)?;
    let is_address = |url: &String| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    match url {
        Some(url) if !is_address(&url) => {
            Err(D::Error::custom(format!("expected an address with http:// or https://, got {url:?}")))
        }
        url => Ok(url),
    }
}

fn places<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let places = Vec::<String>::deserialize(deserializer)?;
    let is_place = |place: &str| match place.contains('/') {
        true => place.parse::<IpNet>().is_ok(),
        false => !place.is_empty() && !place.contains(|c: char| c == ',' || c.is_whitespace()),
    };
    match places.iter().find(|place| !is_place(place)) {
        Some(odd) => {
            Err(D::Error::custom(format!("expected a host or a network such as 10.0.0.0/8, got {odd:?}")))
        }
        None => Ok(places),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::parse;

    #[test]
    fn messages_lead_to_an_address() {
        let config = parse(r#""notifications":{"url":"https://d.example","allow":["10.0.0.0/8"]}"#).unwrap();
        assert_eq!(config.notifications.url.as_deref(), Some("https://d.example"));
        assert_eq!((config.notifications.allow.len(), config.unknown_keys.len()), (1, 0));
        let error = parse(r#""notifications":{"url":"d.example"}"#).unwrap_err().to_string();
        assert!(error.contains("notifications.url: expected an address"), "{error}");
        for odd in ["10.0.0.0/33", "a b", "", "http://a/"] {
            let error = parse(&format!(r#""notifications":{{"allow":["{odd}"]}}"#)).unwrap_err().to_string();
            assert!(error.contains("expected a host or a network"), "{error}");
        }
    }
}
