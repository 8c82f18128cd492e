//! What a change made of a document.

use bson::{Bson, Document, doc};

use crate::audit::is_same;
use crate::node::Updated;

/// A condition, for `$expr`: fields still have these values, or none. Values are compared as a whole: a plain condition would also
/// hold for an array with the value among its elements.
pub(crate) fn still<'a>(fields: impl Iterator<Item = (&'a str, Option<&'a Bson>)>) -> Document {
    let same = |(name, value): (&str, Option<&Bson>)| match value {
        Some(value) => doc! { "$eq": [format!("${name}"), { "$literal": value.clone() }] },
        None => doc! { "$eq": [{ "$type": format!("${name}") }, "missing"] },
    };
    doc! { "$and": fields.map(same).collect::<Vec<Document>>() }
}

/// A document that was changed, as it was at that moment and as it is since.
#[derive(Debug, Clone, PartialEq)]
pub struct Altered {
    /// As it was. None: there was none.
    pub before: Option<Document>,
    pub after: Document,
}

impl Altered {
    /// What becomes of a document when `fields` are set. They are whole fields, and not parts of some.
    pub(crate) fn by_setting(before: Option<Document>, fields: Document) -> Self {
        let mut after = before.clone().unwrap_or_default();
        after.extend(fields);
        Self { before, after }
    }

    /// The same, where fields whose new value is null are removed.
    pub(crate) fn by_setting_or_removing(before: Document, fields: Document) -> Self {
        let (gone, set): (Document, Document) =
            fields.into_iter().partition(|(_, value)| *value == Bson::Null);
        let mut altered = Self::by_setting(Some(before), set);
        for (name, _) in gone {
            altered.after.remove(name);
        }
        altered
    }

    /// Whether anything is not as it was.
    pub fn is_different(&self) -> bool {
        let Some(before) = &self.before else { return true };
        let is_other = |(name, value): (&String, &Bson)| !is_same(Some(value), before.get(name));
        before.len() != self.after.len() || self.after.iter().any(is_other)
    }

    /// What an update found, where there may have been nothing to change.
    pub fn updated(altered: Option<&Self>) -> Updated {
        let is_different = altered.is_some_and(Self::is_different);
        Updated { matched: u64::from(altered.is_some()), modified: u64::from(is_different) }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn updated(before: Document, fields: Document) -> (Document, u64) {
        let altered = Altered::by_setting_or_removing(before, fields);
        let Updated { matched, modified } = Altered::updated(Some(&altered));
        assert_eq!(matched, 1);
        (altered.after, modified)
    }

    #[test]
    fn it_is_known_what_becomes_of_a_document() {
        let before = doc! { "_id": 1, "name": "mail", "threads": 2 };
        let set = doc! { "threads": 3, "name": Bson::Null };
        assert_eq!(updated(before.clone(), set), (doc! { "_id": 1, "threads": 3 }, 1));
        assert_eq!(updated(before.clone(), doc! { "threads": 2 }), (before.clone(), 0));
        assert_eq!(updated(before.clone(), doc! { "sort": Bson::Null }), (before.clone(), 0));
        assert_eq!(updated(before.clone(), doc! { "threads": 2_i64 }).1, 1, "the type is another");
        assert_eq!(updated(before.clone(), doc! { "sort": "fifo" }).1, 1);
        let kept = Altered::by_setting(Some(before), doc! { "maxthreads": Bson::Null });
        assert_eq!(kept.after.get("maxthreads"), Some(&Bson::Null));
        let made = Altered::by_setting(None, doc! { "queues": [] });
        assert_eq!((made.is_different(), made.after), (true, doc! { "queues": [] }));
        assert_eq!(Altered::updated(None), Updated { matched: 0, modified: 0 });
    }
}
