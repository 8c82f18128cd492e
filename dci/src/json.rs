//! JSON as Perl Disbatch writes it: keys sorted, doubles with 15 significant digits, ids as `{"$oid": ".."}`,
//! and for people an indentation of three spaces with `"key" : value`.

use std::collections::BTreeMap;
use std::io;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use bson::{Bson, DateTime, Document};
pub use disbatch_core::model::{into_document, to_bson, to_document};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::HttpError;

/// Its media type. JSON is UTF-8 without saying so.
pub const CONTENT_TYPE: &str = "application/json";

/// How dates are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dates {
    /// `2026-11-20T08:24:27`, UTC.
    #[default]
    Text,
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// Milliseconds since 1970.
    Millis,
}

pub fn ok(value: &Value) -> HttpResponse {
    HttpResponse::Ok().content_type(CONTENT_TYPE).body(compact(value))
}

/// A successful answer that is a type of the wire.
pub fn of<T: Serialize>(answer: &T) -> Result<HttpResponse, HttpError> {
    Ok(ok(&value_of(answer)?))
}

/// A request as fields of a document.
pub fn document<T: Serialize>(request: &T) -> Result<Document, HttpError> {
    Ok(value_of(request)?.as_object().map(to_document).unwrap_or_default())
}

/// A type of the wire as JSON.
pub fn value_of<T: Serialize>(wire: &T) -> Result<Value, HttpError> {
    serde_json::to_value(wire).map_err(|error| HttpError::internal(&error.to_string()))
}

/// A successful answer for people.
pub fn ok_pretty(value: &Value) -> HttpResponse {
    HttpResponse::Ok().content_type(CONTENT_TYPE).body(pretty(value))
}

pub fn ok_as(value: &Value, pretty: bool) -> HttpResponse {
    if pretty { ok_pretty(value) } else { ok(value) }
}

/// The answer that something is there from now on, or will be: at the address `place`.
pub fn made(status: StatusCode, place: &str, value: &Value) -> HttpResponse {
    HttpResponse::build(status)
        .insert_header((LOCATION, place))
        .content_type(CONTENT_TYPE)
        .body(compact(value))
}

/// `value` on one line.
pub fn compact(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, None);
    out
}

/// An object of objects on one line, without a copy of what is in them.
pub fn compact_of<'a>(
    objects: impl IntoIterator<Item = (&'a str, &'a BTreeMap<&'a str, &'a Value>)>,
) -> String {
    let mut out = String::new();
    write_items(&mut out, None, ('{', '}'), objects.into_iter(), |out, (name, object), depth| {
        write_key(out, name, depth);
        write_items(out, depth, ('{', '}'), object.iter(), |out, (key, value), depth| {
            write_key(out, key, depth);
            write(out, value, depth);
        });
    });
    out
}

/// `value` over many lines, with a line break at the end.
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, Some(0));
    out.push('\n');
    out
}

/// Appends `value`: on one line, or over many as it looks inside `depth` arrays or objects.
pub fn write(out: &mut String, value: &Value, depth: Option<usize>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(double) => out.push_str(&perl_double(double)),
            None => out.push_str(&number.to_string()),
        },
        Value::String(text) => write_text(out, text),
        Value::Array(items) => write_items(out, depth, ('[', ']'), items.iter(), write),
        Value::Object(map) => write_items(out, depth, ('{', '}'), map.iter(), |out, (key, item), depth| {
            write_key(out, key, depth);
            write(out, item, depth);
        }),
    }
}

fn write_items<T>(
    out: &mut String,
    depth: Option<usize>,
    (open, close): (char, char),
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut String, T, Option<usize>),
) {
    let mut items = items.enumerate().peekable();
    // What is empty is on one line.
    let depth = depth.filter(|_| items.peek().is_some());
    let inner = depth.map(|depth| depth + 1);
    out.push(open);
    for (number, item) in items {
        if number > 0 {
            out.push(',');
        }
        begin_line(out, inner);
        write(out, item, inner);
    }
    begin_line(out, depth);
    out.push(close);
}

fn begin_line(out: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        out.push('\n');
        out.push_str(&"   ".repeat(depth));
    }
}

fn write_key(out: &mut String, key: &str, depth: Option<usize>) {
    write_text(out, key);
    out.push_str(if depth.is_some() { " : " } else { ":" });
}

fn write_text(out: &mut String, text: &str) {
    // Long text is not copied on the way.
    if let Err(error) = serde_json::to_writer(Characters(out), text) {
        tracing::error!(%error, "text cannot be written");
    }
}

/// Takes bytes that are whole characters.
struct Characters<'a>(&'a mut String);

