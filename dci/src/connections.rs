//! Who may have a connection, and for how long.
//!
//! There are so many places. While some are free, whoever comes gets one. When all are taken, whoever comes gets that of
//! somebody else: of those who have not logged in, of the network that has most of them, who has waited longest. Only if
//! all have logged in, one is closed on which nothing is being asked; and only if there is none, the newcomer is. So
//! strangers, however many, shut out nobody who has logged in, and one address nobody at another.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::rt::net::{ActixStream, Ready};
use futures::task::AtomicWaker;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::access::address;
use crate::request_body::WithBody;

pub const MOST: usize = 2_048;

/// So many descriptors are kept for all else: the database, files, and connections that are being closed.
const OTHERS: u64 = 256;

#[derive(Debug)]
pub struct Connections {
    pub most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: HashMap<u64, Arc<Place>>,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub struct Entered {
    connections: Arc<Connections>,
    number: u64,
    place: Arc<Place>,
}

impl Connections {
    /// As many places as this process may have descriptors for, and [`MOST`] at most.
    pub fn new() -> Self {
        Self {
            most: usize::try_from(descriptors().saturating_sub(OTHERS)).unwrap_or(MOST).clamp(1, MOST),
            taken: Mutex::default(),
        }
    }

    /// Gives a new connection a place, if need be that of another. `None`: there is none to be had.
    pub fn enter(self: &Arc<Self>, stream: TcpStream, encrypted: bool) -> Option<Stream> {
        let peer = stream.peer_addr().ok();
        Some(Stream { stream, entered: self.place(peer, encrypted)?, timer: None })
    }

    fn place(self: &Arc<Self>, peer: Option<SocketAddr>, encrypted: bool) -> Option<Entered> {
        let mut taken = self.taken();
        if taken.places.len() >= self.most {
            let Some(number) = least(&taken.places) else {
                tracing::warn!(
                    most = self.most,
                    "all connections are in use by people who have logged in, one more is refused"
                );
                return None;
            };
            if let Some(place) = taken.places.remove(&number) {
                tracing::debug!(peer = ?place.peer, known = place.is_known(), "closed for another connection");
                place.close();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let place = Arc::new(Place::new(peer, encrypted));
        taken.places.insert(number, Arc::clone(&place));
        Some(Entered { connections: Arc::clone(self), number, place })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        disbatch_core::lock(&self.taken)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.taken().places.remove(&self.number);
    }
}

/// Which of all is closed first.
fn least(places: &HashMap<u64, Arc<Place>>) -> Option<u64> {
    let those = |are: fn(&Place) -> bool| places.iter().filter(|(_, place)| are(place)).collect::<Vec<_>>();
    longest_of_the_most(&those(|place| !place.is_known()))
        .or_else(|| longest_of_the_most(&those(|place| place.is_known() && !place.is_serving())))
}

/// Of the network that has most of these, the one that has waited longest.
fn longest_of_the_most(all: &[(&u64, &Arc<Place>)]) -> Option<u64> {
    let mut of_network: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for (_, place) in all {
        *of_network.entry(network(place)).or_default() += 1;
    }
    let (most, _) = of_network.into_iter().max_by_key(|(_, count)| *count)?;
    let of_most = all.iter().filter(|(_, place)| network(place) == most);
    of_most.min_by_key(|(_, place)| place.since()).map(|(number, _)| **number)
}

fn network(place: &Place) -> Option<IpAddr> {
    Some(address::network(place.peer?.ip()))
}

/// How many descriptors this process may have, after it has asked for all that it may ask for.
fn descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    let wanted = (MOST as u64 + OTHERS).max(soft).min(hard);
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

pub fn is_encrypted(request: &HttpRequest) -> bool {
    request.conn_data::<Arc<Place>>().is_some_and(|place| place.encrypted)
}

/// Notes for a connection when a request is answered, from its first byte to the last one of the answer.
pub async fn note(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let place = request.request().conn_data::<Arc<Place>>().cloned();
    let serving = place.map(Place::serve);
    let response = next.call(request).await?.map_into_boxed_body();
    Ok(response.map_body(|_, body| WithBody::new(body, serving)))
}

/// How long the beginning of a request may take: its line and its headers.
pub const HEAD: Duration = Duration::from_secs(10);

/// How long a connection is kept that nobody asks anything on. Proxies keep theirs for a minute, and should be those who
/// close them.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has been asked yet. How long that may last is up to the server.
    New,
    Serving,
    /// All that was asked has been answered.
    Idle,
    /// The next request has begun to come.
    Head,
}

/// What is known of a connection, as long as it keeps its place.
#[derive(Debug)]
pub struct Place {
    pub peer: Option<SocketAddr>,
    encrypted: bool,
    known: AtomicBool,
    closed: AtomicBool,
    last: AtomicBool,
    phase: Mutex<(Phase, Instant)>,
    /// Who is woken when it is closed, or its deadline changes.
    task: AtomicWaker,
}

/// As long as this is there, a request is being answered.
#[derive(Debug)]
pub struct Serving(Arc<Place>);

impl Place {
    pub fn new(peer: Option<SocketAddr>, encrypted: bool) -> Self {
        Self {
            peer,
            encrypted,
            known: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            last: AtomicBool::new(false),
            phase: Mutex::new((Phase::New, Instant::now())),
            task: AtomicWaker::new(),
        }
    }

