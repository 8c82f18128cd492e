//! Tables in the layout of the Perl client, and times for people.

use bson::DateTime;
use console::measure_text_width;
use serde_json::Value;

use super::terminal::visible;
use crate::api::Answer;
use crate::args::ListingOptions;
use crate::output::{Screen, list, plain, print};

const ELLIPSIS: char = '…';

/// What is cut, and to which width at least, one after the other until a line fits.
const STEPS: [(Cut, usize); 3] = [(Cut::Early, 20), (Cut::Late, 8), (Cut::Early, 8)];

/// A kind of list, of what an answer says of each item.
#[derive(Debug)]
pub struct Table<T: 'static = Value> {
    pub columns: &'static [Column<T>],
    pub noun: &'static str,
}

#[derive(Debug)]
pub struct Column<T = Value> {
    pub title: &'static str,
    pub cell: fn(&T) -> String,
    pub cut: Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Numbers and dates are not.
    Never,
    /// Names are, first of all.
    Early,
    /// Ids are if that is not enough: every command takes names, and broken lines are worse.
    Late,
}

impl<T: Answer> Table<T> {
    pub fn print(&self, all: &Value, options: &ListingOptions) -> anyhow::Result<()> {
        print(&list(all, options, |items| self.render(items, Screen::of_stdout()))?)
    }
}

impl<T> Table<T> {
    /// The items as lines. Only on a terminal that is too narrow are names cut.
    pub fn render(&self, items: &[T], screen: Screen) -> String {
        format!("{}\n{} total {}.\n", self.lines(items, screen), items.len(), self.noun)
    }

    /// The same for the first items of more.
    pub fn render_some(&self, items: &[T], screen: Screen) -> String {
        format!("{}\n{} {} of more.\n", self.lines(items, screen), items.len(), self.noun)
    }

    pub fn facts(&self, item: &T) -> String {
        let width = self.columns.iter().map(|column| column.title.len() + 2).max().unwrap_or(0).max(12);
        let fact =
            |column: &Column<T>| format!("{:<width$}{}\n", column.title, visible(&(column.cell)(item)));
        self.columns.iter().map(fact).collect()
    }

    fn lines(&self, items: &[T], screen: Screen) -> String {
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_owned()).collect();
        let rows: Vec<Vec<String>> = items.iter().map(|item| self.row(item, screen)).collect();
        let widest = |column: usize| rows.iter().map(|row| width(&row[column], screen)).max().unwrap_or(0);
        let title_widths = titles.iter().map(|title| width(title, screen));
        let mut widths: Vec<usize> =
            title_widths.enumerate().map(|(column, title)| title.max(widest(column))).collect();
        if let Some((_, columns)) = screen.size {
            self.narrow(&mut widths, columns);
        }
        let rule: String = widths.iter().map(|width| format!("{}-+-", "-".repeat(*width))).collect();
        let body: String = rows.iter().map(|row| format!("{}\n", line(row, &widths, screen))).collect();
        let titles = screen.bold(&line(&titles, &widths, screen));
        format!("{titles}\n{rule}\n{body}")
    }

    fn row(&self, item: &T, screen: Screen) -> Vec<String> {
        let cells = self.columns.iter().map(|column| (column.cell)(item));
        // A name must not move the cursor of a terminal.
        cells.map(|cell| if screen.size.is_some() { visible(&cell) } else { cell }).collect()
    }

    /// Takes from the widest column of a kind until a line fits, if it can.
    fn narrow(&self, widths: &mut [usize], columns: usize) {
        for (kind, narrowest) in STEPS {
            while widths.iter().map(|width| width + " | ".len()).sum::<usize>() > columns {
                let cut = self.columns.iter().zip(widths.iter_mut()).filter(|(column, _)| column.cut == kind);
                match cut.map(|(_, width)| width).max() {
                    Some(width) if *width > narrowest => *width -= 1,
                    _ => break, // Enough of this kind; in the end the terminal breaks the lines.
                }
            }
        }
    }
}

fn line(cells: &[String], widths: &[usize], screen: Screen) -> String {
    let cells = cells.iter().zip(widths);
    cells.map(|(cell, width)| format!("{} | ", fit(cell, *width, screen))).collect()
}

/// Columns of the terminal; elsewhere characters, as the Perl client counts.
fn width(text: &str, screen: Screen) -> usize {
    if screen.size.is_some() { measure_text_width(text) } else { text.chars().count() }
}

fn fit(cell: &str, columns: usize, screen: Screen) -> String {
    let mut text = cell.to_owned();
    if width(&text, screen) > columns {
        while width(&text, screen) >= columns && text.pop().is_some() {}
        text.push(ELLIPSIS);
    }
    let blanks = columns.saturating_sub(width(&text, screen));
    text.push_str(&" ".repeat(blanks));
    text
}

/// Milliseconds since 1970 as the DCI writes other times; anything else as it is.
pub fn date(value: Option<&Value>) -> String {
    let at = value.and_then(Value::as_i64).map(DateTime::from_millis);
    let text = at.and_then(|at| at.try_to_rfc3339_string().ok());
    text.and_then(|text| text.get(..19).map(str::to_owned)).unwrap_or_else(|| plain(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: Table = Table {
        columns: &[
            Column { title: "ID", cell: |item| plain(item.get("id")), cut: Cut::Never },
            Column { title: "Name", cell: |item| plain(item.get("name")), cut: Cut::Early },
        ],
        noun: "things",
    };

    fn item(name: &str) -> Value {
        serde_json::json!({"id": 1, "name": name})
    }

    #[test]
    fn names_are_cut_to_the_width_of_a_terminal_only() {
        let items = [item("a very long name"), item("名前名前名前名前")];
        let narrow = Screen { size: Some((24, 18)), colour: false };
        assert_eq!(
            TABLE.render(&items, narrow),
            "ID | Name       | \n---+------------+-\n1  | a very lo… | \n1  | 名前名前…  | \n\n2 total things.\n"
        );
        assert!(TABLE.render(&items, Screen::default()).contains("a very long name | \n"));
    }

    #[test]
    fn a_terminal_that_is_too_narrow_breaks_lines() {
        let text = TABLE.render(&[item("a very long name")], Screen { size: Some((24, 4)), colour: false });
        assert!(text.contains("a very … | "), "{text}");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        let screen = Screen { size: Some((24, 80)), colour: true };
        assert!(TABLE.render(&[item("a\x1b[2Jb")], screen).contains("a\u{fffd}[2Jb"));
    }

    #[test]
    fn times_are_dates() {
        for (millis, text) in [
            (json!(1_795_163_066_819_i64), "2026-11-20T08:24:26"),
            (json!(0), "1970-01-01T00:00:00"),
            (json!(-1), "1969-12-31T23:59:59"),
            (json!(951_782_400_000_i64), "2000-02-29T00:00:00"),
            (json!("x"), "x"),
            (Value::Null, ""),
        ] {
            assert_eq!(date(Some(&millis)), text);
        }
    }
}
