//! The pages for people. One typed struct for each template, nothing from other hosts, and one script of our own: it
//! shows a running task.

pub mod assets;
pub mod balance;
pub mod bulk;
pub mod docs;
pub mod overview;
pub mod task;
pub mod tasks;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_SECURITY_POLICY;
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::model::{Moment, Status};

use crate::error::HttpError;
use crate::json::date_text;

/// Pages may load this server's style sheet, send forms to this server, and nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The page of a task that has not ended may also run this server's script, and ask this server.
const LIVE_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A rendered page.
pub type Rendered = Result<(StatusCode, String), HttpError>;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    status: u16,
    reason: &'a str,
    message: &'a str,
}

/// The response for a page, or for the error that there is instead.
pub fn page(rendered: Rendered) -> HttpResponse {
    page_with(rendered, POLICY)
}

fn page_with(rendered: Rendered, policy: &'static str) -> HttpResponse {
    let (mut response, html) = match rendered {
        Ok((status, html)) => (HttpResponse::build(status), html),
        Err(error) => {
            let page = ErrorPage {
                status: error.status().as_u16(),
                reason: error.status().canonical_reason().unwrap_or_default(),
                message: error.message(),
            };
            let html = page.render().unwrap_or_else(|_| error.status().to_string());
            (error.response(), html)
        }
    };
    // The character set is named in the page itself: Perl Disbatch sends the bare type.
    response.insert_header((CONTENT_SECURITY_POLICY, policy));
    response.content_type("text/html").body(html)
}

fn render(status: StatusCode, template: &impl Template) -> Rendered {
    match template.render() {
        Ok(html) => Ok((status, html)),
        Err(error) => {
            tracing::error!(%error, "a page cannot be rendered");
            let body = serde_json::json!({ "error": "internal error, see the server's log" });
            Err(HttpError::with_body(StatusCode::INTERNAL_SERVER_ERROR, body))
        }
    }
}

/// A status for people.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StatusView {
    code: String,
    word: &'static str,
}

impl StatusView {
    fn of(task: &Document) -> Self {
        match task.get("status") {
            Some(Bson::Int32(code)) => Self::from_code(i64::from(*code)),
            Some(Bson::Int64(code)) => Self::from_code(*code),
            Some(other) => Self { code: other.to_string(), word: "unknown" },
            None => Self { code: String::new(), word: "" },
        }
    }

    fn from_code(code: i64) -> Self {
        Self { code: code.to_string(), word: Status::from_code(code).word() }
    }
}

/// A value for people: text as it is, null as nothing.
pub fn plain(value: Option<&Bson>) -> String {
    match value {
        None | Some(Bson::Null) => String::new(),
        Some(Bson::String(text)) => text.clone(),
        Some(other) => crate::json::compact(&crate::json::from_bson(other, crate::json::Dates::Text)),
    }
}

/// A parameter as the field of a form has it.
fn text(value: Option<&serde_json::Value>) -> String {
    match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) => number.to_string(),
        _ => String::new(), // Nothing that a field of a form can hold.
    }
}

/// A time for people, also when it is stored as an integer.
fn time(value: Option<&Bson>) -> String {
    let at = value.and_then(|value| Moment(value.clone()).get());
    at.and_then(date_text).map_or_else(|| plain(value), |text| text.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn errors_have_a_page_that_escapes_what_it_shows() {
        let response = page(Err(HttpError::not_found("no <b>task</b>")));
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers().get("content-type").unwrap(), "text/html");
        let page = ErrorPage { status: 404, reason: "Not Found", message: "no <b>task</b>" };
        let html = page.render().unwrap();
        assert!(html.contains("404 Not Found") && html.contains("no &#60;b&#62;task&#60;/b&#62;"), "{html}");
    }

    #[test]
    fn odd_values_are_shown_too() {
        let task =
            doc! { "status": "done", "ctime": 1_795_163_067_i64, "mtime": bson::DateTime::from_millis(0) };
        assert_eq!(StatusView::of(&task), StatusView { code: "\"done\"".into(), word: "unknown" });
        assert_eq!(time(task.get("ctime")), "2026-11-20 08:24:27");
        assert_eq!(time(task.get("mtime")), "1970-01-01 00:00:00");
        assert_eq!(time(Some(&Bson::from("soon"))), "soon");
        assert_eq!(StatusView::of(&doc! { "status": 7_i64 }).word, "finished");
    }
}
