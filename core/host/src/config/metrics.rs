//! Where metrics are served.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// The metrics of a DEN. The DCI has a route for its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Metrics {
    /// Where the DEN listens for whoever collects them; nowhere when unset.
    #[serde(default, deserialize_with = "listen")]
    pub listen: Option<SocketAddr>,
}

/// A port stands for one that only this host reaches.
fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let of_port = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = match &value {
        Value::Null => return Ok(None),
        Value::Number(port) => port.as_u64().and_then(|port| u16::try_from(port).ok()).map(of_port),
        Value::String(text) => text.parse().ok().or_else(|| text.parse().ok().map(of_port)),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let expected = "expected a port, or an address with a port such as \"10.0.0.5:9464\" or \"[::]:9464\"";
    address.map(Some).ok_or_else(|| D::Error::custom(format!("{expected}, got {value}")))
}

#[cfg(test)]
mod tests {
    use crate::config::testing::parse;

    #[test]
    fn metrics_are_served_on_loopback_unless_an_address_is_told() {
        for (text, listen) in [
            (r#""quiet":0"#, None),
            (r#""metrics":{}"#, None),
            (r#""metrics":{"listen":null}"#, None),
            (r#""metrics":{"listen":9464}"#, Some("127.0.0.1:9464")),
            (r#""metrics":{"listen":"9464"}"#, Some("127.0.0.1:9464")),
            (r#""metrics":{"listen":"0.0.0.0:1"}"#, Some("0.0.0.0:1")),
            (r#""metrics":{"listen":"[::1]:9464"}"#, Some("[::1]:9464")),
        ] {
            let config = parse(text).unwrap();
            assert_eq!(config.metrics.listen.map(|address| address.to_string()).as_deref(), listen, "{text}");
            assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
        }
        for wrong in ["\"localhost:9464\"", "65536", "-1", "true", "\"\"", "\"10.0.0.5\""] {
            let error = parse(&format!(r#""metrics":{{"listen":{wrong}}}"#)).unwrap_err().to_string();
            assert!(error.contains("metrics.listen: expected a port, or an address with a port"), "{error}");
            assert!(error.ends_with(&format!("got {wrong}")), "{error}");
        }
        assert_eq!(parse(r#""metrics":{"port":1}"#).unwrap().unknown_keys, ["metrics.port"]);
    }
}
