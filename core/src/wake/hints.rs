//! What has been noticed and not been looked into yet, and who needs to hear of it at once.
//!
//! That says how a change stream is asked. A question that waits at the server tells of a change at once, but wakes for all that is written to the
//! database, which costs the server about a tenth of what the task costs that is written, for each DEN that waits. So one that writes much itself asks
//! many times a second instead. Where others wait, a DEN asks only now and then, and only for what is not about tasks: it looks for these.

use std::collections::HashMap;
use std::ops::BitOrAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::oid::ObjectId;
use tokio::sync::{Notify, watch};

use crate::lock;
use crate::model::{QueueId, TaskId};

/// Of so many new tasks each is told of. Where more come, queues are read.
const MOST_ARRIVALS: usize = 256;

/// How long the server holds a question for changes when there are none: an idle stream costs one operation in
/// that time. A change is told at once.
pub(super) const AWAIT: Duration = Duration::from_secs(10);

/// How long a question waits of one that asks now and then.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How often it asks.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// How often one asks that writes much itself.
const GATHERED_EVERY: Duration = Duration::from_millis(25);

/// A node writes much that hands so many slots over in a second, until there are less than half as many for a while.
const MANY_A_SECOND: f64 = 100.0;

/// That is when it was told so often. Another pace costs a connection and a stream.
const QUIET_FOR: u32 = 3;

