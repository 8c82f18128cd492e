//! The time zone in which pages tell times and take them: UTC, that of the reader's browser, or another one. A cookie has the choice, which scripts set, too,
//! so that pages without script keep to it. What is made for everybody has UTC, in `<time>` and [`mark`], where scripts put in the reader's.

use std::ops::Range;

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafeOutput;
use bson::DateTime;
use disbatch_core::schedules::Zone;
use serde_json::Value;

use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::json::date_text;
use crate::openapi::OfFixed;
use crate::params::{Lenient, Params};
use crate::ui::schedules::words;
use crate::ui::{self, Rendered, text};
use crate::values;

/// The name of the cookie. Its value is the name of a zone, behind [`OWN`] where it is whatever the browser's is.
const COOKIE: &str = "disbatch_zone";

const OWN: &str = "mine:";

/// A day in milliseconds, where clocks are not changed.
pub const DAY: i64 = 86_400_000;

tokio::task_local! {
    static ZONE: Zone;
}

/// The zone of whoever sent a request; UTC if they have none, or one that is not known here.
pub fn of(request: &HttpRequest) -> Zone {
    let cookie = request.cookie(COOKIE);
    let name = cookie.as_ref().map(Cookie::value).unwrap_or_default();
    Zone::named(name.strip_prefix(OWN).unwrap_or(name)).unwrap_or_default()
}

pub async fn within<T>(zone: Zone, page: impl Future<Output = T>) -> T {
    ZONE.scope(zone, page).await
}

/// The zone of whom the page is for that is being made.
pub fn now() -> Zone {
    ZONE.try_with(Clone::clone).unwrap_or_default()
}

pub fn name() -> String {
    now().name().to_owned()
}

/// Its name where a column or a field says in which zone its times are.
pub fn mark() -> HtmlSafeOutput<String> {
    // A name has letters, digits and / _ + - only.
    HtmlSafeOutput(format!("<span data-zone>{}</span>", name()))
}

/// A time as the reader's clock shows it: `2026-11-20 09:24:27`.
pub fn clock(at: DateTime) -> String {
    words::clock(&now().local(at))
}

/// The time that a form has in the field `name`: by the clocks of `zone`, unless it has a zone of its own. A day stands for its beginning.
pub fn time(zone: &Zone, name: &str, given: &str) -> Result<DateTime, HttpError> {
    let given = given.trim().replacen(' ', "T", 1);
    let whole = match given.len() {
        10 if given.contains('-') => format!("{given}T00:00:00"),
        16 if given.contains('T') => format!("{given}:00"),
        _ => given, // It is whole, or wrong.
    };
    match DateTime::parse_rfc3339_str(format!("{whole}Z")) {
        Ok(shown) => Ok(shown_at(zone, shown)),
        Err(_) => Ok(values::time(name, &Value::from(whole))?),
    }
}

/// From when to when the day is that a form has in the field `name`.
pub fn day(zone: &Zone, name: &str, given: &str) -> Result<Range<DateTime>, HttpError> {
    let shown = values::time(name, &Value::from(format!("{}T00:00:00Z", given.trim())))?;
    Ok(shown_at(zone, shown)..shown_at(zone, shown.saturating_add_millis(DAY)))
}

/// Options of a form that are times, by the clocks of the reader, as those of UTC.
pub fn options(mut params: Params, names: &[&str]) -> Result<Params, HttpError> {
    for name in names {
        if let Some(Value::String(given)) = params.options.get_mut(*name)
            && !given.trim().is_empty()
        {
            let at = time(&now(), &format!(".{name}"), given)?;
            *given = date_text(at).map_or_else(|| given.clone(), |text| format!("{text}Z"));
        }
    }
    Ok(params)
}

/// When clocks in the zone show what those of UTC show at `shown`. What they never show is as much later as they go forward, or earlier.
fn shown_at(zone: &Zone, shown: DateTime) -> DateTime {
    let without = |offset: i64| shown.saturating_add_millis(offset.saturating_mul(-1_000));
    without(zone.offset(without(zone.offset(shown))))
}

#[derive(Template)]
#[template(path = "zone.html")]
struct ZonePage<'a> {
    zone: &'a str,
    /// Where the choice leads.
    next: &'a str,
    message: Option<String>,
}

/// The page on which the time zone of all pages is chosen.
#[utoipa::path(
    get, path = "/zone", tag = "service", operation_id = "showZone",
    params(("then" = Option<String>, Query, description = "The address on this server that is next.")),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"), OfFixed),
)]
pub async fn handle(Lenient(params): Lenient) -> Rendered {
    page(&name(), &text(params.fields.get("then")), None)
}

/// Chooses the time zone of all pages of this browser, by a cookie.
#[utoipa::path(
    post, path = "/zone", tag = "service", operation_id = "chooseZone",
    params(("zone" = String, Query, description = "The name of a zone.", example = "Europe/Berlin")),
    responses(
        (status = 303, description = "The cookie is the choice; the address of `.then` is next, or the overview."),
        (status = 400, description = "There is no such zone.", body = String, content_type = "text/html"),
    ),
)]
pub async fn choose(params: Params) -> Answer {
    let (given, next) = (text(params.fields.get("zone")), text(params.options.get("then")));
    let Some(zone) = Zone::named(given.trim()) else {
        return Ok(ui::page(page(&given, &next, Some(format!("There is no time zone '{given}'.")))));
    };
    let cookie = Cookie::build(COOKIE, zone.name().to_owned());
    let cookie = cookie.path("/").max_age(Duration::days(365)).same_site(SameSite::Lax).finish();
    let next = if redirect::is_own(&next) { next } else { "/".to_owned() };
    Ok(HttpResponse::SeeOther().cookie(cookie).insert_header((LOCATION, next)).finish())
}

