//! Contents: sent in parts, resumed, and what their names say; versions that have them, and their files in parts.

use anyhow::ensure;
use reqwest::header::{HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{add, commit, get, noise, open, post, put, sha, store};
use crate::world::World;

const MIB: usize = 1024 * 1024;

/// A file of a set, with these headers of the request.
async fn file(
    world: &World,
    path: &str,
    headers: &[(HeaderName, &str)],
) -> anyhow::Result<(StatusCode, HeaderMap, Vec<u8>)> {
    let request = world.request(Method::GET, path, Some("viewer"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, *value));
    let answer = request.send().await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    Ok((status, headers, answer.bytes().await?.to_vec()))
}

#[tokio::test]
async fn what_was_broken_off_goes_on_where_it_was() -> anyhow::Result<()> {
    let world = World::new().await?;
    let bytes = noise(2 * MIB + 100);
    let id = sha(&bytes);
    let (path, content) = (format!("/files/contents/{id}"), (id.as_str(), bytes.as_slice()));
    let nothing = json!({ "sha256": id, "length": null, "done": false, "missing": [] });
    assert_eq!(get(&world, "submitter", &path).await?, (200, nothing));
    for n in [2, 0] {
        let (status, told) = put(&world, "submitter", content, n).await?;
        assert_eq!((status, &told["outcome"], &told["n"]), (200, &json!("stored"), &json!(n)));
    }
    let missing = json!([{ "first": 1, "last": 1 }]);
    let (_, told) = get(&world, "submitter", &path).await?;
    assert_eq!((&told["length"], &told["missing"]), (&json!(bytes.len()), &missing));
    let (status, told) = post(&world, "submitter", &format!("{path}/finish"), json!({})).await?;
    assert_eq!((status, &told["missing"]), (409, &missing));
    assert_eq!(put(&world, "submitter", content, 0).await?.1["outcome"], "known");
    assert_eq!(put(&world, "submitter", content, 1).await?.1["outcome"], "stored");
    for _ in 0..2 {
        let (status, told) = post(&world, "submitter", &format!("{path}/finish"), json!({})).await?;
        assert_eq!((status, &told["done"]), (200, &json!(true)), "{told}");
    }
    let (_, told) = get(&world, "submitter", &path).await?;
    assert_eq!(
        (&told["done"], &told["missing"], &told["length"]),
        (&json!(true), &json!([]), &json!(bytes.len()))
    );
    world.database.drop_database().await
}

#[tokio::test]
async fn a_content_is_what_its_name_says() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (right, wrong) = (b"all is well".as_slice(), b"all is ill!".as_slice());
    let id = sha(right);
    let (path, finish) = (format!("/files/contents/{id}"), format!("/files/contents/{id}/finish"));
    assert_eq!(post(&world, "submitter", &finish, json!({})).await?.0, 404, "nothing was sent");
    assert_eq!(put(&world, "submitter", (&id, wrong), 0).await?.0, 200);
    let (status, told) = post(&world, "submitter", &finish, json!({})).await?;
    ensure!(status == 422 && told["error"].as_str().is_some_and(|error| error.contains("SHA-256")), "{told}");
    assert_eq!(get(&world, "submitter", &path).await?.1["length"], Value::Null, "it was thrown away");
    assert_eq!(put(&world, "submitter", (&id, right), 0).await?.0, 200);
    assert_eq!(post(&world, "submitter", &finish, json!({})).await?.0, 200);
    // Nor can anybody else spoil it.
    assert_eq!(put(&world, "operator", (&id, wrong), 0).await?.0, 200);
    assert_eq!(post(&world, "operator", &finish, json!({})).await?.0, 422);
    store(&world, "submitter", "data", &[("a", right), ("empty", b"")]).await?;
    assert_eq!(file(&world, "/files/data/content/a", &[]).await?.2, right);
    assert_eq!(file(&world, "/files/data/content/empty", &[]).await?.2, b"");
    for (path, body) in [
        (format!("/files/contents/{id}/0"), right),
        (format!("/files/contents/{id}/0?length=many"), right),
        (format!("/files/contents/{id}/0?length=12"), right),
        (format!("/files/contents/{id}/1?length=11"), right),
        (format!("/files/contents/{id}/99999999999999999999?length=11"), right),
        (format!("/files/contents/{id}/0?length=11&.secure_params=1"), right),
        (format!("/files/contents/{id}/0?length=9000000000000000"), right),
    ] {
        let request = world.request(Method::PUT, &path, Some("submitter")).body(body.to_vec());
        let status = request.send().await?.status();
        ensure!(status == 400, "{path}: {status}");
    }
    for path in ["/files/contents/abc/0?length=11", "/files/contents/abc/finish"] {
        let status = world.request(Method::GET, path, Some("submitter")).send().await?.status();
        ensure!(status == 404, "{path}: {status}");
    }
    world.database.drop_database().await
}