/// Declares what may have changed, each once.
macro_rules! news {
    ($($(#[$attribute:meta])* $name:ident,)+) => {
        /// What has changed. Any of it may have changed before, or be gone again.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct News {
            $($(#[$attribute])* pub $name: bool,)+
        }

        impl News {
            /// Everything may have changed.
            pub const fn all() -> Self {
                Self { $($name: true,)+ }
            }
        }

        impl BitOrAssign for News {
            fn bitor_assign(&mut self, other: Self) {
                $(self.$name |= other.$name;)+
            }
        }
    };
}

news! {
    /// There are new tasks to claim.
    inserted,
    /// Tasks were queued again: they may have come before others that are claimed already.
    put_back,
    /// Tasks wait for a time: they are deferred, or have a deadline.
    timed,
    /// A queue or a worker is new, gone or changed.
    queues_changed,
    /// A running task's end was asked for.
    attention,
    /// An operator has changed the node.
    node_changed,
    /// There may be something to do at the gates.
    gates,
    /// A task that no runner had has left its place in its queue.
    freed,
    /// A node wants slots that others have, or wants them no more.
    wanted,
    /// A subscription to notifications is new or changed.
    subscriptions,
}

impl News {
    pub const fn may_claim(self) -> bool {
        self.inserted || self.put_back || self.queues_changed || self.node_changed
    }
}

/// Gathers news until somebody has the time to look into them: many of them wake once.
#[derive(Debug, Default)]
pub struct Hints {
    something: Notify,
    gates: Notify,
    /// For whoever looks after the gates of this node: a look has found something to do.
    pub gates_found: Notify,
    /// For whoever looks after the inbox on this node: there may be something in it.
    pub inbox: Notify,
    /// For whoever notifies from this node: there may be another subscription.
    pub subscribed: Notify,
    news: Mutex<News>,
    listening: AtomicBool,
    node: Mutex<Option<ObjectId>>,
    arrivals: Mutex<Arrivals>,
    peaks: Mutex<Peaks>,
    listeners: watch::Sender<Listeners>,
}

/// What the limit of a queue was for a moment at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peak {
    /// Not more than this.
    Threads(u64),
    /// The queue was made then, and it was not more than this since.
    Made(u64),
    Unknown,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Any may have been anything.
    pub of_any: bool,
    /// The highest of each queue that was told of.
    pub queues: HashMap<QueueId, Peak>,
}

#[derive(Debug, Default)]
pub struct Arrivals {
    /// By their queues, in the order in which they came. None: there were too many to tell of each.
    pub tasks: HashMap<QueueId, Vec<TaskId>>,
    pub count: usize,
}

impl Hints {
    /// Resolves when there is something to look into, or when hints begin or cease to come.
    pub async fn noticed(&self) {
        self.something.notified().await;
    }

    /// Resolves when there may be something to do at the gates. That is for another to look into than what
    /// [`Hints::noticed`] tells of.
    pub async fn gates_noticed(&self) {
        self.gates.notified().await;
    }

    /// Tells that tasks were queued that were blocked before.
    pub fn queued(&self) {
        self.tell(News { put_back: true, ..News::default() });
    }

    /// What has changed since this was last called.
    pub fn take(&self) -> News {
        std::mem::take(&mut *lock(&self.news))
    }

    /// The new tasks that have come since this was last called.
    pub fn take_arrivals(&self) -> Arrivals {
        std::mem::take(&mut *lock(&self.arrivals))
    }

    pub(super) fn arrived(&self, arrival: Option<(QueueId, TaskId)>) {
        let Some((queue, task)) = arrival else { return };
        let mut arrivals = lock(&self.arrivals);
        arrivals.count += 1;
        if arrivals.count <= MOST_ARRIVALS {
            arrivals.tasks.entry(queue).or_default().push(task);
        } else {
            arrivals.tasks.clear();
        }
    }

    /// What limits were since this was last called.
    pub fn take_peaks(&self) -> Peaks {
        std::mem::take(&mut *lock(&self.peaks))
    }

    /// To be called before [`Hints::tell`].
    pub(super) fn had_limit(&self, peak: Option<(QueueId, Peak)>) {
        let Some((queue, peak)) = peak else { return };
        let mut peaks = lock(&self.peaks);
        let both = |highest: &mut Peak| {
            *highest = match (*highest, peak) {
                (Peak::Threads(one), Peak::Threads(other)) => Peak::Threads(one.max(other)),
                (Peak::Made(one), Peak::Threads(other)) => Peak::Made(one.max(other)),
                _ => Peak::Unknown,
            };
        };
        peaks.queues.entry(queue).and_modify(both).or_insert(peak);
    }

    /// Everything may have changed since hints came last.
    pub(super) fn tell_all(&self) {
        lock(&self.peaks).of_any = true;
        self.tell(News::all());
    }

    /// Whether hints come at present.
    pub fn are_coming(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// Whether `listener` needs to hear of changes at once. Where nobody does, those of queues and nodes are told within two seconds, and of tasks
    /// none.
    pub fn needs_at_once(&self, listener: Listener, needs: bool) {
        self.listeners.send_if_modified(|listeners| listeners.set(listener, needs));
    }

    /// Whether tasks are told of, as far as hints come.
    pub fn are_prompt(&self) -> bool {
        self.pace(Stream::Changes).is_about_tasks()
    }

    /// So many slots a second went from task to task on this node lately: whoever waits for changes is woken by each of these.
    pub fn hands_over(&self, slots_a_second: f64) {
        self.listeners.send_if_modified(|listeners| {
            let many = if listeners.busy { MANY_A_SECOND / 2.0 } else { MANY_A_SECOND };
            listeners.quiet = if slots_a_second >= many { 0 } else { listeners.quiet.saturating_add(1) };
            let busy = listeners.quiet < if listeners.busy { QUIET_FOR } else { 1 };
            std::mem::replace(&mut listeners.busy, busy) != busy
        });
    }

    pub(super) fn pace(&self, stream: Stream) -> Pace {
        self.listeners.borrow().pace(stream)
    }

    /// How long no changes are asked for at this pace, unless there is another one meanwhile.
    pub(super) async fn rest(&self, stream: Stream, pace: Pace) {
        let pause = match pace {
            Pace::Waiting => return,
            Pace::Gathering => GATHERED_EVERY,
            Pace::Asking => ASKED_EVERY,
        };
        let _other = tokio::time::timeout(pause, self.another_pace(stream, pace)).await;
    }

    /// Resolves when the stream is to be asked at another pace than this.
    pub(super) async fn another_pace(&self, stream: Stream, pace: Pace) {
        let mut listeners = self.listeners.subscribe();
        let _other = listeners.wait_for(|listeners| listeners.pace(stream) != pace).await;
    }

    /// From now on, of all nodes only this one matters.
    pub fn set_node(&self, node: ObjectId) {
        *lock(&self.node) = Some(node);
    }

    pub(super) fn node(&self) -> Option<ObjectId> {
        *lock(&self.node)
    }

    pub(super) fn tell(&self, news: News) {
        if news.gates {
            self.gates.notify_one();
        }
        if news.subscriptions {
            self.subscribed.notify_one();
        }
        if news != News::default() {
            *lock(&self.news) |= news;
            self.something.notify_one();
        }
    }

    pub(super) fn listen(&self, listening: bool) {
        if self.listening.swap(listening, Ordering::AcqRel) != listening {
            self.something.notify_one();
        }
    }
}

/// Who may need to hear of changes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The node, for its next tasks.
    Node,
    /// Whoever lets tasks go on that wait for others.
    Gates,
}

/// Who needs that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listeners {
    node: bool,
    gates: bool,
    /// The node writes much.
    busy: bool,
    /// How often it was told in a row that it does not.
    quiet: u32,
}

impl Default for Listeners {
    /// It is not known yet who else hears of changes.
    fn default() -> Self {
        Self { node: true, gates: false, busy: false, quiet: 0 }
    }
}

impl Listeners {
    /// Returns whether anything is different now.
    fn set(&mut self, listener: Listener, needs: bool) -> bool {
        let one = match listener {
            Listener::Node => &mut self.node,
            Listener::Gates => &mut self.gates,
        };
        std::mem::replace(one, needs) != needs
    }

    fn pace(self, stream: Stream) -> Pace {
        match stream {
            Stream::Changes if !self.node && !self.gates => Pace::Asking,
            _ if self.busy => Pace::Gathering,
            _ => Pace::Waiting,
        }
    }
}

/// What is asked for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// All that a node follows.
    Changes,
    /// New documents of the inbox: who follows these does it for all.
    Inbox,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// It is waited for changes at the server.
    Waiting,
    /// It is asked whether there are some, forty times a second.
    Gathering,
    /// It is asked whether there are some, every two seconds.
    Asking,
}

