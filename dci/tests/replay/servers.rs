//! One server for each configuration that the recordings were made with, all on one database.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use disbatch_mongod::testing::TestDatabase;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::recording::{Exchange, Response};
use crate::server::Server;
use crate::text::Ids;

/// When the recorded static files were last changed.
const CHANGED: u64 = 1_795_162_295;

/// The servers by the name of their configuration.
pub struct Servers {
    by_name: BTreeMap<&'static str, Server>,
    _files: TempDir,
}

impl Servers {
    /// Starts them.
    pub async fn start(database: &TestDatabase) -> anyhow::Result<Self> {
        let files = static_files()?;
        let (tasks, v3) = ("Disbatch::Web::Tasks", "Disbatch::Web::V3");
        let configurations = [
            ("main", json!({ "web_extensions": [tasks, v3] })),
            ("plain", json!({})),
            ("nomon", json!({ "monitoring": false })),
            ("balon", json!({ "balance": { "enabled": true } })),
            ("psgi", json!({ "web_extensions": [v3, tasks] })),
        ];
        let mut by_name = BTreeMap::new();
        for (name, mut config) in configurations {
            config["mongohost"] = json!(database.uri);
            config["database"] = json!(database.name);
            config["plugins"] = json!(["Disbatch::Plugin::Demo"]);
            config["web_root"] = json!(files.path().join("htdocs"));
            by_name.insert(name, Server::start(&config).await?);
        }
        Ok(Self { by_name, _files: files })
    }

    /// Makes a recorded request with today's ids.
    pub async fn send(&self, exchange: &Exchange, ids: &Ids) -> anyhow::Result<Response> {
        let server = self.by_name.get(exchange.server.as_str()).context("unknown configuration")?;
        let recorded = &exchange.request;
        if recorded.path.contains("..") || recorded.path.contains("%2e") {
            return send_as_is(server, &recorded.path).await;
        }
        let mut request = server.request(recorded.method.parse()?, &ids.translate(&recorded.path));
        for (name, value) in &recorded.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &recorded.body {
            request = request.body(ids.translate(body));
        }
        let response = request.send().await?;
        let content_type = response.headers().get("content-type").map(|value| value.to_str()).transpose()?;
        let content_type = media_type(content_type.unwrap_or_default());
        Ok(Response { status: response.status().as_u16(), content_type, body: Some(response.text().await?) })
    }
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().to_owned()
}

/// A GET of a path that no client library would send.
async fn send_as_is(server: &Server, path: &str) -> anyhow::Result<Response> {
    let url = server.request(Method::GET, "/").build()?.url().clone();
    let port = url.port().context("no port")?;
    let mut stream = TcpStream::connect((url.host_str().context("no host")?, port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { bail!("no answer: {text}") };
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    Ok(Response { status, content_type: media_type(content_type), body: Some(body.to_owned()) })
}

/// Files such as Perl Disbatch has, and one beside them that is nobody's business.
fn static_files() -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED);
    let files = [
        "htdocs/js/queues.js",
        "htdocs/css/simple.css",
        "htdocs/images/expand.gif",
        "htdocs/index.html",
        "views/index.tt",
    ];
    for name in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(&path, "<!DOCTYPE html>")?;
        std::fs::File::options().append(true).open(&path)?.set_modified(changed)?;
    }
    Ok(folder)
}

#[test]
fn media_types_have_no_parameters() {
    assert_eq!(media_type("text/css; charset=utf-8"), "text/css");
}
