//! A page of tasks of several selections, each of which has its own order in an index.

use std::collections::BTreeSet;

use disbatch_core::model::TaskId;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::pages::{Order, Page, PageQuery, Position, Selection};
use futures::{StreamExt, TryStreamExt, stream};

/// So many queues are asked at once.
const QUEUES_AT_ONCE: usize = 8;

/// A page of the tasks of all selections together.
pub async fn find_page(store: &Store, page: &PageQuery, of: &[Selection]) -> Result<Page, StoreError> {
    let one = async |of: Selection| store.find_page(&PageQuery { of, ..page.clone() }).await;
    if let [of] = of {
        return one(of.clone()).await;
    }
    let found = stream::iter(of.to_vec()).map(one).buffer_unordered(QUEUES_AT_ONCE);
    Ok(merged(page, found.try_collect().await?))
}

/// Those of several pages that are next to where the page begins.
fn merged(page: &PageQuery, found: Vec<Page>) -> Page {
    let more = found.iter().any(|page| page.more);
    let ids: BTreeSet<_> = found.into_iter().flat_map(|page| page.ids).map(|id| id.0).collect();
    let backwards = matches!(page.position, Position::Before(_));
    let ascends = page.order == Order::Oldest;
    let more = more || ids.len() > page.limit;
    // As they are read: from where the page begins.
    let reads_up = ascends != backwards;
    let mut ids: Vec<TaskId> = if reads_up {
        ids.into_iter().take(page.limit).map(TaskId).collect()
    } else {
        ids.into_iter().rev().take(page.limit).map(TaskId).collect()
    };
    if backwards {
        ids.reverse();
    }
    Page { ids, more }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn pages_of_several_queues_are_one() {
        let id = |n: u8| TaskId(ObjectId::from_bytes([n; 12]));
        let ids = |numbers: &[u8]| numbers.iter().map(|n| id(*n)).collect::<Vec<_>>();
        let of = |order, position, pages: [&[u8]; 2]| {
            let page = PageQuery { of: Selection::default(), order, position, limit: 3 };
            let found = merged(&page, pages.map(|some| Page { ids: ids(some), more: false }).to_vec());
            (found.ids, found.more)
        };
        let newest = of(Order::Newest, Position::First, [&[9, 5], &[7, 6]]);
        assert_eq!(newest, (ids(&[9, 7, 6]), true));
        let before = of(Order::Newest, Position::Before(id(4)), [&[9, 5], &[7, 6]]);
        assert_eq!(before, (ids(&[7, 6, 5]), true), "those next to it");
        let oldest = of(Order::Oldest, Position::After(id(4)), [&[5, 9], &[6]]);
        assert_eq!(oldest, (ids(&[5, 6, 9]), false));
        assert_eq!(of(Order::Oldest, Position::Before(id(9)), [&[1, 5], &[6, 7]]).0, ids(&[5, 6, 7]));
        assert_eq!(of(Order::Newest, Position::First, [&[], &[]]), (vec![], false));
    }
}
