//! Patterns that tell files of a set apart. Pure.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// So many patterns are given at most.
const MOST: usize = 100;

/// A pattern has so many bytes at most.
const LONGEST: usize = 1024;

/// Patterns of which a path has to match one: `*` and `?` stand for what is within a part of a path, `**` for any parts,
/// `[ab]` for one of these characters and `{a,b}` for one of these texts. None at all match every path.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Option<GlobSet>);

/// A pattern cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("at most {most} patterns can be given", most = MOST)]
    TooMany,
    #[error("the pattern '{pattern}' cannot be understood: {why}")]
    Wrong {
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Patterns {
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut builder = GlobSetBuilder::new();
        let mut count = 0;
        for pattern in patterns {
            count += 1;
            if count > MOST {
                return Err(PatternError::TooMany);
            }
            let wrong = |why: String| {
                let pattern = pattern.chars().take(LONGEST).collect();
                PatternError::Wrong { pattern, why }
            };
            if pattern.is_empty() || pattern.len() > LONGEST {
                return Err(wrong(format!("expected 1 to {LONGEST} bytes")));
            }
            if pattern.starts_with('/') {
                return Err(wrong("paths in a file set do not begin with a slash".to_owned()));
            }
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            builder.add(glob.map_err(|error| wrong(error.kind().to_string()))?);
        }
        if count == 0 {
            return Ok(Self::default());
        }
        let too_large = |error: globset::Error| PatternError::Wrong {
            pattern: error.glob().unwrap_or_default().to_owned(),
            why: error.kind().to_string(),
        };
        Ok(Self(Some(builder.build().map_err(too_large)?)))
    }

    /// Whether a path matches one of them.
    pub fn matches(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|globs| globs.is_match(path))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matching(patterns: &[&str]) -> Vec<&'static str> {
        let patterns = Patterns::new(patterns.iter().copied()).unwrap();
        let paths = ["a.py", "bin/run", "bin/old/run", "data/x/1.dat", "1.dat", ".hidden", "b/.hidden"];
        paths.into_iter().filter(|path| patterns.matches(path)).collect()
    }

    #[test]
    fn a_star_stays_within_a_part_of_a_path() {
        assert_eq!(matching(&["*.py", "bin/*"]), ["a.py", "bin/run"]);
        assert_eq!(matching(&["**/*.dat"]), ["data/x/1.dat", "1.dat"]);
        assert_eq!(matching(&["bin/**"]), ["bin/run", "bin/old/run"]);
        assert_eq!(matching(&["?.{py,dat}", "[.b]*"]), ["a.py", "1.dat", ".hidden"]);
        assert_eq!(matching(&["**"]).len(), 7);
        assert_eq!(matching(&[]).len(), 7);
        assert!(matching(&["nothing"]).is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        let why = |pattern: &str| Patterns::new([pattern]).unwrap_err().to_string();
        assert!(
            why("a[").starts_with("the pattern 'a[' cannot be understood: unclosed character class"),
            "{}",
            why("a[")
        );
        assert!(why("/etc/*").ends_with("do not begin with a slash"));
        assert!(why("").ends_with("expected 1 to 1024 bytes"));
        assert!(why(&"x".repeat(1025)).ends_with("expected 1 to 1024 bytes"));
        assert_eq!(Patterns::new(["x"; 101]).unwrap_err(), PatternError::TooMany);
        assert!(Patterns::new(["x"; 100]).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_is_refused(pattern in "[a*?{},\\[\\]!/\\\\-]{0,20}", path in "[a/]{0,10}") {
            if let Ok(patterns) = Patterns::new([pattern.as_str()]) {
                let _either = patterns.matches(&path);
            }
        }

        #[test]
        fn a_path_matches_itself_and_what_begins_like_it(path in "[a-z]{1,5}(/[a-z]{1,5}){0,4}") {
            prop_assert!(Patterns::new([path.as_str()]).unwrap().matches(&path));
            let (first, _) = path.split_once('/').unwrap_or((path.as_str(), ""));
            let below = format!("{first}/**");
            prop_assert_eq!(Patterns::new([below.as_str()]).unwrap().matches(&path), path.contains('/'));
        }
    }
}
