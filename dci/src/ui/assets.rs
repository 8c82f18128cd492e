//! `GET /assets/:asset`: style sheets, scripts and the icon, which are part of the binary.
//!
//! Pages name them with [`url`], which has a version that changes with the content: under that address they are kept for
//! good. Without it a browser asks each time whether there is a newer one.

use std::sync::LazyLock;

use actix_web::http::header::{CACHE_CONTROL, ETAG, EntityTag, Header, IfNoneMatch};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::OfAnybody;

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// What has a version in its address never changes.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";

struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: &'static str,
}

macro_rules! asset {
    ($name:literal, $media_type:ident, $($file:literal),+) => {
        Asset {
            name: $name,
            media_type: $media_type,
            content: concat!($(include_str!(concat!("../../assets/", $file))),+),
        }
    };
}

/// All of them. One that is made of several files has these one after the other.
static ASSETS: [Asset; 15] = [
    asset!("app.css", STYLE, "style/ground.css", "style/parts.css", "style/pages.css"),
    asset!("log.css", STYLE, "style/log.css"),
    asset!("theme.js", SCRIPT, "theme.js"),
    asset!(
        "app.js",
        SCRIPT,
        "app/core.js",
        "app/session.js",
        "app/times.js",
        "app/live.js",
        "app/actions.js",
        "app/dialogs.js",
        "app/menu.js",
        "app/palette.js",
        "app/keys.js"
    ),
    asset!("charts.js", SCRIPT, "charts.js"),
    asset!(
        "task.js",
        SCRIPT,
        "task/ansi.js",
        "task/tools.js",
        "task/lines.js",
        "task/pane.js",
        "task/search.js",
        "task/together.js",
        "task/follow.js"
    ),
    asset!("tasks.js", SCRIPT, "tasks.js"),
    asset!("queue.js", SCRIPT, "queue.js"),
    asset!("balance.js", SCRIPT, "balance.js"),
    asset!("schedule.js", SCRIPT, "schedule.js"),
    asset!("icon.svg", PICTURE, "icon.svg"),
    asset!("htmx.js", SCRIPT, "vendor/htmx.js"),
    asset!("idiomorph.js", SCRIPT, "vendor/idiomorph.js"),
    asset!("uplot.js", SCRIPT, "vendor/uplot.js"),
    asset!("uplot.css", STYLE, "vendor/uplot.css"),
];

/// The versions, in the same order.
static VERSIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    ASSETS.iter().map(|asset| format!("{:016x}", digest(asset.content.as_bytes()))).collect()
});

/// The version of all of them together.
pub static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{:016x}", digest(VERSIONS.concat().as_bytes())));

fn find(name: &str) -> Option<(&'static Asset, &'static str)> {
    let (asset, version) = ASSETS.iter().zip(VERSIONS.iter()).find(|(asset, _)| asset.name == name)?;
    Some((asset, version.as_str()))
}

pub fn is_at(path: &str) -> bool {
    path.strip_prefix("/assets/").and_then(find).is_some()
}

/// The address of an asset, for templates.
pub fn url(name: &str) -> String {
    find(name).map_or_else(
        || format!("/assets/{name}"),
        |(asset, version)| format!("/assets/{}?v={version}", asset.name),
    )
}

