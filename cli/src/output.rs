//! What is printed, how (JSON values as JSON and as YAML for people), and where.

mod table;
mod terminal;

use std::cell::Cell;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use disbatch_values::text::is_odd;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};

use crate::api::{Answer, read};
use crate::args::{Format, ListingOptions};
use crate::status::FAILED;
pub use table::{Column, Cut, Table, date};
pub use terminal::{Screen, TaskOutput, shows_marks, visible};

/// Prints `text` as it is. Unlike `print!` it does not panic when nobody reads any more.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Says something to whoever looks, on standard error. What it quotes does not control a terminal.
pub fn say(message: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{}", terminal::visible_lines(message));
    } else {
        eprintln!("{message}");
    }
}

/// Shows how far something is, if standard error is a terminal. `length` is how much there is to be done, if that is known.
pub fn progress_bar(length: Option<u64>, template: &str) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(template)?);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    Ok(bar)
}

/// How often a line is printed where a bar cannot be shown.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// A bar on a terminal, else lines.
#[derive(Debug)]
pub struct Progress {
    pub bar: ProgressBar,
    last_line: Cell<Instant>,
}

impl Progress {
    /// `length` is how much there is to be done, if that is known.
    pub fn start(length: Option<u64>, template: &str) -> anyhow::Result<Self> {
        Ok(Self { bar: progress_bar(length, template)?, last_line: Cell::new(Instant::now()) })
    }

    /// Prints how far it is, where a bar cannot be shown and the last line is long ago.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if self.last_line.get().elapsed() >= NOW_AND_THEN && !std::io::stderr().is_terminal() {
            self.last_line.set(Instant::now());
            eprintln!("{}", line());
        }
    }
}

/// Names that were given by others, and may control a terminal, for standard output.
pub fn shown_name(name: &str) -> String {
    if std::io::stdout().is_terminal() { visible(name) } else { name.to_owned() }
}

/// JSON for standard output. What it leaves as it is and may control a terminal is escaped there.
pub fn shown_json(json: String) -> String {
    if std::io::stdout().is_terminal() { terminal::escaped_json(&json) } else { json }
}

/// A document in the format that was asked for; `as_text` makes what is read of it readable for people.
pub fn document<T: Answer>(
    document: &Value,
    options: &ListingOptions,
    as_text: impl FnOnce(&T) -> String,
) -> anyhow::Result<String> {
    Ok(match options.format() {
        Format::Table => as_text(&read(document.clone())?),
        Format::Json if options.pretty => shown_json(format!("{}\n", pretty(document)?)),
        Format::Json => shown_json(format!("{document}\n")),
        Format::Yaml => yaml(document),
    })
}

/// A list in the format that was asked for; `as_table` makes the table of what is read of its items.
pub fn list<T: Answer>(
    list: &Value,
    options: &ListingOptions,
    as_table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<String> {
    document(list, options, |list: &Value| as_table(&items(list)))
}

pub fn known<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map(T::to_string).unwrap_or_default()
}

/// A line for each fact; those that are not known have none.
pub fn facts<T: Display>(facts: impl IntoIterator<Item = (T, String)>) -> String {
    let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
    facts.map(|(title, text)| format!("{title:<12}{}\n", visible(&text))).collect()
}

pub fn items<T: Answer>(list: &Value) -> Vec<T> {
    list.as_array().into_iter().flatten().map(item).collect()
}

/// What can be read of an item: an odd field of it takes no other one with it.
pub fn item<T: Answer>(item: &Value) -> T {
    read(item.clone()).unwrap_or_else(|_| {
        let fields = item.as_object().cloned().unwrap_or_default().into_iter();
        let readable = fields.filter(|field| read::<T>(Value::from_iter([field.clone()])).is_ok());
        read(readable.collect()).unwrap_or_default()
    })
}

/// What a command ends with. Says what went wrong.
pub fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if !is_broken_pipe(&error) {
            say(&format!("{error:#}"));
        }
        ExitCode::from(FAILED)
    })
}

/// Whether the reader of our output went away, as `head` does: nobody is left to be told.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// A value as a person reads it in a table: text as it is, null as nothing.
pub fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

pub fn texts(document: &Value, name: &str) -> Vec<String> {
    let items = document.get(name).and_then(Value::as_array).into_iter().flatten();
    items.map(|item| plain(Some(item))).collect()
}

/// Words that YAML 1.1 or 1.2 does not take as text.
const RESERVED: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

fn yaml(value: &Value) -> String {
    let mut out = String::new();
    write_yaml(&mut out, value, 0);
    out
}

