//! Who may submit tasks by the inbox, and whose these are.

use std::collections::BTreeMap;

use serde::Deserialize;
use disbatch_documents::Queue;

/// The section `inbox`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Inbox {
    /// By the name that documents have as `by`. When unset, whoever can write to the inbox may submit to any queue.
    #[serde(default)]
    producers: Option<BTreeMap<String, Producer>>,
}

/// An application that puts documents into the inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Producer {
    /// Who its tasks say has submitted them.
    #[serde(default)]
    pub owner: Option<String>,
    /// For whom its tasks are, in queues that are nobody's.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The only queues that it may submit to, by name or id.
    #[serde(default)]
    queues: Option<Vec<String>>,
    /// Nothing is configured.
    #[serde(skip)]
    is_anybody: bool,
}

impl Inbox {
    /// Whoever `by` is. `None`: nobody who may submit anything.
    pub fn producer(&self, by: Option<&str>) -> Option<Producer> {
        match &self.producers {
            None => Some(Producer { is_anybody: true, ..Producer::default() }),
            Some(producers) => producers.get(by?).cloned(),
        }
    }
}

impl Producer {
    /// Whether it may submit to a queue, and have its tasks come after those of the queue: to those of other tenants never.
    pub fn may(&self, queue: &Queue) -> bool {
        let is_named = |name: &String| *name == queue.display_name() || *name == queue.id.to_string();
        let is_listed = self.queues.as_ref().is_none_or(|queues| queues.iter().any(is_named));
        let is_own = queue.tenant().is_none_or(|tenant| self.tenant.as_deref() == Some(tenant));
        self.is_anybody || (is_listed && is_own)
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;

    fn queue(name: &str, fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]), "name": name };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    #[test]
    fn a_producer_is_one_of_the_table_and_has_its_queues() {
        let text = r#"{"producers": {"shop": {"owner": "shop", "tenant": "acme", "queues": ["mail", "bills"]}, "any": {}}}"#;
        let inbox: Inbox = serde_json::from_str(text).unwrap();
        let (nobodys, own, others) = (
            queue("mail", doc! {}),
            queue("bills", doc! { "tenant": "acme" }),
            queue("mail", doc! { "tenant": "other" }),
        );
        let shop = inbox.producer(Some("shop")).unwrap();
        assert_eq!((shop.owner.as_deref(), shop.tenant.as_deref()), (Some("shop"), Some("acme")));
        assert!(shop.may(&nobodys) && shop.may(&own) && !shop.may(&others));
        assert!(!shop.may(&queue("else", doc! {})));
        let any = inbox.producer(Some("any")).unwrap();
        assert!(any.may(&nobodys) && !any.may(&own));
        assert_eq!((inbox.producer(Some("nobody")), inbox.producer(None)), (None, None));
    }

    #[test]
    fn without_a_table_nobody_owns_anything() {
        let anybody = Inbox::default().producer(Some("shop")).unwrap();
        assert_eq!((&anybody.owner, &anybody.tenant), (&None, &None));
        assert!(anybody.may(&queue("mail", doc! { "tenant": "acme" })));
        let none: Inbox = serde_json::from_str(r#"{"producers": {}}"#).unwrap();
        assert_eq!(none.producer(Some("shop")), None);
    }
}