/// That pages lead whoever may look, and not delete, to the newest version.
async fn lead_to_the_newest(world: &World) -> anyhow::Result<()> {
    for (path, part) in [
        ("/files", "href=\"/files/data\""),
        ("/files/data", "href=\"/files/data/content/a/b.csv?.version=2\""),
    ] {
        let page =
            world.request(Method::GET, path, Some("viewer")).header("accept", "text/html").send().await?;
        let html = page.error_for_status()?.text().await?;
        ensure!(html.contains(part) && !html.contains("/delete\""), "{path}: {html}");
    }
    Ok(())
}

#[tokio::test]
async fn a_version_is_shown_when_it_is_done_and_never_changes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = store(&world, "submitter", "data", &[("a/b.csv", b"1"), ("bin/run", b"#!")]).await?;
    assert_eq!(
        (&first["version"], &first["count"], &first["bytes"], &first["by"]),
        (&json!(1), &json!(2), &json!(3), &json!("submitter"))
    );
    let id = open(&world, "submitter", "data", json!({ ".expires": "2999-01-01T00:00:00Z" })).await?;
    assert_eq!(add(&world, "submitter", &id, &[("a/b.csv", b"1"), ("c", b"1")]).await?.0, 200);
    assert_eq!(add(&world, "submitter", &id, &[("c", b"1")]).await?.0, 200, "it may be repeated");
    let (status, told) = add(&world, "submitter", &id, &[("c", b"#!")]).await?;
    assert_eq!(status, 409, "{told}");
    let (_, shown) = get(&world, "viewer", "/files/data").await?;
    assert_eq!((&shown["version"], shown["versions"].as_array().map(Vec::len)), (&json!(1), Some(1)));
    for _ in 0..2 {
        let (status, done) = commit(&world, "submitter", &id).await?;
        assert_eq!((status, &done["version"], &done["state"]), (200, &json!(2), &json!("done")), "{done}");
        assert_eq!(done["expires"], "2999-01-01T00:00:00");
    }
    assert_eq!(add(&world, "submitter", &id, &[("d", b"1")]).await?.0, 409);
    let (_, page) = get(&world, "viewer", "/files/data?.limit=1").await?;
    let entry = json!({
        "path": "a/b.csv", "sha256": sha(b"1"), "size": 1, "mode": "755", "mtime": page["entries"][0]["mtime"],
    });
    assert_eq!(
        (&page["version"], &page["entries"], &page["next"]),
        (&json!(2), &json!([entry]), &json!("a/b.csv"))
    );
    let (_, rest) = get(&world, "viewer", "/files/data?.limit=2&.after=a/b.csv&.version=2").await?;
    assert_eq!((&rest["entries"][0]["path"], &rest["next"]), (&json!("c"), &Value::Null));
    let (_, old) = get(&world, "viewer", "/files/data?.version=1&.prefix=bin/").await?;
    assert_eq!(
        (&old["entries"][0]["path"], old["entries"].as_array().map(Vec::len)),
        (&json!("bin/run"), Some(1))
    );
    assert_eq!(get(&world, "viewer", "/files/data?.version=3").await?.0, 404);
    for wrong in ["?.limit=0", "?.limit=x", "?.version=x", "?name=x"] {
        assert_eq!(get(&world, "viewer", &format!("/files/data{wrong}")).await?.0, 400, "{wrong}");
    }
    let (_, sets) = get(&world, "viewer", "/files").await?;
    assert_eq!(
        (&sets[0]["name"], &sets[0]["versions"], &sets[0]["bytes_of_all"]),
        (&json!("data"), &json!(2), &json!(5))
    );
    lead_to_the_newest(&world).await?;
    // One version goes, then all that are left.
    let gone = world.request(Method::DELETE, "/files/data?.version=2", Some("submitter")).send().await?;
    assert_eq!(gone.json::<Value>().await?, json!({ "name": "data", "deleted": 1 }));
    assert_eq!(get(&world, "viewer", "/files/data").await?.1["version"], 1);
    let form =
        world.request(Method::POST, "/ui/files/data/delete", Some("submitter")).form(&[(".version", "1")]);
    assert_eq!(form.send().await?.status(), 303);
    assert_eq!(get(&world, "viewer", "/files").await?.1, json!([]));
    assert_eq!(world.request(Method::DELETE, "/files/data", Some("submitter")).send().await?.status(), 404);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_part_of_a_file_is_that_part() -> anyhow::Result<()> {
    let world = World::new().await?;
    let bytes = noise(MIB + 1000);
    store(&world, "submitter", "data", &[("large é.bin", &bytes)]).await?;
    let path = "/files/data/content/large%20%C3%A9.bin";
    let (status, headers, whole) = file(&world, path, &[]).await?;
    assert!(status == 200 && whole == bytes);
    let text = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let tag = format!("\"{}\"", sha(&bytes));
    assert_eq!(text(&headers, "etag"), tag);
    assert_eq!(text(&headers, "content-length"), bytes.len().to_string());
    assert_eq!(text(&headers, "content-type"), "application/octet-stream");
    assert_eq!(text(&headers, "content-disposition"), "attachment; filename*=UTF-8''large%20%C3%A9.bin");
    assert!(text(&headers, "content-security-policy").contains("sandbox"));
    let around = MIB - 3..MIB + 5;
    let range = format!("bytes={}-{}", around.start, around.end - 1);
    for more in [&[][..], &[(IF_RANGE, tag.as_str())]] {
        let asked = [&[(RANGE, range.as_str())][..], more].concat();
        let (status, headers, part) = file(&world, path, &asked).await?;
        assert!(status == 206 && part == bytes[around.clone()], "{status}");
        let told = format!("bytes {}-{}/{}", around.start, around.end - 1, bytes.len());
        assert_eq!(text(&headers, "content-range"), told);
    }
    let other = [(RANGE, range.as_str()), (IF_RANGE, "\"other\"")];
    assert_eq!(file(&world, path, &other).await?.2.len(), bytes.len(), "it is another file by now");
    let (status, _, last) = file(&world, path, &[(RANGE, "bytes=-7")]).await?;
    assert!(status == 206 && bytes.ends_with(&last) && last.len() == 7);
    let (status, headers, _) = file(&world, path, &[(RANGE, "bytes=99999999-")]).await?;
    assert_eq!((status.as_u16(), text(&headers, "content-range")), (416, format!("bytes */{}", bytes.len())));
    assert_eq!(file(&world, path, &[(IF_NONE_MATCH, tag.as_str())]).await?.0, 304);
    let head = world.request(Method::HEAD, path, Some("viewer")).send().await?;
    assert_eq!(
        (head.status().as_u16(), text(head.headers(), "content-length")),
        (200, bytes.len().to_string())
    );
    world.database.drop_database().await
}

