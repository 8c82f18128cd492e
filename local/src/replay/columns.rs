//! Differences of text side by side, for a terminal.

use console::{Style, measure_text_width, style};
use disbatch_cli::output::visible;
use disbatch_compare::diff::{Line, Row, rows};

/// Narrower terminals get a unified difference.
pub const WIDE: usize = 100;

/// It in two columns for a terminal with so many.
pub fn side_by_side(unified: &str, columns: usize) -> Vec<String> {
    let rows = rows(unified);
    let last = rows.iter().flat_map(Row::sides).flatten().map(|line| line.number).max();
    let digits = last.unwrap_or(0).to_string().len();
    let width = (columns.saturating_sub(3) / 2).saturating_sub(digits + 1).max(1);
    let mut lines = Vec::new();
    for row in &rows {
        if let Row::Gap(text) = row {
            lines.push(style(visible(text)).cyan().to_string());
            continue;
        }
        let colours =
            if row.is_changed() { [Style::new().red(), Style::new().green()] } else { Default::default() };
        let [was, is] = row.sides();
        let sign = match (row.is_changed(), was, is) {
            (false, ..) => ' ',
            (true, Some(_), Some(_)) => '|',
            (true, Some(_), None) => '<',
            (true, None, _) => '>',
        };
        let [was, is] = [(was, &colours[0]), (is, &colours[1])]
            .map(|(line, colour)| column(line, (digits, width), colour));
        let empty = " ".repeat(digits + 1 + width);
        for n in 0..was.len().max(is.len()) {
            let [was, is] = [&was, &is].map(|side| side.get(n).unwrap_or(&empty));
            lines.push(format!("{was} {sign} {is}").trim_end().to_owned());
        }
    }
    lines
}

/// The lines of a column that a line takes, each as wide as the column.
fn column(line: Option<&Line>, (digits, width): (usize, usize), colour: &Style) -> Vec<String> {
    let Some(line) = line else { return Vec::new() };
    let mut lines = vec![format!("{} ", style(format!("{:>digits$}", line.number)).dim())];
    let (mut room, mut piece) = (width, String::new());
    for (is_changed, text) in &line.parts {
        let colour = if *is_changed { colour.clone().bold().reverse() } else { colour.clone() };
        for c in shown(text).chars() {
            let wide = measure_text_width(c.encode_utf8(&mut [0; 4]));
            if wide > room {
                end(&mut lines, &colour.apply_to(&piece).to_string(), room);
                lines.push(" ".repeat(digits + 1));
                (room, piece) = (width, String::new());
            }
            room = room.saturating_sub(wide);
            piece.push(c);
        }
        end(&mut lines, &colour.apply_to(&piece).to_string(), 0);
        piece.clear();
    }
    end(&mut lines, "", room);
    lines
}

fn end(lines: &mut [String], piece: &str, room: usize) {
    if let Some(last) = lines.last_mut() {
        last.push_str(piece);
        last.push_str(&" ".repeat(room));
    }
}

/// A line without what would control a terminal.
pub fn shown(line: &str) -> String {
    visible(&line.replace('\t', "    "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use disbatch_compare::diff::unified;

    use super::*;

    fn sides(was: &str, is: &str) -> Vec<String> {
        side_by_side(&unified(was.as_bytes(), is.as_bytes(), Duration::from_secs(5)), 31)
    }

    #[test]
    fn what_has_changed_stands_beside_what_it_was() {
        let lines = sides("a\nb is 2\nc\n", "a\nb is 3\nnew\nc\n");
        assert_eq!(
            lines,
            [
                "@@ -1,3 +1,4 @@",
                "1 a              1 a",
                "2 b is 2       | 2 b is 3",
                "               > 3 new",
                "3 c              4 c",
            ]
        );
    }

    #[test]
    fn long_lines_are_broken_and_nothing_controls_the_terminal() {
        let lines = sides(
            "1234567890123456\t\x1b[2J\n",
            "\u{540d}\u{524d}\u{540d}\u{524d}\u{540d}\u{524d}\u{540d}\n",
        );
        assert_eq!(
            lines[1..],
            [
                "1 123456789012 | 1 \u{540d}\u{524d}\u{540d}\u{524d}\u{540d}\u{524d}",
                "  3456    \u{fffd}[2J |   \u{540d}",
            ]
        );
    }
}
