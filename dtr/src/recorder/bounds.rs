//! How large a recording may be.

use std::iter;

use disbatch_wire::bundles::{RecordedPlugin, Recording};
use serde_json::Value;

/// As JSON it has so many bytes at most.
const LARGEST: usize = 1024 * 1024;

/// So many control lines are recorded at most,
pub const MOST_LINES: usize = 2_000;

/// with so many bytes together.
pub const MOST_CONTROL: usize = 256 * 1024;

/// So often it is recorded when output came.
pub const MOST_PIECES: usize = 2_000;

/// Longer values of variables are left out. Those that the runner sets are in the input as well.
pub const LONGEST_VALUE: usize = 4 * 1024;

/// The recording as JSON. What makes it too large is left out, what can be had elsewhere first, and it says so.
pub fn bounded(mut recording: Recording) -> String {
    type Cut = (&'static str, fn(&mut Recording));
    const CUTS: [Cut; 6] = [
        ("standard input, which is the task", |recording| recording.input = String::new()),
        ("the times of output", |recording| recording.output = Vec::new()),
        ("the control lines", |recording| recording.control = Vec::new()),
        ("the manifest", |recording| plugins(recording).for_each(|plugin| plugin.manifest = Value::Null)),
        ("the files of the plugin", |recording| {
            plugins(recording).for_each(|plugin| plugin.files = Vec::new())
        }),
        ("the environment", |recording| recording.environment = Vec::new()),
    ];
    let long = |variable: &&disbatch_wire::bundles::Variable| variable.value.is_none() && !variable.secret;
    let names: Vec<String> =
        recording.environment.iter().filter(long).map(|variable| variable.name.clone()).collect();
    recording.cut.extend(names.into_iter().map(|name| format!("the value of {name}")));
    let mut cuts = CUTS.into_iter();
    loop {
        let text = serde_json::to_string(&recording).unwrap_or_default();
        if text.len() <= LARGEST {
            return text;
        }
        // A queue alone that is so large is a document of nobody's making.
        let Some((what, cut)) = cuts.next() else { return String::new() };
        cut(&mut recording);
        recording.cut.push(what.to_owned());
    }
}

/// That of the task and those of its steps.
fn plugins(recording: &mut Recording) -> impl Iterator<Item = &mut RecordedPlugin> {
    let of_steps = recording.steps.iter_mut().map(|step| &mut step.plugin);
    iter::once(&mut recording.plugin).chain(of_steps)
}

#[cfg(test)]
mod tests {
    use disbatch_wire::bundles::{ControlLine, Variable};

    use super::*;

    #[test]
    fn what_makes_it_too_large_is_left_out_and_said() {
        let line = || ControlLine { ms: 1, line: "x".to_owned() };
        let variable = Variable { name: "JOB_PARAMS".to_owned(), value: None, secret: false };
        let small = Recording { control: vec![line()], environment: vec![variable], ..Recording::default() };
        let read = |text: String| serde_json::from_str::<Recording>(&text).unwrap();
        let same = read(bounded(small.clone()));
        assert_eq!(same, Recording { cut: vec!["the value of JOB_PARAMS".to_owned()], ..small.clone() });
        let large = Recording { input: "\u{1}".repeat(LARGEST / 4), ..small };
        let cut = read(bounded(large));
        assert_eq!((cut.input.as_str(), cut.control.len()), ("", 1));
        assert_eq!(cut.cut[1], "standard input, which is the task");
    }
}
