//! What a case says of an answer, see "The conformance suite" of docs/clients.md.

use anyhow::{Result, bail, ensure};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

const OPERATORS: [&str; 7] = ["$any", "$save", "$re", "$len", "$type", "$exact", "$contains"];

/// Answers under the names that steps have saved them with.
pub type Known = Map<String, Value>;

/// The value with `$name` and `${name}` replaced, and what stands for a list or a time.
pub fn fill(value: &Value, known: &Known) -> Value {
    match value {
        Value::Object(fields) => {
            if let Some(one) = fields.get("$repeat") {
                let times = fields["times"].as_u64().and_then(|times| usize::try_from(times).ok());
                return vec![one.clone(); times.unwrap_or_default()].into();
            }
            if let Some(time) = fields.get("$time") {
                return time.clone();
            }
            let text =
                |key: &str| fill(&key.into(), known).as_str().map_or_else(|| key.to_owned(), str::to_owned);
            fields.iter().map(|(key, one)| (text(key), fill(one, known))).collect()
        }
        Value::Array(all) => all.iter().map(|one| fill(one, known)).collect(),
        Value::String(text) => filled(text, known),
        other => other.clone(),
    }
}

fn filled(text: &str, known: &Known) -> Value {
    if let Some((name, index)) = text.strip_prefix('$').map(|name| name.split_once('.').unwrap_or((name, "")))
    {
        match (known.get(name), index.parse::<usize>()) {
            (Some(found), Ok(index)) => return found[index].clone(),
            (Some(found), Err(_)) => return found.clone(),
            (None, _) => (), // It is a text that begins so.
        }
    }
    let shown = |name: &Captures<'_>| match known.get(&name[1]) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => name[0].to_owned(),
    };
    match Regex::new(r"\$\{([a-z_]+)\}") {
        Ok(pattern) => pattern.replace_all(text, shown).into_owned().into(),
        Err(error) => unreachable!("{error}"),
    }
}

/// How `have` is not what the pattern `want` says, as an error.
pub fn problem(want: &Value, have: Option<&Value>, known: &mut Known, at: &str) -> Result<()> {
    let shown = || have.map_or("missing".to_owned(), |have| have.to_string().chars().take(600).collect());
    if let Value::Object(fields) = want {
        if let Some((operator, operand)) = fields.iter().find(|(key, _)| OPERATORS.contains(&key.as_str())) {
            return match operator.as_str() {
                "$any" => Ok(()),
                "$save" => {
                    let name = operand.as_str().unwrap_or_default().to_owned();
                    known.insert(name, have.cloned().unwrap_or_default());
                    Ok(())
                }
                _ => {
                    ensure!(is_so(operator, operand, have, known)?, "{at} is {}, and not {want}", shown());
                    Ok(())
                }
            };
        }
        ensure!(have.is_some_and(Value::is_object), "{at} is {} and no object", shown());
        return fields.iter().try_for_each(|(key, one)| {
            problem(one, have.and_then(|have| have.get(key)), known, &format!("{at}.{key}"))
        });
    }
    let want = fill(want, known);
    if let Value::Array(wanted) = &want {
        let all = have.and_then(Value::as_array).filter(|all| all.len() == wanted.len());
        let Some(all) = all else { bail!("{at} is {} and not {} long", shown(), wanted.len()) };
        let mut both = wanted.iter().zip(all).enumerate();
        return both.try_for_each(|(n, (one, have))| problem(one, Some(have), known, &format!("{at}.{n}")));
    }
    ensure!(have == Some(&want), "{at} is {} and not {want}", shown());
    Ok(())
}

fn is_so(operator: &str, operand: &Value, have: Option<&Value>, known: &mut Known) -> Result<bool> {
    let Some(have) = have else { return Ok(false) };
    Ok(match operator {
        "$re" => {
            let pattern = Regex::new(operand.as_str().unwrap_or_default())?;
            have.as_str().is_some_and(|text| pattern.is_match(text))
        }
        "$len" => {
            let length = match have {
                Value::String(text) => text.chars().count(),
                Value::Array(all) => all.len(),
                _ => return Ok(false), // It has none.
            };
            operand.as_u64() == u64::try_from(length).ok()
        }
        "$type" => match operand.as_str() {
            Some("string") => have.is_string(),
            Some("number") => have.is_number(),
            Some("array") => have.is_array(),
            Some("object") => have.is_object(),
            _ => bail!("{operand} is no type"),
        },
        "$exact" => have == operand,
        "$contains" => {
            let mut rest = have.as_array().into_iter().flatten();
            let mut wanted = operand.as_array().into_iter().flatten();
            wanted.all(|want| {
                let want = fill(want, known);
                rest.any(|one| problem(&want, Some(one), known, "").is_ok())
            })
        }
        other => bail!("there is no operator {other}"),
    })
}
