//! Where a request comes from, and whether it came over TLS, also through a proxy that is believed.

use std::net::{IpAddr, SocketAddr};

use actix_web::HttpRequest;
use disbatch_core::config::Proxy;

use crate::connections;

/// The client's address: the last one in `X-Forwarded-For` that is no proxy of ours, if a proxy of ours asks.
pub fn of(request: &HttpRequest, proxy: Option<&Proxy>) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let Some(proxy) = proxy.filter(|proxy| proxy.is_at(peer)) else { return Some(peer) };
    let forwarded = request.headers().get_all("x-forwarded-for");
    let all: Vec<_> = forwarded.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let all = all.join(",");
    // Some proxies tell the port too.
    let with_port = |text: &str| text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = |text: &str| text.parse::<IpAddr>().ok().or_else(|| with_port(text));
    let address = |text: &str| address(text).map(|address| address.to_canonical());
    // From the last one, which our proxy has added. What a client has written itself is before that.
    let known = all.rsplit(',').map_while(|text| address(text.trim()));
    let mut client = peer;
    for address in known {
        client = address;
        if !proxy.is_at(address) {
            break;
        }
    }
    Some(client)
}

/// What one customer of a provider has: an IPv4 address, or 64 bits of an IPv6 address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

pub fn text(request: &HttpRequest, proxy: Option<&Proxy>) -> String {
    of(request, proxy).map_or_else(|| "an unknown address".to_owned(), |address| address.to_string())
}

pub fn is_from_proxy(request: &HttpRequest, proxy: &Proxy) -> bool {
    request.peer_addr().is_some_and(|peer| proxy.is_at(peer.ip()))
}

/// Whether somebody has passed the request on whom the configuration does not name: where it comes from is not known then.
pub fn is_passed_on(request: &HttpRequest, proxy: Option<&Proxy>) -> bool {
    let says_so =
        ["forwarded", "x-forwarded-for", "x-real-ip"].map(|name| request.headers().contains_key(name));
    says_so.contains(&true) && !proxy.is_some_and(|proxy| is_from_proxy(request, proxy))
}

pub fn is_encrypted(request: &HttpRequest, proxy: Option<&Proxy>) -> bool {
    let by_proxy = || {
        let scheme = request.headers().get("x-forwarded-proto").and_then(|value| value.to_str().ok());
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    };
    connections::is_encrypted(request)
        || proxy.is_some_and(|proxy| is_from_proxy(request, proxy) && by_proxy())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn proxy() -> Proxy {
        serde_json::from_str(r#"{"addresses": ["10.0.0.0/8"]}"#).unwrap()
    }

    fn client(peer: &str, forwarded: &[&'static str]) -> String {
        let peer = format!("{peer}:1234").parse().unwrap();
        let request = forwarded.iter().fold(TestRequest::get().peer_addr(peer), |request, header| {
            request.append_header(("x-forwarded-for", *header))
        });
        of(&request.to_http_request(), Some(&proxy())).unwrap().to_string()
    }

    #[test]
    fn only_a_proxy_of_ours_is_believed() {
        assert_eq!(client("192.0.2.1", &["198.51.100.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 198.51.100.1", "10.9.9.9"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["rubbish"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["é, 198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, rubbish"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn a_proxy_that_is_not_named_is_noticed() {
        let request = |peer: &str, header: &'static str| {
            let peer = format!("{peer}:1").parse().unwrap();
            TestRequest::get().peer_addr(peer).insert_header((header, "198.51.100.1")).to_http_request()
        };
        for header in ["Forwarded", "X-Forwarded-For", "X-Real-IP"] {
            assert!(is_passed_on(&request("127.0.0.1", header), None));
            assert!(is_passed_on(&request("127.0.0.1", header), Some(&proxy())));
            assert!(!is_passed_on(&request("10.0.0.1", header), Some(&proxy())));
        }
        assert!(!is_passed_on(&request("127.0.0.1", "Accept"), None));
    }

    #[test]
    fn tls_before_the_proxy_counts() {
        let request = |peer: &str| {
            let request = TestRequest::get().insert_header(("x-forwarded-proto", "https"));
            request.peer_addr(format!("{peer}:1").parse().unwrap()).to_http_request()
        };
        assert!(is_encrypted(&request("10.0.0.1"), Some(&proxy())));
        assert!(!is_encrypted(&request("192.0.2.1"), Some(&proxy())));
        assert!(!is_encrypted(&request("10.0.0.1"), None));
    }
}
