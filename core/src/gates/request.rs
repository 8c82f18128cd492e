//! Which locks a task asks for: `NAME` for itself alone, `NAME/shared` together with others that share it, `NAME/3` for
//! one of three places. Pure.

use std::fmt;
use std::str::FromStr;

use bson::{Bson, Document};

pub const MOST_LOCKS: usize = 50;

const LONGEST_NAME: usize = 100;

const MOST_PLACES: u32 = 1_000_000;

/// Names that begin so are those of arrays, which make them themselves.
pub(crate) const OF_ARRAYS: &str = "array:";

/// Names that nobody may give who submits a task.
const RESERVED: [&str; 2] = [OF_ARRAYS, "schedule:"];

/// So much of what was given is in messages.
const QUOTED: usize = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    Exclusive,
    Shared,
    /// As one of so many places.
    Places(u32),
}

impl LockMode {
    /// As it is stored with a holder.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Places(_) => "places",
        }
    }

    /// What is stored with a holder. What is not understood is taken for the strictest.
    pub(super) fn stored(holder: &Document) -> Self {
        let places = holder.get("places").and_then(crate::model::whole_number);
        let places = places.and_then(|places| u32::try_from(places).ok()).filter(|places| *places > 0);
        match (holder.get_str("mode"), places) {
            (Ok("shared"), _) => Self::Shared,
            (Ok("places"), Some(places)) => Self::Places(places),
            _ => Self::Exclusive,
        }
    }
}

/// A lock that a task asks for. As text it is what tasks have in `locks`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockRequest {
    name: String,
    mode: LockMode,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    #[error(
        "'{0}' is no lock: expected NAME, NAME/shared or NAME/3 for one of three places, where NAME has 1 to 100 letters, \
         digits and any of _ . : @ -"
    )]
    Malformed(String),
    #[error(
        "'{0}' is no lock for you: names that begin with 'array:' or 'schedule:' are given by the system"
    )]
    Reserved(String),
    #[error("the lock '{0}' is named twice")]
    Twice(String),
    #[error("a task has at most {most} locks, and these are {0}", most = MOST_LOCKS)]
    TooMany(usize),
}

impl LockRequest {
    /// A lock whatever its name: for what makes up names itself, as arrays do. The name must have no slash.
    pub fn internal(name: impl Into<String>, mode: LockMode) -> Self {
        Self { name: name.into(), mode }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn mode(&self) -> LockMode {
        self.mode
    }

    /// All that a task asks for, in the order in which it gets them.
    pub fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Self>, LockError> {
        let mut all = texts.into_iter().map(str::parse::<Self>).collect::<Result<Vec<Self>, LockError>>()?;
        if all.len() > MOST_LOCKS {
            return Err(LockError::TooMany(all.len()));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        match all.windows(2).find(|pair| pair[0].name == pair[1].name) {
            Some(pair) => Err(LockError::Twice(pair[0].name.clone())),
            None => Ok(all),
        }
    }

    /// What a task has stored. What is no text of this kind is left out.
    pub(super) fn stored(task: &Document) -> Vec<Self> {
        let texts = task.get_array("locks").into_iter().flatten().filter_map(Bson::as_str);
        let mut all: Vec<Self> = texts.filter_map(Self::read).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|later, first| later.name == first.name);
        all
    }

    /// Reads a request without asking who may use the name.
    fn read(text: &str) -> Option<Self> {
        let (name, mode) = match text.split_once('/') {
            None => (text, LockMode::Exclusive),
            Some((name, "shared")) => (name, LockMode::Shared),
            Some((name, places)) => (name, LockMode::Places(read_places(places)?)),
        };
        is_lock_name(name).then(|| Self { name: name.to_owned(), mode })
    }
}

/// Digits without a sign, from 1 on.
fn read_places(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|places| is_number && (1..=MOST_PLACES).contains(places))
}

pub fn is_lock_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@-".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_of_name)
}

