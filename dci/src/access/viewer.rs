//! Whom a page is made for. What is made for everybody who looks, in the background, is made for nobody.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::{Html, HtmlSafeOutput, escape};
use disbatch_core::accounts::{Reach, Rights, Role};
use disbatch_core::admission::Rule;
use disbatch_core::model::{Queue, QueueId};

use super::{Via, Who};
use crate::ui::admission::Intake;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Viewer {
    pub name: Option<String>,
    /// Whether they can log out.
    pub has_session: bool,
    pub(super) form_token: Option<String>,
    pub(super) rights: Rights,
    /// The rule for all new tasks, unless they are accepted.
    pub(super) closed: Option<Rule>,
}

tokio::task_local! {
    static VIEWER: Viewer;
}

impl Viewer {
    pub fn of(who: &Who) -> Self {
        let form_token = match &who.via {
            Via::Session(key) => Some(key.form_token()),
            Via::OpenDoor | Via::Password | Via::Token { .. } | Via::Proxy => None,
        };
        let has_session = form_token.is_some();
        Self { name: who.name.clone(), has_session, form_token, ..Self::with(who.rights.clone()) }
    }

    /// Somebody with these rights, whoever it is: for what is made in the background for all who have the same.
    pub fn with(rights: Rights) -> Self {
        Self { rights, ..Self::default() }
    }

    pub async fn look<T>(self, at: impl Future<Output = T>) -> T {
        VIEWER.scope(self, at).await
    }
}

/// Whom the page is made for that is being made.
pub fn now() -> Viewer {
    VIEWER.try_with(Clone::clone).unwrap_or_default()
}

/// What a form of the page needs to be believed. For templates: it stands first in every form that changes something.
pub fn form_field() -> HtmlSafeOutput<String> {
    HtmlSafeOutput(match form_token() {
        token if token.is_empty() => token,
        // It has letters, digits, hyphens and underscores.
        token => format!("<input type=\"hidden\" name=\"{}\" value=\"{token}\">", super::session::FORM_FIELD),
    })
}

/// The same for scripts.
pub fn form_token() -> String {
    VIEWER.try_with(|viewer| viewer.form_token.clone()).ok().flatten().unwrap_or_default()
}

/// What every page says while new tasks are rejected or held.
pub fn intake() -> HtmlSafeOutput<String> {
    let closed = VIEWER.try_with(|viewer| viewer.closed.clone()).ok().flatten();
    let bar = Intake { rule: closed.as_ref(), sees_all: may(Role::Viewer) };
    HtmlSafeOutput(bar.render().unwrap_or_default())
}

/// Whether the page's reader has at least this role, not only on some queues. What is made for everybody is made as if they
/// had: who may not is refused when they try.
pub fn may(role: Role) -> bool {
    VIEWER.try_with(|viewer| viewer.rights.everywhere() >= Some(role)).unwrap_or(true)
}

pub fn may_somewhere(role: Role) -> bool {
    VIEWER.try_with(|viewer| viewer.rights.somewhere() >= Some(role)).unwrap_or(true)
}

pub fn role_on(queue: &Queue) -> Option<Role> {
    VIEWER.try_with(|viewer| viewer.rights.on(queue.id, queue.tenant())).unwrap_or(Some(Role::Admin))
}

pub fn role_on_task(queue: &Queue, tenant: Option<&str>) -> Option<Role> {
    let of = |viewer: &Viewer| viewer.rights.on_task((queue.id, queue.tenant()), tenant);
    VIEWER.try_with(of).unwrap_or(Some(Role::Admin))
}

/// Who the page's reader is, for them: name and role. Nothing if nobody is asked.
pub fn words() -> Option<String> {
    let viewer = now();
    let role = match (viewer.rights.everywhere(), viewer.rights.somewhere()) {
        (Some(role), _) => role.to_string(),
        (None, Some(role)) => format!("{role} on some queues"),
        (None, None) => "without a role".to_owned(),
    };
    viewer.name.map(|name| format!("{name} ({role})"))
}

/// Attributes of a page's body, by which its script limits what is made for everybody: the reader's highest role on any
/// queue, the role on all, and those on some. Nothing if nobody is asked.
pub fn roles() -> HtmlSafeOutput<String> {
    roles_with(VIEWER.try_with(|viewer| viewer.rights.somewhere()).ok().flatten())
}

/// The same for a page about one queue, with the role on that.
pub fn roles_with(on_queue: Option<Role>) -> HtmlSafeOutput<String> {
    let name = |role: Option<Role>| role.map_or("", Role::as_str);
    let attributes = |viewer: &Viewer| {
        let everywhere = viewer.rights.everywhere();
        viewer.name.as_ref().map(|_| {
            let roles = format!(" data-role=\"{}\" data-everywhere=\"{}\"", name(on_queue), name(everywhere));
            roles + &grants(&viewer.rights)
        })
    };
    HtmlSafeOutput(VIEWER.try_with(attributes).ok().flatten().unwrap_or_default())
}

