//! For tests of what a configuration says.

use std::path::Path;

use super::{Config, ConfigError};

/// A configuration with these keys, and with those that must be there.
///
/// # Errors
/// A value is wrong.
pub fn parse(keys: &str) -> Result<Config, ConfigError> {
    let text = format!(r#"{{"mongohost":"h","database":"d",{keys}}}"#);
    Config::parse(&text, Path::new("/etc/disbatch/config.json"))
}
