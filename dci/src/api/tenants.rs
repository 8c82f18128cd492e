//! Tenants: how much of the system each may take, and takes.

use actix_web::web::{Data, Path};
use askama::Template;
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::store::Store;
use disbatch_core::tenants::{LONGEST_NAME, Quota};
use disbatch_wire::options::field_names;
use disbatch_wire::tenants::{Tenant, TenantDeleted, TenantLimits};
use futures::{StreamExt, TryStreamExt};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::ui::{self, Rendered};
use crate::{changes, json};

/// So many tenants are looked at at once.
const AT_ONCE: usize = 4;

/// For whom there are tasks: all tenants that have a queue or limits, by name, with what each may take and what it takes.
#[utoipa::path(
    get, path = "/tenants", tag = "admission", operation_id = "listTenants",
    responses(
        (status = 200, description = "All tenants; a page if `Accept` asks for HTML.", body = Vec<Tenant>, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>) -> Answer {
    json::of(&all(&state).await?)
}

pub async fn render(state: Data<State>) -> Rendered {
    ui::render(&TenantsPage { tenants: all(&state).await?, new: Tenant::default() })
}

/// What a tenant may take, and what it takes now. Numbers above 10,000 are told as 10,001.
#[utoipa::path(
    get, path = "/tenants/{tenant}", tag = "admission", operation_id = "getTenant",
    responses(
        (status = 200, description = "The tenant.", body = Tenant),
        (status = 404, description = "It has no limits, no queue, no task and no schedule."),
    ),
)]
pub async fn get(state: Data<State>, name: Path<String>) -> Answer {
    let tenant = one(&state, &name).await?;
    // What it has submitted today says nothing: it may be gone by now.
    let unknown =
        Tenant { tenant: name.clone(), submitted_today: tenant.submitted_today, ..Tenant::default() };
    if tenant == unknown { Err(no_tenant(&name)) } else { json::of(&tenant) }
}

/// Sets what a tenant may take at most; null, or an empty field of a form, is no limit. What is not named stays as it is. Submissions
/// beyond a limit are refused with 429, and of any number at once exactly those get through that fit. What there is already
/// stays.
#[utoipa::path(
    post, path = "/tenants/{tenant}", tag = "admission", operation_id = "setTenant",
    params(("tenant" = String, Path, description = "Its name. It need not be known yet.", example = "acme")),
    request_body(content = TenantLimits, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The tenant.", body = Tenant),
    ),
)]
pub async fn set(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::reply(&params, &store(&state, &who, name.into_inner(), &params).await?)
}

/// Sets what the tenant that a form names may take at most. It need not be known yet.
#[utoipa::path(
    post, path = "/ui/tenants", tag = "service", operation_id = "setTenantByForm",
    request_body(content = TenantLimits, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "Set; the list of tenants is next."),
        (status = 400, description = "A field is wrong. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn set_by_form(state: Data<State>, who: Who, mut params: Params) -> Answer {
    let name = params.fields.remove("name").and_then(|name| name.as_str().map(|name| name.trim().to_owned()));
    redirect::lead(store(&state, &who, name.unwrap_or_default(), &params).await, "/tenants")
}

/// Removes all limits of a tenant. Its queues, tasks and schedules stay.
#[utoipa::path(
    delete, path = "/tenants/{tenant}", tag = "admission", operation_id = "deleteTenant",
    responses(
        (status = 200, description = "Removed.", body = TenantDeleted),
        (status = 404, description = "It has no limits."),
    ),
)]
pub async fn delete(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    let (of, object) = (name.clone(), Object::with_name(ObjectKind::Tenant, name.clone()));
    let delete = |store: Store| async move { store.delete_tenant(&of).await };
    let gone = changes::remove(&state, &who, (Verb::TenantDelete, object), delete).await?;
    if gone { json::of(&TenantDeleted { deleted: 1 }) } else { Err(no_tenant(&name)) }
}

