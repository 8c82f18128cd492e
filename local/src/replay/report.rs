//! The comparison for people.

use console::{Style, style};
use disbatch_cli::args::seconds;
use disbatch_cli::output::{Screen, visible};
use disbatch_cli::status;
use disbatch_compare::{Both, Comparison, LeftFile, Measured, OtherVersion, StepEnd, Text};

use super::bundle::Run;
use super::columns;

const MIB: f64 = 1024.0 * 1024.0;

/// What is said of streams whose differences are no text.
pub const NO_TEXT: &str = "they differ in bytes that are no text";

/// What came out, the differences last. Coloured on a terminal.
pub fn text(run: &Run, comparison: &Comparison, screen: Screen) -> String {
    let bundle = &run.bundle;
    let node = bundle.node.as_ref().map_or_else(String::new, |node| format!(" on {}", visible(node)));
    let mut lines = vec![format!(
        "task {}, attempt {}{node}, of {}",
        bundle.task,
        bundle.attempt,
        visible(&bundle.plugin)
    )];
    lines.push(line("plugin", &plugin(comparison), None));
    lines.extend(comparison.other_versions.iter().map(|other| line("version", &version(other), None)));
    let code = |code: i64| format!("{code} {}", status::word(code));
    let both = |was: String, is: String| if was == is { was } else { format!("{was} → {is}") };
    let status = &comparison.status;
    lines.push(line("status", &both(code(status.was), code(status.is)), Some(status.same)));
    let exit = &comparison.exit;
    lines.push(line("exit", &both(exit.was.to_string(), exit.is.to_string()), Some(exit.same)));
    lines.extend(comparison.texts.iter().map(of_text));
    lines.extend(comparison.steps.iter().flat_map(of_steps));
    lines.extend(comparison.files.iter().flat_map(of_files));
    lines.push(line("duration", &measured(&comparison.duration, 1.0, "s"), None));
    lines.push(line("memory", &measured(&comparison.memory, MIB, "MiB"), None));
    lines.extend(comparison.note.iter().map(|note| line("note", &visible(note), None)));
    lines.extend(differences(comparison, screen));
    let different = comparison.different();
    let end =
        if different.is_empty() { "same".to_owned() } else { format!("different: {}", different.join(", ")) };
    let colour = if different.is_empty() { Style::new().green() } else { Style::new().red() };
    lines.push(format!("\n{}", colour.apply_to(end)));
    lines.join("\n") + "\n"
}

/// What the texts differ in: side by side where there is room.
pub fn differences(comparison: &Comparison, screen: Screen) -> Vec<String> {
    let mut lines = Vec::new();
    for text in comparison.texts.iter().filter(|text| !text.same) {
        lines.push(format!("\n{}", style(&text.name).bold()));
        match screen.size {
            _ if text.difference.is_empty() => lines.push(NO_TEXT.to_owned()),
            Some((_, columns)) if columns >= columns::WIDE => {
                lines.extend(columns::side_by_side(&text.difference, columns));
            }
            _ => lines.extend(text.difference.lines().map(of_difference)),
        }
    }
    lines
}

fn line(name: &str, text: &str, same: Option<bool>) -> String {
    let mark = match same {
        None => String::new(),
        Some(true) => format!("  {}", style("same").green()),
        Some(false) => format!("  {}", style("different").red()),
    };
    format!("{name:<9} {text}{mark}")
}

/// A line for each step.
fn of_steps(steps: &Both<Vec<StepEnd>>) -> Vec<String> {
    let shown = |step: Option<&StepEnd>| {
        let step = step?;
        let took = step.seconds.map_or_else(String::new, |seconds| format!(", {}", seconds::words(seconds)));
        Some(format!("{}: {} {}{took}", visible(&step.name), step.status, status::word(step.status)))
    };
    let both = |index: usize| {
        let (was, is) = (steps.was.get(index), steps.is.get(index));
        let same = was.zip(is).is_some_and(|(was, is)| was.name == is.name && was.status == is.status);
        let [was, is] = [was, is].map(|step| shown(step).unwrap_or_else(|| "none".to_owned()));
        line(&format!("step {}", index + 1), &format!("{was} → {is}"), Some(same))
    };
    (0..steps.was.len().max(steps.is.len())).map(both).collect()
}

/// How many files were left, and those that are not what they were.
fn of_files(files: &Both<Vec<LeftFile>>) -> Vec<String> {
    let counts = match (files.was.len(), files.is.len()) {
        (was, is) if was == is => format!("{was}"),
        (was, is) => format!("{was} → {is}"),
    };
    let mut lines = vec![line("files", &counts, Some(files.same))];
    let lacks = |files: &[LeftFile], file: &LeftFile| !files.iter().any(|other| other.path == file.path);
    for file in files.was.iter().filter(|file| lacks(&files.is, file)) {
        lines.push(format!("          {}: missing", visible(&file.path)));
    }
    for file in files.is.iter().filter(|file| !files.was.contains(file)) {
        let what = if lacks(&files.was, file) { "new" } else { "changed" };
        lines.push(format!("          {}: {what}", visible(&file.path)));
    }
    lines
}

fn plugin(comparison: &Comparison) -> String {
    match comparison.changed_files.as_deref() {
        None => "which version it was is not known".to_owned(),
        Some([]) => "the recorded version".to_owned(),
        Some(changed) => format!("another version: {}", visible(&changed.join(", "))),
    }
}

/// `of My::Mail: 1 → 2`
fn version(OtherVersion { plugin, was, is }: &OtherVersion) -> String {
    format!("of {}: {} → {}", visible(plugin), visible(was), visible(is.as_deref().unwrap_or("none")))
}

fn of_text(text: &Text) -> String {
    let lengths = match (text.was_bytes, text.is_bytes) {
        (was, is) if was == is => format!("{was} bytes"),
        (was, is) => format!("{was} → {is} bytes"),
    };
    let compared =
        text.compared.map_or_else(String::new, |bytes| format!(", of which the first {bytes} are compared"));
    line(&text.name, &format!("{lengths}{compared}"), Some(text.same))
}

fn measured(both: &Measured, unit: f64, name: &str) -> String {
    let shown = |number: Option<f64>| {
        number.map_or_else(|| "?".to_owned(), |number| format!("{:.2} {name}", number / unit))
    };
    let change = both.change();
    let change = if change.is_empty() { change } else { format!(" ({change})") };
    format!("{} → {}{change}", shown(both.was), shown(both.is))
}

fn of_difference(line: &str) -> String {
    let shown = columns::shown(line);
    let colour = match line.chars().next() {
        Some('-') => Style::new().red(),
        Some('+') => Style::new().green(),
        Some('@') => Style::new().cyan(),
        _ => Style::new(), // What is around it.
    };
    colour.apply_to(shown).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_with_their_change() {
        let both = |was, is| measured(&Measured { was, is }, 1.0, "s");
        assert_eq!(both(Some(2.0), Some(1.0)), "2.00 s → 1.00 s (-50 %)");
        assert_eq!(both(None, Some(1.0)), "? → 1.00 s");
    }
}
