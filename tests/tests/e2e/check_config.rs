//! `--check-config` of `den` and `dci`: what it finds without a database, and that it leaves nothing behind.

use std::fs;
use std::path::Path;

use disbatch_tests::{Finished, binary, finish};
use serde_json::{Value, json};
use tokio::process::Command;

/// Nothing listens there.
const NOBODY: &str = "127.0.0.1:1";

async fn check(program: &str, folder: &Path, further: Value) -> anyhow::Result<Finished> {
    let mut config = json!({ "mongohost": NOBODY, "database": "d", "log4perl": {
        "level": "INFO", "appenders": { "f": { "args": { "filename": folder.join("log") } } } } });
    if let (Some(config), Some(further)) = (config.as_object_mut(), further.as_object()) {
        config.extend(further.clone());
    }
    let path = folder.join("config.json");
    fs::write(&path, config.to_string())?;
    finish(Command::new(binary(program)?).arg("--check-config").arg("--config").arg(path)).await
}

#[tokio::test]
async fn a_configuration_is_checked_without_a_database() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config.json");
    let fine = format!("{} can be used\n", path.display());
    for program in ["den", "dci"] {
        let checked = check(program, folder.path(), json!({ "thread": 1 })).await?;
        let expected = format!(
            "{program}: unknown configuration key thread of {} is not used\n{program}: {fine}",
            path.display()
        );
        assert_eq!((checked.code()?, checked.stderr), (0, expected));
        for (wrong, named) in [
            (json!({ "lease": "long" }), "lease"),
            (json!({ "database": "" }), "database"),
            (json!({ "mongohost": "mongodb://" }), ""),
            (json!({ "secrets": { "key_file": "none" } }), "none"),
            (json!({ "attributes": { "ssl": { "SSL_ca_file": "/none.pem" } } }), "/none.pem"),
        ] {
            let checked = check(program, folder.path(), wrong.clone()).await?;
            assert_eq!(checked.code()?, 3, "{program} {wrong}: {}", checked.stderr);
            assert!(checked.stderr.contains(named), "{program} {wrong}: {}", checked.stderr);
            assert!(!checked.stderr.contains("can be used\n"), "{program} {wrong}: {}", checked.stderr);
        }
    }
    for (program, wrong, named) in [
        ("den", json!({ "task_runner": "/none/dtr" }), "cannot run tasks with /none/dtr: "),
        ("den", json!({ "run_as": "nobody-has-this-name" }), "run_as"),
        ("dci", json!({ "tls": { "certificate": "c.pem", "key": "k.pem" } }), "c.pem"),
    ] {
        let checked = check(program, folder.path(), wrong).await?;
        assert!(checked.code()? == 3 && checked.stderr.contains(named), "{}", checked.stderr);
    }
    assert!(!folder.path().join("log").exists());
    Ok(())
}

#[tokio::test]
async fn programs_print_their_manual_pages() -> anyhow::Result<()> {
    for (program, option) in [("den", "drain"), ("dtr", "attempt"), ("dci", "listen")] {
        let page = finish(Command::new(binary(program)?).arg("--man-page")).await?;
        assert_eq!(page.code()?, 0, "{}", page.stderr);
        assert!(page.stdout.contains(&format!(".TH {program} 1")), "{}", page.stdout);
        assert!(page.stdout.contains(&format!("\\-\\-{option}")), "{}", page.stdout);
        assert!(!page.stdout.contains("man\\-page"), "{}", page.stdout);
    }
    Ok(())
}
