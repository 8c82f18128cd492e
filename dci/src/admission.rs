//! From the parameters of a request to a rule of admission, and from a rule to what clients see.

use std::time::Duration;

use bson::DateTime;
use disbatch_core::accounts::Role;
use disbatch_core::admission::{Action, NewRule, Rule, Scope, Standing};
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Queue, QueueId, Selector};
use disbatch_wire::admission::{AdmissionLift, AdmissionRule, TaskLeft, TaskStranded};
use disbatch_wire::liberal::Set;
use futures::{StreamExt, TryStreamExt};

use crate::access::Who;
use crate::api::create_tasks::queue_not_found;
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::state::State;
use crate::ui::names::{QueueNames, names};
use crate::ui::parts::grouped;
use crate::values;

/// So long after a rule was made, submissions that have not heard of it may still come to their end.
const SETTLING: Duration = Duration::from_secs(5);

/// So many rules are looked at at once.
const AT_ONCE: usize = 4;

#[derive(Debug)]
pub struct RuleState {
    pub rule: Rule,
    /// The name of its queue, if it is about one that is still there.
    pub name: Option<String>,
    /// What its tasks do. Nothing for a rule that accepts them, and for one about tasks that are not for whoever asks.
    pub standing: Option<Standing>,
    /// Those of them that nodes have that are not alive, as far as they are told.
    stranded: Vec<TaskStranded>,
    /// Some of those that are still to come to their end.
    left: Vec<TaskLeft>,
    is_recent: bool,
}

/// Which tasks a request is about, and whether whoever asks may make rules for them. A queue that was deleted is known by its
/// id.
pub async fn scope(state: &State, who: &Who, given: AdmissionLift) -> Result<Scope, HttpError> {
    let AdmissionLift { scope: Set(kind), value: Set(value) } = given;
    let kind = kind.ok_or_else(|| HttpError::bad_request("scope must be given"))?;
    let kind = values::word("scope", &kind, &Scope::KINDS)?;
    if kind == "all" {
        if value.is_some() {
            return Err(HttpError::bad_request("value must not be given if scope is \"all\""));
        }
        return everywhere(who, Scope::All, "all tasks");
    }
    let value = value.ok_or_else(|| HttpError::bad_request("value must be given"))?;
    let value = values::text("value", &value)?;
    match kind {
        "queue" => of_queue(state, who, &value).await,
        "tenant" if who.rights.on_tenant(&value) >= Some(Role::Operator) => Ok(Scope::Tenant(value)),
        "tenant" => Err(HttpError::forbidden(format!("this needs the role operator on the tenant {value}"))),
        _ => everywhere(who, Scope::Owner(value), "the tasks of a user"), // There is no other kind.
    }
}

fn everywhere(who: &Who, scope: Scope, what: &str) -> Result<Scope, HttpError> {
    if who.is_everywhere(Role::Operator) {
        return Ok(scope);
    }
    Err(HttpError::forbidden(format!("a rule for {what} needs the role operator")))
}

async fn of_queue(state: &State, who: &Who, name: &str) -> Result<Scope, HttpError> {
    let selector = Selector::parse(name);
    let queue = state.store.find_queue(&selector).await?;
    match (queue, selector) {
        (Some(queue), _) => {
            who.check(Role::Operator, &queue).map_err(|error| error.hidden_as(queue_not_found))?;
            Ok(Scope::Queue(queue.id))
        }
        (None, Selector::Id(id)) if who.is_everywhere(Role::Operator) => Ok(Scope::Queue(QueueId(id))),
        (None, _) => Err(queue_not_found()),
    }
}

pub async fn new_rule(state: &State, who: &Who, params: &Params) -> Result<NewRule, HttpError> {
    params.only(&["scope", "value", "action", "reason"])?;
    let given = |name: &str| params.fields.get(name).filter(|value| !values::is_unset(value));
    let action = given("action").ok_or_else(|| HttpError::bad_request("action must be given"))?;
    let word = values::word("action", action, &Action::ALL.map(Action::as_str))?;
    let action = Action::named(word).ok_or_else(|| HttpError::internal("a word that is no action"))?;
    let reason = given("reason").map(|reason| values::text("reason", reason)).transpose()?;
    let scope = scope(state, who, params.known()?).await?;
    Ok(NewRule { scope, action, reason, by: who.words() })
}

/// The rules that somebody may see, from the widest on.
pub async fn shown(state: &State, who: &Who) -> Result<Vec<RuleState>, HttpError> {
    let reach = who.reach(Role::Viewer);
    let (rules, queues, now) = futures::try_join!(
        state.store.admission_rules(),
        state.store.queues_within(&reach),
        state.store.server_time(),
    )?;
    let names = names(&queues);
    let seen: Vec<Rule> = rules.iter().filter(|rule| sees(who, &rule.scope, &queues)).cloned().collect();
    let sees_all = who.is_everywhere(Role::Viewer);
    let shown = futures::stream::iter(seen).map(|rule| {
        // An owner's tasks may be in queues that are not for this token.
        let is_whole = sees_all || matches!(rule.scope, Scope::Queue(_) | Scope::Tenant(_));
        show(state, (rule, is_whole), &names, now)
    });
    shown.buffered(AT_ONCE).try_collect().await
}

