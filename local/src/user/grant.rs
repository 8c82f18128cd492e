//! `disbatch user grant NAME`

use anyhow::{bail, ensure};
use disbatch_cli::args::Changes;
use disbatch_cli::output::{print, shown_name};
use disbatch_core::accounts::{Grant, Rights, RightsChange, Scope};
use disbatch_core::audit::Verb;
use disbatch_core::model::{QueueId, Selector};

use super::{grants, put, remark, words};
use crate::direct::{Direct, QueueNames, nobody, user_document};

/// Changes what somebody may do. What is not named stays as it is, also where others change it at the same moment.
pub async fn run(direct: &Direct, changes: Changes) -> anyhow::Result<()> {
    let name = &changes.name;
    ensure!(
        !changes.is_empty(),
        "nothing to change: give --role, --no-role, --queue, --tenant, --revoke-queue or --revoke-tenant"
    );
    let given = grants(direct, &changes.rights).await?;
    let mut revoked = Vec::new();
    for queue in &changes.revoke_queue {
        revoked.push(Scope::Queue(known_queue(direct, queue).await?));
    }
    revoked.extend(changes.revoke_tenant.iter().cloned().map(Scope::Tenant));
    let names = QueueNames::read(&direct.store).await?;
    let change = |before: &Rights| -> anyhow::Result<Rights> {
        let everywhere = match changes.rights.everywhere() {
            None if changes.no_role => None,
            None => before.everywhere(),
            role @ Some(_) => role,
        };
        Ok(Rights::new(everywhere, changed(before.grants(), &given, &revoked, &names)?))
    };
    let (before, rights) = match direct.store.change_rights(name, change).await? {
        RightsChange::Made { before, after } => (before, after),
        RightsChange::Nobody => bail!(nobody(name)),
        RightsChange::Overtaken => bail!("others change the rights of {name} at this moment: try again"),
    };
    let [before, after] = [&before, &rights].map(|rights| Some(user_document(rights)));
    direct.note_user(Verb::UserChange, name, before, after).await?;
    print(&format!("User {name}: {}\n", shown_name(&words(&rights, &names))))?;
    if let Some(remark) = remark(&direct.store.list_users().await?) {
        eprintln!("{remark}");
    }
    Ok(())
}

/// The queue of this id, which may be gone, or of this name.
async fn known_queue(direct: &Direct, name: &str) -> anyhow::Result<QueueId> {
    match Selector::parse(name) {
        Selector::Id(id) => Ok(QueueId(id)),
        Selector::Name(name) => Ok(direct.queue(&name).await?.id),
    }
}

/// The grants without the revoked ones, and with those that are given.
fn changed(
    before: &[Grant],
    given: &[Grant],
    revoked: &[Scope],
    names: &QueueNames,
) -> anyhow::Result<Vec<Grant>> {
    let mut grants = before.to_vec();
    for scope in revoked {
        let what = match scope {
            Scope::Queue(queue) => format!("queue {}", names.of(*queue)),
            Scope::Tenant(tenant) => format!("the queues of {tenant}"),
        };
        if given.iter().any(|grant| grant.scope == *scope) {
            bail!("a role on {what} is both given and revoked");
        }
        let length = grants.len();
        grants.retain(|grant| grant.scope != *scope);
        ensure!(grants.len() < length, "there is no role on {what} to be revoked");
    }
    for grant in given {
        put(&mut grants, grant.clone());
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::Role;

    use super::*;

    fn on(tenant: &str, role: Role) -> Grant {
        Grant { scope: Scope::Tenant(tenant.to_owned()), role }
    }

    #[test]
    fn what_is_not_named_stays() {
        let before = [on("a", Role::Viewer), on("b", Role::Operator), on("c", Role::Admin)];
        let names = QueueNames::default();
        let given = [on("a", Role::Submitter), on("d", Role::Viewer)];
        let after = changed(&before, &given, &[Scope::Tenant("b".into())], &names).unwrap();
        assert_eq!(after, [on("c", Role::Admin), on("a", Role::Submitter), on("d", Role::Viewer)]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let (before, names) = ([on("a", Role::Viewer)], QueueNames::default());
        let error = changed(&before, &[], &[Scope::Tenant("b".into())], &names).unwrap_err();
        assert_eq!(error.to_string(), "there is no role on the queues of b to be revoked");
        let given = [on("a", Role::Admin)];
        let error = changed(&before, &given, &[Scope::Tenant("a".into())], &names).unwrap_err();
        assert_eq!(error.to_string(), "a role on the queues of a is both given and revoked");
        let queue = Scope::Queue("6b0003bb686c8275d70dc2f1".parse().unwrap());
        let error = changed(&before, &[], &[queue], &names).unwrap_err();
        assert_eq!(error.to_string(), "there is no role on queue 6b0003bb686c8275d70dc2f1 to be revoked");
    }
}
