//! From the parameters of a request to what a tenant may take, and back.

use bson::{Bson, Document};
use disbatch_core::counters::count::Amount;
use disbatch_core::store::StoreError;
use disbatch_core::tenants::{LONGEST_NAME, Limits, Quota, Tenant, Usage};
use serde_json::{Value, json};

use crate::admission::at_least;
use crate::error::HttpError;
use crate::json::to_bson;
use crate::legacy;
use crate::params::Params;
use crate::state::State;
use crate::values;

/// More is a mistake.
const MOST: i64 = 1_000_000_000;

/// A tenant, and what it takes.
#[derive(Debug)]
pub struct Shown {
    pub tenant: Tenant,
    /// What it takes.
    pub usage: Usage,
}

/// A name that a tenant may have.
pub fn name(text: &str) -> Result<String, HttpError> {
    let fits = (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    let wrong = || HttpError::bad_request(format!("a tenant's name has 1 to {LONGEST_NAME} characters"));
    if fits { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// The limits that a request sets; null for those that it removes.
pub fn limits(params: &Params) -> Result<Document, HttpError> {
    let known = Quota::ALL.map(Quota::as_str);
    params.only(&known)?;
    if params.fields.is_empty() {
        return Err(HttpError::bad_request(format!("give at least one of {}", known.join(", "))));
    }
    params.fields.iter().map(|(name, value)| Ok((name.clone(), limit(name, value)?))).collect()
}

fn limit(name: &str, value: &Value) -> Result<Bson, HttpError> {
    if values::is_unset(value) {
        return Ok(Bson::Null);
    }
    let most = legacy::integer(value).filter(|most| !value.is_boolean() && (0..=MOST).contains(most));
    let wrong = || HttpError::bad_request(format!("{name} must be an integer from 0 to {MOST}, or null"));
    Ok(to_bson(&Value::from(most.ok_or_else(wrong)?)))
}

/// A tenant with what it takes, whether it has limits or not.
pub async fn one(state: &State, name: String) -> Result<Shown, StoreError> {
    let (tenant, usage) =
        futures::try_join!(state.store.find_tenant(&name), state.store.tenant_usage(&name))?;
    let tenant = tenant.unwrap_or_else(|| Tenant { name, limits: Limits::default() });
    Ok(Shown { tenant, usage })
}

impl Shown {
    /// Whether nothing is known of it: nobody has heard of such a tenant.
    pub fn is_unknown(&self) -> bool {
        let Usage { waiting, running, schedules, queues, .. } = self.usage;
        let nothing = Amount::Exactly(0);
        self.tenant.limits == Limits::default()
            && (waiting, running, schedules, queues) == (nothing, nothing, 0, 0)
    }

    /// As clients see it.
    pub fn json(&self) -> Value {
        let limit = |quota: Quota| self.tenant.limits.get(quota);
        json!({
            "tenant": self.tenant.name,
            "max_queued": limit(Quota::Queued),
            "max_per_day": limit(Quota::PerDay),
            "max_schedules": limit(Quota::Schedules),
            "waiting": at_least(self.usage.waiting),
            "running": at_least(self.usage.running),
            "submitted_today": self.usage.today,
            "schedules": self.usage.schedules,
            "queues": self.usage.queues,
        })
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn of(fields: Value) -> Result<Document, String> {
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        limits(&params).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_whole_numbers_or_none() {
        let given = json!({ "max_queued": 5, "max_per_day": "100", "max_schedules": null });
        let expected = doc! { "max_queued": 5_i32, "max_per_day": 100_i32, "max_schedules": null };
        assert_eq!(of(given), Ok(expected));
        assert_eq!(of(json!({ "max_queued": "" })), Ok(doc! { "max_queued": null }));
        assert_eq!(of(json!({ "max_queued": 0 })), Ok(doc! { "max_queued": 0_i32 }));
        for wrong in [json!(-1), json!(1.5), json!("many"), json!(true), json!(1_000_000_001)] {
            let error = of(json!({ "max_queued": wrong })).unwrap_err();
            assert_eq!(error, "max_queued must be an integer from 0 to 1000000000, or null");
        }
        assert_eq!(of(json!({ "max_running": 5 })).unwrap_err(), "unknown param");
        assert_eq!(of(json!({})).unwrap_err(), "give at least one of max_queued, max_per_day, max_schedules");
    }

    #[test]
    fn names_are_text_of_one_line() {
        assert_eq!(name("acme/mail").unwrap(), "acme/mail");
        for wrong in ["", "a\nb", &"x".repeat(201)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
