//! The elements of an array as squares, in their order.

use std::collections::BTreeMap;

use disbatch_core::arrays::{Array, Cell, Element};
use disbatch_core::model::Status;

use crate::ui::arrays::ran;
use crate::ui::parts::cut;
use crate::ui::{self, plain};

/// The picture has so many squares at most, in rows of so many.
const SQUARES: u32 = 400;
const IN_A_ROW: u32 = 40;

/// A square is so large, with the gap to the next one.
const SIZE: u32 = 16;

/// So many characters of the value of an element are told.
const VALUE: usize = 40;

pub(super) struct Picture {
    pub width: u32,
    pub height: u32,
    /// What it shows.
    pub words: String,
    pub squares: Vec<Square>,
}

pub(super) struct Square {
    pub x: u32,
    pub y: u32,
    pub class: &'static str,
    pub title: String,
    /// Where there is more of it.
    pub address: Option<String>,
}

/// So many elements share a square of the picture of an array of `count`.
pub(super) fn in_a_square(count: u32) -> u32 {
    count.div_ceil(SQUARES).max(1)
}

impl Picture {
    /// The picture of elements that have a square each.
    pub(super) fn of_elements(elements: &[Element]) -> Self {
        let square = |(place, element): (u32, &Element)| {
            let within: Vec<(Status, i64)> = element.status.map(|status| (status, 1)).into_iter().collect();
            let value = cut(&plain(element.value.as_ref()), VALUE);
            let mut title = format!("element {}", element.index);
            if value != element.index.to_string() && !value.is_empty() {
                title = format!("{title}, {value}");
            }
            title = format!("{title}: {}", told(&within));
            let ran = ran(element);
            if element.status.is_some_and(Status::has_ended) && !ran.is_empty() {
                title = format!("{title}, ran {ran}");
            }
            let address = element.status.map(|_| format!("/tasks/{}", element.id));
            Square {
                x: place % IN_A_ROW * SIZE,
                y: place / IN_A_ROW * SIZE,
                class: class(&within),
                title,
                address,
            }
        };
        Self::with((0..).zip(elements).take(SQUARES as usize).map(square).collect(), "an element")
    }

    /// The picture of an array of which each square has `size` elements.
    pub(super) fn of(array: &Array, cells: &[Cell], size: u32) -> Self {
        let count = array.count;
        let mut by_cell: BTreeMap<u32, Vec<(Status, i64)>> = BTreeMap::new();
        for cell in cells {
            by_cell.entry(cell.number).or_default().push((cell.status, cell.tasks));
        }
        let total = count.div_ceil(size.max(1));
        let square = |index: u32| {
            let within = by_cell.get(&index).map(Vec::as_slice).unwrap_or_default();
            let first = index.saturating_mul(size);
            let last = first.saturating_add(size).min(count).saturating_sub(1);
            let place = if first == last {
                format!("element {first}")
            } else {
                format!("elements {first} to {last}")
            };
            Square {
                x: index % IN_A_ROW * SIZE,
                y: index / IN_A_ROW * SIZE,
                class: class(within),
                title: format!("{place}: {}", told(within)),
                address: Some(format!("/arrays/{}?.from={first}&.limit={size}#elements", array.id)),
            }
        };
        Self::with((0..total.min(SQUARES)).map(square).collect(), &format!("{size} elements"))
    }

    fn with(squares: Vec<Square>, each: &str) -> Self {
        Self {
            width: IN_A_ROW * SIZE,
            height: squares.last().map_or(0, |last| last.y + SIZE),
            words: format!("The elements in their order, each square for {each}"),
            squares,
        }
    }
}

fn told(within: &[(Status, i64)]) -> String {
    let told: Vec<String> = match within {
        [(status, 1)] => vec![ui::word(*status).to_owned()],
        [] => vec!["no task".to_owned()],
        several => several.iter().map(|(status, tasks)| format!("{tasks} {}", ui::word(*status))).collect(),
    };
    told.join(", ")
}

/// What a square looks like: what needs attention first.
fn class(within: &[(Status, i64)]) -> &'static str {
    let has = |is: fn(Status) -> bool| within.iter().any(|(status, _)| is(*status));
    if has(|status| status.has_ended() && !matches!(status, Status::Succeeded | Status::Cancelled)) {
        "failed"
    } else if has(|status| status == Status::Running) {
        "running"
    } else if has(|status| !status.has_ended()) {
        "queued"
    } else if has(|status| status == Status::Cancelled) {
        "cancelled"
    } else if within.is_empty() {
        "none"
    } else {
        "succeeded"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::array;
    use super::*;

    #[test]
    fn many_elements_share_a_square_that_shows_the_worst() {
        let cell = |number, status, tasks| Cell { number, status, tasks };
        let cells =
            [cell(0, Status::Succeeded, 249), cell(0, Status::Failed, 1), cell(1, Status::Queued, 250)];
        let picture = Picture::of(&Array { count: 100_000, ..array(4) }, &cells, 250);
        assert_eq!((picture.squares.len(), picture.width, picture.height), (400, 640, 160));
        assert_eq!((picture.squares[0].class, picture.squares[1].class), ("failed", "queued"));
        assert_eq!(picture.squares[0].title, "elements 0 to 249: 249 succeeded, 1 failed");
        let address = "/arrays/010101010101010101010101?.from=250&.limit=250#elements";
        assert_eq!(picture.squares[1].address.as_deref(), Some(address));
        assert_eq!(class(&[(Status::Succeeded, 5), (Status::Cancelled, 1)]), "cancelled");
    }

    #[test]
    fn a_large_array_has_as_many_squares_as_fit() {
        assert_eq!([0, 1, 400, 401, 100_000].map(in_a_square), [1, 1, 1, 2, 250]);
    }
}