impl Pace {
    pub(super) fn is_about_tasks(self) -> bool {
        self != Self::Asking
    }

    pub(super) fn await_time(self) -> Duration {
        match self {
            Self::Waiting => AWAIT,
            Self::Gathering | Self::Asking => AT_ONCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_news_is_kept() {
        let mut news = News::default();
        news |= News::all();
        assert_eq!(news, News::all());
        let mut news = News { inserted: true, ..News::default() };
        news |= News { attention: true, ..News::default() };
        assert_eq!(news, News { inserted: true, attention: true, ..News::default() });
    }

    #[test]
    fn of_limits_the_highest_is_kept() {
        let hints = Hints::default();
        let (one, other) = (QueueId([1; 12].into()), QueueId([2; 12].into()));
        for threads in [3, 5, 4] {
            hints.had_limit(Some((one, Peak::Threads(threads))));
        }
        hints.had_limit(Some((other, Peak::Unknown)));
        hints.had_limit(Some((other, Peak::Threads(1))));
        let (made, twice) = (QueueId([3; 12].into()), QueueId([4; 12].into()));
        for (queue, peak) in [(made, 2), (twice, 2)].into_iter().map(|(id, peak)| (id, Peak::Made(peak))) {
            hints.had_limit(Some((queue, peak)));
            hints.had_limit(Some((queue, if queue == twice { peak } else { Peak::Threads(4) })));
        }
        hints.had_limit(None);
        let queues =
            [(one, Peak::Threads(5)), (other, Peak::Unknown), (made, Peak::Made(4)), (twice, Peak::Unknown)]
                .into();
        assert_eq!(hints.take_peaks(), Peaks { of_any: false, queues });
        assert_eq!(hints.take_peaks(), Peaks::default());
        hints.tell_all();
        assert!(hints.take_peaks().of_any && hints.take() == News::all());
    }

    #[tokio::test]
    async fn many_hints_wake_once() {
        let hints = Hints::default();
        let wakes = async |hints: &Hints| {
            tokio::time::timeout(Duration::from_millis(1), hints.noticed()).await.is_ok()
        };
        for _ in 0..100 {
            hints.tell(News { inserted: true, ..News::default() });
        }
        hints.tell(News { put_back: true, ..News::default() });
        assert!(wakes(&hints).await);
        assert_eq!(hints.take(), News { inserted: true, put_back: true, ..News::default() });
        assert_eq!(hints.take(), News::default());
        assert!(!wakes(&hints).await);
        hints.tell(News::default());
        assert!(!wakes(&hints).await, "no news is no hint");
        hints.listen(true);
        assert!(hints.are_coming() && wakes(&hints).await);
        hints.listen(true);
        assert!(!wakes(&hints).await);
    }

    #[test]
    fn it_is_waited_as_long_as_anybody_needs_it() {
        let hints = Hints::default();
        assert_eq!(hints.pace(Stream::Changes), Pace::Waiting);
        hints.needs_at_once(Listener::Node, false);
        assert_eq!(hints.pace(Stream::Changes), Pace::Asking);
        assert_eq!(hints.pace(Stream::Inbox), Pace::Waiting, "nobody else follows it");
        hints.needs_at_once(Listener::Gates, true);
        assert_eq!(hints.pace(Stream::Changes), Pace::Waiting);
    }

    #[test]
    fn who_writes_much_asks_until_it_writes_half_as_much() {
        let hints = Hints::default();
        let paces = |rate| {
            hints.hands_over(rate);
            [Stream::Changes, Stream::Inbox].map(|stream| hints.pace(stream))
        };
        assert_eq!(paces(99.0), [Pace::Waiting; 2]);
        assert_eq!(paces(100.0), [Pace::Gathering; 2]);
        for enough in [50.0, 49.0, 0.0, 50.0, 49.0, 0.0] {
            assert_eq!(paces(enough), [Pace::Gathering; 2]);
        }
        assert_eq!(paces(49.0), [Pace::Waiting; 2]);
        hints.needs_at_once(Listener::Node, false);
        assert_eq!(paces(1_000.0), [Pace::Asking, Pace::Gathering]);
        assert!(!hints.are_prompt());
    }
}
