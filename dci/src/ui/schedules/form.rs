//! `GET /schedules/new` and `GET /schedules/:id/edit`: the form of a schedule, which shows when it would run. Without script a
//! button shows it; with script it is shown while somebody types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::plugin::Template as Prefilled;
use disbatch_core::schedules::{Fold, Gap, Overlap, Schedule, Spec, Zone};
use disbatch_core::tags::TAGS;
use disbatch_wire::liberal::list;
use disbatch_wire::schedules::PreviewOptions;
use serde_json::{Map, Value};

use super::words::Timeline;
use crate::access::{NamedSchedule, Who, may_change_schedule};
use crate::error::HttpError;
use crate::openapi::JSON_OR_PAGE;
use crate::params::{Lenient, Params};
use crate::schedules::Given;
use crate::state::State;
use crate::ui::queue::{form_of, template_of};
use crate::ui::schema::Form;
use crate::ui::{Rendered, text};
use crate::values::{tag_line, tag_list};
use crate::{json, schedules, ui};

/// The names of all time zones. Those of the host may change while this runs; then the new ones can be typed.
pub static ZONES: LazyLock<Vec<String>> = LazyLock::new(Zone::names);

#[derive(Template)]
#[template(path = "schedule_form.html")]
struct FormPage {
    /// The schedule that is changed; none: a new one is made.
    schedule: Option<Schedule>,
    message: Option<String>,
    values: Values,
    /// Each with whether the form is another one for it.
    queues: Vec<(Queue, bool)>,
    chosen: Option<QueueId>,
    /// What the plugin of the chosen queue describes.
    form: Option<Form>,
    has_keys: bool,
    calendars: Vec<String>,
    preview: Preview,
}

impl FormPage {
    fn has_templates(&self) -> bool {
        self.queues.iter().any(|(_, has_template)| *has_template)
    }

    /// The names of the calendars, and whether they are chosen in a field.
    fn calendars(&self, field: &str) -> impl Iterator<Item = (&str, bool)> {
        let chosen: Vec<&str> = self.values.of(field).lines().collect();
        self.calendars.iter().map(move |name| (name.as_str(), chosen.contains(&name.as_str())))
    }
}

/// The form for a new schedule: of `queue` and with what the author of its plugin has forms begin with.
#[utoipa::path(
    get, path = "/schedules/new", tag = "schedules", operation_id = "newSchedule",
    params(("queue" = Option<String>, Query, description = "The id of the queue that is chosen at first.")),
    responses((status = 200, description = "The form.", body = String, content_type = "text/html")),
)]
pub async fn new(state: Data<State>, who: Who, Lenient(params): Lenient) -> Rendered {
    let queue = text(params.fields.get("queue"));
    let reach = who.reach(Role::Submitter);
    let (queues, plugins) = futures::try_join!(state.store.queues_within(&reach), state.catalogue())?;
    let chosen = queues.iter().find(|known| known.id.to_string() == queue);
    let values = chosen.map(|queue| Values::of_template(queue, &template_of(&plugins, queue)));
    let page = page(&state, &who, None, values.unwrap_or_default(), Preview::default()).await?;
    ui::render(&page)
}

/// The form for changes of a schedule.
#[utoipa::path(
    get, path = "/schedules/{id}/edit", tag = "schedules", operation_id = "editSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    responses(
        (status = 200, description = "The form.", body = String, content_type = "text/html"),
        (status = 404, description = "There is no such schedule. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn edit(state: Data<State>, who: Who, named: NamedSchedule) -> Rendered {
    let schedule = schedules::find(&state, &named).await?;
    may_change_schedule(&who, &schedule, &state).await?;
    let preview = Preview::gather(&state, Ok(schedule.settings.spec.clone()), Some(&schedule)).await?;
    let values = Values::of_schedule(&json::value_of(&schedules::view(&schedule, None))?);
    ui::render(&page(&state, &who, Some(&schedule), values, preview).await?)
}