fn page(zone: &str, next: &str, message: Option<String>) -> Rendered {
    let status = if message.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    ui::render_with(status, &ZonePage { zone, next, message })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn berlin() -> Zone {
        Zone::named("Europe/Berlin").unwrap()
    }

    fn at(text: &str) -> DateTime {
        DateTime::parse_rfc3339_str(text).unwrap()
    }

    #[test]
    fn the_zone_is_in_a_cookie() {
        let of = |cookie: &str| {
            let request = TestRequest::default().insert_header(("cookie", format!("{COOKIE}={cookie}")));
            super::of(&request.to_http_request()).name().to_owned()
        };
        for (cookie, zone) in [
            ("Europe/Berlin", "Europe/Berlin"),
            ("mine:Europe/Berlin", "Europe/Berlin"),
            ("mine%3AEurope%2FBerlin", "Europe/Berlin"),
            ("mine:Mars/Olympus", "UTC"),
            ("../etc", "UTC"),
            ("", "UTC"),
        ] {
            assert_eq!(of(cookie), zone, "{cookie}");
        }
        assert_eq!(super::of(&TestRequest::default().to_http_request()), Zone::default());
    }

    #[tokio::test]
    async fn times_are_told_in_the_zone_of_the_reader() {
        let shown = within(berlin(), async { (clock(at("2026-11-20T08:24:27Z")), mark().to_string()) }).await;
        assert_eq!(shown, ("2026-11-20 09:24:27".into(), "<span data-zone>Europe/Berlin</span>".into()));
        assert_eq!(
            (clock(at("2026-11-20T08:24:27Z")).as_str(), name().as_str()),
            ("2026-11-20 08:24:27", "UTC")
        );
    }

    #[test]
    fn times_are_taken_in_the_zone_of_the_reader() {
        for (given, expected) in [
            ("2026-11-20T09:24", "2026-11-20T08:24:00Z"),
            ("2026-11-20 09:24:27", "2026-11-20T08:24:27Z"),
            ("2026-11-20", "2026-11-19T23:00:00Z"),
            ("2026-07-20T09:24", "2026-07-20T07:24:00Z"),
            ("1795163067", "2026-11-20T08:24:27Z"),
            ("2026-11-20T09:24:27Z", "2026-11-20T09:24:27Z"),
            ("2026-11-20T09:24:27-05:00", "2026-11-20T14:24:27Z"),
            // There is no such time, as clocks go forward.
            ("2026-03-29T02:30", "2026-03-29T01:30:00Z"),
            ("2026-03-29T03:30", "2026-03-29T01:30:00Z"),
            ("2026-03-29T01:30", "2026-03-29T00:30:00Z"),
        ] {
            assert_eq!(time(&berlin(), "from", given).unwrap(), at(expected), "{given}");
        }
        assert_eq!(time(&Zone::default(), "from", "2026-11-20").unwrap(), at("2026-11-20T00:00:00Z"));
        assert_eq!(time(&berlin(), "from", "soon").unwrap_err().status(), 400);
    }

    #[tokio::test]
    async fn options_of_forms_are_times_of_the_reader() {
        let given = |run_at: &str| {
            let mut params = Params::default();
            params.options.insert("run_at".into(), run_at.into());
            params.options.insert("deadline".into(), "".into());
            params
        };
        let read = async |run_at: &str| {
            within(berlin(), async { options(given(run_at), &["run_at", "deadline"]) }).await
        };
        assert_eq!(read("2026-11-20 09:24").await.unwrap(), given("2026-11-20T08:24:00Z"));
        assert_eq!(read("soon").await.unwrap_err().status(), 400);
    }

    #[test]
    fn days_are_as_long_as_they_are() {
        let long = day(&berlin(), "from", "2026-10-25").unwrap();
        assert_eq!(long, at("2026-10-24T22:00:00Z")..at("2026-10-25T23:00:00Z"));
        let utc = day(&Zone::default(), "from", "2026-10-25").unwrap();
        assert_eq!(utc, at("2026-10-25T00:00:00Z")..at("2026-10-26T00:00:00Z"));
        assert_eq!(day(&berlin(), "from", "tomorrow").unwrap_err().status(), 400);
    }

    #[actix_web::test]
    async fn a_zone_is_chosen_by_a_form() {
        let choose = async |zone: &str, then: &str| {
            let mut params = Params::default();
            params.fields.insert("zone".into(), zone.into());
            params.options.insert("then".into(), then.into());
            super::choose(params).await.unwrap()
        };
        let chosen = choose("europe/berlin", "/tasks").await;
        let header = |name: &str| chosen.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!((chosen.status().as_u16(), header("location")), (303, "/tasks"));
        let cookie = Cookie::parse_encoded(header("set-cookie").to_owned()).unwrap();
        assert_eq!((cookie.name(), cookie.value(), cookie.path()), (COOKIE, "Europe/Berlin", Some("/")));
        assert_eq!(choose("UTC", "//evil.example").await.headers().get("location").unwrap(), "/");
        assert_eq!(choose("<Mars>", "/").await.status(), 400);
    }
}
