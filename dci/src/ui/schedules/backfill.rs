//! The page that asks whether these tasks of the past are meant.

use actix_web::http::StatusCode;
use askama::Template;
use bson::DateTime;
use disbatch_core::schedules::Schedule;

use super::words::clock;
use crate::json::date_text;
use crate::params::Params;
use crate::ui::parts::When;
use crate::ui::{self, Rendered, text};

#[derive(Template)]
#[template(path = "schedule_backfill.html")]
struct ConfirmPage {
    id: String,
    name: String,
    zone: String,
    from: When,
    to: When,
    /// The times in the zone, and in that of the reader.
    rows: Vec<(String, When)>,
    /// What is sent when it is meant so.
    hidden: Vec<(&'static str, String)>,
}

impl ConfirmPage {
    fn count(&self) -> u64 {
        self.rows.len() as u64
    }
}

/// The page for the times from one time to another that have no task yet.
pub fn confirm(
    schedule: &Schedule,
    (from, to): (DateTime, DateTime),
    times: &[DateTime],
    params: &Params,
) -> Rendered {
    let zone = &schedule.settings.spec.zone;
    let sent = |at: DateTime| date_text(at).map(|text| format!("{text}Z")).unwrap_or_default();
    let hidden = [("from", sent(from)), ("to", sent(to)), ("limit", text(params.fields.get("limit")))];
    let page = ConfirmPage {
        id: schedule.id.to_string(),
        name: schedule.settings.name.clone(),
        zone: zone.name().to_owned(),
        from: When::exact(Some(&from.into())),
        to: When::exact(Some(&to.into())),
        rows: times
            .iter()
            .map(|time| (clock(&zone.local(*time)), When::exact(Some(&(*time).into()))))
            .collect(),
        hidden: hidden.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    };
    ui::render(StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: usize) -> String {
        let page = ConfirmPage {
            id: "6b0003bb686c8275d8014444".into(),
            name: "<nightly>".into(),
            zone: "Europe/Berlin".into(),
            from: When::default(),
            to: When::default(),
            rows: vec![("2026-11-01 03:00:00".into(), When::default()); rows],
            hidden: vec![("from", "2026-11-01T00:00:00Z".into())],
        };
        page.render().unwrap()
    }

    #[test]
    fn nothing_is_made_before_it_is_confirmed() {
        let html = page(7);
        for part in [
            "Create 7 tasks of &#60;nightly&#62;?",
            "2026-11-01 03:00:00",
            "In Europe/Berlin",
            "<input type=\"hidden\" name=\"from\" value=\"2026-11-01T00:00:00Z\">",
            "action=\"/schedules/6b0003bb686c8275d8014444/backfill\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(".preview") && !html.contains("<nightly>"), "{html}");
        assert!(page(1).contains("Create 1 task of"));
        let none = page(0);
        assert!(
            none.contains("No time between these two is without a task.") && !none.contains("/backfill\"")
        );
    }
}
