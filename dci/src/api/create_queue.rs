//! `POST /queues`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Document, doc};
use disbatch_core::queue::new_queue_id;
use serde_json::Value;

use crate::access::Who;
use crate::api::{Answer, redirect, update_queue};
use crate::error::HttpError;
use crate::openapi::{CreatedQueue, ErrorBody, NewQueue, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy, values};

/// Creates a queue from `name` and `plugin`, and perhaps `threads` and `sort`. It runs nothing until its `threads` are set.
#[utoipa::path(
    post, path = "/queues", tag = "queues", operation_id = "createQueue",
    request_body(content(
        (NewQueue = "application/json"),
        (NewQueue = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Created.", body = CreatedQueue),
        (
            status = 400, body = ErrorBody,
            description = "A parameter is missing or wrong, or the name is taken.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    redirect::or_page(redirect::is_form(&params), create(&state, &who, &params).await)
}

/// What people are told where programs get the structures of Perl's driver.
pub const NAME_TAKEN: &str = "there is a queue with this name already";

async fn create(state: &State, who: &Who, params: &Params) -> Answer {
    let (name, plugin) = checked(params)?;
    state.check_plugin("Unknown plugin", plugin).await?;
    let mut fields = doc! { "name": json::to_bson(name), "plugin": json::to_bson(plugin) };
    fields.extend(settings(params)?);
    let id = new_queue_id();
    let created = changes::create_queue(state, who, id, fields).await;
    match created {
        Ok(()) => {
            let result = legacy::with(legacy::insert_one_result(id.0), "id", json::oid(id.0));
            redirect::answer(params, json::ok(&result))
        }
        Err(error) => match error.write_failure() {
            Some(failure) if failure.is_duplicate_key() && redirect::is_form(params) => {
                Err(HttpError::bad_request(NAME_TAKEN))
            }
            Some(failure) if failure.is_duplicate_key() => {
                let body = legacy::duplicate_on_insert(&failure, id.0, name, plugin);
                Err(HttpError::with_body(StatusCode::BAD_REQUEST, legacy::with(body, "id", Value::Null)))
            }
            _ => Err(error.into()),
        },
    }
}

fn checked(params: &Params) -> Result<(&Value, &Value), HttpError> {
    let given = |name: &str| params.fields.get(name).filter(|value| legacy::is_true(Some(value)));
    let (Some(name), Some(plugin)) = (given("name"), given("plugin")) else {
        return Err(HttpError::bad_request("name and plugin required"));
    };
    if let Some(param) = params.unknown(&["name", "plugin", "threads", "sort"]) {
        return Err(HttpError::bad_param("Invalid param", param));
    }
    values::shown_as_written("name", name)?;
    Ok((name, plugin))
}

/// What else a new queue may have: `threads` and `sort`. A field of a form that was left empty is not given.
fn settings(params: &Params) -> Result<Document, HttpError> {
    let given = ["threads", "sort"].into_iter().filter_map(|name| Some((name, params.fields.get(name)?)));
    let given = given.filter(|(_, value)| !values::is_unset(value));
    let stored = |(name, value): (&str, &Value)| {
        // A form has text. Perl stores that of an update as it is; here nothing of Perl's is to be kept.
        let number = value.as_str().and_then(|text| text.parse::<u64>().ok()).map(Value::from);
        let value = number.as_ref().filter(|_| name == "threads").unwrap_or(value);
        Ok((name.to_owned(), update_queue::setting(params, name, value)?))
    };
    given.map(stored).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: Value) -> Result<Document, String> {
        let fields = fields.as_object().unwrap().clone();
        settings(&Params { fields, ..Params::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn threads_and_order_may_come_with_the_queue() {
        assert_eq!(of(json!({ "name": "q", "plugin": "p" })), Ok(doc! {}));
        assert_eq!(of(json!({ "threads": 4, "sort": "fifo" })), Ok(doc! { "threads": 4, "sort": "fifo" }));
        assert_eq!(of(json!({ "threads": "4" })), Ok(doc! { "threads": 4 }), "a form has text");
        assert_eq!(of(json!({ "threads": "", "sort": null })), Ok(doc! {}), "an empty field of a form");
        assert_eq!(of(json!({ "threads": -1 })).unwrap_err(), "threads must be a non-negative integer");
        assert!(of(json!({ "sort": "sideways" })).unwrap_err().starts_with("sort must be "));
    }
}
