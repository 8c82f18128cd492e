//! `disbatch tenant ..`

use disbatch_wire::tenants::Tenant;

use crate::api::{read, segment};
use crate::args::TenantCommand;
use crate::command::Session;
use crate::output::{Column, Cut, Table, print, shown_name};

const TABLE: Table<Tenant> = Table {
    columns: &[
        Column { title: "Tenant", cell: |t| t.tenant.clone(), cut: Cut::Early },
        Column { title: "Waiting", cell: |t| among(t.waiting, t.max_queued), cut: Cut::Never },
        Column { title: "Running", cell: |t| t.running.to_string(), cut: Cut::Never },
        Column { title: "Today", cell: |t| among(t.submitted_today, t.max_per_day), cut: Cut::Never },
        Column { title: "Schedules", cell: |t| among(t.schedules, t.max_schedules), cut: Cut::Never },
        Column { title: "Queues", cell: |t| t.queues.to_string(), cut: Cut::Never },
    ],
    noun: "tenants",
};

pub async fn run(session: &Session, command: TenantCommand) -> anyhow::Result<()> {
    let client = &session.client;
    match command {
        TenantCommand::List => session.print_list("/tenants", &TABLE).await,
        TenantCommand::Show { tenant } => {
            session.print_document(&path(&tenant)?, |found| TABLE.facts(found)).await
        }
        TenantCommand::Set { tenant, limits } => {
            print(&TABLE.facts(&read(client.post(&path(&tenant)?, &limits).await?)?))
        }
        TenantCommand::Delete { tenant } => {
            client.delete(&path(&tenant)?).await?;
            print(&format!("Tenant {} has no limits any more\n", shown_name(&tenant)))
        }
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Tenant name not given");
    Ok(format!("/tenants/{}", segment(name)))
}

fn among(now: u64, most: Option<u64>) -> String {
    most.map_or_else(|| now.to_string(), |most| format!("{now} of {most}"))
}

#[cfg(test)]
mod tests {
    use disbatch_wire::liberal::Limit;
    use disbatch_wire::tenants::TenantLimits;
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn a_tenant_is_what_it_has_of_what_it_may_have() {
        let tenant = json!({
            "tenant": "acme", "max_queued": 1000, "max_per_day": null, "max_schedules": 0, "waiting": 17, "running": 4,
            "submitted_today": 30, "schedules": 0, "queues": 1, "what_a_later_release_has": true,
        });
        let line = "acme   | 17 of 1000 | 4       | 30    | 0 of 0    | 1      | \n";
        let tenant: Tenant = read(tenant).unwrap();
        assert!(TABLE.render(std::slice::from_ref(&tenant), Screen::default()).contains(line));
        assert!(TABLE.facts(&tenant).contains("Waiting     17 of 1000\n"), "{}", TABLE.facts(&tenant));
    }

    #[test]
    fn only_what_is_given_is_set() {
        let limits = TenantLimits {
            max_queued: Some(Limit(Some(5))),
            max_per_day: Some(Limit(None)),
            max_schedules: None,
        };
        assert_eq!(serde_json::to_value(limits).unwrap(), json!({ "max_queued": 5, "max_per_day": null }));
        assert_eq!(path("a/b").unwrap(), "/tenants/a%2Fb");
    }
}
