//! Runs commands through the program as a runner does.

#[cfg(test)]
#[path = "../../sdk/tests/support/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use serde_json::{Value, json};

    use super::runner::{PluginOutput, run};

    fn shell(params: Value) -> PluginOutput {
        let task = json!({ "_id": { "$oid": "6b0004f4686c827f5a609575" }, "params": params });
        run(Command::new(env!("CARGO_BIN_EXE_disbatch-plugin-shell")), &task)
    }

    #[test]
    fn a_list_is_run_without_a_shell() {
        let outcome = shell(json!({ "command": ["printf", "%s|", "a b", "$HOME", "*"] }));
        assert_eq!(outcome.stdout, "a b|$HOME|*|");
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(0), ""));
    }

    #[test]
    fn text_is_run_by_the_shell() {
        let outcome = shell(json!({ "command": "echo out | tr a-z A-Z; echo err >&2; exit 7" }));
        assert_eq!(outcome.stdout, "OUT\n");
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(7), "err\n"));
    }

    #[test]
    fn no_process_of_ours_stays() {
        let outcome = shell(json!({ "command": ["sh", "-c", "kill -KILL $$"] }));
        assert_eq!((outcome.exit.code(), outcome.exit.signal()), (None, Some(9)));
    }

    #[test]
    fn signals_have_their_default_effect() {
        // Rust programs ignore SIGPIPE, signal 13; a command that inherited that could run for ever.
        let outcome = shell(json!({ "command": ["sed", "-n", "s/^SigIgn:\t//p", "/proc/self/status"] }));
        let ignored = u64::from_str_radix(outcome.stdout.trim(), 16).unwrap();
        assert_eq!(ignored & (1 << 12), 0, "{}", outcome.stdout);
    }

    #[test]
    fn the_command_can_use_the_control_descriptor() {
        let line = r#"echo '{"status":3,"result":{"n":1}}' > /dev/fd/$DISBATCH_CONTROL_FD"#;
        let outcome = shell(json!({ "command": line }));
        assert_eq!(outcome.control, [json!({ "status": 3, "result": { "n": 1 } })], "{}", outcome.stderr);
    }

    #[test]
    fn environment_and_folder_are_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let params = json!({
            "command": "pwd; echo \"$GREETING $DISBATCH_TASK_ID\"; cat",
            "env": { "GREETING": "hello" },
            "cwd": path.to_str(),
        });
        let outcome = shell(params);
        assert_eq!(outcome.stdout, format!("{}\nhello 6b0004f4686c827f5a609575\n", path.display()));
        assert_eq!(outcome.exit.code(), Some(0));
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        let said = |params: Value| {
            let outcome = shell(params);
            assert_eq!(outcome.stdout, "");
            (outcome.exit.code(), outcome.stderr)
        };
        let wrong = "params.command must be a list of strings or text, got 5\n";
        assert_eq!(said(json!({ "command": 5 })), (Some(2), wrong.to_owned()));
        let missing = "cannot run 'no-such-program': No such file or directory (os error 2)\n";
        assert_eq!(said(json!({ "command": ["no-such-program"] })), (Some(127), missing.to_owned()));
        let denied = "cannot run '/etc/passwd': Permission denied (os error 13)\n";
        assert_eq!(said(json!({ "command": ["/etc/passwd"] })), (Some(126), denied.to_owned()));
        let nowhere = "params.cwd is no folder to run in: /nowhere: No such file or directory (os error 2)\n";
        assert_eq!(said(json!({ "command": "true", "cwd": "/nowhere" })), (Some(2), nowhere.to_owned()));
    }
}
