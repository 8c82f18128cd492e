//! Secrets in what a manifest says.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

/// What begins the name of a secret in a value, and what ends it.
const MARKS: (&str, &str) = ("{{secret:", "}}");

/// A value with the secrets that it names.
#[derive(Debug)]
pub struct Filled {
    pub text: Zeroizing<String>,
    /// Whether there is a secret in it.
    pub is_secret: bool,
}

/// `value` with the plugin's secrets in the place of `{{secret:NAME}}`. `of` is its place in the manifest.
///
/// # Errors
/// The plugin has no such secret, or the mark has no end. Shows no values.
pub fn fill(of: &str, value: &str, secrets: &BTreeMap<String, String>) -> Result<Filled, String> {
    let (begin, end) = MARKS;
    let mut text = Zeroizing::new(String::new());
    let mut rest = value;
    let mut is_secret = false;
    while let Some((before, after)) = rest.split_once(begin) {
        let (name, after) = after.split_once(end).ok_or_else(|| format!("{of}: {begin} without {end}"))?;
        let secret = secrets.get(name.trim());
        let secret =
            secret.ok_or_else(|| format!("{of}: the plugin has no secret '{}' here", name.trim()))?;
        text.push_str(before);
        text.push_str(secret);
        rest = after;
        is_secret = true;
    }
    text.push_str(rest);
    Ok(Filled { text, is_secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Result<(String, bool), String> {
        let secrets = BTreeMap::from([("token".to_owned(), "horse".to_owned())]);
        fill("http.url", value, &secrets).map(|filled| (filled.text.to_string(), filled.is_secret))
    }

    #[test]
    fn secrets_stand_where_they_are_named() {
        assert_eq!(of("x{{secret:token}}y{{secret: token }}"), Ok(("xhorseyhorse".to_owned(), true)));
        assert_eq!(of("{{ secret:token }} {{x}}"), Ok(("{{ secret:token }} {{x}}".to_owned(), false)));
        assert_eq!(of(""), Ok((String::new(), false)));
        assert_eq!(of("{{secret:other}}"), Err("http.url: the plugin has no secret 'other' here".to_owned()));
        assert_eq!(of("{{secret:x"), Err("http.url: {{secret: without }}".to_owned()));
    }
}
