//! A file of a version as it is, or a part of it.

use std::ops::Range;
use std::slice;

use actix_web::body::SizedStream;
use actix_web::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::files::Content;
use disbatch_core::store::Store;
use futures::{TryStreamExt, stream};

use crate::error::HttpError;
use crate::raw::{Asked, pieces};
use crate::ui::bulk::encoded;

/// Whatever it is, a browser is to keep it and not to show it.
const ANYTHING: &str = "application/octet-stream";

/// The answer with a content as a file called `name`. A whole one that is not what it should be ends before its end.
pub fn respond(request: &HttpRequest, store: &Store, content: Content, name: &str) -> HttpResponse {
    let tag = format!("\"{}\"", content.id);
    if is_known(request, &tag) {
        return HttpResponse::NotModified().insert_header((ETAG, tag)).finish();
    }
    let whole = 0..content.length;
    let asked = asked(request, &tag).map(|asked| asked.within(slice::from_ref(&whole)));
    let (status, range) = match asked {
        None => (StatusCode::OK, whole),
        Some(None) => return unsatisfiable(content.length),
        Some(Some(found)) => (StatusCode::PARTIAL_CONTENT, found),
    };
    let mut answer = HttpResponse::build(status);
    answer
        .content_type(ANYTHING)
        .insert_header((ETAG, tag))
        .insert_header((ACCEPT_RANGES, "bytes"))
        // The range is one of the bytes as they are, not of compressed ones.
        .insert_header((CONTENT_ENCODING, "identity"))
        .insert_header((CONTENT_DISPOSITION, disposition(name)));
    if status == StatusCode::PARTIAL_CONTENT {
        answer.insert_header((CONTENT_RANGE, told(&range, content.length)));
    }
    let length = range.end - range.start;
    if request.method() == Method::HEAD {
        return answer.body(SizedStream::new(length, stream::empty::<Result<Bytes, HttpError>>()));
    }
    let bytes = store.content_stream(content, range).map_ok(Bytes::from).map_err(HttpError::from);
    answer.body(SizedStream::new(length, pieces(bytes)))
}

/// Whether the client has it already.
fn is_known(request: &HttpRequest, tag: &str) -> bool {
    let given = request.headers().get_all(IF_NONE_MATCH).filter_map(|value| value.to_str().ok());
    given.flat_map(|given| given.split(',')).map(str::trim).any(|given| given == tag || given == "*")
}

/// The range that is asked for, unless it is one of another content.
fn asked(request: &HttpRequest, tag: &str) -> Option<Asked> {
    let headers = request.headers();
    if headers.get(IF_RANGE).is_some_and(|condition| condition.as_bytes() != tag.as_bytes()) {
        return None;
    }
    Asked::parse(headers.get(RANGE)?.to_str().ok()?)
}

fn told(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1))
}

fn unsatisfiable(length: u64) -> HttpResponse {
    let error = HttpError::new(StatusCode::RANGE_NOT_SATISFIABLE, "there is no such range of the file");
    let range = (CONTENT_RANGE, format!("bytes */{length}"));
    error.response().insert_header(range).content_type(crate::json::CONTENT_TYPE).body(error.json())
}

/// What the file is to be called: text that may be anything.
fn disposition(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._- ".contains(&byte));
    if is_plain {
        return format!("attachment; filename=\"{name}\"");
    }
    format!("attachment; filename*=UTF-8''{}", encoded(name).replace('*', "%2A"))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderName;
    use actix_web::test::TestRequest;

    use super::*;

    fn with(headers: &[(HeaderName, &'static str)]) -> HttpRequest {
        let request = TestRequest::get();
        let all = headers.iter().cloned();
        all.fold(request, |request, header| request.insert_header(header)).to_http_request()
    }

    #[test]
    fn names_cannot_end_their_header() {
        assert_eq!(disposition("result 1.csv"), "attachment; filename=\"result 1.csv\"");
        assert_eq!(disposition("a\"b\r\n;*é"), "attachment; filename*=UTF-8''a%22b%0D%0A%3B%2A%C3%A9");
    }

    #[test]
    fn a_part_is_one_of_the_same_content() {
        let part = (RANGE, "bytes=2-4");
        assert_eq!(asked(&with(std::slice::from_ref(&part)), "\"x\""), Some(Asked::From(2, Some(4))));
        assert!(asked(&with(&[part.clone(), (IF_RANGE, "\"x\"")]), "\"x\"").is_some());
        assert_eq!(asked(&with(&[part, (IF_RANGE, "\"y\"")]), "\"x\""), None);
        assert_eq!(asked(&with(&[]), "\"x\""), None);
        assert_eq!(told(&(2..5), 9), "bytes 2-4/9");
    }

    #[test]
    fn what_a_client_has_is_not_sent_again() {
        assert!(is_known(&with(&[(IF_NONE_MATCH, "\"a\", \"x\"")]), "\"x\""));
        assert!(is_known(&with(&[(IF_NONE_MATCH, "*")]), "\"x\""));
        assert!(!is_known(&with(&[(IF_NONE_MATCH, "\"a\"")]), "\"x\"") && !is_known(&with(&[]), "\"x\""));
    }
}
