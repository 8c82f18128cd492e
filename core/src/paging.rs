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

/// A page that was found.
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

    /// Whether rows are read from the last to the first.
    pub const fn is_backwards(&self) -> bool {
        matches!(self, Self::Before(_))
    }

    /// Whether there is a next page and a previous one, as far as it is known: `more` rows may be left in the direction of reading.
    pub const fn has_neighbours(&self, more: bool) -> (bool, bool) {
        match self {
            Self::First => (more, false),
            Self::After(_) => (more, true),
            Self::Before(_) => (true, more),
        }
    }

    /// The page, from what was found in the direction of reading, which is one more than the limit if there is more.
    pub fn page<T>(&self, limit: usize, mut rows: Vec<T>, key: impl Fn(&T) -> Option<K>) -> Page<T, K> {
        let (has_next, has_previous) = self.has_neighbours(rows.len() > limit);
        rows.truncate(limit);
        if self.is_backwards() {
            rows.reverse();
        }
        let next = rows.last().filter(|_| has_next).and_then(&key);
        let previous = rows.first().filter(|_| has_previous).and_then(&key);
        Page { rows, next, previous }
    }
}
