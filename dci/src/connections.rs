//! Who may have a connection, and for how long.
//!
//! There are so many places. While some are free, whoever comes gets one. When all are taken, whoever comes gets that of
//! somebody else: of those who have not logged in, of the network that has most of them, who has waited longest. Only if
//! all have logged in, one is closed on which nothing is being asked; and only if there is none, the newcomer is. So
//! strangers, however many, shut out nobody who has logged in, and one address nobody at another.

mod place;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::HttpRequest;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;

use crate::request_body::WithBody;
pub use place::{HEAD, KEEP_ALIVE, Place, Stream};

/// So many connections there are at most.
pub const MOST: usize = 2_048;

/// So many descriptors are kept for all else: the database, files, and connections that are being closed.
const OTHERS: u64 = 256;

/// Who has a place.
#[derive(Debug)]
pub struct Connections {
    most: usize,
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

    pub fn most(&self) -> usize {
        self.most
    }

    /// Gives a new connection a place, if need be that of another. `None`: there is none to be had.
    pub fn enter(self: &Arc<Self>, stream: TcpStream, encrypted: bool) -> Option<Stream> {
        let peer = stream.peer_addr().ok();
        Some(Stream::new(stream, self.place(peer, encrypted)?))
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
                tracing::debug!(peer = ?place.peer(), known = place.is_known(), "closed for another connection");
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
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered {
    fn place(&self) -> &Arc<Place> {
        &self.place
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.taken().places.remove(&self.number);
    }
}

/// Which of all is closed first.
fn least(places: &HashMap<u64, Arc<Place>>) -> Option<u64> {
    let strangers = || places.iter().filter(|(_, place)| !place.is_known());
    let waiting = || places.iter().filter(|(_, place)| place.is_known() && !place.is_serving());
    longest_of_the_most(strangers).or_else(|| longest_of_the_most(waiting))
}

/// Of the network that has most of these, the one that has waited longest.
fn longest_of_the_most<'a, I>(all: impl Fn() -> I) -> Option<u64>
where
    I: Iterator<Item = (&'a u64, &'a Arc<Place>)>,
{
    let mut of_network: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for (_, place) in all() {
        *of_network.entry(network(place)).or_default() += 1;
    }
    let (most, _) = of_network.into_iter().max_by_key(|(_, count)| *count)?;
    let of_most = all().filter(|(_, place)| network(place) == most);
    of_most.min_by_key(|(_, place)| place.since()).map(|(number, _)| *number)
}

/// The peer's address; of IPv6 its first 64 bits, of which one customer has all others.
fn network(place: &Place) -> Option<IpAddr> {
    Some(match place.peer()?.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    })
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

/// Somebody who is known has sent this request.
pub fn known(request: &HttpRequest) {
    if let Some(place) = request.conn_data::<Arc<Place>>() {
        place.know();
    }
}

pub fn is_encrypted(request: &HttpRequest) -> bool {
    request.conn_data::<Arc<Place>>().is_some_and(|place| place.is_encrypted())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(connections.most() as u64 + OTHERS <= soft, "{} {soft}", connections.most());
    }
}
