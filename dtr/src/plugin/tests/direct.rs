//! Commands that take the place of their plugin.

use super::*;

/// A plugin whose program says that it was started, and leaves its place to commands.
fn shell(params: Value) -> Setup {
    let mut setup = Setup::script("echo the program; exit 7");
    setup.plugin.manifest.command_in_params = true;
    setup.task.params = Some(Bson::try_from(params).unwrap());
    setup
}

/// Exit status, standard output and standard error. With other guards, the end of the one before would be that of the folder.
async fn printed(setup: &Setup, guards: &mut Guards) -> (Option<i32>, String, String) {
    let ran = setup.run_under(guards, nothing).await.unwrap();
    (ran.exit.code(), ran.stdout.text().await.unwrap(), ran.stderr.text().await.unwrap())
}

#[tokio::test]
async fn a_list_is_the_plugin_itself() {
    let mut guards = Guards::default();
    let setup = shell(json!({ "command": ["sh", "-c", "echo $0 $PPID $$; ps -o ppid= -o args= -p $PPID"] }));
    let (code, stdout, stderr) = printed(&setup, &mut guards).await;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("sh ") && stdout.contains("guard"), "its parent is the guard: {stdout}");
    let words = shell(json!({ "command": ["printf", "%s|", "a b", "$HOME", "*"] }));
    assert_eq!(printed(&words, &mut guards).await, (Some(0), "a b|$HOME|*|".to_owned(), String::new()));
}

#[tokio::test]
async fn text_is_for_the_shell_with_variables_and_a_folder_and_nothing_to_read() {
    let setup = shell(json!({
        "command": "cat; pwd; echo $A $DISBATCH_TASK_ID $DISBATCH_WORK_DIR >&2; echo '{\"status\":5}' >&3; exit 3",
        "env": { "A": "a", "DISBATCH_WORK_DIR": "b" }, "cwd": "/usr",
    }));
    let ran = setup.run(nothing).await.unwrap();
    assert_eq!((ran.exit.code(), ran.control.status.clone()), (Some(3), Some(5.into())));
    assert_eq!(ran.stdout.text().await.unwrap(), "/usr\n");
    assert_eq!(ran.stderr.text().await.unwrap(), format!("a {} b\n", setup.task.id));
}

#[tokio::test]
async fn what_cannot_be_started_as_it_is_goes_to_the_program() {
    let mut guards = Guards::default();
    for params in [
        json!({}),
        json!({ "command": [] }),
        json!({ "command": ["no-such-program"] }),
        json!({ "command": ["/etc/passwd"] }),
        json!({ "command": ["true"], "cwd": "/nowhere" }),
        json!({ "command": ["true"], "env": { "PATH": "." } }),
        json!({ "command": ["true", "x".repeat(2 << 20)] }),
        json!({ "command": ["true", "x".repeat(256 << 10)] }),
    ] {
        let words = params.to_string();
        let (code, stdout, _) = printed(&shell(params), &mut guards).await;
        assert_eq!((code, stdout.as_str()), (Some(7), "the program\n"), "{}", &words[..words.len().min(80)]);
    }
}

#[tokio::test]
async fn signals_have_their_default_effect() {
    let mut guards = Guards::default();
    // The guard handles nearly all of them. A command that ignored SIGPIPE, signal 13, could run for ever.
    let setup = shell(json!({ "command": ["sed", "-n", "s/^Sig[IB][gl][nk]:\t//p", "/proc/self/status"] }));
    let (_, stdout, _) = printed(&setup, &mut guards).await;
    let masks: Vec<u64> = stdout.lines().map(|line| u64::from_str_radix(line, 16).unwrap()).collect();
    assert_eq!(masks.iter().map(|mask| mask & (1 << 12)).collect::<Vec<_>>(), [0, 0], "{stdout}");
}

#[tokio::test]
async fn a_command_is_told_to_stop_where_its_plugin_can_be_interrupted() {
    let mut setup = shell(json!({ "command": "echo > \"$DISBATCH_WORK_DIR/ready\"; exec sleep 1000" }));
    setup.about.interruptible = true;
    let interrupt = async |supervisor: Supervisor| {
        setup.file("ready").await;
        supervisor.interrupt();
    };
    let ran = setup.run(interrupt).await.unwrap();
    assert_eq!((ran.control.told_to_stop, ran.facts.signal()), (true, Some(15)));
    assert_eq!(ran.facts.reason, None, "it was not to end");
}

#[tokio::test]
async fn secure_parameters_are_in_a_variable_of_the_command_only_where_that_is_asked_for() {
    let mut guards = Guards::default();
    for asked_for in [false, true] {
        let mut setup = shell(json!({ "command": "cat; env" }));
        setup.secure_params = SecureParams::new(json!({ "p": "horse" }).as_object().unwrap().clone());
        setup.about.secure_params_in_environment = asked_for;
        let (_, stdout, _) = printed(&setup, &mut guards).await;
        assert!(stdout.contains("DISBATCH_TASK_ID="), "{stdout}");
        assert_eq!(stdout.contains(r#"JOB_SECURE_PARAMS={"p":"horse"}"#), asked_for, "{stdout}");
        assert_eq!(stdout.contains("horse"), asked_for, "{stdout}");
    }
}
