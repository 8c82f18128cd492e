//! Indexes that are not as they are declared.

use bson::Document;
use disbatch_operation::operation;

use crate::store::{Store, StoreError, collections};

/// An index that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFault {
    pub collection: &'static str,
    /// Its name, which MongoDB makes of its fields.
    pub index: String,
    pub fault: Fault,
    /// Whether more than speed depends on it: it keeps limits, or Disbatch 4 has it.
    pub grave: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Missing,
    /// Nothing is found by it until it has been built.
    Building,
    /// Two documents may have the same, which it is there to prevent.
    NotUnique,
}

impl Store {
    /// The declared indexes that are missing, are being built, or are not unique although they should be, and the collections of
    /// which this user may not ask.
    #[operation]
    pub async fn index_faults(&self) -> Result<(Vec<IndexFault>, Vec<&'static str>), StoreError> {
        let (mut faults, mut unseen) = (Vec::new(), Vec::new());
        for collection in collections::ALL {
            let declared = self.declared_indexes(collection);
            if declared.is_empty() {
                continue;
            }
            let there = match self.indexes_of(collection.name).await {
                Err(error) if error.is_forbidden() => {
                    unseen.push(collection.name);
                    continue;
                }
                there => there?,
            };
            // One that was never written to has none, which nobody misses.
            if !there.is_empty() {
                faults.extend(declared.into_iter().filter_map(|wanted| {
                    let fault = wanted.fault(&there)?;
                    Some(IndexFault {
                        collection: collection.name,
                        index: wanted.name,
                        fault,
                        grave: wanted.grave,
                    })
                }));
            }
        }
        Ok((faults, unseen))
    }
}

/// An index that should be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    pub keys: Document,
    pub unique: bool,
    pub grave: bool,
}

impl Wanted {
    fn fault(&self, there: &[Document]) -> Option<Fault> {
        let is_it =
            |index: &Document| index.get_document("key").is_ok_and(|keys| keys.keys().eq(self.keys.keys()));
        let is_unique = |index: &Document| index.get_bool("unique").is_ok_and(|unique| unique);
        let mut found = there.iter().filter(|index| is_it(index)).peekable();
        let built = found.peek().is_some();
        if built && (!self.unique || found.any(is_unique)) {
            return None;
        }
        let mut building = there.iter().filter_map(|index| index.get_document("spec").ok());
        Some(match (building.any(is_it), built) {
            (true, _) => Fault::Building,
            (false, true) => Fault::NotUnique,
            (false, false) => Fault::Missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn an_index_is_there_when_it_has_been_built_and_keeps_what_it_should() {
        let wanted = |unique| Wanted {
            name: "a_1_b_1".to_owned(),
            keys: doc! { "a": 1, "b": 1 },
            unique,
            grave: false,
        };
        let id = doc! { "key": { "_id": 1 } };
        let there = doc! { "key": { "a": 1, "b": -1 } };
        let unique = doc! { "key": { "a": 1, "b": 1 }, "unique": true };
        let building = doc! { "spec": { "key": { "a": 1, "b": 1 } }, "buildUUID": "u" };
        for (is_unique, indexes, fault) in [
            (false, vec![id.clone()], Some(Fault::Missing)),
            (false, vec![id.clone(), there.clone()], None),
            (true, vec![there.clone()], Some(Fault::NotUnique)),
            (true, vec![there.clone(), unique.clone()], None),
            (true, vec![there, building.clone()], Some(Fault::Building)),
            (false, vec![id, building], Some(Fault::Building)),
            (true, vec![unique], None),
        ] {
            assert_eq!(wanted(is_unique).fault(&indexes), fault, "{indexes:?}");
        }
    }
}
