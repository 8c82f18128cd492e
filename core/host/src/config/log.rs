//! Perl's Log4perl section, of which the level and the file name are used.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// How much to log, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The least severe events to log.
    pub level: Level,
    /// The file to append to; standard error when unset.
    pub file: Option<PathBuf>,
}

/// Log4perl's levels as far as they differ here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
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
    #[serde(default)]
    level: Option<String>,
    #[serde(default)]
    appenders: Map<String, Value>,
    #[serde(flatten)]
    _others: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Log {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let section = Section::deserialize(deserializer)?;
        let level = match &section.level {
            None => Level::default(),
            Some(word) => Level::from_word(word).ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "level {word:?} is none of OFF, FATAL, ERROR, WARN, INFO, DEBUG, TRACE, ALL"
                ))
            })?,
        };
        let file = section
            .appenders
            .values()
            .find_map(|appender| appender.pointer("/args/filename")?.as_str())
            .map(PathBuf::from);
        Ok(Self { level, file })
    }
}
