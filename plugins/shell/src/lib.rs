//! The parameters of `Disbatch::Plugin::Shell`: what the task wants run, and where. Its program reads them, and so does the
//! runner, which starts the command in place of that program where it can.

use serde_json::Value;

#[derive(Debug, PartialEq, Eq)]
pub struct Params {
    /// The program, then its arguments.
    pub command: Vec<String>,
    /// Variables to add to the environment.
    pub env: Vec<(String, String)>,
    /// The folder to run in, if not the current one.
    pub cwd: Option<String>,
}

impl Params {
    /// Checks `params` of a task. An error names the parameter and what it has instead.
    pub fn check(params: &Value) -> Result<Self, String> {
        Ok(Self {
            command: command(&params["command"])?,
            env: env(&params["env"])?,
            cwd: match &params["cwd"] {
                Value::Null => None,
                cwd => Some(text("cwd", cwd)?.to_owned()),
            },
        })
    }
}

fn command(command: &Value) -> Result<Vec<String>, String> {
    let words = match command {
        Value::Null => return Err("params.command is missing".to_owned()),
        Value::String(line) if line.is_empty() => Vec::new(),
        Value::String(_) => vec!["sh".to_owned(), "-c".to_owned(), text("command", command)?.to_owned()],
        Value::Array(words) => {
            let word = |(index, word)| text(&format!("command[{index}]"), word).map(str::to_owned);
            words.iter().enumerate().map(word).collect::<Result<_, _>>()?
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(format!("params.command must be a list of strings or text, got {command}"));
        }
    };
    match words.first().map(String::as_str) {
        None | Some("") => Err(format!("params.command must name a program, got {command}")),
        Some(_) => Ok(words),
    }
}

fn env(env: &Value) -> Result<Vec<(String, String)>, String> {
    let variables = match env {
        Value::Null => return Ok(Vec::new()),
        Value::Object(variables) => variables,
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(format!("params.env must be an object of strings, got {other}"));
        }
    };
    let variable = |(name, value): (&String, &Value)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("params.env has a name that no variable can have: {}", Value::from(&**name)));
        }
        Ok((name.clone(), text(&format!("env.{name}"), value)?.to_owned()))
    };
    variables.iter().map(variable).collect()
}

/// Text that the system can take.
fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    match value.as_str() {
        Some(text) if !text.contains('\0') => Ok(text),
        Some(_) => Err(format!("params.{name} must not contain a null character")),
        None => Err(format!("params.{name} must be text, got {value}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(params: Value) -> String {
        Params::check(&params).unwrap_err()
    }

    #[test]
    fn a_list_is_a_program_and_text_is_for_the_shell() {
        let params = Params::check(&json!({ "command": ["ls", "-l", ""] })).unwrap();
        assert_eq!(params.command, ["ls", "-l", ""]);
        assert_eq!((params.env, params.cwd), (Vec::new(), None));
        let params = Params::check(&json!({ "command": "ls | wc", "cwd": "/", "env": { "A": "" } })).unwrap();
        assert_eq!(params.command, ["sh", "-c", "ls | wc"]);
        assert_eq!(params.env, [("A".to_owned(), String::new())]);
        assert_eq!(params.cwd.as_deref(), Some("/"));
    }

    #[test]
    fn a_wrong_command_is_named() {
        assert_eq!(error(json!(null)), "params.command is missing");
        assert_eq!(error(json!({})), "params.command is missing");
        assert_eq!(error(json!({ "command": 5 })), "params.command must be a list of strings or text, got 5");
        assert_eq!(error(json!({ "command": [] })), "params.command must name a program, got []");
        assert_eq!(error(json!({ "command": [""] })), "params.command must name a program, got [\"\"]");
        assert_eq!(error(json!({ "command": "" })), "params.command must name a program, got \"\"");
        assert_eq!(error(json!({ "command": ["ls", 5] })), "params.command[1] must be text, got 5");
        assert_eq!(error(json!({ "command": "a\0" })), "params.command must not contain a null character");
    }

    #[test]
    fn a_wrong_environment_or_folder_is_named() {
        let with = |key: &str, value: Value| error(json!({ "command": "true", key: value }));
        assert_eq!(with("env", json!("A=b")), "params.env must be an object of strings, got \"A=b\"");
        assert_eq!(with("env", json!({ "A": 1 })), "params.env.A must be text, got 1");
        assert_eq!(
            with("env", json!({ "A=b": "" })),
            "params.env has a name that no variable can have: \"A=b\""
        );
        assert_eq!(with("cwd", json!(1)), "params.cwd must be text, got 1");
    }
}
