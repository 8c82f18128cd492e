//! What shows that a change was asked for by a page of the session itself, and not by a page of someone else's.

use actix_web::HttpRequest;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::Method;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Bytes};
use disbatch_core::accounts::Key;
use futures::{future, stream};

use crate::allowance;
use crate::error::HttpError;
use crate::params::read_body;

/// The first field of every form.
pub const FIELD: &str = ".form_token";

/// Where scripts put the same.
const HEADER: &str = "x-disbatch-form-token";

const FORM: &str = "application/x-www-form-urlencoded";

/// Whether the method changes nothing.
pub fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// Sees to it that a request of a session has the session's form token, and takes it out of the form.
pub async fn check(request: &mut ServiceRequest, key: &Key) -> Result<(), HttpError> {
    if is_reading(request.method()) {
        return Ok(());
    }
    if let Some(given) = request.headers().get(HEADER) {
        let right = given.to_str().is_ok_and(|given| key.is_form_token(given));
        return if right { Ok(()) } else { Err(refused()) };
    }
    if !is_form(request.request()) {
        return Err(refused());
    }
    let body = body(request).await?;
    let (token, rest) = split(&body).ok_or_else(refused)?;
    if !key.is_form_token(token) {
        return Err(refused());
    }
    let rest = body.slice_ref(rest);
    // It is counted again when it is read again.
    allowance::give_back(body.len());
    request.set_payload(Payload::Stream { payload: Box::pin(stream::once(future::ready(Ok(rest)))) });
    Ok(())
}

fn refused() -> HttpError {
    HttpError::forbidden(
        "this was not asked for by a page of your session: open the page again. Programs use a token or a password",
    )
}

fn is_form(request: &HttpRequest) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(FORM)
}

async fn body(request: &mut ServiceRequest) -> Result<Bytes, HttpError> {
    let unreadable = || HttpError::bad_request("the body cannot be read");
    read_body(request.extract::<web::Payload>().await.map_err(|_| unreadable())?).await
}

/// The token, which is the first field, and what follows it.
fn split(body: &[u8]) -> Option<(&str, &[u8])> {
    let value = body.strip_prefix(FIELD.as_bytes())?.strip_prefix(b"=")?;
    let end = value.iter().position(|byte| *byte == b'&');
    let (token, rest) = match end {
        Some(end) => (value.get(..end)?, value.get(end + 1..)?),
        None => (value, value.get(value.len()..)?),
    };
    Some((std::str::from_utf8(token).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    async fn checked(key: &Key, request: TestRequest) -> Result<String, u16> {
        let mut request = request.to_srv_request();
        check(&mut request, key).await.map_err(|error| error.status().as_u16())?;
        let body = request.extract::<String>().await.unwrap();
        Ok(body)
    }

    fn form(body: String) -> TestRequest {
        TestRequest::post().insert_header((CONTENT_TYPE, FORM)).set_payload(body)
    }

    #[actix_web::test]
    async fn a_form_has_its_token_first() {
        let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
        let token = key.form_token();
        assert_eq!(checked(&key, form(format!(".form_token={token}&a=1&b=2"))).await, Ok("a=1&b=2".into()));
        assert_eq!(checked(&key, form(format!(".form_token={token}"))).await, Ok(String::new()));
        for wrong in
            [String::new(), "a=1".into(), format!("a=1&.form_token={token}"), ".form_token=&a=1".into()]
        {
            assert_eq!(checked(&key, form(wrong.clone())).await, Err(403), "{wrong}");
        }
        let others = form(format!(".form_token={}&a=1", other.form_token()));
        assert_eq!(checked(&key, others).await, Err(403));
    }

    #[actix_web::test]
    async fn scripts_have_it_in_a_header() {
        let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
        let json = || TestRequest::post().insert_header((CONTENT_TYPE, "application/json")).set_payload("{}");
        assert_eq!(checked(&key, json()).await, Err(403));
        assert_eq!(checked(&key, json().insert_header((HEADER, key.form_token()))).await, Ok("{}".into()));
        assert_eq!(checked(&key, json().insert_header((HEADER, other.form_token()))).await, Err(403));
        assert_eq!(checked(&key, TestRequest::get()).await, Ok(String::new()), "reading needs none");
    }
}
