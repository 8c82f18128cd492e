//! Settings as they were: today's, with what was changed since undone. Pure.

use bson::{DateTime, Document};

use crate::audit::Changed;

/// What limits a queue.
pub(super) const OF_QUEUE: [&str; 6] =
    ["threads", "group_threads", "rate", "group_rate", "paused", "accepting"];

/// What limits a node.
pub(super) const OF_NODE: [&str; 3] = ["maxthreads", "draining", "interrupt"];

/// These settings at a time, from those of now and what was changed since, the latest change first.
pub(super) fn rolled_back(now: &Document, changes: &[Changed], at: DateTime, names: &[&str]) -> Document {
    let mut then: Document = now.clone();
    for change in changes.iter().filter(|change| change.at > at) {
        for added in change.after.keys().filter(|field| !change.before.contains_key(field)) {
            then.remove(added);
        }
        then.extend(change.before.clone());
    }
    let kept = names.iter().filter_map(|name| Some(((*name).to_owned(), then.remove(name)?)));
    kept.filter(|(_, value)| *value != bson::Bson::Null).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::moment::lives::tests::at;

    #[test]
    fn what_was_changed_since_is_undone() {
        let change = |seconds, before, after| Changed { at: at(seconds), before, after };
        let changes = [
            change(30, doc! { "paused": true }, doc! {}),
            change(20, doc! { "threads": 2 }, doc! { "threads": 5, "paused": true }),
            change(10, doc! { "threads": 1, "name": "old" }, doc! { "threads": 2, "name": "new" }),
        ];
        let now = doc! { "name": "new", "threads": 5, "sort": "fifo" };
        let then = |seconds| rolled_back(&now, &changes, at(seconds), &OF_QUEUE);
        assert_eq!(then(40), doc! { "threads": 5 });
        assert_eq!(then(30), doc! { "threads": 5 }, "the change was made by then");
        assert_eq!(then(29), doc! { "threads": 5, "paused": true });
        assert_eq!(then(15), doc! { "threads": 2 });
        assert_eq!(then(9), doc! { "threads": 1 });
    }

    #[test]
    fn what_was_not_set_is_left_out() {
        let now = doc! { "maxthreads": bson::Bson::Null, "draining": true };
        assert_eq!(rolled_back(&now, &[], at(0), &OF_NODE), doc! { "draining": true });
    }
}