    /// Whether somebody has asked something on it who has logged in.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    pub fn know(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.task.wake();
    }

    /// The request that is being answered is its last one: nothing is read after that.
    pub fn end_with_answer(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether its last request has been answered.
    pub fn has_ended(&self) -> bool {
        self.last.load(Ordering::Relaxed) && !self.is_serving()
    }

    pub fn is_serving(&self) -> bool {
        self.phase().0 == Phase::Serving
    }

    pub fn since(&self) -> Instant {
        self.phase().1
    }

    pub fn serve(self: Arc<Self>) -> Serving {
        self.is_now(Phase::Serving);
        Serving(self)
    }

    pub fn heard(&self) {
        if self.phase().0 == Phase::Idle {
            self.is_now(Phase::Head);
        }
    }

    /// Until when something has to happen on it.
    pub fn deadline(&self) -> Option<Instant> {
        let (phase, since) = self.phase();
        match phase {
            Phase::New | Phase::Serving => None,
            Phase::Idle => Some(since + KEEP_ALIVE),
            Phase::Head => Some(since + HEAD),
        }
    }

    fn phase(&self) -> (Phase, Instant) {
        *disbatch_core::lock(&self.phase)
    }

    fn is_now(&self, phase: Phase) {
        *disbatch_core::lock(&self.phase) = (phase, Instant::now());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.is_now(Phase::Idle);
        // It has a deadline now.
        self.0.task.wake();
    }
}

/// The bytes of a connection. It ends when its place is given to another, or when a request does not come in time.
#[derive(Debug)]
pub struct Stream {
    stream: TcpStream,
    entered: Entered,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub fn place(&self) -> Arc<Place> {
        Arc::clone(&self.entered.place)
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.entered.place.peer
    }

