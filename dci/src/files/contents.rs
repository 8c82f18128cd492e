//! Contents of files: how they are read back, to find out whether they are what their names say, and how a file of a version, or a
//! part of it, is sent as it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::body::SizedStream;
use actix_web::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, ETAG, IF_NONE_MATCH,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::files::{Content, ContentId, FilesError, Sender};
use disbatch_core::store::Store;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::error::HttpError;
use crate::raw::{asked, pieces, unsatisfiable};
use crate::ui::names::encoded;

/// So many are made at once; the others wait. Each of them has a few chunks in memory.
const AT_ONCE: usize = 32;

type Key = (ContentId, Sender);

type CheckResult = Result<(), HttpError>;

type Joined = Shared<BoxFuture<'static, CheckResult>>;

/// The checks that are under way.
///
/// They take minutes for large contents, in which nothing is sent: a proxy in between gives up, and its client asks again. So a check
/// goes on to its end in a task of its own, and whoever asks for the same one joins it, or finds the content.
#[derive(Debug)]
pub struct Checks {
    under_way: Mutex<HashMap<Key, Joined>>,
    room: Semaphore,
}

impl Default for Checks {
    fn default() -> Self {
        Self { under_way: Mutex::default(), room: Semaphore::new(AT_ONCE) }
    }
}

impl Checks {
    /// What comes of the check of `key` that is under way, or of this one, which begins if there is none. It goes on to its end if
    /// nobody waits for it any more.
    pub async fn join(
        self: &Arc<Self>,
        runtime: &Handle,
        key: Key,
        check: impl Future<Output = Result<(), FilesError>> + Send + 'static,
    ) -> Result<(), HttpError> {
        let (joined, tell) = self.find_or_begin(key.clone());
        if let Some(tell) = tell {
            let under_way = UnderWay { checks: Arc::clone(self), key };
            // Not while the lock is held: what is dropped at once, as the process ends, takes it.
            runtime.spawn(async move {
                let _room = under_way.checks.room.acquire().await;
                let _nobody_waits = tell.send(check.await.map_err(HttpError::from));
            });
        }
        joined.await
    }

    /// The check that is under way. If there is none, what it has come to is to be told.
    fn find_or_begin(&self, key: Key) -> (Joined, Option<oneshot::Sender<CheckResult>>) {
        match self.lock().entry(key) {
            Entry::Occupied(known) => (known.get().clone(), None),
            Entry::Vacant(new) => {
                let (tell, told) = oneshot::channel::<CheckResult>();
                // Broken off, as the process ends: the next one finds what was sent.
                let told = told.map(|told| told.unwrap_or_else(|_| Err(FilesError::Busy.into())));
                (new.insert(told.boxed().shared()).clone(), Some(tell))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Joined>> {
        disbatch_core::lock(&self.under_way)
    }
}

/// Makes room for the next check of the same, however this one ends.
struct UnderWay {
    checks: Arc<Checks>,
    key: Key,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.checks.lock().remove(&self.key);
    }
}

/// Whatever it is, a browser is to keep it and not to show it.
const ANYTHING: &str = "application/octet-stream";

/// The answer with a content as a file called `name`. A whole one that is not what it should be ends before its end.
pub fn respond(request: &HttpRequest, store: &Store, content: Content, name: &str) -> HttpResponse {
    let tag = format!("\"{}\"", content.id);
    if is_known(request, &tag) {
        return HttpResponse::NotModified().insert_header((ETAG, tag)).finish();
    }
    let whole = 0..content.length;
    let asked = asked(request, Some(&tag)).map(|asked| asked.within(slice::from_ref(&whole)));
    let (status, range) = match asked {
        None => (StatusCode::OK, whole),
        Some(None) => return unsatisfiable(content.length, "file"),
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

fn is_known(request: &HttpRequest, tag: &str) -> bool {
    let given = request.headers().get_all(IF_NONE_MATCH).filter_map(|value| value.to_str().ok());
    given.flat_map(|given| given.split(',')).map(str::trim).any(|given| given == tag || given == "*")
}

fn told(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1))
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
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use actix_web::http::header::{HeaderName, IF_RANGE, RANGE};
    use actix_web::test::TestRequest;

    use super::*;
    use crate::raw::Asked;

    fn key(text: &str) -> Key {
        (ContentId::of(text.as_bytes()), Sender::user(Some("alice")))
    }

    #[tokio::test]
    async fn a_check_goes_on_when_nobody_waits_and_who_asks_again_joins_it() {
        let (checks, runtime) = (Arc::new(Checks::default()), Handle::current());
        let (release, held) = oneshot::channel::<()>();
        let first = async move {
            let _released = held.await;
            Err::<(), FilesError>(FilesError::WrongContent)
        };
        assert_eq!(checks.join(&runtime, key("a"), first).now_or_never(), None, "it is broken off");
        let again = checks.join(&runtime, key("a"), pending());
        let other = checks.join(&runtime, key("b"), async { Ok(()) });
        let both = async {
            assert_eq!(other.await, Ok(()), "another one does not wait for it");
            release.send(()).unwrap();
        };
        let (again, ()) = futures::join!(again, both);
        assert_eq!(again.unwrap_err().status(), 422, "it has what came of the first");
        assert_eq!(checks.join(&runtime, key("a"), async { Ok(()) }).await, Ok(()), "that is over");
        assert!(checks.lock().is_empty());
    }

    #[tokio::test]
    async fn only_so_many_are_made_at_once() {
        let (checks, runtime) = (Arc::new(Checks::default()), Handle::current());
        let begun = Arc::new(AtomicUsize::new(0));
        for n in 0..=AT_ONCE {
            let begun = Arc::clone(&begun);
            let check = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                pending::<Result<(), FilesError>>().await
            };
            assert_eq!(checks.join(&runtime, key(&n.to_string()), check).now_or_never(), None);
        }
        for _ in 0..=AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert_eq!((begun.load(Ordering::Relaxed), checks.lock().len()), (AT_ONCE, AT_ONCE + 1));
    }

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
        let tag = Some("\"x\"");
        assert_eq!(asked(&with(std::slice::from_ref(&part)), tag), Some(Asked::From(2, Some(4))));
        assert!(asked(&with(&[part.clone(), (IF_RANGE, "\"x\"")]), tag).is_some());
        assert_eq!(asked(&with(&[part, (IF_RANGE, "\"y\"")]), tag), None);
        assert_eq!(asked(&with(&[]), tag), None);
        assert_eq!(told(&(2..5), 9), "bytes 2-4/9");
    }

    #[test]
    fn what_a_client_has_is_not_sent_again() {
        assert!(is_known(&with(&[(IF_NONE_MATCH, "\"a\", \"x\"")]), "\"x\""));
        assert!(is_known(&with(&[(IF_NONE_MATCH, "*")]), "\"x\""));
        assert!(!is_known(&with(&[(IF_NONE_MATCH, "\"a\"")]), "\"x\"") && !is_known(&with(&[]), "\"x\""));
    }
}
