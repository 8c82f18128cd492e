//! `GET /tenants` for people: what each tenant may take, and what it takes.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use askama::Template;
use disbatch_core::tenants::{Limits, Quota};

use crate::access::Who;
use crate::admission::at_least;
use crate::api::tenants::{delete as deleting, list};
use crate::api::{Answer, then};
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;
use crate::tenants::Shown;
use crate::ui::bulk::encoded;
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "tenants.html")]
struct TenantsPage {
    rows: Vec<Row>,
}

/// A tenant as a row of the table.
struct Row {
    name: String,
    /// Its address.
    place: String,
    has_limits: bool,
    fields: Vec<Field>,
    running: u64,
    queues: u64,
}

/// A limit, and how much of it is taken.
struct Field {
    name: &'static str,
    label: &'static str,
    /// Empty if there is none.
    most: String,
    now: u64,
}

/// The page.
pub async fn render(state: &State) -> Rendered {
    let tenants = list::all(state).await?;
    ui::render(StatusCode::OK, &TenantsPage { rows: tenants.iter().map(Row::of).collect() })
}

impl Row {
    fn of(shown: &Shown) -> Self {
        let (tenant, usage) = (&shown.tenant, &shown.usage);
        let field = |quota: Quota, label, now| Field {
            name: quota.as_str(),
            label,
            most: tenant.limits.get(quota).map(|most| most.to_string()).unwrap_or_default(),
            now,
        };
        Self {
            name: tenant.name.clone(),
            place: format!("/tenants/{}", encoded(&tenant.name)),
            has_limits: tenant.limits != Limits::default(),
            fields: vec![
                field(Quota::Queued, "Waiting tasks", at_least(usage.waiting)),
                field(Quota::PerDay, "New tasks today", usage.today),
                field(Quota::Schedules, "Schedules", usage.schedules),
            ],
            running: at_least(usage.running),
            queues: usage.queues,
        }
    }
}

/// Removes the limits of a tenant, and leads to the list of tenants. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/tenants/{tenant}/delete", tag = "service", operation_id = "deleteTenantByForm",
    params(("tenant" = String, Path, description = "Its name.", example = "acme")),
    responses(
        (status = 303, description = "Removed; the list of tenants is next."),
        (status = 404, description = "It has no limits. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn delete(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    then::lead(deleting::delete(&state, &who, &name).await, "/tenants")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(has_limits: bool) -> Row {
        let field = |name, most: &str| Field { name, label: "Waiting tasks", most: most.to_owned(), now: 17 };
        Row {
            name: "<acme>".to_owned(),
            place: "/tenants/%3Cacme%3E".to_owned(),
            has_limits,
            fields: vec![field("max_queued", "1000"), field("max_per_day", "")],
            running: 4,
            queues: 1,
        }
    }

    #[test]
    fn limits_are_fields_of_a_form() {
        let html = TenantsPage { rows: vec![row(true)] }.render().unwrap();
        for part in [
            "&#60;acme&#62;",
            "action=\"/tenants/%3Cacme%3E\"",
            "name=\"max_queued\" value=\"1000\"",
            "name=\"max_per_day\" value=\"\"",
            "action=\"/ui/tenants/%3Cacme%3E/delete\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let html = TenantsPage { rows: vec![row(false)] }.render().unwrap();
        assert!(!html.contains("/delete\""), "{html}");
        assert!(TenantsPage { rows: vec![] }.render().unwrap().contains("no tenants yet"));
    }
}
