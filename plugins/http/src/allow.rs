//! Which hosts may be asked: the node's configuration names them, and no manifest, as that may come from the database. Pure.

use disbatch_adapter::hosts;
use reqwest::Url;

/// Why no address of a task is asked.
const NOTHING_NAMED: &str = "the address is the task's, and engines.http.allow of this node's configuration is not set: \
    it names the hosts that tasks may have asked";

/// Whether the plugin's own service may be asked on this node: whether the host of `url` is one of those that `allowed` names, if it
/// names any: `host`, `host:port`, or `*.domain` for all names below a domain.
///
/// # Errors
/// It is none of them.
pub fn check(url: &Url, allowed: Option<&[String]>) -> Result<(), String> {
    match allowed {
        Some(allowed) if !fits_any(url, allowed) => Err(is_missing(url)),
        _ => Ok(()),
    }
}

/// Whether a service may be asked whose address the task has. Whoever submits tasks would otherwise choose what of the node's network
/// is asked, and sees a part of each answer: so the node has to name the host.
///
/// `has_headers`: headers of the plugin go there as well, with its secrets in them. Then `*`, which names nobody, is not enough.
///
/// # Errors
/// It may not.
pub fn check_of_task(url: &Url, allowed: Option<&[String]>, has_headers: bool) -> Result<(), String> {
    let Some(allowed) = allowed else { return Err(NOTHING_NAMED.to_owned()) };
    if !fits_any(url, allowed) {
        return Err(is_missing(url));
    }
    let named: Vec<String> =
        allowed.iter().filter(|pattern| hosts::names_somebody(pattern)).cloned().collect();
    if has_headers && !fits_any(url, &named) {
        return Err(format!(
            "the headers of the plugin are not for whatever address a task has: engines.http.allow of this node's \
             configuration must name the host '{}'",
            host(url)
        ));
    }
    Ok(())
}

fn is_missing(url: &Url) -> String {
    format!("engines.http.allow of this node's configuration does not have the host '{}'", host(url))
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

fn fits_any(url: &Url, allowed: &[String]) -> bool {
    hosts::fits_any(host(url), url.port_or_known_default(), allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(url: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        check(&url.parse().unwrap(), Some(&allowed)).is_ok()
    }

    #[test]
    fn without_a_list_all_may_be_asked() {
        assert_eq!(check(&"http://anything.example/".parse().unwrap(), None), Ok(()));
        assert!(!may("http://anything.example/", &[]));
    }

    #[test]
    fn where_a_task_says_the_address_the_node_has_to_name_it() {
        let check = |url: &str, allowed: Option<&[&str]>, has_headers: bool| {
            let allowed: Option<Vec<String>> =
                allowed.map(|allowed| allowed.iter().map(ToString::to_string).collect());
            check_of_task(&url.parse().unwrap(), allowed.as_deref(), has_headers)
        };
        let url = "https://jobs.example/start";
        for has_headers in [false, true] {
            let error = check(url, None, has_headers).unwrap_err();
            assert!(error.starts_with("the address is the task's, and engines.http.allow"), "{error}");
            let error = check("https://evil.example/", Some(&["jobs.example"]), has_headers).unwrap_err();
            assert!(error.ends_with("does not have the host 'evil.example'"), "{error}");
            for pattern in ["jobs.example", "*.example", "jobs.example:443"] {
                assert_eq!(check(url, Some(&["x", pattern]), has_headers), Ok(()), "{pattern}");
            }
        }
        for all in [&["*"][..], &[" * "], &["*:443"], &["other.example", "*."]] {
            assert_eq!(check(url, Some(all), false), Ok(()), "{all:?}");
            let error = check(url, Some(all), true).unwrap_err();
            assert!(error.ends_with("must name the host 'jobs.example'"), "{error}");
        }
    }
}
