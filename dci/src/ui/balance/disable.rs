//! `POST /ui/balance/disable`: pauses `QueueBalance` or lets it go on, with or without script. What it goes by stays as it is,
//! also where it could not be saved like that any more.

use actix_web::web::Data;
use bson::{Bson, DateTime};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, ui, values};

/// Disables `QueueBalance` for so many `hours`, or `until` a time: UTC unless it has a zone, or seconds since 1970. With
/// `enable` it works again.
#[utoipa::path(
    post, path = "/ui/balance/disable", tag = "service", operation_id = "disableBalance",
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({"hours": "8"}),
    ),
    responses(
        (
            status = 200, description = "Until when it is disabled now.", body = Value,
            example = json!({
                "disabled": 1_795_163_067, "said": "QueueBalance is disabled until 2026-11-20 08:24:27 UTC.",
            }),
        ),
        (status = 303, description = "Done; the address of `.then` is next."),
        (status = 400, description = "A parameter is missing or wrong.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    then::or_page(then::is_form(&params), disable(&state, &who, &params).await)
}

async fn disable(state: &State, who: &Who, params: &Params) -> Answer {
    let until = until(&params.fields, state.store.now())?;
    changes::pause_balance(state, who, until).await?;
    then::answer(params, json::ok(&json!({ "disabled": until, "said": said(until) })))
}

fn said(until: Option<i64>) -> String {
    let Some(until) = until else { return "QueueBalance works again.".to_owned() };
    let at = Bson::DateTime(DateTime::from_millis(until.saturating_mul(1000)));
    format!("QueueBalance is disabled until {} UTC.", ui::time(Some(&at)))
}

/// Until when, in seconds since 1970; `None` if it is to work.
fn until(fields: &Map<String, Value>, now: DateTime) -> Result<Option<i64>, HttpError> {
    let given = |name: &str| fields.get(name).filter(|value| !values::is_unset(value));
    if let Some(enable) = given("enable")
        && values::flag("enable", enable)?
    {
        return Ok(None);
    }
    let now = now.timestamp_millis() / 1000;
    let until = match (given("hours"), given("until")) {
        (Some(hours), _) => now + values::positive("hours", hours)? * 3600,
        (None, Some(until)) => values::time("until", &with_seconds(until))?.timestamp_millis() / 1000,
        (None, None) => {
            return Err(HttpError::bad_request("say until when, or for how many hours"));
        }
    };
    if until <= now {
        return Err(HttpError::bad_request("this time has passed already"));
    }
    Ok(Some(until))
}

/// The time of a form's field, which has no seconds where these are 0.
fn with_seconds(until: &Value) -> Value {
    match until.as_str() {
        Some(text) if text.len() == "2026-11-20T08:24".len() && text.contains('T') => {
            Value::from(format!("{text}:00"))
        }
        _ => until.clone(), // It is whole, or wrong.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: Value) -> Result<Option<i64>, String> {
        let now = DateTime::from_millis(1_795_163_067_344);
        until(fields.as_object().unwrap(), now).map_err(|error| error.to_string())
    }

    #[test]
    fn the_end_is_told_in_hours_or_as_a_time() {
        assert_eq!(of(json!({"hours": "8", "until": ""})), Ok(Some(1_795_163_067 + 8 * 3600)));
        assert_eq!(of(json!({"until": "2026-11-20T08:25"})), Ok(Some(1_795_163_100)));
        assert_eq!(of(json!({"until": "2026-11-20T08:25:01.000Z"})), Ok(Some(1_795_163_101)));
        assert_eq!(of(json!({"until": "1795163068"})), Ok(Some(1_795_163_068)));
        assert_eq!(of(json!({"enable": "1", "until": ""})), Ok(None));
        assert_eq!(said(None), "QueueBalance works again.");
        assert_eq!(said(Some(1_795_163_067)), "QueueBalance is disabled until 2026-11-20 08:24:27 UTC.");
    }

    #[test]
    fn what_is_no_end_is_refused() {
        let wrong = [
            (json!({}), "say until when"),
            (json!({"until": "", "enable": "0"}), "say until when"),
            (json!({"until": "2026-11-20T08:24"}), "this time has passed"),
            (json!({"until": "soon"}), "until must be a time"),
            (json!({"hours": "0"}), "hours must be an integer"),
            (json!({"hours": "99999999999"}), "hours must be an integer"),
            (json!({"enable": "x"}), "enable must be true or false"),
        ];
        for (fields, message) in wrong {
            let error = of(fields.clone()).unwrap_err();
            assert!(error.starts_with(message), "{fields}: {error}");
        }
    }
}
