//! What keeps browsers, and those who use them, safe from pages of other sites.
//!
//! Whoever owns a name can let it lead to this machine's loopback address for a moment. To a browser this server is then
//! part of that site, whose page may read and change everything here, if nobody is asked who they are. What gives it away
//! is the name in its requests ([`Hosts`]).
//!
//! Every answer tells browsers not to guess, not to show it within other pages, and to run nothing that is in it
//! ([`protect`]). Pages of other sites are kept from sending forms here with the help of a visitor's browser
//! ([`refuse_other_sites`]).

use std::net::{IpAddr, SocketAddr};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use actix_web::middleware::Next;
use actix_web::web::Data;
use disbatch_core::config::HostNames;

use crate::access;
use crate::api::service;
use crate::connections;
use crate::error::HttpError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    Any,
    /// Those of a machine for itself, and these.
    Only(Vec<String>),
}

impl Hosts {
    /// The configured names. Without them, only those of a machine for itself where nobody else is served.
    pub fn new(configured: Option<&HostNames>, listen: SocketAddr) -> Self {
        match configured {
            Some(names) => Self::Only(names.0.clone()),
            None if listen.ip().to_canonical().is_loopback() => Self::Only(Vec::new()),
            None => Self::Any,
        }
    }

    /// Whether requests may be for this host, with or without port.
    fn allow(&self, host: &str) -> bool {
        let Self::Only(names) = self else { return true };
        let Some(name) = without_port(host) else { return false };
        let address: Option<IpAddr> = name.parse().ok();
        let is_own = match address {
            Some(address) => address.to_canonical().is_loopback(),
            None => name.eq_ignore_ascii_case("localhost"),
        };
        let is_same = |known: &String| {
            known.eq_ignore_ascii_case(name) || (address.is_some() && known.parse::<IpAddr>().ok() == address)
        };
        is_own || names.iter().any(is_same)
    }

    /// The first host that a request names and that is not allowed; empty if it names none at all.
    fn refused<'a>(&self, request: &'a ServiceRequest) -> Option<&'a str> {
        if *self == Self::Any {
            return None;
        }
        // What a proxy says of the name does not count: a page can say so too.
        let header = request.headers().get_all(HOST).map(|host| host.to_str().unwrap_or_default());
        let target = request.uri().authority().map(|authority| authority.as_str());
        let mut named = header.chain(target).peekable();
        if named.peek().is_none() {
            return Some("");
        }
        named.find(|host| !self.allow(host))
    }
}

/// The name or address in `name`, `name:port`, `[address]` or `[address]:port`.
fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(address) => address.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    let name = name.strip_suffix('.').unwrap_or(name);
    (is_whole && !name.is_empty()).then_some(name)
}

pub async fn refuse_other_names(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    if !service::is_health_check(request.path())
        && let Some(hosts) = request.app_data::<Data<Hosts>>()
        && let Some(host) = hosts.refused(&request)
        // Monitoring knows addresses.
        && !(request.path() == "/metrics" && access::is_by_token(request.request()).await)
    {
        let message = format!(
            "this server is not known as '{host}': names other than localhost have to be listed in 'hosts' of its \
             configuration"
        );
        return Err(HttpError::new(StatusCode::MISDIRECTED_REQUEST, message).into());
    }
    next.call(request).await
}

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
    if !request.method().is_safe() && is_from_other_site(request.headers()) {
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

    fn hosts(names: Option<&[&str]>, listen: &str) -> Hosts {
        let names = names.map(|names| HostNames(names.iter().map(ToString::to_string).collect()));
        Hosts::new(names.as_ref(), listen.parse().unwrap())
    }

    #[test]
    fn loopback_is_for_this_machine_and_the_key_is_for_all() {
        for loopback in ["127.0.0.1:8080", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            assert_eq!(hosts(None, loopback), Hosts::Only(vec![]), "{loopback}");
        }
        for open in ["0.0.0.0:8080", "10.0.0.5:8080", "[::]:8080"] {
            assert_eq!(hosts(None, open), Hosts::Any, "{open}");
            assert_eq!(hosts(Some(&["a.example"]), open), Hosts::Only(vec!["a.example".into()]), "{open}");
        }
    }

    #[test]
    fn a_machine_may_call_itself_what_it_is_always_called() {
        let own = hosts(None, "127.0.0.1:8080");
        for host in [
            "localhost",
            "localhost:8080",
            "LocalHost.:1",
            "127.0.0.1",
            "127.9.9.9:65535",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(own.allow(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.5:8080",
            "[::1].evil.example",
            "[::1]evil:1",
            "[::1",
            "localhost:8080.evil.example",
            "evil.example@localhost",
            "0.0.0.0",
            "::1",
            ":8080",
            "",
        ] {
            assert!(!own.allow(host), "{host}");
        }
        assert!(Hosts::Any.allow("evil.example") && Hosts::Any.allow(""));
    }

    #[test]
    fn configured_names_are_allowed_besides() {
        let named = hosts(Some(&["disbatch.example.com", "10.0.0.5", "2001:db8::5"]), "0.0.0.0:443");
        for host in
            ["Disbatch.Example.com:443", "10.0.0.5", "[2001:db8:0::5]:443", "127.0.0.1:443", "localhost"]
        {
            assert!(named.allow(host), "{host}");
        }
        for host in ["example.com", "x.disbatch.example.com", "10.0.0.6", "[2001:db8::6]"] {
            assert!(!named.allow(host), "{host}");
        }
    }

    #[test]
    fn every_name_in_a_request_counts() {
        let own = hosts(None, "127.0.0.1:8080");
        let refused = |uri: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(uri);
            let request = headers.iter().fold(request, |request, header| request.append_header(*header));
            own.refused(&request.to_srv_request()).map(str::to_owned)
        };
        let (good, evil) = (("host", "localhost:8080"), ("host", "evil.example"));
        assert_eq!(refused("/", &[good]), None);
        assert_eq!(refused("/", &[]).as_deref(), Some(""));
        assert_eq!(refused("/", &[evil]).as_deref(), Some("evil.example"));
        assert_eq!(refused("/", &[good, evil]).as_deref(), Some("evil.example"));
        assert_eq!(refused("http://evil.example/", &[good]).as_deref(), Some("evil.example"));
        assert_eq!(refused("http://127.0.0.1:8080/", &[good]), None);
        assert_eq!(refused("/", &[evil, ("x-forwarded-host", "localhost")]).as_deref(), Some("evil.example"));
        assert_eq!(refused("/", &[evil, ("forwarded", "host=localhost")]).as_deref(), Some("evil.example"));
    }

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