/// The form as it was filled in, with what is wrong with it, if something is.
pub async fn again(
    state: &State,
    who: &Who,
    params: &Params,
    schedule: Option<&Schedule>,
    error: Option<&HttpError>,
) -> Rendered {
    let is_told =
        |error: &&HttpError| [StatusCode::BAD_REQUEST, StatusCode::CONFLICT].contains(&error.status());
    if let Some(other) = error.filter(|error| !is_told(error)) {
        return Err(other.clone());
    }
    let preview = Preview::of_request(state, params, schedule).await?;
    let mut page = page(state, who, schedule, Values::of_request(params), preview).await?;
    page.message = error.map(|error| error.message().to_owned());
    ui::render_with(error.map_or(StatusCode::OK, HttpError::status), &page)
}

async fn page(
    state: &State,
    who: &Who,
    schedule: Option<&Schedule>,
    values: Values,
    preview: Preview,
) -> Result<FormPage, HttpError> {
    let reach = who.reach(Role::Submitter);
    let (queues, calendars, plugins) = futures::try_join!(
        state.store.queues_within(&reach),
        state.store.list_calendars(),
        state.catalogue(),
    )?;
    let wanted = values.of("queue");
    let is_wanted = |name: String| !wanted.is_empty() && name == wanted;
    let is_chosen = |queue: &Queue| is_wanted(queue.id.to_string()) || is_wanted(queue.display_name());
    let chosen = queues.iter().find(|queue| is_chosen(queue));
    let form = chosen.and_then(|queue| form_of(&plugins, queue));
    let chosen = chosen.map(|queue| queue.id);
    let with_template = |queue: Queue| {
        let is_prefilled = template_of(&plugins, &queue) != Prefilled::default();
        let has_template = is_prefilled || form_of(&plugins, &queue).is_some();
        (queue, has_template)
    };
    let params = serde_json::from_str(values.of("params")).unwrap_or_default();
    Ok(FormPage {
        schedule: schedule.cloned(),
        message: None,
        form: form.map(|form| form.with(&params)).filter(|form| !form.fields.is_empty()),
        queues: queues.into_iter().map(with_template).collect(),
        chosen,
        has_keys: !state.keys.is_empty(),
        calendars: calendars.into_iter().map(|calendar| calendar.name).collect(),
        values,
        preview,
    })
}

/// When it would run, or what is wrong with the times.
#[derive(Debug, Default, Template)]
#[template(path = "schedules/preview.html")]
pub struct Preview {
    wrong: Option<String>,
    timeline: Option<Timeline>,
}

impl HtmlSafe for Preview {}

impl Preview {
    pub async fn of_request(
        state: &State,
        params: &Params,
        schedule: Option<&Schedule>,
    ) -> Result<Self, HttpError> {
        if params.fields.get("cron").is_none_or(|cron| list(cron).is_empty()) {
            return Ok(Self::default());
        }
        let spec = Given::read(params).and_then(|given| given.spec());
        Self::gather(state, spec, schedule).await
    }

