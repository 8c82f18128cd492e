//! What plugins of other engines are given.

use std::os::unix::fs::PermissionsExt;

use disbatch_core::callbacks::Token;
use disbatch_core::config::Config;
use disbatch_core::plugin::{Manifest, Program, ProgramType};

use super::*;
use crate::answer;

/// The same plugin with another manifest.
fn with_manifest(mut setup: Setup, manifest: Value) -> Setup {
    let manifest = Manifest::from_value(manifest).unwrap();
    setup.plugin = Plugin::new(manifest, setup.plugin.program, setup.plugin.arguments);
    setup
}

#[tokio::test]
async fn a_program_finds_the_task_and_the_configuration_in_files() {
    let script = r#"cat > /dev/null; cat "$1"; shift; echo "$@"; stat -c %a ./*.json"#;
    // One for both: a guard that loses its runner removes all of its folders.
    let mut guards = Guards::default();
    for (kind, further) in [("default", "--config /etc/x.json"), ("nomongo", "")] {
        let manifest = json!({ "name": "Test", "engine": "program", "program": { "type": kind } });
        let mut setup = with_manifest(Setup::script(script), manifest);
        setup.about.config = "/etc/x.json".into();
        setup.task.rest.insert("secure_params", doc! { "key": "k", "data": "sealed" });
        let secret = json!({ "password": "horse" });
        setup.secure_params = SecureParams::new(secret.as_object().unwrap().clone());
        let ended = setup.run_under(&mut guards, nothing).await.unwrap();
        let task = json_of(&setup.task).unwrap() + "\n";
        assert!(!task.contains("horse") && !task.contains("sealed"));
        assert_eq!(ended.stdout.text().await.unwrap(), format!("{task}{further}\n600\n"));
    }
}

#[tokio::test]
async fn a_program_that_works_on_the_database_is_told_an_id() {
    let manifest = json!({ "name": "Test", "engine": "program", "program": { "type": "mongo" } });
    let mut setup = with_manifest(Setup::script(r#"echo "$0 $*""#), manifest);
    setup.about.config = "/etc/x.json".into();
    let ended = setup.run(nothing).await.unwrap();
    let expected = format!("--task {} --config /etc/x.json\n", setup.task.id);
    assert_eq!(ended.stdout.text().await.unwrap(), expected);
}

#[tokio::test]
async fn a_runner_is_not_started_by_a_runner() {
    let mut setup = Setup::script("true");
    // As the configuration has it.
    let runner = Program { kind: ProgramType::Handoff, ..Program::default() };
    let manifest = Manifest::of_program("Test".parse().unwrap(), runner);
    setup.plugin = Plugin::new(manifest, setup.plugin.program, Vec::new());
    let error = setup.run(nothing).await.unwrap_err();
    assert_eq!(error.to_string(), "it is a runner itself, and only a DEN starts it");
}

#[tokio::test]
async fn a_perl_module_is_loaded_by_a_program_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let interpreter = folder.path().join("perl");
    fs::write(
        &interpreter,
        "#!/bin/sh\nhead -c 10 \"$1\"; echo; shift; echo \"$@\"; echo $DISBATCH_PERL_CONFIG\n",
    )
    .unwrap();
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).unwrap();
    let setup = Setup::program(interpreter.to_str().unwrap(), &["--class", "Test"]);
    let mut setup = with_manifest(setup, json!({ "name": "Test", "engine": "perl" }));
    setup.about.config = "/etc/x.json".into();
    let ended = setup.run(nothing).await.unwrap();
    assert_eq!(ended.stdout.text().await.unwrap(), "#!/usr/bin\n--class Test\n/etc/x.json\n");
}

#[tokio::test]
async fn the_answer_of_an_earlier_step_is_gone() {
    let mut setup =
        with_manifest(Setup::script("cat > /dev/null; ls"), json!({ "name": "Test", "engine": "program" }));
    let name = answer::file_name(setup.task.id);
    fs::write(setup.folder.path().join(&name), "old").unwrap();
    setup.folder_is_used = true;
    let ended = setup.run(nothing).await.unwrap();
    assert_eq!(ended.stdout.text().await.unwrap(), format!("{}.json\n", setup.task.id));
}

