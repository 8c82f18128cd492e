//! Where a form of a page leads: the option `.then` has the address of the page that is to be shown next.

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use serde::Serialize;
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::params::Params;
use crate::{json, ui};

pub fn is_form(params: &Params) -> bool {
    params.options.contains_key("then")
}

/// A number that a page's form sends, which is text, as the number that it is; a field that was left empty as null. What
/// programs send stays as it is.
pub fn number(params: &Params, value: &Value) -> Value {
    let Some(text) = value.as_str().filter(|_| is_form(params)) else { return value.clone() };
    if text.is_empty() {
        Value::Null
    } else {
        text.parse::<u64>().map_or_else(|_| value.clone(), Value::from)
    }
}

/// `answer`, or for a page's form the way to the next page.
pub fn answer(params: &Params, answer: HttpResponse) -> Answer {
    let Some(next) = params.options.get("then") else { return Ok(answer) };
    let path = next.as_str().filter(|path| is_own(path));
    let path = path.ok_or_else(|| HttpError::bad_request(".then must be an address of this server"))?;
    Ok(see(path))
}

pub fn see(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}

/// The way to the page `next` when something is done, or the error as a page: for forms that have one place to lead to.
pub fn lead<T>(done: Result<T, HttpError>, next: &str) -> Answer {
    as_page(done.map(|_| see(next)))
}

/// What was done, for programs; for a page's form, the way to the next page.
pub fn reply(params: &Params, done: &impl Serialize) -> Answer {
    answer(params, json::of(done)?)
}

/// `answer`, with its error as a page where a page's form asks. Most routes see to that, see `Place::form`.
pub fn or_page(is_form: bool, answer: Answer) -> Answer {
    if is_form { as_page(answer) } else { answer }
}

pub fn as_page(answer: Answer) -> Answer {
    answer.or_else(|error| Ok(ui::failed(&error)))
}

/// A path here, and not `//elsewhere` or `/\elsewhere`, which browsers take for another server.
pub fn is_own(path: &str) -> bool {
    let safe = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    safe && path.starts_with('/') && !path.starts_with("//")
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn only_addresses_of_this_server_follow() {
        for own in ["/", "/tasks/6b0003bb686c8275d8013333", "/tasks?queue=x"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "/a b"] {
            assert!(!is_own(other), "{other}");
        }
        let options: Map<_, _> = [("then".to_owned(), json!("/"))].into_iter().collect();
        let params = Params { options, ..Params::default() };
        assert_eq!(
            [json!("7"), json!(""), json!("x")].map(|value| number(&params, &value)),
            [json!(7), json!(null), json!("x")]
        );
        assert_eq!(number(&Params::default(), &json!("7")), json!("7"));
        assert_eq!(answer(&params, HttpResponse::Ok().finish()).unwrap().status(), 303);
        assert_eq!(answer(&Params::default(), HttpResponse::Ok().finish()).unwrap().status(), 200);
    }
}
