//! The pages for people. One typed struct for each template, and nothing from other hosts. They can be read and used
//! without script; with it they change by themselves ([`live`]).
//!
//! There is no build step and no copy of the state in the browser: scripts put elements in the place of those with the same id, and leave alone what
//! somebody is typing into. Without script, forms lead to the next page by the option `.then`.

pub mod about;
pub mod account;
pub mod admission;
pub mod answers;
pub mod arrays;
pub mod assets;
pub mod audit;
pub mod balance;
pub mod bulk;
pub mod docs;
pub mod files;
pub mod live;
pub mod locks;
pub mod login;
pub mod manual;
pub mod moment;
pub mod names;
pub mod node;
pub mod node_work;
pub mod nodes;
pub mod overview;
pub mod parts;
pub mod plugins;
pub mod queue;
pub mod queue_state;
pub mod schedules;
pub mod schema;
pub mod search;
pub mod task;
pub mod tasks;
pub mod users;
pub mod zone;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_SECURITY_POLICY, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::model::{AWAITING, Status, whole_number};

use crate::error::HttpError;
use parts::When;

/// Pages may load what this server has, ask this server, and send forms to it. Nothing in them is style or script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub type Rendered = Result<(StatusCode, String), HttpError>;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    status: u16,
    reason: &'a str,
    message: &'a str,
    /// Whether a script is to ask for the page again until it is there.
    retries: bool,
}

/// The response for a page, or for the error that there is instead. A page that cannot be had at the moment tries again by itself.
pub fn page(rendered: Rendered) -> HttpResponse {
    match rendered {
        Ok((status, html)) => in_frame(HttpResponse::build(status), html),
        Err(error) => error_page(&error, error.status() == StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// The response for a form with which something went wrong: nothing is sent twice by itself.
pub fn failed(error: &HttpError) -> HttpResponse {
    error_page(error, false)
}

fn error_page(error: &HttpError, retries: bool) -> HttpResponse {
    let page = ErrorPage {
        status: error.status().as_u16(),
        reason: error.status().canonical_reason().unwrap_or_default(),
        message: error.message(),
        retries,
    };
    let html = page.render().unwrap_or_else(|_| error.status().to_string());
    in_frame(error.response(), html)
}

fn in_frame(mut response: HttpResponseBuilder, html: String) -> HttpResponse {
    // The character set is named in the page itself: Perl Disbatch sends the bare type.
    response.insert_header((CONTENT_SECURITY_POLICY, POLICY));
    response.content_type("text/html").body(html)
}

/// A page with what is wrong in place of the one for the error.
pub fn refusal(error: &HttpError, rendered: Rendered) -> HttpResponse {
    let mut response = page(rendered);
    if let Some(wait) = error.error_response().headers().get(RETRY_AFTER) {
        response.headers_mut().insert(RETRY_AFTER, wait.clone());
    }
    response
}

pub fn render(template: &impl Template) -> Rendered {
    render_with(StatusCode::OK, template)
}

pub fn render_with(status: StatusCode, template: &impl Template) -> Rendered {
    html(template).map(|html| (status, html))
}

pub fn html(template: &impl Template) -> Result<String, HttpError> {
    template.render().map_err(|error| {
        tracing::error!(%error, "a page cannot be rendered");
        let body = serde_json::json!({ "error": "internal error, see the server's log" });
        HttpError::with_body(StatusCode::INTERNAL_SERVER_ERROR, body)
    })
}

/// What is said of a deferred task in place of its status that waits for the answer of a person.
const ASKS: &str = "waiting for an answer";

/// Whether a task waits for an answer, or was read with so much that this can be told.
fn asks(task: &Document) -> bool {
    task.get_document(AWAITING).is_ok()
}

/// A status for people. As `{{ status }}` in a template it is a symbol and a word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "parts/status.html")]
pub struct StatusView {
    code: String,
    word: &'static str,
    /// Who has cancelled it, if that is known.
    by: String,
    /// When it is tried again, if it is.
    next: Option<When>,
}

impl HtmlSafe for StatusView {}

impl StatusView {
    fn of(task: &Document) -> Self {
        let view = |code: i64| {
            let view = Self::from_code(code);
            let word = more_exact(task, Status::from_code(code)).unwrap_or(view.word);
            let next = (word == RETRYING).then(|| When::short(task.get("run_at")));
            let by = if word == self::word(Status::Cancelled) { cancelled_by(task) } else { String::new() };
            Self { word, by, next: next.filter(|next| !next.is_empty()), ..view }
        };
        match task.get("status") {
            Some(Bson::Int32(code)) => view(i64::from(*code)),
            Some(Bson::Int64(code)) => view(*code),
            Some(other) => Self::named(other.to_string(), "unknown"),
            None => Self::default(),
        }
    }

    fn from_code(code: i64) -> Self {
        Self::named(code.to_string(), word(Status::from_code(code)))
    }

    /// What stands in the place of a status, or for several.
    fn named(code: impl Into<String>, word: &'static str) -> Self {
        Self { code: code.into(), word, ..Self::default() }
    }

    fn class(&self) -> &'static str {
        match self.code.parse().map(Status::from_code) {
            Ok(Status::Other(_)) | Err(_) if self.word.contains(' ') => "unknown",
            Ok(Status::Other(_)) | Err(_) => self.word,
            Ok(status) => status.word(),
        }
    }
}

/// What pages call a status, where nothing else is known of the task. The API has Disbatch's words; docs/pages.md has both.
fn word(status: Status) -> &'static str {
    match status {
        Status::Deferred => "scheduled",
        Status::Claimed => "starting",
        Status::Terminated => "ended early",
        Status::Orphaned => "lost",
        other => other.word(),
    }
}

/// What pages say of a deferred task of which an attempt has failed.
const RETRYING: &str = "retrying";

/// So many characters of who has cancelled a task are shown.
const NAME: usize = 40;

/// Who has cancelled a task; nothing if nobody was asked who they are, or if it was read without that.
fn cancelled_by(task: &Document) -> String {
    parts::cut(admission::name_of(&plain(in_document(task, "cancel", "by"))), NAME)
}

/// What tells more of a task than its status, if it was read with so much that this can be told.
fn more_exact(task: &Document, status: Status) -> Option<&'static str> {
    match status {
        Status::Deferred if asks(task) => Some(ASKS),
        Status::Deferred => integer(task, "failures").filter(|failures| *failures > 0).map(|_| RETRYING),
        Status::Terminated => match task.get_document("exit").ok()?.get_str("reason").ok()? {
            "timeout" => Some("timed out"),
            "deadline" => Some("past deadline"),
            "cancel" => Some(word(Status::Cancelled)),
            _ => None,
        },
        _ => None,
    }
}