async fn show(
    state: &State,
    (mut rule, is_whole): (Rule, bool),
    names: &QueueNames,
    now: DateTime,
) -> Result<RuleState, HttpError> {
    let standing = match rule.action {
        Action::Pause | Action::Reject if is_whole => Some(state.store.standing_of(&rule.scope).await?),
        Action::Accept | Action::Pause | Action::Reject => None,
    };
    if !is_whole {
        rule.by.clear();
    }
    let name = match &rule.scope {
        Scope::Queue(queue) => names.get(&queue.0).cloned(),
        Scope::All | Scope::Tenant(_) | Scope::Owner(_) => None,
    };
    let age = now.checked_duration_since(rule.at);
    let runs = standing.is_some_and(|standing| standing.running != Some(Amount::Exactly(0)));
    let stranded = if runs { state.store.stranded_tasks(&rule.scope).await? } else { Vec::new() };
    let is_left = standing.is_some_and(|standing| !standing.is_idle());
    let left = if is_left { state.store.tasks_left(&rule.scope, names).await? } else { Vec::new() };
    Ok(RuleState { name, standing, stranded, left, is_recent: age.is_none_or(|age| age < SETTLING), rule })
}

fn sees(who: &Who, scope: &Scope, queues: &[Queue]) -> bool {
    match scope {
        Scope::All => true,
        Scope::Queue(id) => who.is_everywhere(Role::Viewer) || queues.iter().any(|queue| queue.id == *id),
        Scope::Tenant(tenant) => who.rights.on_tenant(tenant) >= Some(Role::Viewer),
        Scope::Owner(owner) => who.is_everywhere(Role::Viewer) || who.name.as_ref() == Some(owner),
    }
}

impl RuleState {
    /// Whether nothing of what the rule is about runs, and nothing waits but what is held or in queues that start nothing, and
    /// nothing more can come.
    pub fn is_safe(&self) -> bool {
        !self.is_recent && self.standing.is_some_and(|standing| standing.is_idle())
    }

    /// Whether it is safe to upgrade, in words for all to see: of a rule for all tasks that does not accept them.
    pub fn verdict(&self) -> Option<String> {
        let standing = self.standing.filter(|_| self.rule.scope == Scope::All)?;
        Some(match (standing.is_idle(), self.is_recent) {
            (true, false) => "Safe to upgrade".to_owned(),
            (true, true) => "Safe to upgrade in a few seconds".to_owned(),
            (false, _) => format!("Not safe to upgrade yet: {}", self.words()),
        })
    }

    pub fn words(&self) -> String {
        let Some(standing) = self.standing else {
            return match self.rule.action {
                Action::Accept => "tasks are accepted",
                Action::Pause => "tasks are held",
                Action::Reject => "tasks are rejected",
            }
            .to_owned();
        };
        let held = match standing.held {
            Some(Amount::Exactly(0)) | None => String::new(),
            Some(held) => format!(", {} held", tasks(held)),
        };
        let stopped = standing.stopped.filter(|stopped| *stopped != Amount::Exactly(0));
        let stopped = stopped.map(|stopped| format!(", {} in queues that start nothing", tasks(stopped)));
        if standing.is_idle() {
            let empty = if stopped.is_some() { "nothing runs" } else { "empty" };
            let stopped = stopped.unwrap_or_default();
            return match self.is_recent {
                true => format!("{empty}{held}{stopped}, and safe to upgrade in a few seconds"),
                false => format!("{empty}{held}{stopped}: safe to upgrade"),
            };
        }
        let stopped = stopped.unwrap_or_default();
        let (Some(waiting), Some(running)) = (standing.waiting, standing.running) else {
            return "too many tasks to be counted".to_owned();
        };
        format!("{} wait{held}{stopped}, {} run{}", tasks(waiting), tasks(running), self.stranded_words())
    }

    /// Which tasks nobody may ever end.
    fn stranded_words(&self) -> String {
        if self.stranded.is_empty() {
            return String::new();
        }
        let each = self.stranded.iter().map(|stranded| format!("{} on {}", stranded.task, stranded.node));
        format!("; on nodes that are not alive: {}", each.collect::<Vec<_>>().join(", "))
    }

    pub fn view(&self) -> AdmissionRule {
        let number = |of: fn(Standing) -> Option<Amount>| self.standing.and_then(of).map(Amount::at_least);
        AdmissionRule {
            scope: self.rule.scope.kind().to_owned(),
            value: self.rule.scope.value(),
            name: self.name.clone(),
            action: Some(self.rule.action.as_str().to_owned()),
            reason: self.rule.reason.clone(),
            by: Some(self.rule.by.clone()).filter(|by| !by.is_empty()),
            at: date_text(self.rule.at),
            waiting: number(|standing| standing.waiting),
            held: number(|standing| standing.held),
            stopped: number(|standing| standing.stopped),
            running: number(|standing| standing.running),
            left: self.left.clone(),
            stranded: self.stranded.clone(),
            safe: self.is_safe(),
            text: self.words(),
        }
    }
}