/// Writes a value as YAML; `depth` is the indentation that a block on lines of its own has.
fn write_yaml(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                indent(out, if number == 0 { 0 } else { depth });
                out.push_str("- ");
                write_yaml(out, item, depth + 1);
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (number, (key, item)) in map.iter().enumerate() {
                indent(out, if number == 0 { 0 } else { depth });
                out.push_str(&format!("{}:", yaml_text(key)));
                let length = item.as_array().map(Vec::len).or(item.as_object().map(Map::len));
                if length.is_some_and(|length| length > 0) {
                    out.push('\n');
                    indent(out, depth + 1);
                } else {
                    out.push(' ');
                }
                write_yaml(out, item, depth + 1);
            }
        }
        Value::String(string) => out.push_str(&format!("{}\n", yaml_text(string))),
        simple => out.push_str(&format!("{simple}\n")),
    }
}

fn indent(out: &mut String, depth: usize) {
    out.push_str(&"  ".repeat(depth));
}

/// Text as YAML has it: as it is if nothing else can be meant, else in double quotes, whose rules include those of JSON.
fn yaml_text(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let simple = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    if first && simple && !RESERVED.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    let escape = |c: char| match u32::from(c) {
        // What JSON leaves as it is and YAML does not print, or shows in another way.
        code if is_odd(c) && code > 0x7e || matches!(code, 0xfffe | 0xffff) => {
            if code > 0xffff {
                format!("\\U{code:08x}")
            } else {
                format!("\\u{code:04x}")
            }
        }
        _ => c.to_string(), // Everything else reads the same in both.
    };
    quoted.chars().map(escape).collect()
}

/// JSON for people, indented by three spaces as the DCI's.
pub fn pretty(value: &Value) -> anyhow::Result<String> {
    let mut text = Vec::new();
    write_pretty(&mut text, value, 0)?;
    Ok(String::from_utf8(text)?)
}

fn write_pretty(out: &mut Vec<u8>, value: &Value, depth: usize) -> std::io::Result<()> {
    let indent = |depth: usize| " ".repeat(depth * 3);
    let (open, close, length) = match value {
        Value::Array(items) if !items.is_empty() => ("[", "]", items.len()),
        Value::Object(map) if !map.is_empty() => ("{", "}", map.len()),
        simple => return write!(out, "{simple}"),
    };
    writeln!(out, "{open}")?;
    let keys = value.as_object().into_iter().flatten().map(|(key, item)| (Some(key), item));
    let items = value.as_array().into_iter().flatten().map(|item| (None, item));
    for (number, (key, item)) in keys.chain(items).enumerate() {
        write!(out, "{}", indent(depth + 1))?;
        if let Some(key) = key {
            write!(out, "{} : ", Value::from(key.as_str()))?;
        }
        write_pretty(out, item, depth + 1)?;
        writeln!(out, "{}", if number + 1 < length { "," } else { "" })?;
    }
    write!(out, "{}{close}", indent(depth))
}

#[cfg(test)]
mod tests {
    use disbatch_wire::nodes::{Node, NodeStats};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_odd_field_takes_no_other_with_it() {
        let list = json!([
            { "_id": "x", "id": "6b", "running": "2", "state": "alive", "stats": { "load": 0.5 }, "labels": [] }, "x", null,
        ]);
        let stats = Some(NodeStats { load: Some(0.5), ..NodeStats::default() });
        let node = Node { id: "6b".to_owned(), state: Some("alive".to_owned()), stats, ..Node::default() };
        assert_eq!(items::<Node>(&list), [node, Node::default(), Node::default()]);
    }

    #[test]
    fn values_are_blocks() {
        let value = json!([{"a": {"b": [1, null], "c": {}}, "d": "x y"}, [[true], 2], "plain"]);
        let expected =
            "- a:\n    b:\n      - 1\n      - null\n    c: {}\n  d: \"x y\"\n- - - true\n  - 2\n- plain\n";
        assert_eq!(yaml(&value), expected);
        assert_eq!(yaml(&json!([])), "[]\n");
    }

    #[test]
    fn text_stays_text() {
        for word in ["no", "Null", "1e3", "", "-", "0x1f", "a: b", "#x", "~", "2026-11-20"] {
            assert!(yaml_text(word).starts_with('"'), "{word}");
        }
        assert_eq!(yaml_text("Disbatch::Plugin::Demo"), "\"Disbatch::Plugin::Demo\"");
        assert_eq!(yaml_text("node1.example.com"), "node1.example.com");
        assert_eq!(yaml_text("a\u{7f}\n\u{202e}"), "\"a\\u007f\\n\\u202e\"");
    }

    #[test]
    fn pretty_json_is_perls() {
        let value = json!([{"a": {"$oid": "x"}, "b": [], "c": {}, "d": [1, null]}]);
        let expected = "[\n   {\n      \"a\" : {\n         \"$oid\" : \"x\"\n      },\n      \"b\" : [],\n      \
                        \"c\" : {},\n      \"d\" : [\n         1,\n         null\n      ]\n   }\n]";
        assert_eq!(pretty(&value).unwrap(), expected);
    }
}
