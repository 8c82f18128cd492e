//! What queues are called on pages.

use std::collections::HashMap;
use std::fmt::Display;

use bson::oid::ObjectId;
use disbatch_core::model::{Queue, Selector};

use crate::ui::bulk::encoded;
use crate::ui::parts::cut;

/// The names of queues by their ids.
pub fn names(queues: &[Queue]) -> HashMap<ObjectId, String> {
    queues.iter().map(|queue| (queue.id.0, label(queue))).collect()
}

/// The queue's name, or its id if it has none.
pub fn label(queue: &Queue) -> String {
    let name = queue.display_name();
    if name.is_empty() { queue.id.to_string() } else { name }
}

/// So much of it that it is recognised.
pub fn short(queue: &Queue) -> String {
    cut(&label(queue), 80)
}

/// The last part of a plugin's name, which is what tells it from others where there is little room.
pub fn end_of_plugin(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The address of a queue's page, by the name that pages call it unless that cannot be told from an id or would be read as another address.
pub fn place(id: impl Display, label: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || "-_.: @+~".contains(c);
    let is_plain = label.chars().all(is_name) && label.chars().any(|c| c != '.') && label.trim() == label;
    match Selector::parse(label) {
        Selector::Name(_) if is_plain => format!("/queues/{}", encoded(label)),
        Selector::Name(_) | Selector::Id(_) => format!("/queues/{id}"),
    }
}

/// The same for a queue that is known.
pub fn place_of(queue: &Queue) -> String {
    place(queue.id, &label(queue))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_queue_is_where_its_name_says() {
        let id = ObjectId::from_bytes([1; 12]);
        assert_eq!(place(id, "mail 2"), "/queues/mail%202");
        assert_eq!(place(id, "é"), "/queues/%C3%A9");
        for odd in ["", ".", "..", "a/b", "a/groups", "a%2Fb", "x?y", " mail", "6b0003bb686c8275d70dc2f1"] {
            assert_eq!(place(id, odd), format!("/queues/{id}"), "{odd:?}");
        }
    }

    #[test]
    fn a_queue_without_a_name_has_its_id() {
        let id = ObjectId::from_bytes([1; 12]);
        let queue =
            |name: &str| bson::deserialize_from_document::<Queue>(doc! { "_id": id, "name": name }).unwrap();
        assert_eq!(label(&queue("")), id.to_hex());
        assert_eq!(short(&queue(&"é".repeat(99))).chars().count(), 81);
        assert_eq!(names(&[queue("<q>")])[&id], "<q>");
        assert_eq!(["A::B::C", "D", ""].map(end_of_plugin), ["C", "D", ""]);
    }
}
