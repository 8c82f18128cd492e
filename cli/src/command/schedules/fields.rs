//! From the options of a command to the fields of a schedule.

use std::io;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use disbatch_values::relaxed;
use serde_json::{Map, Value, json};

use super::given;
use crate::args::{ScheduleSettings, seconds, secure};

/// What a schedule is shown with, and cannot be made with.
const TOLD: [&str; 14] = [
    "id",
    "rev",
    "next",
    "last",
    "counts",
    "created",
    "changed",
    "owner",
    "queue_name",
    "has_secure_params",
    "last_success",
    "storage",
    "stored_for",
    "firing",
];

/// The fields that are to be sent: those of the file, and those of the command line in place of them.
pub fn of(settings: &ScheduleSettings) -> anyhow::Result<Map<String, Value>> {
    let mut body = settings.file.as_deref().map(read).transpose()?.unwrap_or_default();
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let all = vec![
        ("queue", text(&settings.queue)),
        ("cron", several(&settings.cron)),
        ("zone", text(&settings.zone)),
        ("params", params(settings)?),
        ("description", text(&settings.description)),
        ("tenant", text(&settings.tenant)),
        ("gap", text(&settings.gap)),
        ("fold", text(&settings.fold)),
        ("jitter", settings.jitter.map(seconds::value)),
        ("start", settings.start.as_deref().map(point)),
        ("end", settings.end.as_deref().map(point)),
        ("calendars", calendars(settings)),
        ("overlap", text(&settings.overlap)),
        ("catch_up", settings.catch_up.map(seconds::value)),
        ("paused", settings.paused.then_some(Value::Bool(true))),
        (".secure_params", settings.secure_params.as_ref().map(|params| params.value().clone())),
    ];
    body.extend(given(all));
    let options = options(settings);
    if !options.is_empty() {
        match body.entry("options").or_insert_with(|| json!({})) {
            Value::Object(object) => object.extend(options),
            _ => bail!("options of the file must be an object"),
        }
    }
    Ok(body)
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

/// A point in time: seconds since 1970 as a number, anything else as text for the DCI to read.
pub fn point(text: &str) -> Value {
    match text.parse::<u64>() {
        Ok(seconds) => seconds.into(),
        Err(_) => text.into(),
    }
}

/// Calendars as a schedule has them.
pub fn uses(exclude: &[String], only: &[String]) -> Option<Value> {
    let of = |names: &[String], how: &str| -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name, "use": how })).collect()
    };
    let all = [of(exclude, "exclude"), of(only, "only")].concat();
    (!all.is_empty()).then(|| Value::from(all))
}

fn calendars(settings: &ScheduleSettings) -> Option<Value> {
    uses(&settings.exclude, &settings.only)
}

fn several(texts: &[String]) -> Option<Value> {
    (!texts.is_empty()).then(|| json!(texts))
}

fn options(settings: &ScheduleSettings) -> Map<String, Value> {
    given(vec![
        ("timeout", settings.timeout.map(seconds::value)),
        ("grace", settings.grace.map(seconds::value)),
        ("max_attempts", settings.max_attempts.map(Value::from)),
        ("priority", settings.priority.map(Value::from)),
        ("group", settings.group.clone().map(Value::from)),
        ("locks", several(&settings.lock)),
    ])
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
    object.retain(|key, _| !TOLD.contains(&key.as_str()));
    // What is not set is as good as not there.
    object.retain(|_, value| !value.is_null());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn settings() -> ScheduleSettings {
        ScheduleSettings::default()
    }

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(of(&settings()).unwrap().is_empty());
        let some = ScheduleSettings {
            queue: Some("mail".into()),
            cron: vec!["0 3 * * *".into()],
            param: vec!["to=a=b".into()],
            jitter: Some(Duration::from_secs(300)),
            start: Some("2026-12-01".into()),
            end: Some("1795163067".into()),
            exclude: vec!["holidays".into()],
            only: vec!["workdays".into()],
            timeout: Some(Duration::from_secs(60)),
            lock: vec!["db/shared".into()],
            paused: true,
            ..settings()
        };
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
        let again = ScheduleSettings {
            file: Some(path.clone()),
            priority: Some(7),
            zone: Some("Europe/Berlin".into()),
            ..settings()
        };
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
        let mut body = of(&ScheduleSettings { timeout: Some(Duration::from_secs(5)), ..settings() }).unwrap();
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
                ..settings()
            })
        };
        assert_eq!(of(Some("{\"n\":1}"), &[]).unwrap(), Some(json!({ "n": 1 })));
        assert_eq!(of(None, &[]).unwrap(), None);
        assert!(of(Some("[1]"), &[]).is_err() && of(Some("{"), &[]).is_err());
        assert!(of(None, &["x"]).is_err() && of(None, &["=x"]).is_err());
    }
}
