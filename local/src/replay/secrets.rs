//! What is secret, and therefore not in a bundle.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use console::Term;
use disbatch_cli::input;
use disbatch_core::json::to_strict;
use disbatch_core::secrets::{FIELD, SecureParams};
use serde_json::{Map, Value};

#[derive(Default)]
pub struct Secrets {
    pub secure_params: Option<SecureParams>,
    pub variables: BTreeMap<String, String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// Those that are needed: from the file, or from who sits at the terminal.
pub fn given(needed: &[String], file: Option<&Path>) -> anyhow::Result<Secrets> {
    let all = read_or_ask(needed, file)?;
    let missing: Vec<&str> =
        needed.iter().filter(|name| !all.contains_key(*name)).map(String::as_str).collect();
    if !missing.is_empty() {
        bail!(
            "the plugin was given what is secret and not in the bundle: {}. Give it by --secrets",
            missing.join(", ")
        );
    }
    let mut secrets = Secrets::default();
    for (name, value) in all.into_iter().filter(|(name, _)| needed.contains(name)) {
        match value {
            Value::Object(object) if name == FIELD => secrets.secure_params = SecureParams::new(object),
            _ if name == FIELD => bail!("{FIELD} must be an object"),
            Value::String(text) => drop(secrets.variables.insert(name, text)),
            _ => bail!("the secret {name} must be text"),
        }
    }
    Ok(secrets)
}

/// What the file has, and what is needed besides, if there is a terminal to ask for it.
pub fn read_or_ask(needed: &[String], file: Option<&Path>) -> anyhow::Result<Map<String, Value>> {
    let mut all = file.map(read).transpose()?.unwrap_or_default();
    let terminal = Term::stderr();
    if !std::io::stdin().is_terminal() || !terminal.is_term() {
        return Ok(all);
    }
    for name in needed {
        if all.contains_key(name) {
            continue;
        }
        let hint = if name == FIELD { " (a JSON object)" } else { "" };
        terminal.write_str(&format!("{name}{hint}: "))?;
        let line = terminal.read_secure_line().context("cannot read what is secret")?;
        let value = if name == FIELD {
            // What is wrong with it is not quoted: it is secret.
            serde_json::from_str(&line).map_err(|_| anyhow!("{FIELD} is no JSON"))?
        } else {
            line.into()
        };
        all.insert(name.clone(), value);
    }
    Ok(all)
}

fn read(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    let text = input::contents(path).with_context(|| format!("cannot read --secrets {name}"))?;
    // What is wrong with it is not quoted: it is secret.
    match serde_json::from_str(&to_strict(&text)) {
        Ok(Value::Object(object)) => Ok(object),
        _ => bail!("--secrets {name} must have a JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_named_that_are_missing_and_not_shown_that_are_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.json");
        let with = |text: &str, needed: &[&str]| {
            std::fs::write(&path, text).unwrap();
            given(&needed.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), Some(&path))
        };
        let both = with(
            r#"{ "secure_params": { "a": "horse" }, "KEY": "x", "OTHER": 1 }"#,
            &["secure_params", "KEY"],
        )
        .unwrap();
        assert!(both.secure_params.is_some() && both.variables["KEY"] == "x" && both.variables.len() == 1);
        let missing = with("{}", &["secure_params", "KEY"]).unwrap_err().to_string();
        assert!(missing.contains("not in the bundle: secure_params, KEY. "), "{missing}");
        for wrong in [r#"{ "secure_params": "horse" }"#, r#"["horse"]"#, "horse"] {
            let error = format!("{:#}", with(wrong, &["secure_params"]).unwrap_err());
            assert!(!error.contains("horse"), "{error}");
        }
        assert!(given(&[], None).unwrap().secure_params.is_none());
    }
}
