//! What clients send has to come in time, and is not waited for when nobody wants it any more.
//!
//! The server itself sees to it that the beginning of a request comes in time, but not its body.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpMessage;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::connections::Place;

/// How long a body may take.
const WHOLE: Duration = Duration::from_secs(30);

/// How long it may pause.
const PAUSE: Duration = Duration::from_secs(10);

/// Breaks off bodies that do not come in time. What has not been read of a body when it is answered is not waited for either:
/// the connection ends with the answer.
pub async fn in_time(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let unread = Unread::default();
    let payload = request.take_payload();
    if is_another_protocol(request.headers()) && !matches!(payload, Payload::None) {
        // What would come has no end, and nobody waits for it.
        if let Some(place) = request.request().conn_data::<Arc<Place>>() {
            place.end_with_answer();
        }
        unread.set(Some(payload));
    } else if !matches!(payload, Payload::None) {
        let body = arriving(Incoming { payload: Some(payload), end: None, unread: Rc::clone(&unread) });
        request.set_payload(Payload::Stream { payload: body.boxed_local() });
    }
    let response = next.call(request).await?;
    Ok(match unread.take() {
        None => response.map_into_left_body(),
        Some(unread) => {
            // The last answer on its connection: as long as the rest of the request is kept, the server knows that it
            // cannot read the next one. It would read on without end if it were dropped.
            let response = response.map_into_boxed_body();
            response.map_body(|_, body| WithBody::new(body, unread)).map_into_right_body()
        }
    })
}

/// Whether a client that sends something without saying how long it is wants to speak something else than HTTP: `CONNECT`, or
/// `Upgrade: websocket`. Nobody here does.
fn is_another_protocol(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING)
}

/// Whether this is the error of a body that did not come in time.
pub fn is_late(error: &actix_web::Error) -> bool {
    match error.as_error::<PayloadError>() {
        Some(PayloadError::Io(error)) => error.kind() == io::ErrorKind::TimedOut,
        _ => false, // Its kinds are not ours, and there may be more of them.
    }
}

/// What is left of a body that nobody reads.
type Unread = Rc<Cell<Option<Payload>>>;

/// A body on its way.
struct Incoming {
    /// Until its end.
    payload: Option<Payload>,
    /// When all of it has to be there. It counts from when somebody begins to read: before that the client may be kept
    /// waiting.
    end: Option<Instant>,
    unread: Unread,
}

impl Incoming {
    async fn next(&mut self) -> Option<Result<Bytes, PayloadError>> {
        let payload = self.payload.as_mut()?;
        let now = Instant::now();
        let end = *self.end.get_or_insert(now + WHOLE);
        match timeout_at(end.min(now + PAUSE), payload.next()).await {
            Ok(Some(piece)) => Some(piece),
            Ok(None) => {
                self.payload = None;
                None
            }
            Err(_) => {
                self.unread.set(self.payload.take());
                let late = io::Error::new(io::ErrorKind::TimedOut, "the body did not come in time");
                Some(Err(PayloadError::Io(late)))
            }
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(payload) = self.payload.take() {
            self.unread.set(Some(payload));
        }
    }
}

fn arriving(incoming: Incoming) -> impl Stream<Item = Result<Bytes, PayloadError>> {
    stream::unfold(incoming, async |mut incoming| Some((incoming.next().await?, incoming)))
}

/// The body of an answer, and what is kept until all of it has been sent.
pub struct WithBody<T> {
    body: BoxBody,
    _kept: T,
}

impl<T> WithBody<T> {
    pub fn new(body: BoxBody, kept: T) -> Self {
        Self { body, _kept: kept }
    }
}

impl<T: Unpin> MessageBody for WithBody<T> {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, call_service, init_service, read_body};
    use actix_web::{App, HttpResponse, web};
    use tokio::time::sleep;

    use super::*;

    /// A body of pieces, each after so many seconds.
    fn slow(seconds: Vec<u64>) -> (Incoming, Unread) {
        let pieces = stream::iter(seconds).then(async |seconds| {
            sleep(Duration::from_secs(seconds)).await;
            Ok::<_, PayloadError>(Bytes::from_static(b"a"))
        });
        let unread = Unread::default();
        let payload = Some(Payload::Stream { payload: pieces.boxed_local() });
        (Incoming { payload, end: None, unread: Rc::clone(&unread) }, unread)
    }

    /// How many pieces come, and after how many seconds the rest is late, if it is.
    async fn read(incoming: Incoming) -> (usize, Option<u64>) {
        let began = Instant::now();
        let mut body = arriving(incoming).boxed_local();
        let mut pieces = 0;
        while let Some(piece) = body.next().await {
            match piece {
                Ok(_) => pieces += 1,
                Err(error) => {
                    assert!(is_late(&error.into()));
                    assert!(body.next().await.is_none());
                    return (pieces, Some(began.elapsed().as_secs()));
                }
            }
        }
        (pieces, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_in_time_is_read_to_its_end() {
        let (incoming, unread) = slow(vec![9, 9, 9, 0, 2]);
        assert_eq!(read(incoming).await, (5, None));
        assert!(unread.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_long_pause_nor_many_short_ones_are_waited_for() {
        for (seconds, pieces, late) in
            [(vec![3600], 0, 10), (vec![1, 11, 1], 1, 11), (vec![9; 400], 3, 30), (vec![7; 400], 4, 30)]
        {
            let (incoming, unread) = slow(seconds);
            assert_eq!(read(incoming).await, (pieces, Some(late)));
            assert!(unread.take().is_some(), "the rest is kept");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_reading() {
        let (incoming, _unread) = slow(vec![9, 9, 9]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(read(incoming).await, (3, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_up_is_kept() {
        let (incoming, unread) = slow(vec![1, 1]);
        let mut body = arriving(incoming).boxed_local();
        assert!(body.next().await.is_some());
        drop(body);
        assert!(unread.take().is_some());
    }

    #[test]
    fn other_errors_are_not_late() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        for error in [PayloadError::Io(broken), PayloadError::Incomplete(None)] {
            assert!(!is_late(&error.into()));
        }
    }

    #[actix_web::test]
    async fn answers_are_the_same_whether_the_body_is_read_or_not() {
        let ignore = || async { HttpResponse::Ok().body("ignored") };
        let app = App::new()
            .wrap(from_fn(in_time))
            .route("/echo", web::post().to(|body: Bytes| async move { HttpResponse::Ok().body(body) }))
            .route("/ignore", web::post().to(ignore));
        let app = init_service(app).await;
        for (path, expected) in [("/echo", "sent"), ("/ignore", "ignored")] {
            let request = TestRequest::post().uri(path).set_payload("sent").to_request();
            let response = call_service(&app, request).await;
            assert_eq!(response.status(), 200, "{path}");
            assert_eq!(read_body(response).await, expected, "{path}");
        }
        let empty = call_service(&app, TestRequest::post().uri("/echo").to_request()).await;
        assert_eq!(read_body(empty).await, "");
    }
}
