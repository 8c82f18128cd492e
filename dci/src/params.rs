//! What a client sends along: a form, else JSON (with GET too), else the query string.
//!
//! Keys that start with a dot are options of the operation, all others its parameters.

use std::future::Future;
use std::pin::Pin;

use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{Bytes, BytesMut};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev, web};
use disbatch_core::secrets;
use disbatch_wire::liberal::is_unset;
use disbatch_wire::options::{QUOTES, field_names};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::allowance::Weight;
use crate::api::redirect;
use crate::error::HttpError;
use crate::{allowance, arrays, legacy, options, request_body};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// The parameters, sorted by name.
    pub fields: Map<String, Value>,
    /// The options, without their dot.
    pub options: Map<String, Value>,
}

impl Params {
    pub fn is_on(&self, name: &str) -> bool {
        legacy::is_true(self.options.get(name))
    }

    /// An option that is given. Null, and an empty field of a form, is as if it were not.
    pub fn option(&self, name: &str) -> Option<&Value> {
        self.options.get(name).filter(|value| !is_unset(value))
    }

    /// An option that is a whole number.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, HttpError> {
        let wrong = || HttpError::bad_request(format!("'.{name}' must be an integer"));
        self.option(name).map(|value| legacy::integer(value).ok_or_else(wrong)).transpose()
    }

    /// Refuses options where nothing takes them, if tasks without them are not what was asked for.
    pub fn refuse_options(&self) -> Result<(), HttpError> {
        if self.options.contains_key(secrets::FIELD) {
            return Err(HttpError::bad_request(".secure_params is not taken here: use POST /tasks"));
        }
        arrays::refuse(self)
    }

    /// Refuses parameters that are none of `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), HttpError> {
        self.unknown(known).map_or(Ok(()), |param| Err(HttpError::bad_param("unknown param", param)))
    }

    /// The parameters as a change, in which at least one thing is given.
    pub fn change<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        if self.fields.is_empty() {
            let known = field_names::<T>().join(", ");
            return Err(HttpError::bad_request(format!("give at least one of {known}")));
        }
        typed(self.fields.clone())
    }

    /// The parameters as they are, with those options that `T` has.
    pub fn given<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        self.only(field_names::<T>())?;
        // Who asked may be waited for with both.
        allowance::take_for_copies(1, self.fields.values())?;
        self.known()
    }

    /// The same, whatever other parameters there are.
    pub fn known<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        let known = field_names::<T>();
        let fields = self.fields.iter().filter(|(name, _)| known.contains(&name.as_str()));
        let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
        typed(fields.chain(self.options_of::<T>()).collect())
    }

    /// The parameters as all that there is, with those options that `T` has. Null, and an empty field of a form, is as if it
    /// were not given.
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        let fields = self.fields.iter().map(|(name, value)| (name.clone(), value.clone()));
        typed(fields.chain(self.options_of::<T>()).filter(|(_, value)| !is_unset(value)).collect())
    }

    /// The same, where parameters that `T` has not are refused even if they are empty.
    pub fn search<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        self.only(field_names::<T>())?;
        self.whole()
    }

    /// The options that `T` has, whatever the parameters are.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        typed(self.options_of::<T>().filter(|(_, value)| !is_unset(value)).collect())
    }

    fn options_of<T: DeserializeOwned>(&self) -> impl Iterator<Item = (String, Value)> {
        let known = field_names::<T>().iter().filter_map(|name| Some((*name, name.strip_prefix('.')?)));
        known.filter_map(|(name, option)| Some((name.to_owned(), self.options.get(option)?.clone())))
    }

    /// The first parameter that is none of `known`.
    pub fn unknown(&self, known: &[&str]) -> Option<&str> {
        self.fields.keys().map(String::as_str).find(|name| !known.contains(name))
    }

    /// Tells options from fields.
    pub fn from_map(map: Map<String, Value>) -> Self {
        let mut params = Self::default();
        for (key, value) in map {
            match key.strip_prefix('.') {
                Some(option) => params.options.insert(option.to_owned(), value),
                None => params.fields.insert(key, value),
            };
        }
        params
    }

    /// Reads a form or a query string. A repeated key becomes an array.
    fn from_form(text: &str) -> Result<Self, HttpError> {
        allowance::take_for(&Weight::of_form(text.as_bytes()))?;
        let pairs = web::Query::<Vec<(String, String)>>::from_query(text)
            .map_err(|_| HttpError::bad_request("the parameters cannot be decoded"))?;
        let mut map = Map::new();
        for (key, value) in pairs.into_inner() {
            match map.get_mut(&key) {
                None => {
                    map.insert(key, Value::from(value));
                }
                Some(Value::Array(values)) => values.push(Value::from(value)),
                Some(first) => *first = Value::from(vec![first.take(), Value::from(value)]),
            }
        }
        Ok(Self::from_map(map))
    }

    /// Reads what came with a request: its body if the media type is one that is known, else its query string.
    pub fn read(media_type: &str, body: &[u8], query: &str) -> Result<Self, HttpError> {
        let in_address = Self::from_form(query);
        refuse_in_address(&in_address)?;
        if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let body =
                std::str::from_utf8(body).map_err(|_| HttpError::bad_request("the body is not UTF-8"))?;
            return Self::from_form(body);
        }
        if is_json(media_type) {
            let Value::Object(map) = json_value(body)? else { return Err(no_object()) };
            return Ok(Self::from_map(map));
        }
        in_address
    }
}

