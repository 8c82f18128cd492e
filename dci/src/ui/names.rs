//! What queues are called on pages.

use std::collections::HashMap;

use bson::oid::ObjectId;
use disbatch_core::model::Queue;

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

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

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
