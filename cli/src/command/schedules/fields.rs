//! From the options of a command to the fields of a schedule.

use std::io;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use disbatch_values::relaxed;
use disbatch_wire::fields;
use disbatch_wire::liberal::Set;
use disbatch_wire::schedules::{Schedule, ScheduleChange};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::given;
use crate::args::{CalendarRules, ScheduleSettings, secure};

/// The fields that are to be sent: those of the file, and those of the command line in place of them.
pub fn of(settings: &ScheduleSettings) -> anyhow::Result<Map<String, Value>> {
    let mut body = settings.file.as_deref().map(read).transpose()?.unwrap_or_default();
    let set = |value: Option<Value>| value.map(|value| Set(Some(value)));
    let fields = ScheduleChange {
        cron: set((!settings.cron.is_empty()).then(|| json!(settings.cron))),
        calendars: set(uses(&settings.calendars)),
        params: set(params(settings)?),
        ..settings.fields.clone()
    };
    body.extend(object(&fields)?);
    let secure = settings.secure_params.as_ref().map(|params| params.value().clone());
    body.extend(given(vec![(".secure_params", secure)]));
    let options = object(&settings.options)?;
    if !options.is_empty() {
        match body.entry("options").or_insert_with(|| json!({})) {
            Value::Object(object) => object.extend(options),
            _ => bail!("options of the file must be an object"),
        }
    }
    Ok(body)
}

fn object(fields: &impl Serialize) -> anyhow::Result<Map<String, Value>> {
    Ok(serde_json::from_value(serde_json::to_value(fields)?)?)
}

/// Sets fields to null, which takes them back to the default. A dot leads into the options.
pub fn unset(body: &mut Map<String, Value>, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let object = match name.strip_prefix("options.") {
            None => &mut *body,
            Some(_) => match body.entry("options").or_insert_with(|| json!({})) {
                Value::Object(object) => object,
                _ => bail!("options of the file must be an object"),
            },
        };
        let key = name.strip_prefix("options.").unwrap_or(name);
        ensure!(object.insert(key.to_owned(), Value::Null).is_none(), "'{name}' is set and unset");
    }
    Ok(())
}

/// Calendars as a schedule has them.
pub fn uses(CalendarRules { exclude, only }: &CalendarRules) -> Option<Value> {
    let of = |names: &[String], how: &str| -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name, "use": how })).collect()
    };
    let all = [of(exclude, "exclude"), of(only, "only")].concat();
    (!all.is_empty()).then(|| Value::from(all))
}

fn params(settings: &ScheduleSettings) -> anyhow::Result<Option<Value>> {
    if let Some(text) = &settings.params {
        let value: Value = serde_json::from_str(text)
            .with_context(|| format!("the parameters are no JSON object: '{text}'"))?;
        ensure!(value.is_object(), "the parameters are no JSON object: '{text}'");
        return Ok(Some(value));
    }
    let mut params = Map::new();
    for word in &settings.param {
        let (name, text) = word
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .with_context(|| format!("'{word}' is no parameter: write name=text"))?;
        params.insert(name.to_owned(), text.into());
    }
    Ok((!params.is_empty()).then_some(Value::Object(params)))
}

/// An object in a file, without what is only told of a schedule that there is.
fn read(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let name = path.display();
    let text =
        if secure::is_stdin(path) { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.with_context(|| format!("cannot read --file {name}"))?;
    let value: Value = serde_json::from_str(&relaxed::to_strict(&text))
        .with_context(|| format!("--file {name} must have a JSON object"))?;
    let Value::Object(mut object) = value else { bail!("--file {name} must have a JSON object") };
    let (told, set) = (fields::of::<Schedule>(), fields::of::<ScheduleChange>());
    let is_told = |key: &str| told.contains(&key) && !set.contains(&key);
    // What is not set is as good as not there.
    object.retain(|key, value| !is_told(key) && !value.is_null());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ScheduleCommand;
    use crate::command::schedules::tests::command;

    fn settings(words: &[&str]) -> ScheduleSettings {
        let ScheduleCommand::Create(new) = command(&[&["create", "a"], words].concat()) else { panic!() };
        new.settings
    }

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(of(&settings(&[])).unwrap().is_empty());
        let words = ["--queue", "mail", "--cron", "0 3 * * *", "--param", "to=a=b", "--jitter", "5m"];
        let times = ["--start", "2026-12-01", "--end", "1795163067", "--exclude", "holidays"];
        let more = ["--only", "workdays", "--timeout", "60", "--lock", "db/shared", "--paused"];
        let some = settings(&[&words[..], &times, &more].concat());
        let expected = json!({
            "queue": "mail", "cron": ["0 3 * * *"], "params": { "to": "a=b" }, "jitter": 300,
            "start": "2026-12-01", "end": 1_795_163_067, "paused": true,
            "calendars": [{ "name": "holidays", "use": "exclude" }, { "name": "workdays", "use": "only" }],
            "options": { "timeout": 60, "locks": ["db/shared"] },
        });
        assert_eq!(Value::Object(of(&some).unwrap()), expected);
    }

    #[test]
    fn a_schedule_that_was_shown_can_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule.json");
        let shown = json!({
            "id": "6b0003bb686c8275d8014444", "name": "nightly", "queue": "6b0003bb686c8275d70dc2f1",
            "queue_name": "mail", "cron": ["@daily"], "zone": "UTC", "end": null, "rev": 3, "next": "2026-11-20T08:24:27",
            "options": { "timeout": 5 }, "last": null, "counts": { "fired": 1, "skipped": 0 },
        });
        std::fs::write(&path, shown.to_string()).unwrap();
        let words = ["--file", path.to_str().unwrap(), "--priority", "7", "--zone", "Europe/Berlin"];
        let again = settings(&words);
        let expected = json!({
            "name": "nightly", "queue": "6b0003bb686c8275d70dc2f1", "cron": ["@daily"], "zone": "Europe/Berlin",
            "options": { "timeout": 5, "priority": 7 },
        });
        assert_eq!(Value::Object(of(&again).unwrap()), expected);
        std::fs::write(&path, "[1]").unwrap();
        assert!(of(&again).unwrap_err().to_string().contains("must have a JSON object"));
    }

    #[test]
    fn what_is_unset_is_null_and_not_set() {
        let mut body = of(&settings(&["--timeout", "5"])).unwrap();
        unset(&mut body, &["end".into(), "options.group".into()]).unwrap();
        assert_eq!(
            Value::Object(body.clone()),
            json!({ "end": null, "options": { "timeout": 5, "group": null } })
        );
        let error = unset(&mut body, &["options.timeout".into()]).unwrap_err().to_string();
        assert_eq!(error, "'options.timeout' is set and unset");
    }

    #[test]
    fn parameters_are_an_object_or_words() {
        let of = |json: Option<&str>, words: &[&str]| {
            params(&ScheduleSettings {
                params: json.map(str::to_owned),
                param: words.iter().map(|word| (*word).to_owned()).collect(),
                ..ScheduleSettings::default()
            })
        };
        assert_eq!(of(Some("{\"n\":1}"), &[]).unwrap(), Some(json!({ "n": 1 })));
        assert_eq!(of(None, &[]).unwrap(), None);
        assert!(of(Some("[1]"), &[]).is_err() && of(Some("{"), &[]).is_err());
        assert!(of(None, &["x"]).is_err() && of(None, &["=x"]).is_err());
    }
}
