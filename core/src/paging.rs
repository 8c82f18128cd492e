//! Lists that are shown a page at a time. A page begins behind the last row of the one before, so that rows that come or go meanwhile
//! move no other from one page to the next.

/// Where a page is, of rows that keys of this type tell apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Position<K> {
    #[default]
    First,
    /// What comes after this row.
    After(K),
    /// What comes before this row, and next to it.
    Before(K),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, K> {
    pub rows: Vec<T>,
    /// Behind which row the next page begins, if there is one.
    pub next: Option<K>,
    /// Before which row the previous page ends, if there is one.
    pub previous: Option<K>,
}

impl<T, K> Default for Page<T, K> {
    fn default() -> Self {
        Self { rows: Vec::new(), next: None, previous: None }
    }
}

impl<K> Position<K> {
    /// That of two options of which one is given at most.
    pub fn of(after: Option<K>, before: Option<K>) -> Self {
        match (after, before) {
            (Some(key), _) => Self::After(key),
            (None, Some(key)) => Self::Before(key),
            (None, None) => Self::First,
        }
    }

    pub const fn is_backwards(&self) -> bool {
        matches!(self, Self::Before(_))
    }

    /// The page, from what was found in the direction of reading, which is one more than the limit if there is more.
    pub fn page<T>(&self, limit: usize, mut rows: Vec<T>, key: impl Fn(&T) -> Option<K>) -> Page<T, K> {
        let more = rows.len() > limit;
        // Whether there is a next page and a previous one, as far as it is known.
        let (has_next, has_previous) = match self {
            Self::First => (more, false),
            Self::After(_) => (more, true),
            Self::Before(_) => (true, more),
        };
        rows.truncate(limit);
        if self.is_backwards() {
            rows.reverse();
        }
        let next = rows.last().filter(|_| has_next).and_then(&key);
        let previous = rows.first().filter(|_| has_previous).and_then(&key);
        Page { rows, next, previous }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_know_their_neighbours() {
        // Three rows are one more than there is room for.
        let page = |position: Position<u8>, rows: &[u8]| {
            let page = position.page(2, rows.to_vec(), |row| Some(*row));
            (page.rows, page.previous, page.next)
        };
        assert_eq!(page(Position::First, &[1, 2]), (vec![1, 2], None, None));
        assert_eq!(page(Position::First, &[1, 2, 3]), (vec![1, 2], None, Some(2)));
        assert_eq!(page(Position::After(0), &[1, 2, 3]), (vec![1, 2], Some(1), Some(2)));
        assert_eq!(page(Position::After(0), &[1, 2]), (vec![1, 2], Some(1), None));
        assert_eq!(page(Position::Before(9), &[8, 7, 6]), (vec![7, 8], Some(7), Some(8)));
        assert_eq!(page(Position::Before(9), &[8, 7]), (vec![7, 8], None, Some(8)));
        assert_eq!(page(Position::After(0), &[]), (vec![], None, None));
    }
}
