//! Which of the two representations a client wants.

use actix_web::HttpRequest;
use actix_web::http::header::{ACCEPT, HeaderMap};

/// Whether `Accept` prefers HTML at least as much as JSON.
///
/// HTML must be asked for by name: `*/*` and an absent header mean JSON, which is what programs send.
pub fn wants_html(request: &HttpRequest) -> bool {
    asks_for_html(request.headers())
}

pub fn asks_for_html(headers: &HeaderMap) -> bool {
    let accept: Vec<&str> = headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok()).collect();
    prefers_html(&accept.join(","))
}

fn prefers_html(accept: &str) -> bool {
    let html = weight(accept, &["text/html", "text/*"]);
    html > 0.0 && html >= weight(accept, &["application/json", "application/*", "*/*"])
}

/// The weight of the first of `names`, from most to least specific, that `accept` has; 0 for none.
fn weight(accept: &str, names: &[&str]) -> f64 {
    names.iter().find_map(|name| accept.split(',').find_map(|range| weight_in(range, name))).unwrap_or(0.0)
}

fn weight_in(range: &str, name: &str) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(name) {
        return None;
    }
    let q = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some(q.and_then(|q| q.trim().parse().ok()).unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_for_those_who_name_it() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for html in [browser, "text/html", "text/html;q=0.5, application/json;q=0.5", "TEXT/HTML; q=0.1"] {
            assert!(prefers_html(html), "{html}");
        }
        let json =
            ["", "*/*", "application/json", "text/html;q=0.5, application/json;q=0.9", "text/html;q=0"];
        for json in json.into_iter().chain(["text/html;q=0.4, */*;q=0.5", "text/plain"]) {
            assert!(!prefers_html(json), "{json}");
        }
    }
}
