//! Hosts as a configuration names them: `host`, `host:port`, `*.domain` for all names below a domain, or `*` for all. Pure.

/// Whether a host is one of those that `patterns` name. Without a port, those with a port do not name it.
pub fn fits_any(host: &str, port: Option<u16>, patterns: &[impl AsRef<str>]) -> bool {
    patterns.iter().any(|pattern| fits(pattern.as_ref(), host, port))
}

/// Whether a pattern is more than a word for all hosts.
pub fn names_somebody(pattern: &str) -> bool {
    let (name, _) = split(pattern.trim());
    bare(name) != "*"
}

fn fits(pattern: &str, host: &str, port: Option<u16>) -> bool {
    let (name, wanted) = split(pattern.trim());
    if wanted.is_some() && wanted != port {
        return false;
    }
    let (name, host) = (bare(name), bare(host));
    match name.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => name == "*" || name == host,
    }
}

/// The name of a pattern and its port. The colons of an address are in brackets, or there are several.
fn split(pattern: &str) -> (&str, Option<u16>) {
    match pattern.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (pattern, None),
        },
        _ => (pattern, None),
    }
}

/// Small letters, no brackets, no dot at the end.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ports_and_domains_are_told_apart() {
        let may = |host, port, pattern: &str| fits_any(host, Some(port), &["x", pattern]);
        for pattern in
            ["jobs.example.com", "*.example.com", "*.com", "*", "jobs.example.com:443", "JOBS.example.com."]
        {
            assert!(may("Jobs.Example.com", 443, pattern), "{pattern}");
        }
        for pattern in
            ["example.com", "*.jobs.example.com", "jobs.example.com:80", "*.ample.com", "obs.example.com", ""]
        {
            assert!(!may("jobs.example.com", 443, pattern), "{pattern}");
        }
        assert!(may("127.0.0.1", 8080, "127.0.0.1:8080") && !may("127.0.0.1", 8081, "127.0.0.1:8080"));
        assert!(!may("example.com", 80, "*.example.com") && !fits_any("a", None, &["a:80"]));
    }

    #[test]
    fn addresses_with_colons_are_whole() {
        for pattern in ["::1", "[::1]", "[::1]:80"] {
            assert!(fits_any("[::1]", Some(80), &[pattern]), "{pattern}");
        }
        assert!(!fits_any("[::1]", Some(81), &["[::1]:80"]));
    }

    #[test]
    fn all_are_nobody() {
        assert!(["*", " * ", "*:443"].iter().all(|all| !names_somebody(all)));
        assert!(names_somebody("*.example.com") && names_somebody("a"));
    }
}
