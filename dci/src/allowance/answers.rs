//! What answers take in memory from when they are made until they have been read, which is up to whoever asked.
//!
//! All long answers together have a bound. What does not fit is answered with 503, unless somebody reads so slowly that they
//! give way: then their connection is closed. As long as there is room for all, everybody may read as slowly as they like.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::ResponseError;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::{Bytes, Data};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::{ALLOWANCE, MIB};
use crate::connections::Place;
use crate::error::HttpError;
use crate::raw::PIECE;
use crate::state::State;
use crate::{accept, ui};

/// Answers up to so many bytes do not count.
const SHORT: usize = 64 * 1024;

/// How many bytes all others may take together.
pub const TOGETHER: usize = 128 * MIB;

/// Who has had an answer for so long, and for the time that what they have read takes at [`SLOW`], gives way.
const BEGINNING: Duration = Duration::from_secs(60);

/// So many bytes a second.
const SLOW: usize = 64 * 1024;

/// So many documents of tasks are made into answers at the same time. Each may have 16 MiB, and is there several times.
const MAKING: usize = 4;

/// How long one of them waits for its turn.
const TURN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Answers {
    making: Semaphore,
    unread: Mutex<Unread>,
}

#[derive(Debug, Default)]
struct Unread {
    next: u64,
    bytes: usize,
    readers: HashMap<u64, Reader>,
}

#[derive(Debug)]
struct Reader {
    bytes: usize,
    read: usize,
    since: Instant,
    place: Option<Arc<Place>>,
}

/// The room of one answer, until this is dropped.
#[derive(Debug)]
pub struct Room {
    answers: Arc<Answers>,
    number: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Self { making: Semaphore::new(MAKING), unread: Mutex::default() }
    }
}

impl Reader {
    /// Until when it may keep its room though others want it.
    fn until(&self) -> Instant {
        self.since + BEGINNING + Duration::from_secs((self.read / SLOW) as u64)
    }
}

impl Answers {
    /// Waits until it is one's turn to read a document of a task and to make an answer of it.
    pub async fn turn(&self) -> Result<SemaphorePermit<'_>, HttpError> {
        let turn = timeout(TURN, self.making.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            tracing::warn!("a task is not read, as others have been waiting for theirs for long");
            HttpError::unavailable("too many tasks are being read: try again")
        })
    }

    fn take(self: &Arc<Self>, bytes: usize, place: Option<Arc<Place>>) -> Option<Room> {
        let mut unread = self.unread();
        let number = unread.next;
        if !unread.make_room(bytes, number) {
            return None;
        }
        unread.next += 1;
        unread.bytes += bytes;
        unread.readers.insert(number, Reader { bytes, read: 0, since: Instant::now(), place });
        Some(Room { answers: Arc::clone(self), number })
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        disbatch_core::lock(&self.unread)
    }
}

impl Unread {
    /// Sees to it that there are so many bytes, which the reader of this `number` wants. Closes connections of others if need be.
    fn make_room(&mut self, bytes: usize, number: u64) -> bool {
        let mut slowest: Vec<(Instant, u64, usize)> = self
            .readers
            .iter()
            .filter(|(other, _)| **other != number)
            .map(|(other, reader)| (reader.until(), *other, reader.bytes))
            .collect();
        slowest.sort_unstable();
        let missing = (self.bytes + bytes).saturating_sub(TOGETHER);
        let now = Instant::now();
        let mut late = 0;
        let mut found = 0;
        for (until, _, of_late) in &slowest {
            if found >= missing || *until > now {
                break;
            }
            found += of_late;
            late += 1;
        }
        if found < missing {
            return false;
        }
        for (_, other, _) in slowest.into_iter().take(late) {
            if let Some(place) = self.leave(other).and_then(|reader| reader.place) {
                tracing::debug!(peer = ?place.peer, "closed: reads its answer too slowly while others wait for theirs");
                place.close();
            }
        }
        true
    }

    fn leave(&mut self, number: u64) -> Option<Reader> {
        let reader = self.readers.remove(&number)?;
        self.bytes -= reader.bytes;
        Some(reader)
    }
}

impl Room {
    pub fn handed_out(&self, bytes: usize) {
        if let Some(reader) = self.answers.unread().readers.get_mut(&self.number) {
            reader.read += bytes;
        }
    }

    /// Takes more of it, up to `bytes`.
    pub fn grow(&self, bytes: usize) -> Result<(), HttpError> {
        let mut unread = self.answers.unread();
        let had = unread.readers.get(&self.number).ok_or_else(|| full(0))?.bytes;
        let more = bytes.saturating_sub(had);
        if !unread.make_room(more, self.number) {
            return Err(full(bytes));
        }
        if let Some(reader) = unread.readers.get_mut(&self.number) {
            reader.bytes += more;
        }
        unread.bytes += more;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.answers.unread().leave(self.number));
    }
}

