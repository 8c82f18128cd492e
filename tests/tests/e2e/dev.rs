//! `disbatch dev --demo --exit`: what a newcomer runs first.

use std::net::TcpListener;

use disbatch_tests::binary;
use tokio::process::Command;

#[tokio::test]
async fn the_demo_runs_twenty_tasks_and_leaves_nothing_running() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let output = Command::new(binary("disbatch")?)
        .arg("dev")
        .arg("--data")
        .arg(data.path())
        .args(["--port", &port.to_string(), "--demo", "--exit"])
        .output()
        .await?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let text = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("19 succeeded, 1 failed: all as expected"), "{text}");
    assert!(text.contains("20000000 bytes in GridFS"), "{text}");
    let here = data.path().to_string_lossy().into_owned();
    let listed = Command::new("pgrep").args(["-f", &here]).output().await?;
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "", "processes are left");
    Ok(())
}
