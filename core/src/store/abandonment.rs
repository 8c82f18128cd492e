//! Requests to the database whose answers nobody waits for any more.
//!
//! The driver gives its connections to those who wait for one in their order, one whenever something happens to its pool. Who has
//! left meanwhile takes his turn all the same, and with it that of the one behind him, who then waits until something else
//! happens, up to ten seconds for each who has left. So a few hundred clients that close their connections while the server waits
//! for the database could stop it. Here it is noticed who leaves, and for each of them something happens.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::doc;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use mongodb::Database;
use tokio::sync::watch;

/// How many have left, in this process.
static LEFT: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::channel(0).0);

/// While turns have not come back, the next is made after so long.
const PACE: Duration = Duration::from_millis(1);

/// How many turns are made at this pace for each who has left: one may have waited in several places.
const TURNS: u64 = 8;

/// After so many, the next is made after so long.
const LATER: Duration = Duration::from_millis(20);

/// What waits for the database, and is noticed if it is dropped while it does: a future or a stream.
#[derive(Debug)]
pub struct Attended<W> {
    work: W,
    waits: bool,
}

impl<W> Attended<W> {
    pub fn new(work: W) -> Self {
        Self { work, waits: false }
    }
}

impl<W: Future + Unpin> Future for Attended<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        self.waits = true;
        let output = ready!(Pin::new(&mut self.work).poll(context));
        self.waits = false;
        Poll::Ready(output)
    }
}

impl<W: Stream + Unpin> Stream for Attended<W> {
    type Item = W::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<W::Item>> {
        self.waits = true;
        let next = ready!(self.work.poll_next_unpin(context));
        self.waits = false;
        Poll::Ready(next)
    }
}

impl<W> Drop for Attended<W> {
    fn drop(&mut self) {
        if self.waits {
            LEFT.send_modify(|left| *left += 1);
        }
    }
}

/// Makes turns for those who have left, for as long as it is polled: one for each at once, and more of them until all have
/// come back. While the server answers nobody, a turn may have no effect.
pub async fn make_turns(database: Database) {
    // Whether the server answers is not the question.
    let turn = || async { drop(database.run_command(doc! { "ping": 1 }).await) };
    let mut left = LEFT.subscribe();
    let mut seen = *left.borrow_and_update();
    let (mut turns, mut soon) = (FuturesUnordered::new(), 0);
    loop {
        tokio::select! {
            changed = left.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = *left.borrow_and_update();
                turns.extend((seen..=now).map(|_| turn()));
                soon += TURNS * (now - seen);
                seen = now;
            }
            _ = turns.next(), if !turns.is_empty() => {}
            () = tokio::time::sleep(if soon > 0 { PACE } else { LATER }), if !turns.is_empty() => {
                turns.push(turn());
                soon = soon.saturating_sub(1);
            }
        }
        if turns.is_empty() {
            soon = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::{pending, ready};
    use futures::{FutureExt, stream};

    use super::*;

    /// Other tests of this process may leave something, too.
    fn is_noticed(work: impl FnOnce()) -> bool {
        let before = *LEFT.borrow();
        work();
        *LEFT.borrow() > before
    }

    #[test]
    fn who_leaves_is_noticed() {
        assert!(is_noticed(|| assert!(Attended::new(pending::<()>()).now_or_never().is_none())));
        assert!(!is_noticed(|| drop(Attended::new(pending::<()>()))), "it has not asked yet");
        assert!(!is_noticed(|| assert!(Attended::new(ready(1)).now_or_never().is_some())));
        assert!(is_noticed(|| {
            let mut rows = Attended::new(stream::iter([1]).chain(stream::pending()));
            assert_eq!(rows.next().now_or_never(), Some(Some(1)));
            assert_eq!(rows.next().now_or_never(), None);
        }));
        assert!(!is_noticed(|| {
            let mut rows = Attended::new(stream::iter([1]).chain(stream::pending()));
            assert_eq!(rows.next().now_or_never(), Some(Some(1)));
        }));
    }
}