/// A body that is JSON, and has no parameters.
pub fn no_object() -> HttpError {
    HttpError::bad_request("the body must be a JSON object")
}

/// Fields as a type of the wire, which has all of them.
pub fn typed<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, HttpError> {
    let known = field_names::<T>();
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(HttpError::bad_param("unknown param", unknown));
    }
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let (name, why) = (error.path(), error.inner().to_string());
        HttpError::bad_request(match (why.strip_prefix("missing field `"), why.strip_prefix(QUOTES)) {
            (Some(missing), _) => format!("{} must be given", missing.trim_end_matches('`')),
            (None, Some(why)) => format!("'{name}'{why}"),
            (None, None) if why.ends_with("expected a string") => format!("{name} must be text"),
            (None, None) => format!("{name} {why}"),
        })
    })
}

impl FromRequest for Params {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let body = whole_body(request, payload);
        let request = request.clone();
        Box::pin(async move {
            let body = body.await?;
            let params = Self::read(media_type(&request), &body, request.query_string())?;
            forget(body);
            options::check(&request, &params)?;
            if redirect::is_form(&params) {
                request.extensions_mut().insert(IsForm);
            }
            Ok(params)
        })
    }
}

/// What a request has, once its parameters are read, that is a page's form.
#[derive(Debug)]
pub struct IsForm;

/// The same where a request is answered also if they cannot be read: there are none then. Perl Disbatch reads none, so that a body that makes
/// no sense does not matter.
pub struct Lenient(pub Params);

impl FromRequest for Lenient {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let params = Params::from_request(request, payload);
        Box::pin(async move { Ok(Self(params.await.unwrap_or_default())) })
    }
}

/// A JSON body that need not be an object. Whatever is no JSON is read as [`Params`] are, into an object. Options mean
/// nothing: those are refused without which tasks are not what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct AnyJson(pub Value);

impl FromRequest for AnyJson {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let body = whole_body(request, payload);
        let request = request.clone();
        Box::pin(async move {
            let body = body.await?;
            let (json, ignored) = Self::read(media_type(&request), &body, request.query_string())?;
            forget(body);
            options::check(&request, &ignored)?;
            Ok(json)
        })
    }
}

impl AnyJson {
    /// The body, and the options, which are ignored.
    fn read(media_type: &str, body: &[u8], query: &str) -> Result<(Self, Params), HttpError> {
        let split = |params: Params| {
            let ignored = Params { options: params.options, ..Params::default() };
            (Self(Value::Object(params.fields)), ignored)
        };
        if !is_json(media_type) {
            let params = Params::read(media_type, body, query)?;
            params.refuse_options()?;
            return Ok(split(params));
        }
        let in_address = Params::from_form(query);
        refuse_in_address(&in_address)?;
        // A list has no other place for options.
        let in_address = in_address.unwrap_or_default();
        arrays::refuse(&in_address)?;
        match json_value(body)? {
            Value::Object(object) => {
                let params = Params::from_map(object);
                params.refuse_options()?;
                Ok(split(params))
            }
            other => Ok((Self(other), in_address)),
        }
    }
}

/// Refuses secure parameters in a query string, also where nothing else of it matters: addresses are written into logs, here
/// and at every proxy on the way.
fn refuse_in_address(query: &Result<Params, HttpError>) -> Result<(), HttpError> {
    if query.as_ref().is_ok_and(|params| params.options.contains_key(secrets::FIELD)) {
        return Err(HttpError::bad_request(".secure_params belongs into the body, not into the address"));
    }
    Ok(())
}

fn whole_body(
    request: &HttpRequest,
    payload: &mut dev::Payload,
) -> impl Future<Output = Result<Bytes, HttpError>> + use<> {
    let body = web::Payload::from_request(request, payload);
    async move { read_body(body.await.map_err(|_| HttpError::bad_request("the body cannot be read"))?).await }
}

/// Gives back the memory of a body that has been read.
fn forget(body: Bytes) {
    let bytes = body.len();
    drop(body);
    allowance::give_back(bytes);
}

/// Reads a body to its end, which may be as long as whoever sends it may send.
pub async fn read_body(body: web::Payload) -> Result<Bytes, HttpError> {
    read_up_to(body, usize::MAX).await
}

/// Reads a body of at most `limit` bytes to its end.
pub async fn read_up_to(mut body: web::Payload, limit: usize) -> Result<Bytes, HttpError> {
    let limit = limit.min(allowance::limits().body);
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| broken(&error.into()))?;
        if whole.len() + pieces.len() + piece.len() > limit {
            return Err(HttpError::too_large(limit));
        }
        allowance::take(piece.len())?;
        // Most have only one, which need not be copied.
        if whole.is_empty() && pieces.is_empty() {
            whole = piece;
        } else {
            pieces.extend_from_slice(&std::mem::take(&mut whole));
            pieces.extend_from_slice(&piece);
        }
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

