//! The results of the demo, one line for each task.

use serde_json::Value;

use super::tasks::{Demo, LARGE_OUTPUT};
use crate::dev::console::{Colour, Console};

/// The longest text in a column of free text.
const WIDTH: usize = 34;

pub fn render(console: &Console, demos: &[Demo]) -> Vec<String> {
    let heading = ["id", "queue", "what", "status", "seconds", "node", "output"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(heading).chain(demos.iter().map(row)).collect();
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let colours = std::iter::once(None).chain(demos.iter().map(|demo| Some(colour(demo))));
    let mut lines = vec![String::new()];
    for (row, colour) in rows.iter().zip(colours) {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            let padding = " ".repeat(width - cell.chars().count());
            match (column, colour) {
                (3, Some(colour)) => console.paint(colour, cell) + &padding,
                (4, _) => padding + cell,
                _ => format!("{cell}{padding}"), // Every other cell is plain text.
            }
        });
        lines.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    lines
}

fn colour(demo: &Demo) -> Colour {
    match (demo.is_as_expected(), demo.status()) {
        (true, 1) => Colour::Green,
        (true, _) => Colour::Yellow,
        (false, _) => Colour::Red,
    }
}

fn row(demo: &Demo) -> [String; 7] {
    let seconds = match demo.took {
        Some(took) if took.as_millis() >= 100 => format!("{:.1}", took.as_secs_f64()),
        _ if demo.is_done() => "<0.1".to_owned(),
        _ => String::new(), // It has not ended.
    };
    [
        demo.id.clone(),
        demo.queue.to_owned(),
        shorten(&demo.what),
        status(demo),
        seconds,
        demo.document["node"].as_str().unwrap_or_default().to_owned(),
        output(demo),
    ]
}

fn status(demo: &Demo) -> String {
    let word = match demo.status() {
        -6 => "orphaned".to_owned(),
        -5 => "cancelled".to_owned(),
        -4 => "blocked".to_owned(),
        -3 => "terminated".to_owned(),
        -2 => "queued".to_owned(),
        -1 => "claimed".to_owned(),
        0 => "running".to_owned(),
        1 => "succeeded".to_owned(),
        2 => "failed".to_owned(),
        other => format!("status {other}"), // A plugin's own.
    };
    match (demo.is_done(), demo.is_as_expected()) {
        (false, _) => format!("{word} still"),
        (true, false) => format!("{word}, NOT as expected"),
        (true, true) if demo.status() == 1 => word,
        (true, true) => format!("{word}, as expected"),
    }
}

/// The first line of what the task printed, or how much it is.
fn output(demo: &Demo) -> String {
    let streams = [("", "stdout"), ("stderr: ", "stderr")];
    for (label, stream) in streams {
        match &demo.document[stream] {
            Value::String(text) if !text.is_empty() => return label.to_owned() + &summary(text),
            Value::Object(_) if demo.is_large => return format!("{LARGE_OUTPUT} bytes in GridFS"),
            Value::Object(_) => return format!("{label}in GridFS"),
            _ => {} // Nothing was printed there.
        }
    }
    String::new()
}

fn summary(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    match lines.count() {
        0 if first.len() > 200 => format!("{} bytes", text.len()),
        0 => shorten(first),
        more => format!("{} (+{more})", shorten(first)),
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= WIDTH {
        return text.to_owned();
    }
    text.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tasks;
    use super::*;

    #[test]
    fn a_row_tells_what_came_out() {
        let mut demos = tasks::all();
        demos[0].id = "6b0003bb686c8275d8013333".to_owned();
        demos[0].look(json!({ "status": 1, "node": "vm", "stdout": "one\ntwo\nthree\n", "stderr": null }));
        let row = row(&demos[0]);
        assert_eq!(row.join("|"), "6b0003bb686c8275d8013333|demo|commands a|succeeded|<0.1|vm|one (+2)");
        demos[1].look(json!({ "status": 2, "stdout": null, "stderr": "no" }));
        assert_eq!(status(&demos[1]), "failed, NOT as expected");
        assert_eq!(output(&demos[1]), "stderr: no");
        demos[2].look(json!({ "status": 0 }));
        assert_eq!(status(&demos[2]), "running still");
        assert_eq!(render(&Console::new(), &demos).len(), 22);
    }

    #[test]
    fn long_output_is_summed_up() {
        assert_eq!(summary(&"1".repeat(1000)), "1000 bytes");
        assert_eq!(shorten(&"é".repeat(40)).chars().count(), WIDTH);
    }
}
