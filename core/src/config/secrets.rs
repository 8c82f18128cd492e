//! Where the keys of secure parameters are.

use std::path::PathBuf;

use serde::Deserialize;

/// The keys of secure parameters, see [`crate::secrets`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Secrets {
    /// A file with a key on each line. A relative path is one from the folder of the configuration.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}
