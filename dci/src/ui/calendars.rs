//! `GET /calendars` for people: the days that schedules leave out, or keep to.

pub mod remove;

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::schedules::Calendar;
use serde_json::Value;

use crate::access::viewer;
use crate::api::calendars::view;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::{self, Rendered, text};

#[derive(Template)]
#[template(path = "calendars.html")]
struct CalendarsPage {
    calendars: Vec<Shown>,
    /// Whether the page's reader may change them.
    operates: bool,
}

/// A calendar as the fields of a form have it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    name: String,
    /// Its address.
    place: String,
    dates: String,
    recurring: String,
    zone: String,
    /// How many lines the field of its days has at first.
    lines: usize,
}

/// The page.
pub async fn render(state: &State) -> Rendered {
    let calendars = state.store.list_calendars().await?;
    let page = CalendarsPage {
        calendars: calendars.iter().map(Shown::of).collect(),
        operates: viewer::may(Role::Operator),
    };
    ui::render(StatusCode::OK, &page)
}

impl Shown {
    fn of(calendar: &Calendar) -> Self {
        let view = view(calendar);
        let lines = |name: &str| {
            let days = view[name].as_array().into_iter().flatten();
            days.filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        };
        let dates = lines("dates");
        Self {
            place: format!("/calendars/{}", encoded(&calendar.name)),
            name: calendar.name.clone(),
            recurring: lines("recurring"),
            zone: text(view.get("zone")),
            lines: dates.lines().count().clamp(3, 12),
            dates,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn page(operates: bool) -> String {
        let calendar = Calendar::read(&doc! {
            "name": "<a/b>", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": "Europe/Berlin",
        });
        CalendarsPage { calendars: vec![Shown::of(&calendar.unwrap())], operates }.render().unwrap()
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
