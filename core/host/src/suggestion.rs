//! Which known name somebody may have meant.

/// So many known names are compared at most, and names up to this length: others are not typed by hand.
const MOST: usize = 500;
const LONGEST: usize = 64;

/// The name of `known` that is nearest to `name`, if it is near: no more than a third of it, and three characters at most, would have to
/// change.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = name.chars().take(LONGEST + 1).collect();
    if typed.len() > LONGEST {
        return None;
    }
    let most = (typed.len() / 3).clamp(1, 3);
    let near = known.into_iter().take(MOST).filter(|known| known.len() <= LONGEST);
    let near = near.map(|known| (distance(&typed, &known.chars().collect::<Vec<_>>()), known));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| known)
}

/// How many characters have to be added, taken away, changed, or swapped with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (row, a) in one.iter().enumerate() {
        let mut now = vec![row + 1];
        for (column, b) in other.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&last, column) + usize::from(a != b))
                .min(at(&last, column + 1) + 1)
                .min(at(&now, column) + 1);
            let is_swapped =
                row > 0 && column > 0 && one.get(row - 1) == Some(b) && other.get(column - 1) == Some(a);
            if is_swapped {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            now.push(cost);
        }
        before = std::mem::replace(&mut last, now);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_near() {
        let known = ["max_attempts", "deadline", "delay", "timeout", "group"];
        let of = |name: &str| closest(name, known);
        assert_eq!(of("max_attemps"), Some("max_attempts"));
        assert_eq!(of("deadine"), Some("deadline"));
        assert_eq!(of("dealy"), Some("delay"));
        assert_eq!(of("timeuot"), Some("timeout"));
        assert_eq!((of("colour"), of(""), of(&"x".repeat(1_000))), (None, None, None));
    }
}