/// A percentage in a template, which passes references.
fn percent_text(percent: &f64) -> String {
    disbatch_core::text::percent(*percent, 1)
}

/// A value for people: text as it is, null as nothing.
pub fn plain(value: Option<&Bson>) -> String {
    match value {
        None | Some(Bson::Null) => String::new(),
        Some(Bson::String(text)) => text.clone(),
        Some(other) => crate::json::compact(&crate::json::from_bson(other, crate::json::Dates::Text)),
    }
}

/// A value as JSON of several lines.
fn pretty(value: &Bson) -> String {
    crate::json::pretty(&crate::json::from_bson(value, crate::json::Dates::Text)).trim_end().to_owned()
}

fn integer(document: &Document, field: &str) -> Option<i64> {
    document.get(field).and_then(whole_number)
}

fn in_document<'a>(document: &'a Document, field: &str, name: &str) -> Option<&'a Bson> {
    document.get_document(field).ok()?.get(name)
}

/// A parameter as the field of a form has it.
fn text(value: Option<&serde_json::Value>) -> String {
    match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) => number.to_string(),
        _ => String::new(), // Nothing that a field of a form can hold.
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::accounts::{Key, Rights, Role};

    use super::*;
    use crate::access::viewer::Viewer;
    use crate::access::{Via, Who};

    #[test]
    fn errors_have_a_page_that_escapes_what_it_shows() {
        let response = page(Err(HttpError::not_found("no <b>task</b>")));
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers().get("content-type").unwrap(), "text/html");
        let page = ErrorPage { status: 404, reason: "Not Found", message: "no <b>task</b>", retries: false };
        let html = page.render().unwrap();
        assert!(html.contains("404 Not Found") && html.contains("no &#60;b&#62;task&#60;/b&#62;"), "{html}");
    }

    #[actix_web::test]
    async fn a_page_that_cannot_be_had_now_tries_again_and_a_form_does_not() {
        let away = HttpError::unavailable("away");
        for (response, expected) in [
            (page(Err(away.clone())), true),
            (page(Err(HttpError::not_found("none"))), false),
            (failed(&away), false),
        ] {
            let html = actix_web::body::to_bytes(response.into_body()).await.unwrap();
            let html = std::str::from_utf8(&html).unwrap();
            assert_eq!(html.contains(" data-retries "), expected, "{html}");
        }
    }

    #[tokio::test]
    async fn whoever_may_not_is_told_who_they_are() {
        let mut who = Who::anybody("10.0.0.1".into());
        who.name = Some("vic".into());
        let text =
            |status, message| ErrorPage { status, reason: "", message, retries: false }.render().unwrap();
        who.rights = Rights::new(Some(Role::Viewer), Vec::new());
        let (refused, missing) =
            Viewer::of(&who).look(async { (text(403, "Only admins."), text(404, "none")) }).await;
        assert!(refused.contains(">You are vic (viewer). Only admins.<"), "{refused}");
        assert!(!missing.contains("You are"), "{missing}");
        who.rights = Rights::default();
        let missing = Viewer::of(&who).look(async { text(404, "none") }).await;
        assert!(missing.contains("You are vic (without a role): what you may not see"), "{missing}");
    }

    #[test]
    fn a_status_says_by_whom_and_until_when_where_that_is_known() {
        let html = |task: Document| StatusView::of(&task).render().unwrap();
        let at = bson::DateTime::from_millis(1_795_163_067_344);
        let retrying = html(doc! { "status": -7, "failures": 1, "run_at": at });
        assert!(
            retrying.contains(">retrying at <time datetime=\"2026-11-20T08:24:27Z\" data-exact=\"short\">2026-11-20 08:24</time></span>"),
            "{retrying}"
        );
        assert!(html(doc! { "status": -7, "run_at": at }).contains(">scheduled</span>"));
        let by = |by: &str| doc! { "by": by };
        assert!(
            html(doc! { "status": -5, "cancel": by("<ann> from 10.0.0.1") })
                .contains(">cancelled by &#60;ann&#62;</span>")
        );
        assert!(
            html(doc! { "status": -5, "cancel": by("the REST API from 10.0.0.1") })
                .contains(">cancelled</span>")
        );
        let ended = |why: &str| doc! { "status": -3, "cancel": by("ann"), "exit": { "reason": why } };
        assert!(
            html(ended("cancel"))
                .contains("class=\"status terminated\" title=\"status -3\">cancelled by ann</span>")
        );
        assert!(html(ended("timeout")).contains(">timed out</span>"), "nobody has done that");
        assert!(html(doc! { "status": -3 }).contains(">ended early</span>"));
    }

    /// The words for statuses, as docs/pages.md has them.
    #[test]
    fn the_documented_words_are_those_of_pages() {
        let docs = include_str!("../../docs/pages.md");
        let table = docs.split("### Words for statuses").nth(1).unwrap().split("\n###").next().unwrap();
        for code in [-7, -4, -2, -1, 0, 1, 2, -5, -3, -6] {
            let status = Status::from_code(code);
            let row = table.lines().find(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                cells.get(2).is_some_and(|codes| codes.split(", ").any(|own| own == code.to_string()))
            });
            let row = row.unwrap_or_else(|| panic!("{code} is not documented"));
            assert!(row.contains(word(status)) && row.contains(status.word()), "{code}: {row}");
        }
        for word in [RETRYING, ASKS, "timed out", "past deadline"] {
            assert!(table.contains(word), "{word} is not documented");
        }
    }

    #[test]
    fn the_frame_of_pages_has_neither_script_nor_style_in_it() {
        let page = ErrorPage { status: 404, reason: "Not Found", message: "none", retries: false };
        let html = page.render().unwrap();
        for script in html.split("<script").skip(1) {
            assert!(script.starts_with(" src=\"/assets/") && script.contains("></script>"), "{script}");
        }
        let handlers = [" style=", "<style", " onclick=", " onload=", "javascript:", "http://", "https://"];
        for odd in handlers {
            assert!(!html.contains(odd), "{odd} is in {html}");
        }
        for name in html.split("/assets/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(name.contains("?v="), "{name} is no asset");
        }
        assert!(html.contains("<main id=\"main\"") && html.contains("href=\"#main\""), "{html}");
    }

    fn frame() -> String {
        ErrorPage { status: 404, reason: "Not Found", message: "none", retries: false }.render().unwrap()
    }

    #[test]
    fn a_few_places_stand_beside_the_menu_of_the_others() {
        let html = frame();
        let places = html.split("<nav class=\"places\"").nth(1).unwrap().split("</nav>").next().unwrap();
        let (beside, menu) = places.split_once("<details class=\"further\"><summary>More</summary>").unwrap();
        assert_eq!([beside, menu].map(|part| part.matches("<a href=\"/").count()), [4, 13], "{places}");
    }

    #[tokio::test]
    async fn the_frame_is_for_whom_the_page_is_made() {
        let anybody = frame();
        for part in ["href=\"/nodes\"", "href=\"/audit\"", "href=\"/users\"", "<body>"] {
            assert!(anybody.contains(part), "{part} is not in {anybody}");
        }
        assert!(!anybody.contains("/logout") && !anybody.contains("form-token"), "{anybody}");
        let key = Key::new().unwrap();
        let mut who = Who::anybody("10.0.0.1".into());
        (who.name, who.via) = (Some("<alice>".into()), Via::Session(key.clone()));
        who.rights = Rights::new(Some(Role::Viewer), Vec::new());
        let viewer = Viewer::of(&who).look(async { frame() }).await;
        for part in [
            "&#60;alice&#62;".to_owned(),
            "action=\"/logout\" method=\"post\"><input type=\"hidden\" name=\".form_token\"".to_owned(),
            "<meta name=\"form-token\" content=\"".to_owned(),
            "<body data-role=\"viewer\" data-everywhere=\"viewer\">".to_owned(),
            "href=\"/nodes\"".to_owned(),
        ] {
            assert!(viewer.contains(&part), "{part} is not in {viewer}");
        }
        assert!(!viewer.contains("href=\"/audit\"") && !viewer.contains("href=\"/users\""), "{viewer}");
        who.via = Via::Proxy;
        who.rights = Rights::default();
        let nobody = Viewer::of(&who).look(async { frame() }).await;
        assert!(!nobody.contains("/logout") && !nobody.contains("href=\"/nodes\""), "{nobody}");
    }

    /// What follows a tag, whose attributes may have tags of the template in them.
    fn behind(tag: &str) -> &str {
        let (mut rest, mut quoted) = (tag, false);
        while let Some(c) = rest.chars().next() {
            let inner = [("{%", "%}"), ("{{", "}}")].into_iter().find(|(begin, _)| rest.starts_with(begin));
            if let Some((_, end)) = inner {
                rest = rest.split_once(end).unwrap().1;
                continue;
            }
            rest = &rest[c.len_utf8()..];
            match c {
                '"' => quoted = !quoted,
                '>' if !quoted => return rest,
                _ => {} // Part of the tag.
            }
        }
        panic!("{tag} has no end")
    }

    fn templates(folder: &std::path::Path) -> Vec<(std::path::PathBuf, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(templates(&path));
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
        found
    }

    #[test]
    fn each_cell_of_a_table_says_what_it_is() {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/templates"));
        let mut cells = 0;
        for (path, text) in templates(folder) {
            for (at, _) in text.match_indices("<td") {
                // As a card, in a narrow window, a row has no head. What says it by itself has an empty label.
                let tag = &text[at..text.len() - behind(&text[at..]).len()];
                assert!(tag.contains(" data-label=\""), "{}: {tag}", path.display());
                cells += 1;
            }
        }
        assert!(cells > 100, "only {cells} cells were found");
    }

    #[test]
    fn every_form_that_changes_something_is_known_by_its_first_field() {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/templates"));
        let mut forms = 0;
        for (path, text) in templates(folder) {
            for (at, _) in text.match_indices("<form") {
                let rest = behind(&text[at..]);
                let tag = &text[at..text.len() - rest.len()];
                if tag.contains("method=\"get\"") || tag.contains("method=\"dialog\"") {
                    continue;
                }
                // What has no method is sent by a script, which puts the same into a header.
                if tag.contains("method=\"post\"") {
                    forms += 1;
                    let is_first = rest.starts_with("{{ crate::access::viewer::form_field() }}");
                    assert!(is_first, "{}: {tag}{}", path.display(), rest.lines().next().unwrap_or_default());
                } else {
                    assert!(!tag.contains("action=") && !tag.contains("hx-"), "{}: {tag}", path.display());
                }
            }
        }
        assert!(forms > 30, "only {forms} forms were found");
        assert_eq!(behind("<form a=\"b>\"{% if c > 1 %} d=\"{{ e }}\"{% endif %}>rest"), "rest");
    }

    #[test]
    fn odd_values_are_shown_too() {
        let task = doc! { "status": "done" };
        assert_eq!(StatusView::of(&task), StatusView::named("\"done\"", "unknown"));
        let finished = StatusView::of(&doc! { "status": 7_i64 });
        assert_eq!(
            finished.render().unwrap(),
            "<span class=\"status finished\" title=\"status 7\">finished</span>"
        );
        let word = |task: Document| StatusView::of(&task).word;
        let failed = doc! { "status": -7, "failures": 2 };
        assert_eq!([word(doc! { "status": -7 }), word(failed)], ["scheduled", "retrying"]);
        assert_eq!([word(doc! { "status": -1 }), word(doc! { "status": -6_i64 })], ["starting", "lost"]);
        let ended = |reason: &str| word(doc! { "status": -3, "exit": { "reason": reason } });
        assert_eq!(
            [ended("timeout"), ended("cancel"), ended("lease")],
            ["timed out", "cancelled", "ended early"]
        );
        let lost = StatusView::from_code(-6).render().unwrap();
        assert_eq!(lost, "<span class=\"status orphaned\" title=\"status -6\">lost</span>");
        assert_eq!(StatusView::of(&doc! {}).render().unwrap(), "<span class=\"status \">no status</span>");
    }
}