    pub async fn gather(
        state: &State,
        spec: Result<Spec, HttpError>,
        schedule: Option<&Schedule>,
    ) -> Result<Self, HttpError> {
        let found = async {
            let spec = spec?;
            let (times, now) = schedules::times(state, &spec, schedule, &PreviewOptions::default()).await?;
            Ok::<_, HttpError>(Timeline::of(&spec, &times, now))
        };
        match found.await {
            Ok(timeline) => Ok(Self { wrong: None, timeline: Some(timeline) }),
            Err(error) if error.status() == StatusCode::BAD_REQUEST => {
                Ok(Self { wrong: Some(error.message().to_owned()), timeline: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// What the fields have: their texts, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Values(BTreeMap<String, String>);

impl Values {
    fn of(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn set(&mut self, name: impl Into<String>, value: String) {
        self.0.insert(name.into(), value);
    }

    fn has_options(&self) -> bool {
        self.0.iter().any(|(name, value)| name.starts_with("options.") && !value.is_empty())
    }

    fn of_request(params: &Params) -> Self {
        let texts = params.fields.iter().map(|(name, value)| (name.clone(), lines(value)));
        Self(texts.collect())
    }

    /// What the author of the plugin of a queue has forms begin with.
    fn of_template(queue: &Queue, template: &Prefilled) -> Self {
        let mut values = Self::default();
        values.set("queue", queue.id.to_string());
        values.set("name", template.name.clone());
        if !template.params.is_empty() {
            values.set("params", pretty(&template.params));
        }
        for (name, value) in &template.options {
            values.set(format!("options.{name}"), option(name, value));
        }
        values
    }

    /// Those of a schedule as clients see it.
    fn of_schedule(view: &Value) -> Self {
        let mut values = Self::default();
        for (name, value) in view.as_object().into_iter().flatten() {
            match (name.as_str(), value) {
                // Without a zone it would be UTC as well, but not everybody knows.
                ("start" | "end", Value::String(time)) => values.set(name, format!("{time}Z")),
                ("jitter" | "catch_up", none) if *none == 0 => {}
                ("params", Value::Object(params)) if params.is_empty() => {}
                ("params", Value::Object(params)) => values.set(name, pretty(params)),
                ("options", Value::Object(options)) => {
                    for (name, value) in options {
                        values.set(format!("options.{name}"), option(name, value));
                    }
                }
                ("calendars", Value::Array(calendars)) => {
                    for rule in ["exclude", "only"] {
                        let used = calendars.iter().filter(|used| used["use"] == rule);
                        let names: Vec<&str> = used.filter_map(|used| used["name"].as_str()).collect();
                        values.set(format!("calendars.{rule}"), names.join("\n"));
                    }
                }
                (_, value) => values.set(name, lines(value)),
            }
        }
        values
    }
}

/// An option of tasks as the text of a field.
fn option(name: &str, value: &Value) -> String {
    let tags = (name == TAGS).then(|| tag_list(value)).flatten();
    tags.map_or_else(|| lines(value), |tags| tag_line(&tags))
}

/// A value as the text of a field: one of several on each line.
fn lines(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let texts = values.iter().map(lines).filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Object(_) => json::compact(value),
        value => text(Some(value)),
    }
}

fn pretty(params: &Map<String, Value>) -> String {
    json::pretty(&Value::Object(params.clone())).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    fn form(values: Values, schedule: Option<Schedule>, message: Option<&str>, preview: Preview) -> String {
        let id = ObjectId::parse_str(super::super::tests::ID).unwrap();
        let queue = bson::deserialize_from_document(doc! { "_id": id, "name": "q<1>" }).unwrap();
        let page = FormPage {
            schedule,
            message: message.map(str::to_owned),
            values,
            queues: vec![(queue, true)],
            chosen: Some(QueueId(id)),
            form: Some(Form::of(
                &json!({ "properties": { "<key>": { "type": "string" } }, "required": ["<key>"] }),
            )),
            has_keys: true,
            calendars: vec!["<fairs>".into()],
            preview,
        };
        page.render().unwrap()
    }

    fn request(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    #[test]
    fn the_form_keeps_what_was_filled_in() {
        let filled = request(json!({
            "name": "<n>", "cron": "0 3 * * *\n@monthly", "params": "{\"a\":\"<b>\"}", "options.timeout": "60",
            "calendars.only": ["", "<fairs>"],
        }));
        let wrong = Preview { wrong: Some("cron: <no>".to_owned()), timeline: None };
        let html = form(Values::of_request(&filled), None, Some("no & no"), wrong);
        for part in [
            "value=\"&#60;n&#62;\"",
            "0 3 * * *\n@monthly</textarea>",
            "&#34;&#60;b&#62;&#34;",
            "name=\"options.timeout\" value=\"60\"",
            "<details open>",
            "no &#38; no",
            "cron: &#60;no&#62;",
            "q&#60;1&#62;</option>",
            "data-template",
            "<fieldset class=\"all js-only\" data-params=\"/ui/queues/6b0003bb686c8275d8014444/tasks\" disabled>",
            "name=\"/&#60;key&#62;\"",
            "name=\".then\" value=\"/schedules/{id}\"",
            "formaction=\"/schedules/preview\"",
            "name=\"calendars.only\" value=\"&#60;fairs&#62;\" checked",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(
            !html.contains("name=\".rev\"") && !html.contains("<no>") && !html.contains(" style="),
            "{html}"
        );
    }

    #[test]
    fn a_change_is_made_from_a_revision() {
        let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1] };
        let schedule = Schedule::read(doc! {
            "_id": ObjectId::parse_str(super::super::tests::ID).unwrap(), "name": "<nightly>", "queue": ObjectId::new(),
            "rev": 3, "secure_params": { "key": "0011223344556677", "data": data },
        });
        let html = form(Values::default(), schedule.ok(), None, Preview::default());
        for part in [
            "name=\".rev\" value=\"3\"",
            "name=\".schedule\" value=\"6b0003bb686c8275d8014444\"",
            "It has some:",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("Begin paused") && !html.contains("<details open>"), "{html}");
    }

    #[test]
    fn choices_name_what_they_mean() {
        let filled = Values::of_request(&request(json!({ "gap": "skip" })));
        let html = form(filled, None, None, Preview::default());
        assert!(html.contains("<option value=\"after\">run right after</option>"), "{html}");
        assert!(html.contains("<option value=\"skip\" selected>skip</option>"), "{html}");
    }

    #[test]
    fn fields_hold_what_a_schedule_has() {
        let view = json!({
            "name": "nightly", "description": "", "queue": "6b", "zone": "Europe/Berlin", "gap": "after",
            "fold": "first", "overlap": "skip", "cron": ["0 3 * * *", "@monthly"], "jitter": 0, "catch_up": 60,
            "start": "2026-11-20T00:00:00", "end": null, "params": { "a": 1 },
            "options": { "timeout": 60, "locks": ["a", "b/shared"], "backoff": { "base": 1 }, "tags": ["a", "b"] },
            "calendars": [{ "name": "holidays", "use": "exclude" }, { "name": "fairs", "use": "only" }],
        });
        let values = Values::of_schedule(&view);
        let of = |names: [&str; 4]| names.map(|name| values.of(name).to_owned());
        assert_eq!(of(["cron", "jitter", "catch_up", "end"]), ["0 3 * * *\n@monthly", "", "60", ""]);
        assert_eq!(
            of(["start", "zone", "params", "x"]),
            ["2026-11-20T00:00:00Z", "Europe/Berlin", "{\n   \"a\" : 1\n}", ""]
        );
        assert_eq!(values.of("options.tags"), "a,b");
        assert_eq!(
            of(["options.timeout", "options.locks", "options.backoff", "calendars.exclude"]),
            ["60", "a\nb/shared", "{\"base\":1}", "holidays"]
        );
    }

    #[test]
    fn a_form_begins_with_the_template_of_the_plugin() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let queue: Queue = bson::deserialize_from_document(bson::doc! { "_id": id, "name": "mail" }).unwrap();
        let template: Prefilled = serde_json::from_value(
            json!({ "name": "nightly", "params": { "a": 1 }, "options": { "timeout": 5 } }),
        )
        .unwrap();
        let values = Values::of_template(&queue, &template);
        assert_eq!(values.of("queue"), id.to_hex());
        assert_eq!((values.of("name"), values.of("options.timeout")), ("nightly", "5"));
        assert_eq!(values.of("params"), "{\n   \"a\" : 1\n}");
    }
}
