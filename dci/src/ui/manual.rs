//! `/docs/`: the documentation as a site, which `make docs` makes and packages bring along.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::config::Config;

use crate::error::HttpError;
use crate::static_files;

const AT: &str = "/docs";

/// Beside the folder of the program: as it is installed, and as `make docs` leaves it beside target/debug.
const BESIDE: [&str; 2] = ["share/disbatch/docs", "docs/site"];

/// As other pages, with fonts of its own.
const PAGE: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Pictures have their style in them, and no scripts.
const PICTURE: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox";

const ABSENT: &str = "the documentation is not installed on this server: the packages of a release have it, and \
     `make docs` makes it in a checkout; `docs_root` in the configuration says where it is";

static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Looks for it, once for the life of the process.
pub fn find(config: &Config) {
    let is_there = |folder: &PathBuf| folder.join("index.html").is_file();
    let found = match &config.docs_root {
        Some(folder) => Some(folder.clone()),
        None => std::env::current_exe().ok().and_then(|program| beside(&program).find(is_there)),
    };
    match found {
        Some(folder) if is_there(&folder) => drop(ROOT.set(folder)),
        Some(folder) => {
            tracing::warn!(docs_root = %folder.display(), "there is no documentation: it has no index.html")
        }
        None => {}
    }
}

fn beside(program: &Path) -> impl Iterator<Item = PathBuf> {
    let prefix = program.parent().and_then(Path::parent).map(Path::to_owned);
    prefix.into_iter().flat_map(|prefix| BESIDE.map(|folder| prefix.join(folder)))
}

pub fn is_there() -> bool {
    ROOT.get().is_some()
}

pub fn is_at(path: &str) -> bool {
    path.strip_prefix(AT).is_some_and(|rest| rest.starts_with('/'))
}

pub async fn handle(request: &HttpRequest) -> Result<HttpResponse, HttpError> {
    let root = ROOT.get().ok_or_else(|| HttpError::not_found(ABSENT))?;
    answer(root, request)
        .await
        .ok_or_else(|| HttpError::not_found(format!("nothing is at {}", request.path())))
}

async fn answer(root: &Path, request: &HttpRequest) -> Option<HttpResponse> {
    let mut path = request.uri().path().strip_prefix(AT)?.to_owned();
    if path.ends_with('/') {
        path.push_str("index.html");
    }
    let file = static_files::open(root, &path, request.method()).await?;
    let policy = if path.ends_with(".svg") { PICTURE } else { PAGE };
    let mut response = file.into_response(request);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    // Files are as old as their release: by their age alone, a browser would keep them after an upgrade.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn it_is_looked_for_beside_the_program() {
        let found: Vec<_> = beside(Path::new("/usr/bin/dci")).collect();
        assert_eq!(found[0], Path::new("/usr/share/disbatch/docs"));
        let found: Vec<_> = beside(Path::new("/src/target/debug/dci")).collect();
        assert_eq!(found[1], Path::new("/src/target/docs/site"));
    }

    #[test]
    fn the_description_of_the_api_is_no_page_of_it() {
        assert!(is_at("/docs/") && is_at("/docs/a/b.html"));
        assert!(!is_at("/docs") && !is_at("/docs.html") && !is_at("/"));
    }

    #[actix_web::test]
    async fn folders_have_an_index_and_nothing_outside_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("site");
        std::fs::create_dir_all(root.join("source/fuzz")).unwrap();
        for file in ["site/index.html", "site/source/fuzz/index.html", "site/a.svg", "secret"] {
            std::fs::write(folder.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link.html")).unwrap();
        let get = async |path: &str| answer(&root, &TestRequest::get().uri(path).to_http_request()).await;
        for (path, policy) in [("/docs/", PAGE), ("/docs/source/fuzz/", PAGE), ("/docs/a.svg", PICTURE)] {
            let response = get(path).await.unwrap();
            assert_eq!(response.headers().get("content-security-policy").unwrap(), policy, "{path}");
            assert_eq!(response.headers().get("cache-control").unwrap(), "no-cache", "{path}");
            assert!(response.headers().contains_key("etag"), "{path}");
        }
        for absent in ["/docs/link.html", "/docs/../secret", "/docs/%2e%2e/secret", "/docs/source", "/docs//"]
        {
            assert!(get(absent).await.is_none(), "{absent}");
        }
    }
}
