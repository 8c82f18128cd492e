//! Keeps pages of other sites from sending forms here with the help of a visitor's browser.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HOST, HeaderMap, ORIGIN};
use actix_web::middleware::Next;

use crate::error::HttpError;

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
    use actix_web::test::TestRequest;

    use super::*;

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
