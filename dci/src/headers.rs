//! What every answer tells browsers: not to guess, not to show it within other pages, and to run nothing that is in it. Pages of
//! other sites are kept from sending forms here with the help of a visitor's browser.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use actix_web::middleware::Next;

use crate::connections;
use crate::error::HttpError;

/// Of all answers.
const OF_ALL: [(&str, &str); 7] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    // Pages have a policy of their own, and so have the operator's files. All else is data, whatever it looks like.
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
];

/// Of answers over TLS: for a year the browser is to come back that way only.
const OVER_TLS: (&str, &str) = ("strict-transport-security", "max-age=31536000");

/// Adds these headers to every answer that does not have its own.
pub async fn protect(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let encrypted = connections::is_encrypted(request.request());
    match next.call(request).await {
        Ok(mut response) => {
            complete(response.headers_mut(), encrypted);
            Ok(response)
        }
        Err(mut error) => {
            error.add_response_mapper(move |mut response| {
                complete(response.headers_mut(), encrypted);
                response
            });
            Err(error)
        }
    }
}

fn complete(headers: &mut HeaderMap, encrypted: bool) {
    for (name, value) in OF_ALL.into_iter().chain(encrypted.then_some(OVER_TLS)) {
        if !headers.contains_key(name) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
}

/// Refuses requests that change something when a browser says that another site's page makes them. Programs
/// send neither `Sec-Fetch-Site` nor `Origin`, so they notice nothing.
pub async fn refuse_other_sites(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
    if !reads && is_from_other_site(request.headers()) {
        return Err(HttpError::forbidden("a page of another site may not change anything here").into());
    }
    next.call(request).await
}

fn is_from_other_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &actix_web::http::header::HeaderValue| value.as_bytes());
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = text(ORIGIN) else { return false };
    let host = origin.windows(3).position(|part| part == b"://").map(|at| &origin[at + 3..]);
    host != text(HOST)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::CONTENT_SECURITY_POLICY;
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, init_service, try_call_service};
    use actix_web::{App, HttpResponse, web};

    use super::*;

    async fn refuse(
        request: ServiceRequest,
        next: Next<impl MessageBody>,
    ) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
        if request.path() == "/refused" {
            return Err(HttpError::forbidden("no").into());
        }
        next.call(request).await
    }

    #[actix_web::test]
    async fn every_answer_has_them_and_keeps_its_own() {
        let own = || async {
            HttpResponse::Ok().insert_header((CONTENT_SECURITY_POLICY, "default-src 'self'")).finish()
        };
        let app = App::new().wrap(from_fn(refuse)).wrap(from_fn(protect));
        let app = init_service(app.route("/own", web::get().to(own))).await;
        for (path, status, policy) in [
            ("/own", 200, "default-src 'self'"),
            ("/none", 404, "default-src 'none'; frame-ancestors 'none'; sandbox"),
            ("/refused", 403, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        ] {
            let headers = match try_call_service(&app, TestRequest::with_uri(path).to_request()).await {
                Ok(response) => {
                    assert_eq!(response.status(), status, "{path}");
                    response.headers().clone()
                }
                Err(error) => {
                    let response = error.error_response();
                    assert_eq!(response.status(), status, "{path}");
                    response.headers().clone()
                }
            };
            for (name, value) in OF_ALL {
                let expected = if name == "content-security-policy" { policy } else { value };
                assert_eq!(headers.get(name).unwrap(), expected, "{path}: {name}");
                assert_eq!(headers.get_all(name).count(), 1, "{path}: {name}");
            }
            assert!(!headers.contains_key("strict-transport-security"), "{path}");
        }
    }

    #[test]
    fn over_tls_browsers_are_to_stay_with_it() {
        let mut headers = HeaderMap::new();
        complete(&mut headers, true);
        assert_eq!(headers.get("strict-transport-security").unwrap(), "max-age=31536000");
    }

    fn refused(headers: &[(&'static str, &'static str)]) -> bool {
        let request =
            headers.iter().fold(TestRequest::post(), |request, header| request.insert_header(*header));
        is_from_other_site(request.to_http_request().headers())
    }

    #[test]
    fn only_pages_of_other_sites_are_refused() {
        assert!(!refused(&[("host", "localhost:8080")]));
        assert!(!refused(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]));
        assert!(!refused(&[
            ("host", "inner"),
            ("origin", "https://outer"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(refused(&[("host", "localhost:8080"), ("origin", "http://evil.example")]));
        assert!(refused(&[("host", "localhost:8080"), ("origin", "null")]));
        assert!(refused(&[("sec-fetch-site", "cross-site")]));
    }
}