/// The roles on some queues, by id, and on those of some tenants. Nothing if there are none.
fn grants(rights: &Rights) -> String {
    let mut grants = BTreeMap::new();
    // A higher role on the same takes the place of a lower one.
    for role in Role::ALL {
        let Reach::Some { queues, tenants, .. } = rights.reach(role) else { continue };
        grants.extend(queues.iter().map(|queue| (queue.to_string(), role.as_str())));
        grants.extend(tenants.iter().map(|tenant| (format!("tenant {tenant}"), role.as_str())));
    }
    if grants.is_empty() {
        return String::new();
    }
    let json = crate::json::compact(&serde_json::json!(grants));
    escape(&json, Html).map_or_else(|_| String::new(), |json| format!(" data-grants=\"{json}\""))
}

/// Attributes of a row about a queue: the script of a page looks there for which queue a control in it is.
pub fn in_queue(queue: &QueueId, tenant: Option<&str>) -> HtmlSafeOutput<String> {
    let tenant = tenant.and_then(|tenant| escape(tenant, Html).ok());
    let tenant = tenant.map_or_else(String::new, |tenant| format!(" data-in-tenant=\"{tenant}\""));
    HtmlSafeOutput(format!(" data-in-queue=\"{queue}\"{tenant}"))
}

/// Attributes of a field or a button that operators of this queue may use.
pub fn for_operators_of(queue: &Queue) -> HtmlSafeOutput<String> {
    limited("data-needs", Role::Operator, role_on(queue) >= Some(Role::Operator), "disabled")
}

/// Attributes of a field or a button that operators of the queue may use that it is about.
pub fn for_operators() -> HtmlSafeOutput<String> {
    limited("data-needs", Role::Operator, may_somewhere(Role::Operator), "disabled")
}

pub fn for_submitters() -> HtmlSafeOutput<String> {
    limited("data-needs", Role::Submitter, may_somewhere(Role::Submitter), "disabled")
}

/// Attributes of a button that operators of the queue may use that it is about, and `owner` if they may submit to it.
pub fn for_operators_and(owner: Option<&str>) -> HtmlSafeOutput<String> {
    let is_own = |viewer: &Viewer| viewer.name.is_some() && viewer.name.as_deref() == owner;
    let is_own = VIEWER.try_with(is_own).unwrap_or(false);
    let role = if is_own { Role::Submitter } else { Role::Operator };
    let control = limited("data-needs", Role::Operator, may_somewhere(role), "disabled");
    match owner.and_then(|owner| escape(owner, Html).ok()) {
        Some(owner) => HtmlSafeOutput(format!("{control} data-owner=\"{owner}\"")),
        None => control,
    }
}

pub fn for_operators_of_all() -> HtmlSafeOutput<String> {
    limited("data-needs-everywhere", Role::Operator, may(Role::Operator), "disabled")
}

pub fn shown_to_operators() -> HtmlSafeOutput<String> {
    limited("data-needs", Role::Operator, may_somewhere(Role::Operator), "hidden")
}

pub fn shown_to_operators_of_all() -> HtmlSafeOutput<String> {
    limited("data-needs-everywhere", Role::Operator, may(Role::Operator), "hidden")
}

pub fn shown_to_submitters() -> HtmlSafeOutput<String> {
    limited("data-needs", Role::Submitter, may_somewhere(Role::Submitter), "hidden")
}

