//! Where the address comes from: option, environment, file.

use std::os::unix::fs::PermissionsExt;

use anyhow::ensure;

use crate::server::disbatch;

/// What a run against an address where nobody listens complains about.
async fn complaint(change: impl FnOnce(&mut tokio::process::Command)) -> anyhow::Result<String> {
    let mut command = disbatch();
    change(&mut command);
    let output = command.output().await?;
    ensure!(output.status.code() == Some(255), "{output:?}");
    Ok(String::from_utf8(output.stderr)?)
}

#[tokio::test]
async fn options_win_over_the_environment_and_that_over_the_file() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("disbatch/cli.json");
    std::fs::create_dir_all(folder.path().join("disbatch"))?;
    std::fs::write(&path, r#"{"url":"http://127.0.0.1:3","username":"u","password":"secret"}"#)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;

    let text = complaint(|command| {
        command.arg("queues").env("XDG_CONFIG_HOME", folder.path());
    });
    let text = text.await?;
    ensure!(text.contains("127.0.0.1:3/queues"), "the file: {text}");
    ensure!(text.contains("others can read it") && !text.contains("secret"), "{text}");

    let text = complaint(|command| {
        command.arg("--config").arg(&path).arg("queues").env("DISBATCH_URL", "http://127.0.0.1:2");
    });
    let text = text.await?;
    ensure!(text.contains("127.0.0.1:2/queues"), "the environment: {text}");

    for before in [true, false] {
        let text = complaint(|command| {
            let words = ["--url", "http://127.0.0.1:1", "queues"];
            let order = if before { [0, 1, 2] } else { [2, 0, 1] };
            command.args(order.map(|word| words[word])).env("DISBATCH_URL", "http://127.0.0.1:2");
        });
        let text = text.await?;
        ensure!(text.contains("127.0.0.1:1/queues"), "the option: {text}");
    }

    let text = complaint(|command| {
        command.args(["--url", "http://127.0.0.1:1", "queues"]).env("DISBATCH_USERNAME", "u");
    });
    ensure!(text.await?.contains("must be used together"));
    Ok(())
}