impl FromStr for LockRequest {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let quoted = || text.chars().take(QUOTED).collect::<String>();
        let request = Self::read(text).ok_or_else(|| LockError::Malformed(quoted()))?;
        let is_reserved = RESERVED.iter().any(|prefix| request.name.starts_with(prefix));
        if is_reserved { Err(LockError::Reserved(quoted())) } else { Ok(request) }
    }
}

impl fmt::Display for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            LockMode::Exclusive => f.write_str(&self.name),
            LockMode::Shared => write!(f, "{}/shared", self.name),
            LockMode::Places(places) => write!(f, "{}/{places}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lock_has_a_name_and_a_way_to_be_held() {
        let read = |text: &str| text.parse::<LockRequest>().unwrap();
        assert_eq!((read("db:mail.1").name(), read("db:mail.1").mode()), ("db:mail.1", LockMode::Exclusive));
        assert_eq!(read("a/shared").mode(), LockMode::Shared);
        assert_eq!(read("a@b-c_d/3").mode(), LockMode::Places(3));
        let long = "x".repeat(100);
        assert_eq!(read(&long).name(), long);
    }

    #[test]
    fn whatever_else_is_none() {
        let long = "x".repeat(101);
        let wrong =
            ["", "/3", "a b", "a/", "a/0", "a/01", "a/-1", "a/+1", "a/1.5", "a/Shared", "a/3/3", "ä", &long];
        for text in wrong {
            let error = text.parse::<LockRequest>().unwrap_err();
            assert!(matches!(error, LockError::Malformed(_)), "{text}: {error}");
            assert!(error.to_string().len() < 400, "{error}");
        }
        assert!("a/1000001".parse::<LockRequest>().is_err());
        let reserved = "array:6b0003bb686c8275d8013333/5".parse::<LockRequest>().unwrap_err();
        assert!(matches!(reserved, LockError::Reserved(_)), "{reserved}");
        assert!("schedule:x".parse::<LockRequest>().is_err());
    }

    #[test]
    fn a_list_is_in_order_and_names_each_lock_once() {
        let list = LockRequest::list(["b/2", "a", "c/shared"]).unwrap();
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a", "b/2", "c/shared"]);
        assert_eq!(LockRequest::list(["a", "a/shared"]).unwrap_err(), LockError::Twice("a".to_owned()));
        let many: Vec<String> = (0..51).map(|number| format!("n{number}")).collect();
        let many = LockRequest::list(many.iter().map(String::as_str));
        assert_eq!(many.unwrap_err(), LockError::TooMany(51));
        assert_eq!(LockRequest::list([]).unwrap(), []);
    }

    #[test]
    fn what_is_stored_is_read_as_far_as_it_can_be() {
        let array = format!("{OF_ARRAYS}6b0003bb686c8275d8013333/5");
        let task = doc! { "locks": ["z", 5, "a/shared", "a", "no lock", &array] };
        let names: Vec<String> = LockRequest::stored(&task).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a/shared".to_owned(), array, "z".to_owned()]);
        assert!(LockRequest::stored(&doc! { "locks": "a" }).is_empty());
        assert_eq!(LockMode::stored(&doc! { "mode": "places", "places": 3_i64 }), LockMode::Places(3));
        for odd in
            [doc! {}, doc! { "mode": "places" }, doc! { "mode": "places", "places": 0 }, doc! { "mode": 1 }]
        {
            assert_eq!(LockMode::stored(&odd), LockMode::Exclusive, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            name in "[A-Za-z0-9_.@-][A-Za-z0-9_.:@-]{0,98}", mode in prop_oneof![
                Just(LockMode::Exclusive), Just(LockMode::Shared), (1_u32..=MOST_PLACES).prop_map(LockMode::Places),
            ],
        ) {
            prop_assume!(RESERVED.iter().all(|prefix| !name.starts_with(prefix)));
            let request = LockRequest::internal(name, mode);
            prop_assert_eq!(request.to_string().parse::<LockRequest>(), Ok(request));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _any = text.parse::<LockRequest>();
        }
    }
}