/// Attributes `for` those who may use a field or a button, or of anything else that is `shown_to` them. What is made for everybody does
/// not say that it is off: the page's script sees to that.
fn limited(attribute: &str, role: Role, may: bool, off: &str) -> HtmlSafeOutput<String> {
    let (space, off) = if may { ("", "") } else { (" ", off) };
    HtmlSafeOutput(format!(" {attribute}=\"{role}\"{space}{off}"))
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::accounts::{Grant, Key, Scope};
    use disbatch_core::model::QueueId;

    use super::*;

    #[tokio::test]
    async fn forms_are_of_the_session_that_they_are_made_for() {
        let key = Key::new().unwrap();
        let mut who = Who::anybody("10.0.0.1".into());
        who.via = Via::Session(key.clone());
        who.rights = Rights::new(Some(Role::Viewer), Vec::new());
        let field = Viewer::of(&who).look(async { form_field().to_string() }).await;
        let token = field.split_once("value=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap();
        assert!(key.is_form_token(token), "{field}");
        assert!(!field.contains(&key.text()));
        let may = Viewer::of(&who).look(async { (may(Role::Viewer), may(Role::Operator)) }).await;
        assert_eq!(may, (true, false));
        assert_eq!(
            (form_field().to_string(), form_token(), now().name),
            (String::new(), String::new(), None)
        );
    }

    #[tokio::test]
    async fn controls_are_for_those_who_may_use_them() {
        let id = ObjectId::new();
        let queue = |id: ObjectId| -> Queue {
            bson::deserialize_from_document(doc! { "_id": id, "name": "mail" }).unwrap()
        };
        let grant = Grant { scope: Scope::Queue(QueueId(id)), role: Role::Operator };
        let mut who = Who::anybody("10.0.0.1".into());
        who.name = Some("alice".into());
        who.rights = Rights::new(Some(Role::Viewer), vec![grant]);
        let viewer = Viewer::of(&who);
        let seen = viewer.look(async {
            let on = role_on(&queue(ObjectId::new()));
            assert_eq!((role_on(&queue(id)), on), (Some(Role::Operator), Some(Role::Viewer)));
            let grants = format!(" data-grants=\"{{&#34;{id}&#34;:&#34;operator&#34;}}\"");
            assert_eq!(
                roles_with(on).to_string(),
                format!(" data-role=\"viewer\" data-everywhere=\"viewer\"{grants}")
            );
            let of = |id| for_operators_of(&queue(id)).to_string();
            assert_eq!(of(id), " data-needs=\"operator\"");
            assert_eq!(of(ObjectId::new()), " data-needs=\"operator\" disabled");
            assert_eq!(words().as_deref(), Some("alice (viewer)"));
            [
                roles(),
                for_operators(),
                for_operators_of_all(),
                shown_to_operators_of_all(),
                shown_to_submitters(),
            ]
            .map(|attributes| attributes.to_string())
        });
        let own = format!(
            " data-role=\"operator\" data-everywhere=\"viewer\" data-grants=\"{{&#34;{id}&#34;:&#34;operator&#34;}}\""
        );
        assert_eq!(
            seen.await,
            [
                own.as_str(),
                " data-needs=\"operator\"",
                " data-needs-everywhere=\"operator\" disabled",
                " data-needs-everywhere=\"operator\" hidden",
                " data-needs=\"submitter\"",
            ]
        );
        assert_eq!(role_on(&queue(id)), Some(Role::Admin), "what is made for everybody");
        let nobody_asked = Viewer::of(&Who::anybody("10.0.0.1".into())).look(async { roles().to_string() });
        assert_eq!((roles().to_string(), nobody_asked.await), (String::new(), String::new()));
        assert_eq!(shown_to_operators().to_string(), " data-needs=\"operator\"");
    }

    #[tokio::test]
    async fn what_somebody_has_made_is_theirs_to_change() {
        let mut who = Who::anybody("10.0.0.1".into());
        who.name = Some("alice".into());
        who.rights = Rights::new(Some(Role::Submitter), Vec::new());
        let owners = [Some("alice"), Some("b\"ob"), None];
        let shown = Viewer::of(&who)
            .look(async move { owners.map(|owner| for_operators_and(owner).to_string()) })
            .await;
        assert_eq!(
            shown,
            [
                " data-needs=\"operator\" data-owner=\"alice\"",
                " data-needs=\"operator\" disabled data-owner=\"b&#34;ob\"",
                " data-needs=\"operator\" disabled",
            ]
        );
    }

    #[tokio::test]
    async fn roles_on_tenants_are_told_with_the_highest_of_each() {
        let grant = |scope: &Scope, role| Grant { scope: scope.clone(), role };
        let (acme, queue) = (Scope::Tenant("a\"cme".into()), QueueId(ObjectId::from_bytes([7; 12])));
        let grants = vec![
            grant(&acme, Role::Operator),
            grant(&acme, Role::Viewer),
            grant(&Scope::Queue(queue), Role::Submitter),
        ];
        let mut who = Who::anybody("10.0.0.1".into());
        who.name = Some("alice".into());
        who.rights = Rights::new(None, grants);
        let (roles, words) = Viewer::of(&who).look(async { (roles().to_string(), words()) }).await;
        let told = format!(
            "data-grants=\"{{&#34;{queue}&#34;:&#34;submitter&#34;,&#34;tenant a\\&#34;cme&#34;:&#34;operator&#34;}}\""
        );
        assert!(roles.ends_with(&told), "{roles}");
        assert_eq!(words.as_deref(), Some("alice (operator on some queues)"));
        let row = in_queue(&queue, Some("a\"cme")).to_string();
        assert_eq!(row, format!(" data-in-queue=\"{queue}\" data-in-tenant=\"a&#34;cme\""));
        assert_eq!((super::words(), in_queue(&queue, None).to_string().contains("tenant")), (None, false));
    }
}