fn full(bytes: usize) -> HttpError {
    if bytes > TOGETHER {
        let message = format!(
            "the answer is longer than {} MiB: ask for less at once, and for output by itself",
            TOGETHER / MIB
        );
        return HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message);
    }
    tracing::warn!(most = TOGETHER, "answers that nobody reads take too much memory, one more is not given");
    let message = "answers that have not been read yet take too much memory together: try again, or ask for less at once";
    HttpError::unavailable(message)
}

/// Room for an answer that is made while it is read, none of it for the time being.
pub fn growing() -> Option<Room> {
    let (answers, place) = ALLOWANCE
        .try_with(|allowance| (Arc::clone(&allowance.budget.answers), allowance.place.clone()))
        .ok()?;
    answers.take(0, place)
}

/// Takes the room for long answers, and hands them out in pieces: the server copies whatever it gets at once.
pub async fn bound(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let answers = request.app_data::<Data<State>>().map(|state| Arc::clone(&state.budget.answers));
    let response = next.call(request).await?;
    let (Some(answers), BodySize::Sized(length)) = (answers, response.response().body().size()) else {
        return Ok(response.map_into_boxed_body());
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length <= SHORT {
        return Ok(response.map_into_boxed_body());
    }
    let place = response.request().conn_data::<Arc<Place>>().cloned();
    let (request, response) = response.into_parts();
    let (response, body) = response.into_parts();
    let rest = match body.try_into_bytes() {
        Ok(rest) => rest,
        // It is read piece by piece already.
        Err(body) => return Ok(ServiceResponse::new(request, response.set_body(BoxBody::new(body)))),
    };
    let response = match answers.take(length, place) {
        Some(room) => response.set_body(BoxBody::new(InPieces { rest, room })),
        None => {
            drop(rest);
            let error = full(length);
            if accept::wants_html(&request) { ui::page(Err(error)) } else { error.error_response() }
        }
    };
    Ok(ServiceResponse::new(request, response))
}

struct InPieces {
    rest: Bytes,
    room: Room,
}

impl MessageBody for InPieces {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.rest.len().min(PIECE);
        if length == 0 {
            return Poll::Ready(None);
        }
        self.room.handed_out(length);
        Poll::Ready(Some(Ok(self.rest.split_to(length))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(answers: &Arc<Answers>, bytes: usize) -> Option<(Room, Arc<Place>)> {
        let place = Arc::new(Place::new(None, false));
        Some((answers.take(bytes, Some(Arc::clone(&place)))?, place))
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_gives_way_when_there_is_no_room() {
        let answers = Arc::new(Answers::default());
        let (slow, its_place) = reader(&answers, TOGETHER / 2).unwrap();
        let (fast, place) = reader(&answers, TOGETHER / 2).unwrap();
        assert!(reader(&answers, 1).is_none(), "both have just begun");
        tokio::time::advance(BEGINNING / 2).await;
        fast.handed_out(SLOW * 60);
        tokio::time::advance(BEGINNING).await;
        assert!(!its_place.is_closed(), "nobody wants its room");
        assert!(reader(&answers, TOGETHER).is_none() && !its_place.is_closed(), "that would not be enough");
        let (third, _) = reader(&answers, TOGETHER / 4).unwrap();
        assert!(its_place.is_closed() && !place.is_closed());
        assert!(slow.grow(TOGETHER).is_err(), "it has none any more");
        drop(slow);
        assert_eq!(answers.unread().bytes, TOGETHER / 4 * 3);
        drop((fast, third));
        assert_eq!(answers.unread().bytes, 0, "all of it is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_turn_without_end() {
        let answers = Answers::default();
        let mut turns = Vec::new();
        for _ in 0..MAKING {
            turns.push(answers.turn().await.unwrap());
        }
        let began = Instant::now();
        assert_eq!(answers.turn().await.unwrap_err().status(), 503);
        assert_eq!(began.elapsed(), TURN);
        drop(turns.pop());
        assert!(answers.turn().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_grows_counts_with_its_largest_part() {
        let answers = Arc::new(Answers::default());
        let (list, _) = reader(&answers, 0).unwrap();
        list.grow(10).unwrap();
        list.grow(7).unwrap();
        assert_eq!(answers.unread().bytes, 10);
        tokio::time::advance(BEGINNING * 2).await;
        assert!(list.grow(TOGETHER + 1).is_err(), "it does not give way to itself");
        list.grow(TOGETHER).unwrap();
        assert_eq!(answers.unread().bytes, TOGETHER);
    }

    #[tokio::test]
    async fn it_is_handed_out_in_pieces() {
        let answers = Arc::new(Answers::default());
        let (room, _) = reader(&answers, 3 * PIECE).unwrap();
        let mut body = InPieces { rest: Bytes::from(vec![b'x'; 2 * PIECE + 1]), room };
        let mut lengths = Vec::new();
        while let Some(Ok(piece)) =
            std::future::poll_fn(|context| Pin::new(&mut body).poll_next(context)).await
        {
            lengths.push(piece.len());
        }
        assert_eq!(lengths, [PIECE, PIECE, 1]);
        assert_eq!(answers.unread().readers.values().map(|reader| reader.read).sum::<usize>(), 2 * PIECE + 1);
    }
}
