//! `disbatch tenant ..`

use serde_json::{Map, Value};

use crate::api::{Client, segment};
use crate::args::{Limit, Limits, ListingOptions, TenantCommand};
use crate::command::life::advise;
use crate::output::{Column, Cut, Screen, Table, document, list, plain, print, shown_name, visible};

const TABLE: Table = Table {
    columns: &[
        Column { title: "Tenant", cell: |tenant| plain(tenant.get("tenant")), cut: Cut::Early },
        Column { title: "Waiting", cell: |tenant| of(tenant, "waiting", "max_queued"), cut: Cut::Never },
        Column { title: "Running", cell: |tenant| plain(tenant.get("running")), cut: Cut::Never },
        Column {
            title: "Today",
            cell: |tenant| of(tenant, "submitted_today", "max_per_day"),
            cut: Cut::Never,
        },
        Column {
            title: "Schedules",
            cell: |tenant| of(tenant, "schedules", "max_schedules"),
            cut: Cut::Never,
        },
        Column { title: "Queues", cell: |tenant| plain(tenant.get("queues")), cut: Cut::Never },
    ],
    noun: "tenants",
};

/// Does what the command asks for.
pub async fn run(client: &Client, command: TenantCommand, listing: &ListingOptions) -> anyhow::Result<()> {
    match command {
        TenantCommand::List => {
            let all = client.get("/tenants", None).await.map_err(advise)?;
            print(&list(&all, listing, |all| TABLE.render(all, Screen::of_stdout()))?)
        }
        TenantCommand::Show(which) => {
            let found = client.get(&path(&which.tenant)?, None).await.map_err(advise)?;
            print(&document(&found, listing, text)?)
        }
        TenantCommand::Set(set) => {
            let body = Value::Object(body(&set.limits));
            let answer = client.post(&path(&set.tenant)?, &body).await.map_err(advise)?;
            print(&text(&answer))
        }
        TenantCommand::Delete(which) => {
            client.delete(&path(&which.tenant)?).await.map_err(advise)?;
            print(&format!("Tenant {} has no limits any more\n", shown_name(&which.tenant)))
        }
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Tenant name not given");
    Ok(format!("/tenants/{}", segment(name)))
}

/// What is given; null for what is to have no limit.
fn body(limits: &Limits) -> Map<String, Value> {
    let all = [
        ("max_queued", limits.max_queued),
        ("max_per_day", limits.max_per_day),
        ("max_schedules", limits.max_schedules),
    ];
    let given = all
        .into_iter()
        .filter_map(|(name, limit)| limit.map(|Limit(most)| (name.to_owned(), Value::from(most))));
    given.collect()
}

/// How much there is, and how much there may be.
fn of(tenant: &Value, now: &str, most: &str) -> String {
    let (now, most) = (plain(tenant.get(now)), plain(tenant.get(most)));
    if most.is_empty() { now } else { format!("{now} of {most}") }
}

/// A line for each fact.
fn text(tenant: &Value) -> String {
    let lines = [
        ("Tenant", plain(tenant.get("tenant"))),
        ("Waiting", of(tenant, "waiting", "max_queued")),
        ("Running", plain(tenant.get("running"))),
        ("Today", of(tenant, "submitted_today", "max_per_day")),
        ("Schedules", of(tenant, "schedules", "max_schedules")),
        ("Queues", plain(tenant.get("queues"))),
    ];
    lines.into_iter().map(|(title, text)| format!("{title:<12}{}\n", visible(&text))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tenant_is_what_it_has_of_what_it_may_have() {
        let tenant = json!({
            "tenant": "acme", "max_queued": 1000, "max_per_day": null, "max_schedules": 0, "waiting": 17, "running": 4,
            "submitted_today": 30, "schedules": 0, "queues": 1,
        });
        let line = "acme   | 17 of 1000 | 4       | 30    | 0 of 0    | 1      | \n";
        assert!(TABLE.render(std::slice::from_ref(&tenant), Screen::default()).contains(line));
        assert!(text(&tenant).contains("Waiting     17 of 1000\n"), "{}", text(&tenant));
    }

    #[test]
    fn only_what_is_given_is_set() {
        let limits =
            Limits { max_queued: Some(Limit(Some(5))), max_per_day: Some(Limit(None)), max_schedules: None };
        assert_eq!(Value::Object(body(&limits)), json!({ "max_queued": 5, "max_per_day": null }));
        assert_eq!(path("a/b").unwrap(), "/tenants/a%2Fb");
    }
}
