//! For whom new tasks are, and who submits them: the option `.tenant`, and the name of whoever asks.

use disbatch_core::accounts::Role;
use disbatch_core::model::Queue;
use disbatch_core::task::TaskOptions;

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::values;

/// The options of tasks of `queue` with whose they are. Tasks of a tenant's queue are that tenant's. Of a queue that is
/// nobody's they are for whom `.tenant` says, if whoever asks may submit tasks there.
pub fn of(options: TaskOptions, params: &Params, who: &Who, queue: &Queue) -> Result<TaskOptions, HttpError> {
    let given = params.options.get("tenant").filter(|value| !values::is_unset(value));
    let given = given.map(|value| values::text(".tenant", value)).transpose()?;
    let tenant = match (given, queue.tenant()) {
        (Some(given), Some(own)) if given != own => {
            return Err(HttpError::bad_request(".tenant: the queue is that of another tenant"));
        }
        (_, Some(own)) => Some(own.to_owned()),
        (Some(given), None) => {
            check(who, &given)?;
            Some(given)
        }
        (None, None) => None,
    };
    Ok(TaskOptions { tenant, owner: who.name.clone(), trace: who.trace.clone(), ..options })
}

/// Sees to it that somebody may submit tasks for a tenant.
pub fn check(who: &Who, tenant: &str) -> Result<(), HttpError> {
    if who.rights.on_tenant(tenant) < Some(Role::Submitter) {
        let message = format!("this needs the role {} on the tenant {tenant}", Role::Submitter);
        return Err(HttpError::forbidden(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use disbatch_core::model::QueueId;
    use serde_json::{Value, json};

    use super::*;

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]) };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn tenant(given: Value, who: &Who, queue: &Queue) -> Result<Option<String>, u16> {
        let options = json!({ "tenant": given }).as_object().unwrap().clone();
        let params = Params { options, ..Params::default() };
        let options = of(TaskOptions::default(), &params, who, queue);
        options.map(|options| options.tenant).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn a_tenant_is_that_of_the_queue_or_one_that_somebody_has_rights_on() {
        let mut who = Who::anybody("10.0.0.1".to_owned());
        let (own, shared) = (queue(doc! { "tenant": "acme" }), queue(doc! {}));
        let acme = || Ok(Some("acme".to_owned()));
        assert_eq!(tenant(json!(null), &who, &own), acme());
        assert_eq!(tenant(json!("acme"), &who, &own), acme());
        assert_eq!(tenant(json!("other"), &who, &own), Err(400));
        assert_eq!(tenant(json!(""), &who, &shared), Ok(None));
        assert_eq!(tenant(json!("other"), &who, &shared), Ok(Some("other".to_owned())));
        assert_eq!(tenant(json!({}), &who, &shared), Err(400));
        who.name = Some("anna".to_owned());
        let grant = |scope, role| Grant { scope, role };
        who.rights = Rights::new(
            None,
            vec![
                grant(Scope::Queue(QueueId(ObjectId::from_bytes([1; 12]))), Role::Admin),
                grant(Scope::Tenant("acme".to_owned()), Role::Submitter),
                grant(Scope::Tenant("seen".to_owned()), Role::Viewer),
            ],
        );
        assert_eq!(tenant(json!("acme"), &who, &shared), acme());
        assert_eq!(tenant(json!("seen"), &who, &shared), Err(403));
        assert_eq!(tenant(json!("other"), &who, &shared), Err(403));
        let options = of(TaskOptions::default(), &Params::default(), &who, &shared).unwrap();
        assert_eq!(options.owner.as_deref(), Some("anna"));
    }
}
