//! The client libraries in `clients`, which bring their own tests: see `docs/clients.md`.

use std::path::Path;

use disbatch_tests::binary;
use tokio::process::Command;

/// Runs a program of `clients`, which prints what is wrong.
async fn succeeds(program: &str, language: &str) -> anyhow::Result<()> {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    let output = Command::new(clients.join(program))
        .arg(language)
        .env("DISBATCH_PROGRAM", binary("disbatch")?)
        .kill_on_drop(true)
        .output()
        .await?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "clients/{program} {language}: {said}");
    assert!(said.contains("as it should be"), "{said}");
    Ok(())
}

#[tokio::test]
async fn python_conforms() -> anyhow::Result<()> {
    succeeds("run-conformance", "python").await
}

#[tokio::test]
async fn the_package_of_python_is_in_order() -> anyhow::Result<()> {
    succeeds("check", "python").await
}

#[tokio::test]
async fn typescript_conforms() -> anyhow::Result<()> {
    succeeds("run-conformance", "typescript").await
}

#[tokio::test]
async fn the_package_of_typescript_is_in_order() -> anyhow::Result<()> {
    succeeds("check", "typescript").await
}

#[tokio::test]
async fn perl_conforms() -> anyhow::Result<()> {
    succeeds("run-conformance", "perl").await
}

#[tokio::test]
async fn the_package_of_perl_is_in_order() -> anyhow::Result<()> {
    succeeds("check", "perl").await
}

#[tokio::test]
async fn rust_conforms() -> anyhow::Result<()> {
    succeeds("run-conformance", "rust").await
}

#[tokio::test]
async fn the_package_of_rust_is_in_order() -> anyhow::Result<()> {
    succeeds("check", "rust").await
}

#[tokio::test]
async fn a_client_is_generated_from_the_older_description() -> anyhow::Result<()> {
    succeeds("check", "generated").await
}

#[tokio::test]
async fn tasks_of_transactions_outlive_a_primary() -> anyhow::Result<()> {
    succeeds("check", "failover").await
}
