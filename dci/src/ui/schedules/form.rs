//! `GET /schedules/new` and `GET /schedules/:id/edit`: the form of a schedule, which shows when it would run. Without script a
//! button shows it; with script it is shown while somebody types.

mod preview;
mod values;

use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::model::Queue;
use disbatch_core::plugin::Template as Prefilled;
use disbatch_core::schedules::{Calendar, Fold, Gap, Overlap, Schedule, Zone};

pub use preview::Preview;
use values::Values;

use super::Choice;
use crate::access::{NamedSchedule, Who, may_change_schedule};
use crate::catalogue::Catalogue;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfRead};
use crate::params::Params;
use crate::state::State;
use crate::ui::names::label;
use crate::ui::queue::template_of;
use crate::ui::{self, Rendered, text};
use crate::{json, schedules};

/// The names of all time zones. Those of the host may change while this runs; then the new ones can be typed.
static ZONES: LazyLock<Vec<String>> = LazyLock::new(Zone::names);

#[derive(Template)]
#[template(path = "schedule_form.html")]
struct FormPage {
    title: String,
    /// The schedule that is changed; none: a new one is made.
    id: Option<String>,
    /// What that is called.
    name: String,
    rev: i64,
    action: String,
    /// Where scripts lead to when it is saved.
    then: String,
    /// Where browsers without script are led to.
    next: String,
    message: Option<String>,
    values: Values,
    queues: Vec<QueueChoice>,
    /// Whether one of them is chosen.
    chosen: bool,
    /// Whether the plugin of one of them has a template.
    templates: bool,
    has_keys: bool,
    /// Whether it has secure parameters, which stay if no others are given.
    keeps_secure: bool,
    gaps: Vec<Choice>,
    folds: Vec<Choice>,
    overlaps: Vec<Choice>,
    calendars: Vec<Group>,
    zones: Vec<String>,
    preview: Preview,
}

struct QueueChoice {
    value: String,
    label: String,
    chosen: bool,
    has_template: bool,
}

/// Calendars to choose from.
struct Group {
    name: &'static str,
    title: &'static str,
    choices: Vec<Choice>,
}

impl FormPage {
    fn of(&self, name: &str) -> String {
        self.values.of(name).to_owned()
    }

    fn has_options(&self) -> bool {
        self.values.has_options()
    }
}

/// The form for a new schedule: of `queue` and with what the author of its plugin has forms begin with.
#[utoipa::path(
    get, path = "/schedules/new", tag = "schedules", operation_id = "newSchedule",
    params(("queue" = Option<String>, Query, description = "The id of the queue that is chosen at first.")),
    responses((status = 200, description = "The form.", body = String, content_type = "text/html"), OfRead),
)]
pub async fn new(state: Data<State>, who: Who, params: Result<Params, HttpError>) -> HttpResponse {
    let queue = text(params.unwrap_or_default().fields.get("queue"));
    let rendered = async {
        let choices = Choices::gather(&state, &who).await?;
        let chosen = choices.queues.iter().find(|known| known.id.to_string() == queue);
        let values = chosen.map(|queue| Values::of_template(queue, &template_of(&choices.plugins, queue)));
        let preview = Preview::empty();
        ui::render(StatusCode::OK, &page(&state, &choices, None, values.unwrap_or_default(), preview))
    };
    ui::page(rendered.await)
}

/// The form for changes of a schedule.
#[utoipa::path(
    get, path = "/schedules/{id}/edit", tag = "schedules", operation_id = "editSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    responses(
        (status = 200, description = "The form.", body = String, content_type = "text/html"),
        (
            status = 404, description = "There is no such schedule. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))
        ),
        OfRead,
    ),
)]
pub async fn edit(state: Data<State>, who: Who, named: NamedSchedule) -> HttpResponse {
    let rendered = async {
        let schedule = schedules::find(&state, &named).await?;
        may_change_schedule(&who, &schedule, &state).await?;
        let choices = Choices::gather(&state, &who).await?;
        let spec = schedule.settings.spec.clone();
        let preview = Preview::gather(&state, Ok(spec), Some(&schedule)).await?;
        let values = Values::of_schedule(&json::value_of(&schedules::view(&schedule, None))?);
        ui::render(StatusCode::OK, &page(&state, &choices, Some(&schedule), values, preview))
    };
    ui::page(rendered.await)
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
    let choices = Choices::gather(state, who).await?;
    let preview = Preview::of_request(state, params, schedule).await?;
    let mut page = page(state, &choices, schedule, Values::of_request(params), preview);
    page.message = error.map(|error| error.message().to_owned());
    ui::render(error.map_or(StatusCode::OK, HttpError::status), &page)
}

/// What can be chosen.
struct Choices {
    queues: Vec<Queue>,
    calendars: Vec<Calendar>,
    plugins: Arc<Catalogue>,
}

impl Choices {
    async fn gather(state: &State, who: &Who) -> Result<Self, HttpError> {
        let reach = who.reach(Role::Submitter);
        let (queues, calendars, plugins) = futures::try_join!(
            state.store.queues_within(&reach),
            state.store.list_calendars(),
            state.catalogue(),
        )?;
        Ok(Self { queues, calendars, plugins })
    }
}

