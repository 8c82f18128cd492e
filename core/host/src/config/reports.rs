//! What a node tells, and where: its log, metrics, traces and messages; and how long it is remembered who did what.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use disbatch_values::config::{address, is_address};
use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// How much to log, and where: Perl's Log4perl section, of which the level and the file name are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    pub level: Level,
    /// The file to append to; standard error when unset.
    pub file: Option<PathBuf>,
}

/// Log4perl's levels as far as they differ here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Level {
    Off,
    /// ERROR and FATAL.
    Error,
    Warn,
    /// INFO, the default.
    #[default]
    Info,
    Debug,
    /// TRACE and ALL.
    Trace,
}

impl Level {
    /// The level as a filter of `tracing_subscriber`, with the database driver and the web server kept quiet
    /// below `trace`.
    pub const fn as_filter(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info,actix_server=warn",
            Self::Debug => "debug,mongodb=info,hyper=info,actix_server=info",
            Self::Trace => "trace",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_uppercase().as_str() {
            "OFF" => Self::Off,
            "FATAL" | "ERROR" => Self::Error,
            "WARN" => Self::Warn,
            "INFO" => Self::Info,
            "DEBUG" => Self::Debug,
            "TRACE" | "ALL" => Self::Trace,
            _ => return None,
        })
    }
}

/// Log4perl's own format is open-ended, so its other keys are taken as known.
#[derive(Deserialize)]
struct Section {
    level: Option<String>,
    #[serde(default)]
    appenders: Map<String, Value>,
    #[serde(flatten)]
    _others: Map<String, Value>,
}

read_from!(Log, section: Section => {
    let level = match &section.level {
        None => Level::default(),
        Some(word) => Level::from_word(word).ok_or_else(|| {
            format!("level {word:?} is none of OFF, FATAL, ERROR, WARN, INFO, DEBUG, TRACE, ALL")
        })?,
    };
    let mut files = section.appenders.values().filter_map(|one| one.pointer("/args/filename")?.as_str());
    Ok(Log { level, file: files.next().map(PathBuf::from) })
});

/// How long entries are kept unless configured otherwise: days.
const DAYS_KEPT: u64 = 400;

/// The longest time that the server can be told: days.
const MOST_DAYS: u64 = 24_855;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Audit {
    /// After how many days entries go away; 0 stands for no end.
    #[serde(default, deserialize_with = "days")]
    keep_days: Option<u64>,
}

impl Audit {
    /// How long entries are kept: 400 days unless configured otherwise. `None`: for ever.
    pub fn kept(self) -> Option<Duration> {
        let days = self.keep_days.unwrap_or(DAYS_KEPT);
        (days > 0).then(|| Duration::from_secs(days.saturating_mul(86_400)))
    }
}

fn days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let expected =
        format!("expected a whole number of days from 1 to {MOST_DAYS}, or 0 for ever, got {value}");
    value.as_u64().filter(|days| *days <= MOST_DAYS).map(Some).ok_or_else(|| D::Error::custom(expected))
}

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

const TRACE_ID: &str = "{trace_id}";

/// Where people look at traces. Where they are sent is said by the variables of OpenTelemetry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Traces {
    /// The address of a trace; pages have no links to traces when unset.
    pub url: Option<TraceUrl>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceUrl(String);

impl TraceUrl {
    pub fn of(&self, id: &str) -> String {
        self.0.replace(TRACE_ID, id)
    }
}

read_from!(TraceUrl, url: String => {
    if is_address(&url) && url.contains(TRACE_ID) {
        return Ok(TraceUrl(url));
    }
    Err(format!("expected an address with http:// or https:// that has {TRACE_ID}, got {url:?}"))
});

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
    use super::*;
    use crate::config::tests::parse;

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
