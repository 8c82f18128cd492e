//! Runs the example plugins as a runner does.

#[cfg(test)]
#[path = "support/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use serde_json::{Value, json};

    use super::runner::{PluginOutput, run};

    /// The program of an example, as its manifest names it.
    fn program(example: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example);
        let manifest = fs::read_to_string(folder.join("plugin.json")).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        folder.join(manifest["command"][0].as_str().unwrap())
    }

    fn example(name: &str, params: &Value) -> PluginOutput {
        run(
            Command::new(program(name)),
            &json!({ "_id": { "$oid": "6b0004f4686c827f5a609575" }, "params": params }),
        )
    }

    /// The text of the first block of that language in the documentation.
    fn documented(language: &str) -> &'static str {
        let page = include_str!("../../../docs/plugins.md");
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0
    }

    #[test]
    fn the_documented_plugin_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("greet.py");
        fs::write(&script, documented("python")).unwrap();
        // Through the interpreter: a script that was just written may still be busy.
        let mut command = Command::new("python3");
        command.arg(script);
        let outcome = run(command, &json!({ "params": { "names": ["Ada", "Grace"] } }));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("Hello Ada\nHello Grace\n", ""));
        assert_eq!(outcome.control[0], json!({ "progress": { "percent": 50.0 } }));
        assert_eq!(outcome.control[2], json!({ "result": { "greeted": 2 } }));
    }

    #[test]
    fn the_documented_rust_is_that_of_the_crate() {
        let crate_docs = include_str!("../src/lib.rs");
        let code: String = crate_docs
            .lines()
            .filter_map(|line| line.strip_prefix("//!"))
            .fold(String::new(), |text, line| text + line.strip_prefix(' ').unwrap_or(line) + "\n");
        assert!(code.contains(documented("rust")));
    }

    #[test]
    fn wordcount_counts_a_text() {
        let params = json!({ "text": "The cat and\nthe dog don't", "top": 1 });
        let outcome = example("python-wordcount", &params);
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(0), ""));
        assert_eq!(outcome.stdout, "2 lines, 6 words, 25 characters\n       2 the\n");
        let result =
            json!({ "lines": 2, "words": 6, "characters": 25, "top": [{ "word": "the", "count": 2 }] });
        assert_eq!(
            outcome.control,
            [
                json!({ "progress": { "percent": 48, "message": "3 words" } }),
                json!({ "progress": { "percent": 100, "message": "6 words" } }),
                json!({ "result": result }),
            ]
        );
    }

    #[test]
    fn wordcount_counts_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        fs::write(&file, "grün\n".repeat(1000)).unwrap();
        let outcome = example("python-wordcount", &json!({ "file": file }));
        assert_eq!(outcome.control.len(), 101, "100 times progress and the result");
        let result = &outcome.control[100]["result"];
        assert_eq!(result["characters"], 5000);
        assert_eq!(result["top"], json!([{ "word": "grün", "count": 1000 }]));
    }

    #[test]
    fn wordcount_says_what_is_wrong() {
        let outcome = example("python-wordcount", &json!({ "file": "/nowhere" }));
        assert_eq!(outcome.exit.code(), Some(1));
        assert!(outcome.stderr.starts_with("cannot read params.file:"), "{}", outcome.stderr);
        let outcome = example("python-wordcount", &json!({}));
        let expected = "params must have either text or file, and it must be a string\n";
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(1), expected));
    }

    #[test]
    fn factors_are_found_with_and_without_a_process_of_its_own() {
        let cold = example("warm-python", &json!({ "number": 600_851_475_143_u64 }));
        assert_eq!((cold.exit.code(), cold.stderr.as_str()), (Some(0), ""));
        assert_eq!(cold.stdout, "600851475143 = 71 * 839 * 1471 * 6857\n");
        let result = json!({ "result": { "factors": [71, 839, 1471, 6857] } });
        assert_eq!(cold.control, std::slice::from_ref(&result));

        let mut command = Command::new(program("warm-python"));
        command.env("DISBATCH_WARM", "1");
        let task = json!({ "params": { "number": 600_851_475_143_u64 } });
        let line = json!({ "task": task, "env": { "DISBATCH_TASK_ID": "a" }, "work_dir": "/tmp" });
        let warm = run(command, &line);
        assert_eq!((warm.exit.code(), warm.stderr.as_str()), (Some(0), ""));
        assert_eq!(warm.stdout, cold.stdout);
        assert_eq!(warm.control, [result, json!({ "done": { "id": "a", "exit": 0 } })]);
    }

    #[test]
    fn factors_fail_without_a_number() {
        let cold = example("warm-python", &json!({ "number": "7" }));
        let expected = "params.number must be an integer from 2 to 1000000000000, got \"7\"\n";
        assert_eq!((cold.exit.code(), cold.stderr.as_str()), (Some(1), expected));
        let mut command = Command::new(program("warm-python"));
        command.env("DISBATCH_WARM", "1");
        let line = json!({ "task": { "params": {} }, "env": { "DISBATCH_TASK_ID": "a" } });
        let warm = run(command, &line);
        assert_eq!(
            (warm.exit.code(), warm.control),
            (Some(0), vec![json!({ "done": { "id": "a", "exit": 1 } })])
        );
        assert!(warm.stderr.ends_with("got null\n"), "{}", warm.stderr);
    }

    #[test]
    fn checksum_computes_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a file");
        fs::write(&file, "abc").unwrap();
        let outcome = example("shell-checksum", &json!({ "file": file }));
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(0), ""));
        assert_eq!(outcome.stdout, format!("{sum}  {}\n", file.display()));
        assert_eq!(outcome.control, [json!({ "result": { "algorithm": "sha256", "checksum": sum } })]);
        let outcome = example("shell-checksum", &json!({ "file": file, "algorithm": "md5" }));
        assert!(outcome.stdout.starts_with("900150983cd24fb0d6963f7d28e17f72  "), "{}", outcome.stdout);
    }

    #[test]
    fn checksum_has_a_status_for_a_missing_file() {
        let outcome = example("shell-checksum", &json!({ "file": "/nowhere" }));
        assert_eq!((outcome.exit.code(), outcome.stderr.as_str()), (Some(1), "no such file: /nowhere\n"));
        assert_eq!(outcome.control, [json!({ "status": 3 })]);
    }

    #[test]
    fn checksum_refuses_what_it_cannot_read_exactly() {
        let said = |params: &Value| {
            let outcome = example("shell-checksum", params);
            assert_eq!((outcome.exit.code(), outcome.control.len()), (Some(1), 0));
            outcome.stderr
        };
        assert_eq!(said(&json!({})), "params.file is missing\n");
        assert_eq!(said(&json!({ "name": "file" })), "params.file is missing\n");
        assert!(said(&json!({ "file": "a\"b" })).starts_with("params must have no backslashes"));
        assert!(said(&json!({ "file": "/etc/hosts", "algorithm": "crc" })).ends_with("got crc\n"));
    }
}
