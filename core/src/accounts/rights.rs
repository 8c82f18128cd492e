//! Who may do what: a role everywhere, and roles on some queues.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use disbatch_wire::accounts;
use disbatch_wire::accounts::Role;

use crate::model::{Queue, QueueId};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Queue(QueueId),
    /// On all queues of this tenant.
    Tenant(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub scope: Scope,
    pub role: Role,
}

impl Grant {
    pub fn document(&self) -> Document {
        match &self.scope {
            Scope::Queue(queue) => doc! { "queue": queue.0, "role": self.role.as_str() },
            Scope::Tenant(tenant) => doc! { "tenant": tenant, "role": self.role.as_str() },
        }
    }

    /// For programs, with the names of queues.
    pub fn to_wire(&self, name: impl FnOnce(QueueId) -> Option<String>) -> accounts::Grant {
        let (queue, tenant) = match &self.scope {
            Scope::Queue(queue) => (Some(*queue), None),
            Scope::Tenant(tenant) => (None, Some(tenant.clone())),
        };
        let id = queue.map(|queue| queue.to_string());
        accounts::Grant { queue: id, name: queue.map(name), tenant, role: self.role }
    }

    /// What is stored. One that cannot be understood gives nothing.
    fn stored(value: &Bson) -> Option<Self> {
        let document = value.as_document()?;
        let scope = match (document.get("queue"), document.get("tenant")) {
            (Some(Bson::ObjectId(queue)), None) => Scope::Queue(QueueId(*queue)),
            (None, Some(Bson::String(tenant))) => Scope::Tenant(tenant.clone()),
            _ => return None, // Neither of the two, or both.
        };
        Some(Self { scope, role: document.get_str("role").ok()?.parse().ok()? })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    everywhere: Option<Role>,
    grants: Vec<Grant>,
    /// If set: on no other queue.
    only: Option<BTreeSet<QueueId>>,
}

impl Rights {
    /// A role everywhere, and others on some queues.
    pub fn new(everywhere: Option<Role>, grants: Vec<Grant>) -> Self {
        Self { everywhere, grants, only: None }
    }

    /// Those of somebody who may do anything.
    pub fn all() -> Self {
        Self::new(Some(Role::Admin), Vec::new())
    }

    pub(super) fn stored(document: &Document) -> Self {
        let grants = document.get_array("grants").map(Vec::as_slice).unwrap_or_default();
        let role = document.get_str("role").ok().and_then(|role| role.parse().ok());
        Self::new(role, grants.iter().filter_map(Grant::stored).collect())
    }

    /// The same with no role above `most`, and if `only` is given, on no other queue.
    pub fn narrowed(mut self, most: Role, only: Option<BTreeSet<QueueId>>) -> Self {
        self.everywhere = self.everywhere.map(|role| role.min(most));
        for grant in &mut self.grants {
            grant.role = grant.role.min(most);
        }
        self.only = match (self.only, only) {
            (Some(ours), Some(theirs)) => Some(ours.intersection(&theirs).copied().collect()),
            (ours, theirs) => ours.or(theirs),
        };
        self
    }

    /// The role on every queue, and on what belongs to no queue.
    pub fn everywhere(&self) -> Option<Role> {
        self.everywhere.filter(|_| self.only.is_none())
    }

    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The highest role on any queue.
    pub fn somewhere(&self) -> Option<Role> {
        let can_be = self.only.as_ref().is_none_or(|only| !only.is_empty());
        self.grants.iter().map(|grant| grant.role).chain(self.everywhere).max().filter(|_| can_be)
    }

