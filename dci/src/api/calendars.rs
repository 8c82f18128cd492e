//! Calendars: named days that schedules leave out, or keep to.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::schedules::Calendar as Stored;
use disbatch_core::store::Store;
use disbatch_wire::calendars::{Calendar, CalendarDays, NewCalendar};
use serde_json::json;

use crate::access::{Who, viewer};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::ui::names::encoded;
use crate::ui::{self, Rendered};
use crate::{changes, json, values};

/// The calendars, by name. Browsers get a page.
#[utoipa::path(
    get, path = "/calendars", tag = "schedules", operation_id = "listCalendars",
    responses(
        (status = 200, description = "The calendars; a page if `Accept` asks for HTML.", body = Vec<Calendar>, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>) -> Answer {
    json::of(&all(&state).await?)
}

pub async fn render(state: Data<State>) -> Rendered {
    let page = CalendarsPage { calendars: all(&state).await?, operates: viewer::may(Role::Operator) };
    ui::render(&page)
}

async fn all(state: &State) -> Result<Vec<Calendar>, HttpError> {
    Ok(state.store.list_calendars().await?.iter().map(view).collect())
}

/// One calendar.
#[utoipa::path(
    get, path = "/calendars/{name}", tag = "schedules", operation_id = "getCalendar",
    responses((status = 200, description = "The calendar.", body = Calendar)),
)]
pub async fn get(state: Data<State>, name: Path<String>) -> Answer {
    let calendar = state.store.find_calendar(&name).await?;
    json::of(&view(&calendar.ok_or_else(|| not_found(&name))?))
}

/// Makes a calendar.
#[utoipa::path(
    post, path = "/calendars", tag = "schedules", operation_id = "createCalendar",
    request_body(content = NewCalendar, content_type = JSON_OR_FORM),
    responses(
        (status = 201, description = "Made.", body = Calendar),
        (status = 400, description = "A field is wrong."),
        (status = 409, description = "There is a calendar with this name."),
    ),
)]
pub async fn create(state: Data<State>, who: Who, mut params: Params) -> Answer {
    let name = params.fields.remove("name").filter(|name| !values::is_unset(name));
    let name = values::text("name", &name.ok_or_else(|| HttpError::bad_request("name must be given"))?)?;
    let calendar = read(&name, &params)?;
    let made = json::value_of(&view(&calendar))?;
    let (what, taken) = (set_of(&calendar), format!("there is a calendar '{name}' already"));
    let create = |store: Store| async move {
        store.create_calendar(&calendar).await?.ok_or_else(|| HttpError::conflict(taken))
    };
    changes::alter(&state, &who, what, create).await?;
    let place = format!("/calendars/{}", encoded(&name));
    redirect::answer(&params, json::made(StatusCode::CREATED, &place, &made))
}

/// Gives a calendar these days and no others; makes it if there is none. The next times of all schedules that go by it are
/// found anew.
#[utoipa::path(
    post, path = "/calendars/{name}", tag = "schedules", operation_id = "setCalendar",
    request_body(content = CalendarDays, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Stored.", body = Calendar),
        (status = 400, description = "A field is wrong."),
    ),
)]
pub async fn set(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::reply(&params, &store(&state, &who, read(&name, &params)?).await?)
}

/// Deletes a calendar that no schedule goes by.
#[utoipa::path(
    delete, path = "/calendars/{name}", tag = "schedules", operation_id = "deleteCalendar",
    responses(
        (status = 200, description = "Deleted.", body = Object, example = json!({"name": "holidays", "deleted": true})),
        (status = 409, description = "Schedules go by it; `schedules` has their names."),
    ),
)]
pub async fn delete(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    let (of, object) = (name.clone(), Object::with_name(ObjectKind::Calendar, name.as_str()));
    let delete = |store: Store| async move { store.delete_calendar(&of).await };
    if !changes::remove(&state, &who, (Verb::CalendarDelete, object), delete).await? {
        return Err(not_found(&name));
    }
    Ok(json::ok(&json!({ "name": *name, "deleted": true })))
}

