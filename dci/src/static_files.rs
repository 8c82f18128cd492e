//! Files of folders: of `web_root`, what no route is for, and of the documentation. No listings of folders, nothing
//! outside of the folder, nothing that is hidden.

use std::path::{Path, PathBuf};

use actix_files::NamedFile;
use actix_web::http::Method;
use actix_web::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};

/// These are the operator's own, and may be pages with scripts. Other sites may not show them within theirs.
const POLICY: &str = "frame-ancestors 'none'";

/// The file that `request` asks for, if it is there and may be seen. Conditional requests and ranges work.
pub async fn find(web_root: &Path, request: &HttpRequest) -> Option<HttpResponse> {
    let path = request.uri().path();
    let file = open(web_root, path, request.method()).await?;
    // Whatever a link is called that leads to it.
    let is_script = Path::new(path).extension().is_some_and(|extension| extension == "js");
    let mut response = file.prefer_utf8(false).into_response(request);
    if is_script {
        // As Perl Disbatch has it.
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/javascript"));
    }
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Some(response)
}

/// The file at the address `path` of a folder, if it is there and may be seen.
pub async fn open(root: &Path, path: &str, method: &Method) -> Option<NamedFile> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let path = root.join(relative(path)?);
    let root = tokio::fs::canonicalize(root).await.ok()?;
    // A link that leads out of the folder leads to what was not meant to be seen.
    let real = tokio::fs::canonicalize(&path).await.ok().filter(|real| real.starts_with(&root))?;
    // Anything but a file, a pipe for instance, might never be opened.
    if !tokio::fs::metadata(&real).await.ok()?.is_file() {
        return None;
    }
    Some(NamedFile::open_async(real).await.ok()?.disable_content_disposition())
}

/// The path below the folder, if every part of it is an ordinary name.
fn relative(path: &str) -> Option<PathBuf> {
    let decoded = percent_decode(path.strip_prefix('/')?)?;
    let ordinary = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    decoded.split('/').all(ordinary).then(|| PathBuf::from(decoded))
}

/// Bytes that are not UTF-8 name no file here.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            // A sign would pass for a digit.
            let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    /// Parts of paths that have led somewhere else, somewhere.
    const PARTS: [&str; 20] = [
        "/",
        "//",
        ".",
        "..",
        "...",
        "%2e",
        "%2E",
        "%252e",
        "%2f",
        "%252f",
        "\\",
        "%5c",
        "%00",
        "%c0%ae",
        "%ff",
        "~",
        "a",
        "js",
        "queues.js",
        "etc",
    ];

    proptest! {
        #[test]
        fn a_path_is_of_ordinary_names(
            parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..8),
            odd in any::<String>(),
        ) {
            let paths = [format!("/{}", parts.concat()), format!("/{odd}"), parts.concat()];
            for path in paths.iter().filter_map(|path| relative(path)) {
                for part in path.components() {
                    let Component::Normal(name) = part else { return Err(TestCaseError::fail(format!("{path:?}"))) };
                    let name = name.to_string_lossy();
                    prop_assert!(!name.starts_with('.') && !name.contains(['\\', '\0', '/']), "{:?}", path);
                }
                prop_assert!(Path::new("/srv/web").join(&path).starts_with("/srv/web"), "{:?}", path);
            }
        }
    }

    #[test]
    fn only_ordinary_names_are_paths() {
        let is = |path: &str, expected: &str| assert_eq!(relative(path), Some(PathBuf::from(expected)));
        is("/index.html", "index.html");
        is("/js/queues.js", "js/queues.js");
        is("/caf%C3%A9%20x", "café x");
        for wrong in [
            "",
            "/",
            "//etc/passwd",
            "/js/",
            "/../x",
            "/a/../x",
            "/%2e%2e/x",
            "/a%2f%2e%2e%2fx",
            "/.htaccess",
            "/a/.git/x",
            "/a\\..\\x",
            "/a%00",
            "/a%",
            "/%zz",
            "/%ff",
            "/%2fetc/passwd",
            "/a%5c..%5cx",
            "/a/%2e%2e%2f%2e%2e/x",
            "/%2E/x",
            "/%2e%2e%2fx%00.js",
            "/%+fx",
            "/% 2x",
            "/%c0%ae%c0%ae/x",
        ] {
            assert_eq!(relative(wrong), None, "{wrong}");
        }
    }

    #[actix_web::test]
    async fn files_are_served_and_folders_and_links_outside_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("htdocs");
        std::fs::create_dir_all(root.join("js")).unwrap();
        std::fs::write(root.join("js/queues.js"), "let a;").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink("js/queues.js", root.join("alias.js")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
        let get = async |path: &str| {
            find(&root, &actix_web::test::TestRequest::get().uri(path).to_http_request()).await
        };
        let response = get("/js/queues.js").await.unwrap();
        assert_eq!(response.headers().get("content-type").unwrap(), "application/javascript");
        assert!(response.headers().contains_key("last-modified"));
        assert_eq!(response.headers().get("content-security-policy").unwrap(), "frame-ancestors 'none'");
        assert!(get("/alias.js").await.is_some(), "it leads to a file of the folder");
        for absent in [
            "/js",
            "/js/",
            "/link",
            "/nope",
            "/../secret",
            "/out",
            "/out/secret",
            "/dangling",
            "/js/%2e%2e/%2e%2e/secret",
            "/js/queues.js/",
        ] {
            assert!(get(absent).await.is_none(), "{absent}");
        }
        let post = actix_web::test::TestRequest::post().uri("/js/queues.js").to_http_request();
        assert!(find(&root, &post).await.is_none());
    }
}