/// Removes the limits of a tenant, and leads to the list of tenants. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/tenants/{tenant}/delete", tag = "service", operation_id = "deleteTenantByForm",
    responses(
        (status = 303, description = "Removed; the list of tenants is next."),
        (status = 404, description = "It has no limits. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn delete_by_form(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    redirect::lead(delete(state, who, name).await, "/tenants")
}

async fn store(state: &State, who: &Who, name: String, params: &Params) -> Result<Tenant, HttpError> {
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if !fits {
        return Err(HttpError::bad_request(format!("a tenant's name has 1 to {LONGEST_NAME} characters")));
    }
    let limits = json::document(&params.change::<TenantLimits>()?)?;
    let (of, object) = (name.clone(), Object::with_name(ObjectKind::Tenant, name.as_str()));
    let set = |store: Store| async move { store.set_tenant(&of, limits).await };
    changes::alter(state, who, (Verb::TenantSet, object), set).await?;
    one(state, &name).await
}

fn no_tenant(name: &str) -> HttpError {
    HttpError::not_found(format!("no tenant '{name}'"))
}

async fn all(state: &State) -> Result<Vec<Tenant>, HttpError> {
    futures::stream::iter(state.store.list_tenants().await?)
        .map(async |name| one(state, &name).await)
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// A tenant with what it takes, whether it has limits or not.
async fn one(state: &State, name: &str) -> Result<Tenant, HttpError> {
    let (limits, usage) = futures::try_join!(state.store.find_tenant(name), state.store.tenant_usage(name))?;
    Ok(Tenant {
        max_queued: limits.get(Quota::Queued),
        max_per_day: limits.get(Quota::PerDay),
        max_schedules: limits.get(Quota::Schedules),
        ..usage
    })
}

#[derive(Template)]
#[template(path = "tenants.html")]
struct TenantsPage {
    tenants: Vec<Tenant>,
    /// One that has neither limits nor a queue yet.
    new: Tenant,
}

/// The fields of the form: what each is called, the limit, and how much of it is taken.
fn limits(of: &Tenant) -> impl Iterator<Item = (&'static str, &'static str, Option<u64>, u64)> {
    let told = [
        ("Waiting tasks", of.max_queued, of.waiting),
        ("New tasks today", of.max_per_day, of.submitted_today),
        ("Schedules", of.max_schedules, of.schedules),
    ];
    field_names::<TenantLimits>().iter().zip(told).map(|(name, (label, most, now))| (*name, label, most, now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_fields_of_a_form() {
        let tenant = Tenant { tenant: "<acme>".to_owned(), queues: 1, ..Tenant::default() };
        let limited = Tenant { max_queued: Some(1000), waiting: 17, ..tenant.clone() };
        let page = |tenants| TenantsPage { tenants, new: Tenant::default() }.render().unwrap();
        let html = page(vec![limited]);
        for part in [
            "&#60;acme&#62;",
            "action=\"/tenants/%3Cacme%3E\"",
            "Waiting tasks (now 17)",
            "name=\"max_queued\" value=\"1000\"",
            "name=\"max_per_day\" value=\"\"",
            "action=\"/ui/tenants/%3Cacme%3E/delete\"",
            "action=\"/ui/tenants\"",
            "<input name=\"name\" required",
            "<label>Waiting tasks <input type=\"number\" name=\"max_queued\"",
            "hx-delete=\"/tenants/%3Cacme%3E\"",
            "hx-confirm=\"Remove the limits of &#60;acme&#62;?",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let html = page(vec![tenant]);
        assert!(!html.contains("/delete\""), "{html}");
        assert!(page(vec![]).contains("no tenants yet"));
    }

    #[test]
    fn what_is_wrong_with_limits_is_said_with_their_names() {
        let of = |fields: serde_json::Value| {
            let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
            let limits = params.change::<TenantLimits>().map_err(|error| error.to_string())?;
            Ok::<_, String>(json::document(&limits).unwrap())
        };
        let given = json!({ "max_queued": 5, "max_per_day": "100", "max_schedules": null });
        let expected = bson::doc! { "max_queued": 5_i32, "max_per_day": 100_i32, "max_schedules": null };
        assert_eq!(of(given), Ok(expected));
        assert_eq!(of(json!({ "max_queued": "" })), Ok(bson::doc! { "max_queued": null }));
        let error = of(json!({ "max_queued": 1.5 })).unwrap_err();
        assert_eq!(error, "max_queued must be an integer from 0 to 1000000000, or null");
        assert_eq!(of(json!({ "max_running": 5, "max_queued": -1 })).unwrap_err(), "unknown param");
        assert_eq!(of(json!({})).unwrap_err(), "give at least one of max_queued, max_per_day, max_schedules");
    }
}
