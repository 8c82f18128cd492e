//! For tests of what a manifest says.

use super::Manifest;

/// A manifest with this key, and with those that must be there.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(key: &str, value: &str) -> Result<Manifest, String> {
    let text = format!(r#"{{ "name": "A", "command": ["a"], "{key}": {value} }}"#);
    Manifest::parse(&text).map_err(|error| error.to_string())
}
