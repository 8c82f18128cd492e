//! Who may use the web server, and how long they stay logged in.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// How long a session may be idle unless configured otherwise.
const IDLE: Duration = Duration::from_secs(12 * 3600);

/// How long a session lasts unless configured otherwise.
const WHOLE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Without being used.
    pub idle: Duration,
    pub whole: Duration,
}

/// The section `access`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Access {
    /// How long a session lasts without being used.
    #[serde(default)]
    session_idle: Option<Length>,
    /// How long a session lasts in all.
    #[serde(default)]
    session_lifetime: Option<Length>,
    /// A web server that requests come through.
    #[serde(default)]
    pub proxy: Option<Proxy>,
}

impl Access {
    /// How long sessions last: 12 hours idle and a week in all unless configured otherwise.
    pub fn session_limits(&self) -> SessionLimits {
        let length = |given: Option<Length>, default| given.map_or(default, |length| length.0);
        SessionLimits { idle: length(self.session_idle, IDLE), whole: length(self.session_lifetime, WHOLE) }
    }
}

/// A web server that requests come through, and is believed.
#[derive(Debug, Clone, Deserialize)]
pub struct Proxy {
    /// Where it is. What comes from anywhere else is not believed.
    pub addresses: Vec<Network>,
    /// The header that it puts the name of the user into whom it has let in. Unset: it asks nobody.
    #[serde(default)]
    pub user_header: Option<String>,
}

impl Proxy {
    /// Whether the proxy is at this address.
    pub fn is_at(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.0.contains(&address.to_canonical()))
    }
}

/// An address, or all that begin with the same bits: `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        network.map(Self).ok_or_else(|| {
            D::Error::custom(format!("expected an address such as 10.0.0.1 or 10.0.0.0/8, got {text:?}"))
        })
    }
}

/// Seconds, from one to ten years.
#[derive(Debug, Clone, Copy)]
struct Length(Duration);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let seconds = value.as_f64().filter(|seconds| (1.0..=315_360_000.0).contains(seconds));
        seconds.map(|seconds| Self(Duration::from_secs_f64(seconds))).ok_or_else(|| {
            D::Error::custom(format!("expected a number of seconds from 1 to 315360000, got {value}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Result<Access, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn sessions_last_as_configured() {
        let limits = access("{}").unwrap().session_limits();
        assert_eq!((limits.idle, limits.whole), (IDLE, WHOLE));
        let limits = access(r#"{"session_idle": 600, "session_lifetime": 3600.5}"#).unwrap().session_limits();
        assert_eq!((limits.idle.as_secs(), limits.whole.as_millis()), (600, 3_600_500));
        assert!(access(r#"{"session_idle": 0}"#).unwrap_err().contains("expected a number of seconds"));
    }

    #[test]
    fn a_proxy_is_where_it_is() {
        let text = r#"{"proxy": {"addresses": ["10.0.0.0/8", "::1"], "user_header": "X-Remote-User"}}"#;
        let proxy = access(text).unwrap().proxy.unwrap();
        for (address, expected) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("::1", true), ("127.0.0.1", false)]
        {
            assert_eq!(proxy.is_at(address.parse().unwrap()), expected, "{address}");
        }
        let error = access(r#"{"proxy": {"addresses": ["nowhere"]}}"#).unwrap_err();
        assert!(error.contains("expected an address such as"), "{error}");
        assert!(access(r#"{"proxy": {}}"#).unwrap_err().contains("addresses"));
    }
}