/// Deletes a calendar that no schedule goes by, and leads to the list of calendars. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/calendars/{name}/delete", tag = "service", operation_id = "deleteCalendarByForm",
    responses(
        (status = 303, description = "Deleted; the list of calendars is next."),
        (status = 404, description = "There is no such calendar. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 409, description = "Schedules go by it. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn delete_by_form(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    redirect::lead(delete(state, who, name).await, "/calendars")
}

async fn store(state: &State, who: &Who, calendar: Stored) -> Result<Calendar, HttpError> {
    let (view, what) = (view(&calendar), set_of(&calendar));
    let set = |store: Store| async move { store.set_calendar(&calendar).await };
    changes::alter(state, who, what, set).await?;
    Ok(view)
}

fn set_of(calendar: &Stored) -> (Verb, Object) {
    (Verb::CalendarSet, Object::with_name(ObjectKind::Calendar, calendar.name.as_str()))
}

fn read(name: &str, params: &Params) -> Result<Stored, HttpError> {
    let mut fields = json::document(&params.whole::<CalendarDays>()?)?;
    fields.insert("name", name);
    Stored::read(&fields).map_err(|error| HttpError::bad_request(error.to_string()))
}

fn view(calendar: &Stored) -> Calendar {
    Calendar {
        name: calendar.name.clone(),
        dates: calendar.dates(),
        recurring: calendar.recurring(),
        zone: calendar.zone().map(str::to_owned),
    }
}

fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no calendar '{name}'"))
}

#[derive(Template)]
#[template(path = "calendars.html")]
struct CalendarsPage {
    calendars: Vec<Calendar>,
    /// Whether the page's reader may change them.
    operates: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of(fields: Value) -> Result<Value, String> {
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        let read = read("holidays", &params).map_err(|error| error.to_string());
        read.map(|calendar| json::value_of(&view(&calendar)).unwrap())
    }

    #[test]
    fn days_are_lists_or_lines() {
        let expected = json!({
            "name": "holidays", "dates": ["2026-12-24", "2026-12-31"], "recurring": ["12-25"], "zone": "Europe/Berlin",
        });
        let list =
            json!({ "dates": ["2026-12-31", "2026-12-24"], "recurring": ["12-25"], "zone": "Europe/Berlin" });
        assert_eq!(of(list), Ok(expected.clone()));
        let lines =
            json!({ "dates": "2026-12-24\r\n2026-12-31\r\n", "recurring": "12-25", "zone": "Europe/Berlin" });
        assert_eq!(of(lines), Ok(expected));
        let none = json!({ "name": "holidays", "dates": [], "recurring": [], "zone": null });
        assert_eq!(of(json!({ "dates": "", "zone": null })), Ok(none));
    }

    #[test]
    fn what_is_no_day_is_named() {
        for (fields, part) in [
            (json!({ "dates": ["2026-02-30"] }), "dates: "),
            (json!({ "dates": "24.12.2026" }), "dates: "),
            (json!({ "recurring": ["13-01"] }), "recurring: "),
            (json!({ "zone": "Mars" }), "zone: "),
            (json!({ "zone": [] }), "zone must be text of 1 to 200 characters"),
            (json!({ "dates": 5 }), "dates must be a list of days"),
        ] {
            let error = of(fields.clone()).unwrap_err();
            assert!(error.starts_with(part), "{fields}: {error}");
        }
    }

    fn page(operates: bool) -> String {
        let days = ["2026-12-24", "12-25", "12-26"].map(str::to_owned);
        let calendar = Calendar {
            name: "<a/b>".to_owned(),
            dates: days[..1].to_vec(),
            recurring: days[1..].to_vec(),
            zone: Some("Europe/Berlin".to_owned()),
        };
        CalendarsPage { calendars: vec![calendar], operates }.render().unwrap()
    }

    #[test]
    fn a_calendar_is_a_form_with_its_days() {
        let html = page(true);
        for part in [
            "&#60;a/b&#62;</h2>",
            "action=\"/calendars/%3Ca%2Fb%3E\"",
            "action=\"/ui/calendars/%3Ca%2Fb%3E/delete\"",
            "2026-12-24</textarea>",
            "12-25\n12-26</textarea>",
            "value=\"Europe/Berlin\"",
            "New calendar",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<a/b>") && !html.contains(" style="), "{html}");
        let viewers = page(false);
        assert!(!viewers.contains("New calendar") && !viewers.contains("hx-delete"), "{viewers}");
        let none = CalendarsPage { calendars: vec![], operates: true }.render().unwrap();
        assert!(none.contains("There are no calendars yet."));
    }
}
