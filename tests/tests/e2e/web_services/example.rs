//! The example of the documentation, as it stands there.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use bson::doc;
use tokio::net::TcpSocket;

use super::Scene;
use super::service::Manner;

const PAGE: &str = include_str!("../../../../docs/engines/web-services.md");

/// The port of the example.
const PORT: &str = "8099";

/// A process that ends with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by now.
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// The first block of this kind.
fn block(kind: &str) -> anyhow::Result<&'static str> {
    let rest = PAGE.split_once(&format!("```{kind}\n")).context("no such block")?.1;
    Ok(rest.split_once("\n```").context("no end of it")?.0)
}

#[tokio::test]
async fn the_documented_service_works() -> anyhow::Result<()> {
    let scene = Scene::with(1, Manner::Takes, &serde_json::json!({})).await?;
    let world = &scene.world;
    // Nobody else gets the port as long as this is there; Python's servers share it.
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let port = socket.local_addr()?.port().to_string();
    let program = world.path().join("service.py");
    std::fs::write(&program, block("python")?)?;
    let mut command = Command::new("python3");
    command.arg(&program).arg(&port).env("no_proxy", "*").stderr(Stdio::null());
    let _service = Service(command.spawn()?);
    let folder = world.plugins().join("words");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("plugin.json"), block("json")?.replace(PORT, &port))?;
    let queue = world.queue("Example::WordService", doc! { "threads": 2 }).await?;
    let params = vec![doc! { "text": "one two two" }, doc! { "no": "text" }];
    let tasks = world.submit(queue, params).await?;
    let _den = world.den("n1")?;
    let counted = world.until_status(tasks[0], 1).await?;
    assert_eq!(counted.get_str("stdout")?, "one\ntwo\ntwo\n");
    assert_eq!(counted.get_document("result")?, &doc! { "words": 3 });
    assert_eq!(counted.get_document("storage")?, &doc! { "runs": 1 });
    let failed = world.until_status(tasks[1], 2).await?;
    assert_eq!(failed.get_str("stderr")?, "KeyError: 'text'\n");
    scene.world.end().await
}
