//! Rules that say whose tasks are taken, and which of them decides about a task. Pure.
//!
//! The rule for the owner of a task decides. If there is none, those for its queue and its tenant do, and of these the
//! stricter one. If there is none either, the rule for all tasks does. Where there is no rule, tasks are taken.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document, doc};
pub use disbatch_wire::admission::AdmissionAction as Action;

use crate::model::{QueueId, Task};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    All,
    Queue(QueueId),
    /// Those that are for a tenant.
    Tenant(String),
    /// Those that a user submits.
    Owner(String),
}

impl Scope {
    pub const KINDS: [&'static str; 4] = ["all", "queue", "tenant", "owner"];

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Queue(_) => "queue",
            Self::Tenant(_) => "tenant",
            Self::Owner(_) => "owner",
        }
    }

    /// Which of its kind: the id of a queue, or a name.
    pub fn value(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Queue(queue) => Some(queue.to_string()),
            Self::Tenant(name) | Self::Owner(name) => Some(name.clone()),
        }
    }

    /// The id of its rule: there is one at most.
    pub(super) fn key(&self) -> String {
        self.value().map_or_else(|| self.kind().to_owned(), |value| format!("{} {value}", self.kind()))
    }

    /// What is stored. `None`: it cannot be understood.
    pub(super) fn stored(rule: &Document) -> Option<Self> {
        let value = || rule.get_str("value").ok().map(str::to_owned);
        Some(match rule.get_str("scope").ok()? {
            "all" => Self::All,
            "queue" => Self::Queue(value()?.parse().ok()?),
            "tenant" => Self::Tenant(value()?),
            "owner" => Self::Owner(value()?),
            _ => return None, // Of a newer release.
        })
    }

    /// What finds its tasks, if they are known by one field.
    pub(super) fn filter(&self) -> Document {
        match self {
            Self::All => doc! {},
            Self::Queue(queue) => doc! { "queue": *queue },
            Self::Tenant(tenant) => doc! { "tenant": tenant },
            Self::Owner(owner) => doc! { "owner": owner },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub scope: Scope,
    pub action: Action,
    /// Why, in the words of whoever made it.
    pub reason: Option<String>,
    /// Who made it and from where, in words.
    pub by: String,
    /// When, by the server's clock.
    pub at: DateTime,
}

impl Rule {
    /// What is stored. `None`: it was lifted, or cannot be understood.
    pub(super) fn stored(rule: &Document) -> Option<Self> {
        Some(Self {
            scope: Scope::stored(rule)?,
            action: Action::named(rule.get_str("action").ok()?)?,
            reason: rule.get_str("reason").ok().filter(|reason| !reason.is_empty()).map(str::to_owned),
            by: rule.get_str("by").unwrap_or_default().to_owned(),
            at: rule.get_datetime("at").copied().unwrap_or(DateTime::MIN),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose<'a> {
    pub queue: QueueId,
    pub tenant: Option<&'a str>,
    pub owner: Option<&'a str>,
}

impl<'a> Whose<'a> {
    pub(super) fn of(task: &'a Task) -> Self {
        let text = |name: &str| task.rest.get_str(name).ok();
        Self { queue: task.queue, tenant: text("tenant"), owner: text("owner") }
    }
}

/// All rules that there are: at most one for a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<Scope, Rule>);

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().map(|rule| (rule.scope.clone(), rule)).collect())
    }
}

impl Rules {
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.values()
    }

    pub fn get(&self, scope: &Scope) -> Option<&Rule> {
        self.0.get(scope)
    }

    /// The rule that decides about a task. `None`: it is taken.
    pub fn deciding(&self, task: &Whose<'_>) -> Option<&Rule> {
        let of = |scope: Option<Scope>| scope.and_then(|scope| self.0.get(&scope));
        let by_owner = of(task.owner.map(|owner| Scope::Owner(owner.to_owned())));
        let by_queue = of(Some(Scope::Queue(task.queue)));
        let by_tenant = of(task.tenant.map(|tenant| Scope::Tenant(tenant.to_owned())));
        let stricter = [by_queue, by_tenant].into_iter().flatten().max_by_key(|rule| rule.action);
        by_owner.or(stricter).or_else(|| self.0.get(&Scope::All))
    }

    pub fn action(&self, task: &Whose<'_>) -> Action {
        self.deciding(task).map_or(Action::Accept, |rule| rule.action)
    }

    /// What finds those tasks that [`Rules::action`] accepts.
    pub(crate) fn accepted(&self) -> Document {
        let mut named: BTreeMap<(&'static str, bool), Vec<Bson>> = BTreeMap::new();
        for rule in self.iter() {
            let value = match &rule.scope {
                Scope::All => continue,
                Scope::Queue(queue) => Bson::from(*queue),
                Scope::Tenant(name) | Scope::Owner(name) => Bson::from(name.as_str()),
            };
            named.entry((rule.scope.kind(), rule.action == Action::Accept)).or_default().push(value);
        }
        let those =
            |kind: &'static str, accepted: bool| named.get(&(kind, accepted)).cloned().unwrap_or_default();
        // Nobody keeps them, as far as their owner, their queue and their tenant are concerned.
        let mut others = doc! {
            "owner": { "$nin": those("owner", false) },
            "queue": { "$nin": those("queue", false) },
            "tenant": { "$nin": those("tenant", false) },
        };
        let by_default = self.0.get(&Scope::All).is_none_or(|rule| rule.action == Action::Accept);
        if !by_default {
            let of_queues = doc! { "queue": { "$in": those("queue", true) } };
            let of_tenants = doc! { "tenant": { "$in": those("tenant", true) } };
            others.insert("$or", [of_queues, of_tenants]);
        }
        doc! { "$or": [{ "owner": { "$in": those("owner", true) } }, others] }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use proptest::prelude::*;

    use super::*;

    fn queue(number: u8) -> QueueId {
        QueueId(ObjectId::from_bytes([number; 12]))
    }

    fn rule(scope: Scope, action: Action) -> Rule {
        Rule { scope, action, reason: None, by: "somebody".to_owned(), at: DateTime::from_millis(0) }
    }

    fn action(rules: &[(Scope, Action)], tenant: Option<&str>, owner: Option<&str>) -> Action {
        let rules: Rules = rules.iter().map(|(scope, action)| rule(scope.clone(), *action)).collect();
        rules.action(&Whose { queue: queue(1), tenant, owner })
    }

    #[test]
    fn the_owner_comes_first_then_queue_and_tenant_then_all() {
        use Action::{Accept, Pause, Reject};
        let [anna, acme] = [Scope::Owner("anna".into()), Scope::Tenant("acme".into())];
        let of = |rules: &[(Scope, Action)]| action(rules, Some("acme"), Some("anna"));
        assert_eq!(of(&[]), Accept);
        assert_eq!(of(&[(Scope::All, Reject)]), Reject);
        assert_eq!(of(&[(Scope::All, Reject), (acme.clone(), Accept)]), Accept);
        assert_eq!(of(&[(Scope::All, Reject), (acme.clone(), Pause)]), Pause);
        let both = [(acme.clone(), Accept), (Scope::Queue(queue(1)), Reject)];
        assert_eq!(of(&both), Reject, "the stricter one of the two");
        assert_eq!(of(&[(acme.clone(), Pause), (Scope::Queue(queue(1)), Accept)]), Pause);
        assert_eq!(of(&[(acme.clone(), Reject), (anna.clone(), Accept)]), Accept);
        assert_eq!(of(&[(acme.clone(), Accept), (anna.clone(), Reject)]), Reject);
        let strangers = [(acme, Reject), (anna, Reject), (Scope::Queue(queue(2)), Reject)];
        assert_eq!(action(&strangers, None, None), Accept);
    }

    #[test]
    fn rules_are_read_as_far_as_they_can_be() {
        let at = DateTime::from_millis(5);
        let stored = doc! {
            "scope": "queue", "value": queue(1).to_string(), "action": "pause", "reason": "x", "by": "b", "at": at,
        };
        let read = Rule::stored(&stored).unwrap();
        let expected = Rule {
            reason: Some("x".into()),
            by: "b".into(),
            at,
            ..rule(Scope::Queue(queue(1)), Action::Pause)
        };
        assert_eq!(read, expected);
        assert_eq!(read.scope.key(), format!("queue {}", queue(1)));
        assert_eq!(Scope::All.key(), "all");
        for odd in [
            doc! { "scope": "all" },
            doc! { "scope": "queue", "value": "mail", "action": "pause" },
            doc! { "scope": "tenant", "action": "pause" },
            doc! { "scope": "planet", "value": "x", "action": "pause" },
            doc! { "scope": "all", "action": "ignore" },
        ] {
            assert_eq!(Rule::stored(&odd), None, "{odd}");
        }
        for action in Action::ALL {
            assert_eq!(Action::named(action.as_str()), Some(action));
        }
    }

    /// Whether a filter of the kind that is made here finds a task.
    fn finds(filter: &Document, task: &Document) -> bool {
        filter.iter().all(|(name, condition)| match (name.as_str(), condition) {
            ("$or", Bson::Array(parts)) => {
                parts.iter().filter_map(Bson::as_document).any(|part| finds(part, task))
            }
            (field, Bson::Document(condition)) => condition.iter().all(|(operator, values)| {
                let is_in = task.get(field).is_some_and(|value| values.as_array().unwrap().contains(value));
                match operator.as_str() {
                    "$in" => is_in,
                    "$nin" => !is_in,
                    other => panic!("{other}"),
                }
            }),
            other => panic!("{other:?}"),
        })
    }

    fn any_scope() -> impl Strategy<Value = Scope> {
        let name = || prop_oneof![Just("a".to_owned()), Just("b".to_owned())];
        prop_oneof![
            Just(Scope::All),
            (1_u8..3).prop_map(|number| Scope::Queue(queue(number))),
            name().prop_map(Scope::Tenant),
            name().prop_map(Scope::Owner),
        ]
    }

    fn any_action() -> impl Strategy<Value = Action> {
        prop::sample::select(Action::ALL.to_vec())
    }

    proptest! {
        /// What lets held tasks go is the same that took them.
        #[test]
        fn the_filter_finds_what_is_accepted_and_nothing_else(
            rules in prop::collection::vec((any_scope(), any_action()), 0..6),
            number in 1_u8..4,
            tenant in prop::option::of(prop::sample::select(vec!["a", "b", "c"])),
            owner in prop::option::of(prop::sample::select(vec!["a", "b", "c"])),
        ) {
            let rules: Rules = rules.into_iter().map(|(scope, action)| rule(scope, action)).collect();
            let mut task = doc! { "queue": queue(number) };
            for (name, value) in [("tenant", tenant), ("owner", owner)] {
                if let Some(value) = value {
                    task.insert(name, value);
                }
            }
            let accepted = rules.action(&Whose { queue: queue(number), tenant, owner }) == Action::Accept;
            prop_assert_eq!(finds(&rules.accepted(), &task), accepted, "{:?}", rules);
        }
    }
}