#[tokio::test]
async fn an_adapter_is_told_all_with_its_input() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    let secret_file = folder.path().join("secrets/registry");
    fs::write(&secret_file, "user:stable\n").unwrap();
    fs::set_permissions(&secret_file, fs::Permissions::from_mode(0o600)).unwrap();
    let text =
        r#"{"mongohost":"h","database":"d","secrets_dir":"secrets","secret_environment":{"registry":"REG"}}"#;
    let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
    let script = "cat; env; echo '{\"facts\":{\"a\":1},\"detach\":true}' >&3";
    let mut setup = with_manifest(Setup::script(script), json!({ "name": "Test", "engine": "http" }));
    let secret = json!({ "password": "horse" });
    setup.secure_params = SecureParams::new(secret.as_object().unwrap().clone());
    setup.about.secure_params_in_environment = true;
    setup.about.secrets = NamedSecrets::load(&config, &setup.name).unwrap();
    let settings = setup.plugin.adapter.clone().unwrap();
    setup.about.adapter = Some(Adapter {
        engine: setup.plugin.manifest.engine,
        settings,
        engine_config: json!({ "allow": [] }),
        database: "d".to_owned(),
        secure_params_in_environment: Some(true),
    });
    setup.queue.rest.extend(doc! { "grace": 1.5, "timeout": 90 });
    setup.task.rest.insert("timeout", 30_i64);
    let token = Token::new().unwrap();
    setup.about.callback = Some(Callback::new(&token, "https://dci.example/", setup.task.id));
    assert!(!format!("{:?}", setup.about).contains(token.text()));
    let ended = setup.run(nothing).await.unwrap();
    assert!(ended.control.detach);
    assert_eq!(ended.control.facts, Some(doc! { "a": 1 }));
    let stdout = ended.stdout.text().await.unwrap();
    let (input, environment) = stdout.split_once('\n').unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["secure_params"], secret);
    let worker = &input["worker"];
    assert_eq!((&worker["name"], &worker["engine"]), (&json!("Test"), &json!("http")));
    assert_eq!(worker["settings"], json!({ "timeout": 43_200, "connect_retries": 5 }));
    assert_eq!(worker["engine_config"], json!({ "allow": [] }));
    assert_eq!(worker["secrets"], json!({ "registry": "user:stable" }));
    assert_eq!(worker["work_dir"], json!(setup.folder.path()));
    assert_eq!((&worker["database"], &worker["grace"]), (&json!("d"), &json!(1.5)), "its queue says so");
    assert_eq!(worker["timeout"], json!(30.0), "the task comes before its queue");
    let url = format!("https://dci.example/callbacks/{}", setup.task.id);
    assert_eq!(worker["callback"], json!({ "token": token.text(), "url": url }));
    let variables = &worker["variables"];
    assert_eq!(variables["DISBATCH_TASK_ID"], json!(setup.task.id.to_string()));
    // Who may use the engine sees them.
    assert!(variables.get("JOB_SECURE_PARAMS").is_none(), "{variables}");
    assert_eq!(worker["secure_params_in_environment"], json!(true));
    assert!(variables.get("DISBATCH_WORK_DIR").is_none() && variables.get("DISBATCH_CONTROL_FD").is_none());
    assert!(environment.contains("DISBATCH_CONTROL_FD=3") && environment.contains("JOB_PARAMS={}"));
    for secret in ["horse", "stable", token.text()] {
        assert!(!environment.contains(secret), "{environment}");
    }
}

#[tokio::test]
async fn who_has_no_adapter_is_told_nothing_of_it() {
    let ended = Setup::script("cat").run(nothing).await.unwrap();
    let input: Value = serde_json::from_str(&ended.stdout.text().await.unwrap()).unwrap();
    assert!(input.get("worker").is_none());
}