fn tasks(amount: Amount) -> String {
    match amount {
        Amount::Exactly(tasks) => grouped(tasks),
        Amount::MoreThan(tasks) => format!("more than {}", grouped(tasks)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(standing: Option<(u64, u64, u64)>, is_recent: bool) -> RuleState {
        let exactly = |tasks| Some(Amount::Exactly(tasks));
        let rule = Rule {
            scope: Scope::Tenant("acme".to_owned()),
            action: if standing.is_some() { Action::Pause } else { Action::Accept },
            reason: Some("upgrade".to_owned()),
            by: "anna from 10.0.0.1".to_owned(),
            at: DateTime::from_millis(1_795_163_067_344),
        };
        let standing = standing.map(|(waiting, held, running)| Standing {
            waiting: exactly(waiting),
            held: exactly(held),
            stopped: exactly(0),
            running: exactly(running),
        });
        RuleState { rule, name: None, standing, stranded: Vec::new(), left: Vec::new(), is_recent }
    }

    #[test]
    fn it_is_told_when_it_is_safe_to_upgrade() {
        let words = |standing, is_recent| {
            let shown = shown(standing, is_recent);
            (shown.words(), shown.is_safe())
        };
        let text = |text: &str, safe| (text.to_owned(), safe);
        assert_eq!(words(Some((0, 0, 0)), false), text("empty: safe to upgrade", true));
        let left = TaskStranded { task: "6b0003bb686c8275d8013333".to_owned(), node: "n9".to_owned() };
        let left = RuleState { stranded: vec![left], ..shown(Some((1, 0, 2)), false) };
        assert_eq!(
            left.words(),
            "1 wait, 2 run; on nodes that are not alive: 6b0003bb686c8275d8013333 on n9"
        );
        assert_eq!(words(Some((2, 2, 0)), false), text("empty, 2 held: safe to upgrade", true));
        assert_eq!(words(Some((0, 0, 0)), true), text("empty, and safe to upgrade in a few seconds", false));
        assert_eq!(words(Some((3, 1, 2)), false), text("3 wait, 1 held, 2 run", false));
        let stopped = |waiting, running| {
            let mut shown = shown(Some((waiting, 1, running)), false);
            let of = |standing| Standing { stopped: Some(Amount::Exactly(2)), ..standing };
            shown.standing = shown.standing.map(of);
            (shown.words(), shown.is_safe())
        };
        let idle = "nothing runs, 1 held, 2 in queues that start nothing: safe to upgrade";
        assert_eq!(stopped(3, 0), text(idle, true));
        assert_eq!(stopped(4, 0), text("4 wait, 1 held, 2 in queues that start nothing, 0 run", false));
        assert_eq!(words(None, false), text("tasks are accepted", false));
        let mut unknown = shown(Some((1, 0, 0)), false);
        unknown.standing = unknown.standing.map(|standing| Standing { waiting: None, ..standing });
        assert_eq!(unknown.words(), "too many tasks to be counted");
        assert_eq!([Amount::Exactly(7).at_least(), Amount::MoreThan(7).at_least()], [7, 8]);
    }

    #[test]
    fn a_rule_for_all_has_a_verdict() {
        let verdict = |standing, is_recent| {
            let mut shown = shown(Some(standing), is_recent);
            assert_eq!(shown.verdict(), None, "others may submit");
            shown.rule.scope = Scope::All;
            shown.verdict().unwrap()
        };
        assert_eq!(verdict((9, 0, 0), false), "Not safe to upgrade yet: 9 wait, 0 run");
        assert_eq!(verdict((0, 0, 0), false), "Safe to upgrade");
        assert_eq!(verdict((0, 0, 0), true), "Safe to upgrade in a few seconds");
    }

    #[test]
    fn clients_see_all_of_it() {
        let expected = json!({
            "scope": "tenant", "value": "acme", "name": null, "action": "pause", "reason": "upgrade",
            "by": "anna from 10.0.0.1", "at": "2026-11-20T08:24:27", "waiting": 3, "held": 1, "running": 2,
            "stopped": 0, "left": [], "stranded": [], "safe": false, "text": "3 wait, 1 held, 2 run",
        });
        let view = |shown: &RuleState| serde_json::to_value(shown.view()).unwrap();
        assert_eq!(view(&shown(Some((3, 1, 2)), false)), expected);
        assert_eq!(view(&shown(None, false))["waiting"], Value::Null);
        let mut in_part = shown(Some((3, 1, 2)), false);
        in_part.standing = None;
        in_part.rule.by.clear();
        let json = view(&in_part);
        assert_eq!(
            (&json["by"], &json["running"], &json["safe"]),
            (&Value::Null, &Value::Null, &json!(false))
        );
        assert_eq!(json["text"], "tasks are held");
    }
}