fn broken(error: &actix_web::Error) -> HttpError {
    if request_body::is_late(error) {
        return HttpError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    }
    HttpError::bad_request("the body cannot be read")
}

pub fn media_type(request: &HttpRequest) -> &str {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

fn is_json(media_type: &str) -> bool {
    media_type.eq_ignore_ascii_case("application/json")
}

/// A body that is JSON, whatever its media type says.
pub fn json_value(body: &[u8]) -> Result<Value, HttpError> {
    allowance::take_for(&Weight::of_json(body))?;
    serde_json::from_slice(body)
        .map_err(|error| HttpError::bad_request(format!("the body is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// With features that another crate may ask for, serde_json takes these for signs: what follows may be JSON in JSON without
    /// end, and overflow the stack.
    #[test]
    fn no_key_is_taken_for_a_sign() {
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            let body = json!({ "name": { (key): "[[1]]" } }).to_string();
            let read = Params::read("application/json", body.as_bytes(), "").unwrap();
            assert_eq!(read.fields["name"], json!({ (key): "[[1]]" }), "{key}");
        }
    }

    #[test]
    fn a_form_wins_over_json_and_json_over_the_query() {
        let form = "application/x-www-form-urlencoded";
        let read = Params::read(form, b"name=caf%C3%A9+x&.limit=2", "a=1").unwrap();
        assert_eq!(read.fields, map(json!({"name": "café x"})));
        assert_eq!(read.options, map(json!({"limit": "2"})));
        let read = Params::read("application/json", b"{\"a\":1}", "b=2").unwrap();
        assert_eq!(read.fields, map(json!({"a": 1})));
        let read = Params::read("", b"{\"a\":1}", "status=-2&status=1&status=3").unwrap();
        assert_eq!(read.fields, map(json!({"status": ["-2", "1", "3"]})));
    }

    #[test]
    fn what_is_secret_does_not_come_in_an_address() {
        let error = Params::read("", b"", "queue=q&.secure_params=%7B%22a%22%3A1%7D").unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(Params::read("application/json", b"{\".secure_params\":{\"a\":1}}", "").is_ok());
        let query = "a=1&.secure_params=%7B%7D";
        for media_type in ["application/json", "application/x-www-form-urlencoded"] {
            assert_eq!(Params::read(media_type, b"{}", query).unwrap_err().status(), 400, "{media_type}");
            assert_eq!(AnyJson::read(media_type, b"[]", query).unwrap_err().status(), 400, "{media_type}");
        }
    }

    #[test]
    fn what_is_secret_is_refused_where_it_would_be_ignored() {
        let form = "application/x-www-form-urlencoded";
        for (media_type, body) in
            [("application/json", "{\".secure_params\":{\"a\":1}}"), (form, ".secure_params=%7B%7D")]
        {
            let params = Params::read(media_type, body.as_bytes(), "").unwrap();
            for error in [
                params.refuse_options().unwrap_err(),
                AnyJson::read(media_type, body.as_bytes(), "").unwrap_err(),
            ] {
                assert_eq!(error.status(), 400);
                assert_eq!(error.to_string(), ".secure_params is not taken here: use POST /tasks");
            }
        }
        let array = AnyJson::read("application/json", b"[{\"secure_params\":1}]", "").unwrap();
        assert_eq!(array.0.0, json!([{ "secure_params": 1 }]));
        assert_eq!(Params::default().refuse_options(), Ok(()));
    }

    #[test]
    fn arrays_are_refused_where_they_would_be_ignored() {
        let form = "application/x-www-form-urlencoded";
        for (media_type, body, query) in [
            ("application/json", "{\".array\":\"0-9\"}", ""),
            ("application/json", "[{\"a\":1}]", ".array=0-9"),
            (form, ".array=0-9", ""),
            ("", "", ".array=0-9"),
        ] {
            let error = AnyJson::read(media_type, body.as_bytes(), query).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(".array is for POST /tasks alone"), "{error}");
        }
        let error = Params::from_form(".array_cap=5").unwrap().refuse_options().unwrap_err();
        assert_eq!(error.to_string(), ".array_cap needs .array");
        assert!(AnyJson::read("application/json", b"[{\".array\":\"0-9\"}]", ".array=&x=1").is_ok());
    }

    #[test]
    fn bodies_that_are_no_object_are_refused() {
        for body in ["", "{", "[1]", "5"] {
            let error = Params::read("application/json", body.as_bytes(), "").unwrap_err();
            assert_eq!(error.status(), 400, "{body}");
        }
    }

    #[test]
    fn integer_options_may_be_text_or_empty() {
        let read = Params::from_form(".limit=-2&.skip=&.x=abc").unwrap();
        assert_eq!(read.integer("limit").unwrap(), Some(-2));
        assert_eq!(read.integer("skip").unwrap(), None);
        assert_eq!(read.integer("x").unwrap_err().to_string(), "'.x' must be an integer");
    }
}