#[tokio::test]
async fn no_path_and_no_name_leads_elsewhere() -> anyhow::Result<()> {
    let world = World::new().await?;
    store(&world, "submitter", "data", &[("a/b", b"x")]).await?;
    let id = open(&world, "submitter", "data", json!({})).await?;
    let long = "x/".repeat(600);
    for path in ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "a/", "", "a\0b", long.as_str()] {
        let (status, told) = add(&world, "submitter", &id, &[(path, b"x")]).await?;
        ensure!(status == 400, "{path:?}: {status} {told}");
    }
    for path in [
        "/files/data/content/..%2F..%2F..%2Fetc%2Fpasswd",
        "/files/data/content/a%2F..%2F..%2Fb",
        "/files/data/content/%2Fetc%2Fpasswd",
        "/files/data/content/a%00b",
        "/files/data/content/a%2F%2Fb",
        "/files/data/content/",
        "/files/..%2Fdata/content/a/b",
        "/files/..%2Fdata",
    ] {
        let (status, told) = get(&world, "viewer", path).await?;
        ensure!(status == 404, "{path}: {status} {told}");
    }
    let encoded = file(&world, "/files/data/content/a%2Fb", &[]).await?;
    assert_eq!((encoded.0.as_u16(), encoded.2.as_slice()), (200, &b"x"[..]), "a slash is a slash");
    for name in ["contents", "versions", "..%2Fx", "a%20b", ".x", "a%00"] {
        let (status, told) = post(&world, "submitter", &format!("/files/{name}"), json!({})).await?;
        ensure!(status == 400, "{name}: {status} {told}");
    }
    world.database.drop_database().await
}