fn page(
    state: &State,
    choices: &Choices,
    schedule: Option<&Schedule>,
    values: Values,
    preview: Preview,
) -> FormPage {
    let wanted = values.of("queue");
    let is_wanted = |name: String| !wanted.is_empty() && name == wanted;
    let queue = |queue: &Queue| QueueChoice {
        value: queue.id.to_string(),
        label: label(queue),
        chosen: is_wanted(queue.id.to_string()) || is_wanted(queue.display_name()),
        has_template: template_of(&choices.plugins, queue) != Prefilled::default(),
    };
    let queues: Vec<QueueChoice> = choices.queues.iter().map(queue).collect();
    let place = schedule.map(|schedule| format!("/schedules/{}", schedule.id));
    let name = schedule.map(|schedule| schedule.settings.name.clone()).unwrap_or_default();
    FormPage {
        title: if schedule.is_some() { format!("Change {name}") } else { "New schedule".to_owned() },
        id: schedule.map(|schedule| schedule.id.to_string()),
        rev: schedule.map_or(0, |schedule| schedule.rev),
        action: place.clone().unwrap_or_else(|| "/schedules".to_owned()),
        then: place.clone().unwrap_or_else(|| "/schedules".to_owned()),
        next: place.unwrap_or_else(|| "/schedules/{id}".to_owned()),
        message: None,
        chosen: queues.iter().any(|queue| queue.chosen),
        templates: queues.iter().any(|queue| queue.has_template),
        has_keys: !state.keys.is_empty(),
        keeps_secure: schedule.is_some_and(|schedule| schedule.settings.options.secure_params.is_some()),
        gaps: chosen(
            values.of("gap"),
            [(Gap::After, "right after it"), (Gap::Skip, "not at all")],
            Gap::as_str,
        ),
        folds: chosen(
            values.of("fold"),
            [(Fold::First, "the first time"), (Fold::Last, "the last time"), (Fold::Both, "both times")],
            Fold::as_str,
        ),
        overlaps: chosen(
            values.of("overlap"),
            [
                (Overlap::Skip, "leave this one out"),
                (Overlap::Queue, "wait for the end of the earlier one"),
                (Overlap::Allow, "run both"),
                (Overlap::Cancel, "cancel the earlier one"),
            ],
            Overlap::as_str,
        ),
        calendars: groups(&choices.calendars, &values),
        zones: ZONES.clone(),
        name,
        queues,
        values,
        preview,
    }
}

/// What can be chosen in a field, of which the first is the default.
fn chosen<T: Copy, const N: usize>(
    now: &str,
    all: [(T, &'static str); N],
    name: fn(T) -> &'static str,
) -> Vec<Choice> {
    let choice = |(value, meaning): (T, &str)| Choice {
        value: name(value).to_owned(),
        label: format!("{}: {meaning}", name(value)),
        chosen: name(value) == now,
    };
    all.map(choice).into()
}

fn groups(calendars: &[Calendar], values: &Values) -> Vec<Group> {
    if calendars.is_empty() {
        return Vec::new();
    }
    let group = |(name, title): (&'static str, &'static str)| {
        let now: Vec<&str> = values.of(name).lines().collect();
        let choice = |calendar: &Calendar| Choice {
            value: calendar.name.clone(),
            label: calendar.name.clone(),
            chosen: now.contains(&calendar.name.as_str()),
        };
        Group { name, title, choices: calendars.iter().map(choice).collect() }
    };
    let all = [("calendars.exclude", "Not on the days of"), ("calendars.only", "Only on the days of")];
    all.map(group).into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn choices(names: &[&str]) -> Vec<Choice> {
        names
            .iter()
            .map(|name| Choice { value: (*name).into(), label: (*name).into(), chosen: false })
            .collect()
    }

    fn form(values: Values, id: Option<&str>, message: Option<&str>, preview: Preview) -> String {
        let page = FormPage {
            title: "New schedule".into(),
            id: id.map(str::to_owned),
            name: "<nightly>".into(),
            rev: 3,
            action: "/schedules".into(),
            then: "/schedules".into(),
            next: "/schedules/{id}".into(),
            message: message.map(str::to_owned),
            values,
            queues: vec![QueueChoice {
                value: "6b".into(),
                label: "q<1>".into(),
                chosen: true,
                has_template: true,
            }],
            chosen: true,
            templates: true,
            has_keys: true,
            keeps_secure: id.is_some(),
            gaps: choices(&["after"]),
            folds: choices(&["first"]),
            overlaps: choices(&["skip"]),
            calendars: vec![Group { name: "calendars.only", title: "Only", choices: choices(&["<fairs>"]) }],
            zones: vec!["Europe/Berlin".into()],
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
        let wrong = Preview::wrong("cron: <no>");
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
            "name=\".then\" value=\"/schedules/{id}\"",
            "formaction=\"/schedules/preview\"",
            "name=\"calendars.only\" value=\"&#60;fairs&#62;\"",
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
        let html = form(Values::default(), Some("6b0003bb686c8275d8014444"), None, Preview::empty());
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
        let all = chosen("skip", [(Gap::After, "right after it"), (Gap::Skip, "not at all")], Gap::as_str);
        let told: Vec<(&str, bool)> =
            all.iter().map(|choice| (choice.label.as_str(), choice.chosen)).collect();
        assert_eq!(told, [("after: right after it", false), ("skip: not at all", true)]);
    }
}