/// FNV-1a: tells contents of this program's own apart.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A style sheet, a script or a picture of the pages. With the version that the pages ask for, it may be kept for good.
#[utoipa::path(
    get, path = "/assets/{asset}", tag = "service", operation_id = "getAsset",
    params(("asset" = String, Path, description = "Its name.", example = "app.css")),
    responses(
        (status = 200, description = "Its content.", body = String,
            content_type = "text/css; charset=utf-8, text/javascript; charset=utf-8, image/svg+xml"),
        (status = 304, description = "The client has it already."),
        (status = 404, description = "There is none with this name."),
        OfAnybody,
    ),
)]
pub async fn handle(request: HttpRequest, name: Path<String>) -> Answer {
    let none = || HttpError::not_found(format!("nothing is at {}", request.path()));
    let (asset, version) = find(&name).ok_or_else(none)?;
    let is_named = request.query_string().strip_prefix("v=") == Some(version);
    let tag = EntityTag::new_weak(version.to_owned());
    let mut response = if has(&request, &tag) { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header((CACHE_CONTROL, if is_named { FOR_GOOD } else { "no-cache" }));
    response.insert_header((ETAG, tag.to_string()));
    if has(&request, &tag) {
        return Ok(response.finish());
    }
    Ok(response.content_type(asset.media_type).body(asset.content))
}

/// Whether the client has this version.
fn has(request: &HttpRequest, tag: &EntityTag) -> bool {
    match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Items(known)) => known.iter().any(|known| known.weak_eq(tag)),
        Ok(IfNoneMatch::Any) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use actix_web::test::TestRequest;

    use super::*;

    async fn get(address: &str, known: Option<&str>) -> Answer {
        let name = address.trim_start_matches("/assets/").split('?').next().unwrap().to_owned();
        let request = TestRequest::with_uri(address);
        let request =
            known.iter().fold(request, |request, tag| request.insert_header(("if-none-match", *tag)));
        handle(request.to_http_request(), Path::from(name)).await
    }

    #[actix_web::test]
    async fn what_pages_name_is_kept_for_good_and_everything_else_is_asked_for_again() {
        for asset in &ASSETS {
            let response = get(&url(asset.name), None).await.unwrap();
            assert_eq!(response.headers().get(CACHE_CONTROL).unwrap(), FOR_GOOD);
            assert_eq!(response.headers().get("content-type").unwrap(), asset.media_type);
        }
        for address in ["/assets/app.css", "/assets/app.css?v=1", "/assets/app.css?v="] {
            let response = get(address, None).await.unwrap();
            assert_eq!(response.headers().get(CACHE_CONTROL).unwrap(), "no-cache", "{address}");
        }
        let tag = get("/assets/app.js", None).await.unwrap().headers().get(ETAG).unwrap().clone();
        let tag = tag.to_str().unwrap();
        for (known, status) in [(tag, 304), ("\"other\"", 200), ("*", 304)] {
            assert_eq!(get("/assets/app.js", Some(known)).await.unwrap().status(), status, "{known}");
        }
        assert_eq!(get("/assets/nope.js", None).await.unwrap_err().status(), 404);
    }

    #[test]
    fn names_are_there_once_and_versions_differ() {
        let versions: HashMap<String, &str> =
            ASSETS.iter().map(|asset| (url(asset.name), asset.name)).collect();
        assert_eq!(versions.len(), ASSETS.len());
        assert_eq!(url("nope.js"), "/assets/nope.js");
    }

    #[test]
    fn nothing_but_their_names_leads_to_them() {
        for name in [
            "",
            "/",
            "app.css/",
            "./app.css",
            "../assets/app.css",
            "%61pp.css",
            "app.css\0",
            "APP.CSS",
            "vendor/htmx.js",
        ] {
            assert!(find(name).is_none() && !is_at(&format!("/assets/{name}")), "{name:?}");
        }
    }

    /// What a first visit has to load at most, were all of it on one page: about 110 kB once it is compressed.
    #[test]
    fn pages_stay_light() {
        let size: usize = ASSETS.iter().map(|asset| asset.content.len()).sum();
        assert!(size < 304 * 1024, "{size} bytes");
    }

    /// The relative luminance of `#rrggbb`, as WCAG has it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn colours_can_be_read_in_both_themes() {
        let css = find("app.css").unwrap().0.content;
        let pairs: HashMap<&str, [&str; 2]> = css
            .lines()
            .filter_map(|line| line.trim().strip_prefix("--")?.split_once(": light-dark("))
            .filter_map(|(name, pair)| Some((name, pair.strip_suffix(");")?.split_once(", ")?.into())))
            .collect();
        let grounds = ["ground", "panel", "sunk"];
        let texts = ["text", "soft", "link", "good", "bad", "busy", "info", "idle", "magenta", "cyan"];
        let mut wanted: Vec<(String, String, f64)> = Vec::new();
        for text in texts {
            wanted.extend(grounds.map(|ground| (text.to_owned(), ground.to_owned(), 4.5)));
        }
        for tone in ["good", "bad", "busy", "info", "idle"] {
            let ground = format!("{tone}-ground");
            wanted.extend([tone, "text", "soft"].map(|text| (text.to_owned(), ground.clone(), 4.5)));
        }
        // Borders of fields, and what has the focus, need less.
        for part in ["strong", "accent"] {
            wanted.extend(grounds.map(|ground| (part.to_owned(), ground.to_owned(), 3.0)));
        }
        wanted.push(("on-accent".into(), "accent".into(), 4.5));
        wanted.push(("text".into(), "mark".into(), 4.5));
        for (front, back, least) in wanted {
            for (front_is, back_is) in pairs[front.as_str()].iter().zip(pairs[back.as_str()]) {
                let [a, b] = [front_is, back_is].map(luminance);
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= least, "{front} on {back}, {front_is} on {back_is}: {contrast:.2}");
            }
        }
    }
}
