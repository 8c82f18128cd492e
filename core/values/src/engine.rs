//! How a plugin is run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

crate::words! {
    /// How a plugin is run. Whatever it is, its runner starts a program for each task: that of the plugin's author, or one of
    /// ours which sees to the rest. Manifests name it by its word, which is also the key of its section there.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Engine {
        /// As a program: the task on its standard input, its output as the task's.
        #[default]
        Exec = "exec",
        /// As a Perl module with `new` and `run`, as Perl Disbatch runs it.
        Perl = "perl",
        /// As a program of Disbatch 4.4: with `--task`, and with an answer apart from its output.
        Program = "program",
        Container = "container",
        /// As a web service.
        Http = "http",
        /// As a job of Kubernetes.
        Kubernetes = "kubernetes",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no engine: expected one of {all}", all = Engine::ALL.map(Engine::as_str).join(", "))]
pub struct EngineError(String);

impl Engine {
    /// The program of ours that runs it with the means of another system. `None`: there is no such system.
    pub const fn adapter(self) -> Option<&'static str> {
        match self {
            Self::Exec | Self::Perl | Self::Program => None,
            Self::Container => Some("disbatch-container"),
            Self::Http => Some("disbatch-http"),
            Self::Kubernetes => Some("disbatch-kubernetes"),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Engine {
    type Err = EngineError;

    fn from_str(value: &str) -> Result<Self, EngineError> {
        Self::named(value).ok_or_else(|| EngineError(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_read_as_they_are_written() {
        for engine in Engine::ALL {
            assert_eq!(engine.as_str().parse(), Ok(engine));
            assert_eq!(serde_json::to_value(engine).unwrap(), engine.as_str());
        }
        let error = "Exec".parse::<Engine>().unwrap_err().to_string();
        assert!(error.starts_with("'Exec' is no engine: expected one of exec, perl"), "{error}");
    }
}