impl io::Write for Characters<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push_str(std::str::from_utf8(bytes).map_err(io::Error::other)?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A double as Perl prints it: C's `%.15g`.
fn perl_double(value: f64) -> String {
    let scientific = format!("{value:.14e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| -> String {
        if digits.contains('.') {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            digits.to_owned()
        }
    };
    if (-5..15).contains(&exponent) {
        let decimals = usize::try_from(14 - exponent).unwrap_or(0);
        return trim(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.unsigned_abs())
}

pub fn from_document(document: &Document, dates: Dates) -> Map<String, Value> {
    document.iter().map(|(key, value)| (key.clone(), from_bson(value, dates))).collect()
}

pub fn from_bson(value: &Bson, dates: Dates) -> Value {
    match value {
        Bson::Null | Bson::Undefined => Value::Null,
        Bson::Boolean(flag) => Value::from(*flag),
        Bson::Int32(number) => Value::from(*number),
        Bson::Int64(number) => Value::from(*number),
        // Infinity and NaN, which JSON cannot write, become null.
        Bson::Double(number) => Value::from(*number),
        Bson::String(text) => Value::from(text.as_str()),
        Bson::Array(items) => items.iter().map(|item| from_bson(item, dates)).collect(),
        Bson::Document(document) => Value::Object(from_document(document, dates)),
        Bson::ObjectId(id) => oid(*id),
        Bson::DateTime(at) => date(*at, dates),
        other => other.clone().into_relaxed_extjson(), // Types that Disbatch never writes.
    }
}

pub fn oid(id: bson::oid::ObjectId) -> Value {
    serde_json::json!({ "$oid": id.to_hex() })
}

fn date(at: DateTime, dates: Dates) -> Value {
    let millis = at.timestamp_millis();
    match dates {
        Dates::Millis => Value::from(millis),
        Dates::Text => date_text(at).map_or_else(|| Value::from(millis), Value::from),
        #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
        Dates::Epoch => Value::from(millis as f64 / 1000.0),
    }
}

/// `2026-11-20T08:24:27`; nothing for years that have no four digits.
pub fn date_text(at: DateTime) -> Option<String> {
    at.try_to_rfc3339_string().ok()?.get(..19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn doubles_look_as_perl_prints_them() {
        let cases = [
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.3"),
            (1_795_163_067.344, "1795163067.344"),
            (1_795_163_082.05, "1795163082.05"),
            (100_000_000_000_000.0, "100000000000000"),
            (1e15, "1e+15"),
            (1e23, "1e+23"),
            (0.0001, "0.0001"),
            (0.000_001_5, "1.5e-06"),
            (0.0, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(perl_double(value), text);
        }
    }

    #[test]
    fn documents_become_sorted_json() {
        let id = bson::oid::ObjectId::parse_str("6b0003bb686c8275d8013333").unwrap();
        let at = DateTime::from_millis(1_795_163_067_344);
        let document = doc! { "b": { "z": [], "y": {} }, "a": at, "_id": id, "c": ["é\n", Bson::Null, true] };
        let value = |dates| Value::Object(from_document(&document, dates));
        assert_eq!(
            compact(&value(Dates::Text)),
            r#"{"_id":{"$oid":"6b0003bb686c8275d8013333"},"a":"2026-11-20T08:24:27","b":{"y":{},"z":[]},"c":["é\n",null,true]}"#
        );
        let (whole, one) = (json!({ "a": { "b": [1], "c": "x" }, "d": {} }), json!([1]));
        let (text, none) = (json!("x"), BTreeMap::new());
        let inner = BTreeMap::from([("c", &text), ("b", &one)]);
        assert_eq!(compact_of([("a", &inner), ("d", &none)]), compact(&whole));
        assert_eq!(value(Dates::Epoch)["a"].to_string(), "1795163067.344");
        assert_eq!(value(Dates::Millis)["a"].to_string(), "1795163067344");
        assert_eq!(
            pretty(&value(Dates::Text)),
            "{\n   \"_id\" : {\n      \"$oid\" : \"6b0003bb686c8275d8013333\"\n   },\n   \
             \"a\" : \"2026-11-20T08:24:27\",\n   \"b\" : {\n      \"y\" : {},\n      \"z\" : []\n   },\n   \
             \"c\" : [\n      \"é\\n\",\n      null,\n      true\n   ]\n}\n"
        );
    }

    #[test]
    fn integers_are_stored_as_narrow_as_they_fit() {
        let stored = to_document(
            json!({"a": 1, "b": 99_999_999_999_i64, "c": 1.5, "d": {"$oid": "x"}}).as_object().unwrap(),
        );
        assert_eq!(stored, doc! { "a": 1_i32, "b": 99_999_999_999_i64, "c": 1.5, "d": { "$oid": "x" } });
    }
}