    /// Whether something has not happened in time. Otherwise the task is woken then.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.entered.place.deadline() else {
            self.timer = None;
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.entered.place.task.register(context.waker());
        if this.entered.place.is_closed() || this.entered.place.has_ended() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending if this.is_late(context) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    this.entered.place.heard();
                }
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.entered.place.task.register(context.waker());
        if this.entered.place.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl ActixStream for Stream {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.stream.poll_read_ready(context).map_ok(|()| Ready::READABLE)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.stream.poll_write_ready(context).map_ok(|()| Ready::WRITABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hall(Arc<Connections>);

    impl Hall {
        fn of(most: usize) -> Self {
            Self(Arc::new(Connections { most, taken: Mutex::default() }))
        }

        /// Somebody who comes a moment after those before.
        async fn enter(&self, peer: &str) -> Option<Entered> {
            tokio::time::advance(Duration::from_millis(1)).await;
            self.0.place(Some(format!("{peer}:1").parse().unwrap()), false)
        }

        fn len(&self) -> usize {
            self.0.taken().places.len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_of_the_fullest_network_go_first_and_the_oldest_of_them() {
        let hall = Hall::of(4);
        let alone = hall.enter("192.0.2.1").await.unwrap();
        let first = hall.enter("[2001:db8::1]").await.unwrap();
        let second = hall.enter("[2001:db8::ffff]").await.unwrap();
        let third = hall.enter("[2001:db8::2]").await.unwrap();
        let newcomer = hall.enter("192.0.2.2").await.unwrap();
        assert!(first.place.is_closed(), "the addresses of one customer count as one");
        let another = hall.enter("192.0.2.3").await.unwrap();
        assert!(second.place.is_closed() && !alone.place.is_closed());
        assert!(![&third, &newcomer, &another].iter().any(|entered| entered.place.is_closed()));
        assert_eq!(hall.len(), 4);
        drop((alone, first, second, third));
        assert_eq!(hall.len(), 2, "who has been sent away leaves no place");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_logged_in_stays_while_strangers_come() {
        let hall = Hall::of(3);
        let known = hall.enter("192.0.2.1").await.unwrap();
        known.place.know();
        let mut crowd = Vec::new();
        for _ in 0..100 {
            crowd.push(hall.enter("192.0.2.1").await.unwrap());
        }
        assert!(!known.place.is_closed());
        let left = crowd.iter().filter(|entered| !entered.place.is_closed()).count();
        assert_eq!((left, hall.len()), (2, 3));
        assert!(crowd[98..].iter().all(|entered| !entered.place.is_closed()), "the newest have their chance");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_have_logged_in_one_goes_that_asks_nothing() {
        let hall = Hall::of(2);
        let busy = hall.enter("192.0.2.1").await.unwrap();
        let idle = hall.enter("192.0.2.2").await.unwrap();
        busy.place.know();
        idle.place.know();
        let serving = Arc::clone(&busy.place).serve();
        let next = hall.enter("192.0.2.3").await.unwrap();
        assert!(idle.place.is_closed() && !busy.place.is_closed());
        next.place.know();
        let also = Arc::clone(&next.place).serve();
        assert!(hall.enter("192.0.2.4").await.is_none(), "there is none to be had");
        drop((serving, also));
        assert!(hall.enter("192.0.2.4").await.is_some());
        assert!(busy.place.is_closed() || next.place.is_closed());
    }

    #[test]
    fn there_are_descriptors_for_all() {
        let connections = Connections::new();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(connections.most as u64 + OTHERS <= soft, "{} {soft}", connections.most);
    }

    #[tokio::test]
    async fn nothing_comes_after_the_last_answer() {
        let place = Arc::new(Place::new(None, false));
        let serving = Arc::clone(&place).serve();
        place.end_with_answer();
        assert!(!place.has_ended());
        drop(serving);
        assert!(place.has_ended());
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_time() {
        let place = Arc::new(Place::new(None, false));
        place.heard();
        assert_eq!(place.deadline(), None, "that of the first request is the server's");
        for _ in 0..2 {
            let serving = Arc::clone(&place).serve();
            place.heard();
            assert!(place.is_serving() && place.deadline().is_none());
            drop(serving);
            assert_eq!(place.deadline(), Some(Instant::now() + KEEP_ALIVE));
            tokio::time::advance(Duration::from_secs(60)).await;
            place.heard();
            let end = Instant::now() + HEAD;
            assert_eq!(place.deadline(), Some(end));
            tokio::time::advance(Duration::from_secs(9)).await;
            place.heard();
            assert_eq!(place.deadline(), Some(end), "more of it is no new beginning");
        }
    }
}
