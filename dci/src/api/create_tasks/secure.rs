//! The option `.secure_params`: an object that only the plugin gets to see. It is encrypted here, before anything is
//! stored. No message shows any of it.

use actix_web::http::StatusCode;
use disbatch_core::model::QueueId;
use disbatch_core::secrets::{self, Keys, SealError, Sealed, SecureParams};
use serde_json::Value;

use crate::error::HttpError;
use crate::params::Params;
use crate::values;

/// What has to be done before there can be secure parameters.
pub const NO_KEY: &str = "this server has no key for secure parameters: 'disbatch secrets-key' prints a new one; write it \
    to a file, name the file as secrets.key_file in the configuration of the web server and of all nodes, and start \
    them again";

/// The secure parameters of a submission, encrypted for tasks of `queue`. `None`: it has none.
pub fn seal(params: &Params, queue: QueueId, keys: &Keys) -> Result<Option<Sealed>, HttpError> {
    let Some(given) = given(params)? else { return Ok(None) };
    keys.seal(queue, &given).map(Some).map_err(|error| match error {
        SealError::NoKey => HttpError::new(StatusCode::SERVICE_UNAVAILABLE, NO_KEY),
        SealError::TooLong(_) => HttpError::bad_request(format!(".secure_params: {error}")),
        SealError::Random(_) => HttpError::internal(&error.to_string()),
    })
}

/// What tells them from others, as each of the keys has it, the first one first.
pub fn fingerprints(params: &Params, queue: QueueId, keys: &Keys) -> Result<Vec<String>, HttpError> {
    Ok(given(params)?.map(|given| keys.fingerprints(queue, &given)).unwrap_or_default())
}

/// An object, or from a form its JSON as text. An empty one is none.
fn given(params: &Params) -> Result<Option<SecureParams>, HttpError> {
    let value = match params.options.get(secrets::FIELD) {
        None => return Ok(None),
        Some(value) if values::is_unset(value) => return Ok(None),
        // What the parser says of text that is no JSON might show some of it.
        Some(Value::String(text)) => crate::allowance::json(text).ok(),
        Some(value) => Some(value.clone()),
    };
    match value {
        Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(SecureParams::new(object)),
        _ => Err(HttpError::bad_request(".secure_params must be a JSON object")), // Nothing else has names.
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use disbatch_core::secrets::new_key;
    use serde_json::json;

    use super::*;

    fn params(value: Value) -> Params {
        let options = json!({ "secure_params": value }).as_object().unwrap().clone();
        Params { options, ..Params::default() }
    }

    #[test]
    fn an_object_or_its_text_is_encrypted() {
        let (keys, queue) = (Keys::of(Some(&new_key().unwrap()), None).unwrap(), QueueId(ObjectId::new()));
        let object = json!({ "password": "correct horse" });
        for same in [object.clone(), json!(object.to_string())] {
            let sealed = seal(&params(same), queue, &keys).unwrap().unwrap();
            assert_eq!(keys.open(queue, &sealed).unwrap().value(), &object);
        }
        for none in [json!(null), json!(""), json!({}), json!("{}"), json!("null")] {
            assert_eq!(seal(&params(none.clone()), queue, &Keys::default()).unwrap(), None, "{none}");
        }
        assert_eq!(seal(&Params::default(), queue, &keys).unwrap(), None);
    }

    #[test]
    fn mistakes_show_nothing_of_it() {
        let (keys, queue) = (Keys::of(Some(&new_key().unwrap()), None).unwrap(), QueueId(ObjectId::new()));
        for wrong in
            [json!("horse"), json!("{\"a\": horse}"), json!(["horse"]), json!(7), json!("[\"horse\"]")]
        {
            let error = seal(&params(wrong.clone()), queue, &keys).unwrap_err();
            assert_eq!(error.to_string(), ".secure_params must be a JSON object", "{wrong}");
            assert_eq!(error.status(), 400);
        }
        let long = seal(&params(json!({ "a": "x".repeat(65_536) })), queue, &keys).unwrap_err();
        assert_eq!(long.status(), 400);
        assert!(long.to_string().contains("at most 65536 bytes") && long.to_string().len() < 200, "{long}");
        let without = seal(&params(json!({ "a": 1 })), queue, &Keys::default()).unwrap_err();
        assert_eq!(without.status(), 503);
        assert!(without.to_string().contains("secrets.key_file"), "{without}");
    }
}