    /// The role on a queue of this tenant, if it has one.
    pub fn on(&self, queue: QueueId, tenant: Option<&str>) -> Option<Role> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&queue)) {
            return None;
        }
        let applies = |grant: &&Grant| match &grant.scope {
            Scope::Queue(granted) => *granted == queue,
            Scope::Tenant(granted) => tenant == Some(granted.as_str()),
        };
        self.grants.iter().filter(applies).map(|grant| grant.role).chain(self.everywhere).max()
    }

    /// The role on a task of a queue. One that is for a tenant is also for those who have a role on that, whatever its queue.
    pub fn on_task(&self, queue: (QueueId, Option<&str>), tenant: Option<&str>) -> Option<Role> {
        self.on(queue.0, queue.1).max(tenant.and_then(|tenant| self.on_tenant(tenant)))
    }

    /// The role on whatever is for this tenant, in whatever queue. Who is limited to some queues has none.
    pub fn on_tenant(&self, tenant: &str) -> Option<Role> {
        if self.only.is_some() {
            return None;
        }
        let applies = |grant: &&Grant| grant.scope == Scope::Tenant(tenant.to_owned());
        self.grants.iter().filter(applies).map(|grant| grant.role).chain(self.everywhere).max()
    }

    /// On which queues there is at least `role`.
    pub fn reach(&self, role: Role) -> Reach {
        if self.everywhere.is_some_and(|everywhere| everywhere >= role) {
            return match &self.only {
                None => Reach::All,
                Some(only) => Reach::Some { queues: only.clone(), tenants: BTreeSet::new(), only: None },
            };
        }
        let mut queues = BTreeSet::new();
        let mut tenants = BTreeSet::new();
        for grant in self.grants.iter().filter(|grant| grant.role >= role) {
            match &grant.scope {
                Scope::Queue(queue) => drop(queues.insert(*queue)),
                Scope::Tenant(tenant) => drop(tenants.insert(tenant.clone())),
            }
        }
        Reach::Some { queues, tenants, only: self.only.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    All,
    Some {
        queues: BTreeSet<QueueId>,
        tenants: BTreeSet<String>,
        /// If set: with no other than these.
        only: Option<BTreeSet<QueueId>>,
    },
}

impl Reach {
    /// The tenants whose tasks are within it whatever queue they are in.
    pub fn tenants(&self) -> Vec<&str> {
        match self {
            Self::Some { tenants, only: None, .. } => tenants.iter().map(String::as_str).collect(),
            // Who may do something with all has no need of it, and who is limited to some queues has none.
            Self::All | Self::Some { .. } => Vec::new(),
        }
    }

    /// What finds them in `queues`.
    pub fn filter(&self) -> Document {
        let Self::Some { queues, tenants, only } = self else { return doc! {} };
        let ids = |queues: &BTreeSet<QueueId>| queues.iter().map(|queue| queue.0).collect::<Vec<_>>();
        let tenants: Vec<&String> = tenants.iter().collect();
        let any = doc! { "$or": [{ "_id": { "$in": ids(queues) } }, { "tenant": { "$in": tenants } }] };
        match only {
            None => any,
            Some(only) => doc! { "$and": [any, { "_id": { "$in": ids(only) } }] },
        }
    }
}

/// A filter of tasks that finds none of other queues, unless they are for one of these tenants.
pub fn tasks_within(filter: Document, queues: &[Queue], tenants: &[&str]) -> Document {
    let ids: Vec<Bson> = queues.iter().map(|queue| queue.id.into()).collect();
    let of_queues = doc! { "queue": { "$in": ids } };
    if tenants.is_empty() {
        return doc! { "$and": [filter, of_queues] };
    }
    doc! { "$and": [filter, { "$or": [of_queues, { "tenant": { "$in": tenants } }] }] }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn queue(number: u8) -> QueueId {
        QueueId(ObjectId::from_bytes([number; 12]))
    }

    fn on_queue(number: u8, role: Role) -> Grant {
        Grant { scope: Scope::Queue(queue(number)), role }
    }

    fn on_tenant(tenant: &str, role: Role) -> Grant {
        Grant { scope: Scope::Tenant(tenant.to_owned()), role }
    }

    #[test]
    fn the_highest_role_counts() {
        let rights = Rights::new(
            Some(Role::Viewer),
            vec![
                on_queue(1, Role::Operator),
                on_tenant("acme", Role::Submitter),
                on_queue(1, Role::Submitter),
            ],
        );
        assert_eq!(rights.everywhere(), Some(Role::Viewer));
        assert_eq!(rights.somewhere(), Some(Role::Operator));
        assert_eq!(rights.on(queue(1), None), Some(Role::Operator));
        assert_eq!(rights.on(queue(2), Some("acme")), Some(Role::Submitter));
        assert_eq!(rights.on(queue(2), Some("other")), Some(Role::Viewer));
        assert_eq!(Rights::default().on(queue(1), Some("acme")), None);
        assert_eq!(Rights::default().somewhere(), None);
    }

    #[test]
    fn what_is_for_a_tenant_is_for_those_who_have_a_role_there() {
        let rights = Rights::new(None, vec![on_tenant("acme", Role::Operator), on_queue(1, Role::Admin)]);
        assert_eq!(rights.on_tenant("acme"), Some(Role::Operator));
        assert_eq!(rights.on_tenant("other"), None, "a role on a queue is none on its tenant");
        assert_eq!(Rights::all().on_tenant("other"), Some(Role::Admin));
        let shared = (queue(2), None);
        assert_eq!(rights.on_task(shared, Some("acme")), Some(Role::Operator));
        assert_eq!(rights.on_task(shared, Some("other")), None);
        assert_eq!(rights.on_task(shared, None), None);
        assert_eq!(rights.on_task((queue(1), None), Some("acme")), Some(Role::Admin));
        assert_eq!(rights.reach(Role::Operator).tenants(), ["acme"]);
        let narrowed = rights.narrowed(Role::Admin, Some(BTreeSet::from([queue(1)])));
        assert_eq!(narrowed.on_tenant("acme"), None);
        assert_eq!(narrowed.on_task(shared, Some("acme")), None);
        assert!(narrowed.reach(Role::Viewer).tenants().is_empty() && Reach::All.tenants().is_empty());
    }

    #[test]
    fn a_token_has_no_more_than_its_owner_and_no_more_than_it_says() {
        let owner = Rights::new(
            Some(Role::Viewer),
            vec![on_queue(1, Role::Admin), on_tenant("acme", Role::Operator)],
        );
        let capped = owner.clone().narrowed(Role::Submitter, None);
        assert_eq!(
            (capped.everywhere(), capped.on(queue(1), None)),
            (Some(Role::Viewer), Some(Role::Submitter))
        );
        let narrow = owner.narrowed(Role::Admin, Some(BTreeSet::from([queue(2), queue(3)])));
        assert_eq!((narrow.everywhere(), narrow.on(queue(1), None)), (None, None));
        assert_eq!(narrow.on(queue(2), None), Some(Role::Viewer));
        assert_eq!(narrow.on(queue(3), Some("acme")), Some(Role::Operator));
        let nothing = narrow.narrowed(Role::Admin, Some(BTreeSet::from([queue(1)])));
        assert_eq!((nothing.on(queue(1), None), nothing.somewhere()), (None, None));
    }

    #[test]
    fn reach_is_a_filter_of_queues() {
        assert_eq!(Rights::all().reach(Role::Admin), Reach::All);
        assert_eq!(Reach::All.filter(), doc! {});
        let rights = Rights::new(None, vec![on_queue(1, Role::Viewer), on_tenant("acme", Role::Operator)]);
        let views = rights.reach(Role::Viewer).filter();
        assert_eq!(
            views,
            doc! { "$or": [{ "_id": { "$in": [queue(1).0] } }, { "tenant": { "$in": ["acme"] } }] }
        );
        let operates = rights.reach(Role::Operator).filter();
        assert_eq!(operates, doc! { "$or": [{ "_id": { "$in": [] } }, { "tenant": { "$in": ["acme"] } }] });
        let narrow = Rights::all().narrowed(Role::Viewer, Some(BTreeSet::from([queue(1)])));
        assert_eq!(
            narrow.reach(Role::Operator),
            Reach::Some {
                queues: BTreeSet::new(),
                tenants: BTreeSet::new(),
                only: Some(BTreeSet::from([queue(1)]))
            }
        );
        let Reach::Some { queues, .. } = narrow.reach(Role::Viewer) else { panic!("{narrow:?}") };
        assert_eq!(queues, BTreeSet::from([queue(1)]));
    }

    #[test]
    fn what_cannot_be_understood_gives_nothing() {
        let stored = doc! { "role": "root", "grants": [
            { "queue": queue(1).0, "role": "viewer" }, { "queue": "mail", "role": "admin" }, 5, { "role": "admin" },
            { "queue": queue(1).0, "tenant": "acme", "role": "admin" }, { "tenant": "acme", "role": 4 },
        ] };
        assert_eq!(Rights::stored(&stored), Rights::new(None, vec![on_queue(1, Role::Viewer)]));
        assert_eq!(Rights::stored(&doc! { "role": "admin", "grants": "all" }), Rights::all());
        for grant in [on_queue(1, Role::Viewer), on_tenant("acme", Role::Admin)] {
            assert_eq!(Grant::stored(&Bson::from(grant.document())), Some(grant));
        }
    }
}
