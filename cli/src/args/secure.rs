//! Secure parameters of new tasks. They come from a file: on the command line, everybody on this machine would see them.

use std::io;
use std::path::Path;

use anyhow::{Context, bail};
use disbatch_values::relaxed;
use disbatch_values::secure::SecureParams;
use serde_json::Value;

/// Reads an object, in strict JSON or as configurations are written; `-` is standard input. An empty one is none.
pub fn read(path: &Path) -> anyhow::Result<Option<SecureParams>> {
    let name = path.display();
    let text = if is_stdin(path) { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.with_context(|| format!("cannot read --secure-params-file {name}"))?;
    match serde_json::from_str(&relaxed::to_strict(&text)) {
        Ok(Value::Object(object)) => Ok(SecureParams::new(object)),
        Ok(_) => bail!("--secure-params-file {name} must have a JSON object"),
        Err(error) => bail!(
            "--secure-params-file {name} must have a JSON object, and is no JSON at line {} column {}",
            error.line(),
            error.column()
        ),
    }
}

/// Whether standard input is meant.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_json_or_relaxed_json_and_no_message_shows_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secure.json");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path).map(|params| params.map(|params| params.value().clone()))
        };
        let expected = json!({ "password": "correct # horse" });
        assert_eq!(of(&expected.to_string()).unwrap(), Some(expected.clone()));
        assert_eq!(
            of("{ # of the mail server\n  \"password\": \"correct # horse\",\n}\n").unwrap(),
            Some(expected)
        );
        assert_eq!(of("{}").unwrap(), None);
        for wrong in ["", "horse", "\"horse\"", "[\"horse\"]", "{\"a\": horse}", "{\"a\": \"horse\""] {
            let message = format!("{:#}", of(wrong).unwrap_err());
            assert!(message.contains("secure.json must have a JSON object"), "{message}");
            assert!(!message.contains("horse"), "{message}");
        }
        let missing = format!("{:#}", read(&folder.path().join("none")).unwrap_err());
        assert!(missing.starts_with("cannot read --secure-params-file"), "{missing}");
    }
}
