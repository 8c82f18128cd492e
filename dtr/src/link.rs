//! The runner's end of the link to its DEN, see [`disbatch_core::link`].
//!
//! Questions and answers are matched by number, so that any number of them may be under way. The link is given up for
//! good when it ends, when an answer does not come in time, or when the DEN has trouble: from then on, the runner
//! speaks to the database by itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use disbatch_core::link::{Answer, Ask, Assignment, Go, ToDen, ToRunner, encode, read};
use tokio::io::BufReader;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::custody::Nudges;
use crate::descriptors::Socket;
use crate::lock;
use crate::post::Post;

/// So much is read at once: the tasks of a batch come together.
const READ_SIZE: usize = 64 * 1024;

/// Asks the DEN. Clones share the link.
#[derive(Debug, Clone)]
pub struct Link(Arc<Shared>);

#[derive(Debug)]
pub struct Incoming(Arc<Shared>);

/// Reads and writes, as long as it is polled.
#[derive(Debug)]
pub struct Postman(Arc<Shared>, Nudges);

#[derive(Debug)]
struct Shared {
    socket: Socket,
    news: Mutex<News>,
    last: AtomicI64,
    closed: CancellationToken,
    /// Whether what is sent goes out in a moment, together with what else is.
    gathers: AtomicBool,
}

#[derive(Debug, Default)]
struct News {
    assigned: Post<Assignment>,
    /// Whether tasks have been started, by the numbers of their assignments, as long as somebody waits.
    words: Posts<Option<Go>>,
    is_over: bool,
    /// By the number of the question, as long as somebody waits.
    answers: Posts<Answer>,
}

impl Link {
    /// Takes over the runner's end of the socket. A request to look at the task is passed on to `nudges`.
    pub fn open(socket: OwnedFd, nudges: Nudges) -> io::Result<(Self, Incoming, Postman)> {
        let shared = Arc::new(Shared {
            socket: Socket::new(socket.into())?,
            news: Mutex::default(),
            last: AtomicI64::new(0),
            closed: CancellationToken::new(),
            gathers: AtomicBool::new(false),
        });
        Ok((Self(Arc::clone(&shared)), Incoming(Arc::clone(&shared)), Postman(shared, nudges)))
    }

    /// Whether the DEN is still there, and has always answered.
    pub fn is_up(&self) -> bool {
        !self.0.closed.is_cancelled()
    }

    /// Gives the link up. Who waits for an answer gets none. What the DEN has sent by now still comes in; it
    /// cannot send anything more.
    pub fn close(&self) {
        self.0.closed.cancel();
        lock(&self.0.news).answers.values_mut().for_each(Post::end);
        // The DEN is to notice at once, although the socket stays open as long as there are clones.
        let _gone = rustix::net::shutdown(&self.0.socket, rustix::net::Shutdown::Both);
    }

    pub async fn down(&self) {
        self.0.closed.cancelled().await;
    }

    /// Says that the tasks of these assignments have been taken. If that cannot be said, the link is given up. Returns whether all of
    /// it has gone out: the DEN will read it, whatever becomes of this process.
    pub fn taken(&self, these: impl IntoIterator<Item = i64>) -> bool {
        if !self.is_up() {
            return false;
        }
        match self.0.send_now(these.into_iter().map(|of| ToDen::Taken { of })) {
            Ok(()) => self.0.socket.has_sent_all(),
            Err(error) => {
                self.give_up(&error);
                false
            }
        }
    }

    /// What the DEN will say of the assignment `of`. To be asked for before it is said that its task has been taken.
    pub fn word_about(&self, of: i64) -> Word {
        Awaited::new(&self.0, of, |news| &mut news.words)
    }

    /// Asks something about the assignment `of`, and waits so long for the answer. `None`: there is none, and never
    /// will be: the link is given up.
    pub async fn ask(&self, of: i64, ask: &Ask, patience: Duration) -> Option<Answer> {
        if !self.is_up() {
            return None;
        }
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = Awaited::new(&self.0, id, |news| &mut news.answers);
        if let Err(error) = self.0.send(&ToDen::Ask { id, of, ask }) {
            return self.give_up(&error);
        }
        match timeout(patience, asked.come()).await {
            Ok(Some(Answer::Trouble(why))) => self.give_up(&why),
            Ok(answer) => answer,
            Err(_) => self.give_up(&"no answer in time"),
        }
    }

    fn give_up(&self, why: &dyn std::fmt::Display) -> Option<Answer> {
        if self.is_up() {
            tracing::warn!("cannot go on with the help of the DEN, so without it: {why}");
        }
        self.close();
        None
    }
}

/// By number, what has come for those who wait for it.
type Posts<T> = HashMap<i64, Post<T>>;

/// Something that is to come under a number. Nobody waits for it any more when this is dropped.
#[derive(Debug)]
pub struct Awaited<T> {
    shared: Arc<Shared>,
    number: i64,
    among: fn(&mut News) -> &mut Posts<T>,
}

impl<T> Awaited<T> {
    fn new(shared: &Arc<Shared>, number: i64, among: fn(&mut News) -> &mut Posts<T>) -> Self {
        let mut news = lock(&shared.news);
        let mut post = Post::default();
        if news.is_over {
            post.end();
        }
        among(&mut news).insert(number, post);
        drop(news);
        Self { shared: Arc::clone(shared), number, among }
    }

    pub async fn come(&self) -> Option<T> {
        poll_fn(|cx| match (self.among)(&mut lock(&self.shared.news)).get_mut(&self.number) {
            Some(post) => post.poll(cx),
            None => None.into(),
        })
        .await
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        (self.among)(&mut lock(&self.shared.news)).remove(&self.number);
    }
}

/// What the DEN says of an assignment: that its task has been started, or, as `None`, that it is not this runner's any more.
pub type Word = Awaited<Option<Go>>;

impl Incoming {
    /// The next assignment; `None` when the link is down. Nothing is lost when this is dropped.
    pub async fn next(&mut self) -> Option<Assignment> {
        poll_fn(|cx| lock(&self.0.news).assigned.poll(cx)).await
    }

    pub fn try_next(&mut self) -> Option<Assignment> {
        lock(&self.0.news).assigned.take()
    }
}

impl Postman {
    /// Does `work`, and reads and writes meanwhile. So what comes finds whoever waits for it in the same task of the runtime.
    pub async fn beside<T>(self, work: impl Future<Output = T>) -> T {
        let mut post = pin!(self.run());
        let mut work = pin!(work);
        let mut is_down = false;
        poll_fn(|cx| {
            // What has come can still be taken when the link is down.
            is_down = is_down || post.as_mut().poll(cx).is_ready();
            self.0.gathers.store(true, Ordering::Relaxed);
            let done = work.as_mut().poll(cx);
            self.0.gathers.store(false, Ordering::Relaxed);
            self.0.send_gathered();
            done
        })
        .await
    }

    async fn run(&self) {
        let shared = &self.0;
        let flush = async {
            let error = shared.socket.flush().await;
            tracing::debug!(%error, "cannot send to the DEN");
            Link(Arc::clone(shared)).close();
            // What has come in is still read.
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = self.receive() => ended,
            () = flush => Ok(()),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the link to the DEN is broken");
        }
        Link(Arc::clone(shared)).close();
        let mut news = lock(&shared.news);
        news.is_over = true;
        news.assigned.end();
        news.words.values_mut().for_each(Post::end);
    }

    async fn receive(&self) -> io::Result<()> {
        let own = poll_fn(|cx| std::task::Poll::Ready(cx.waker().clone())).await;
        let mut source = BufReader::with_capacity(READ_SIZE, &self.0.socket);
        while let Some(message) = read(&mut source).await? {
            self.hand_over(message, &own);
        }
        Ok(())
    }

    fn hand_over(&self, message: ToRunner, own: &Waker) {
        let mut news = lock(&self.0.news);
        match message {
            ToRunner::Answer { id, answer } => put(&mut news.answers, id, answer, own),
            ToRunner::Look { .. } => self.1.nudge(),
            ToRunner::Assign(assignment) => news.assigned.put(*assignment, own),
            ToRunner::Go(go) => put(&mut news.words, go.of, Some(go), own),
            ToRunner::Gone { of } => put(&mut news.words, of, None, own),
        }
    }
}

/// Puts it down for who waits for it, if somebody still does.
fn put<T>(posts: &mut Posts<T>, number: i64, letter: T, own: &Waker) {
    if let Some(post) = posts.get_mut(&number) {
        post.put(letter, own);
    }
}

impl Shared {
    /// Sends, or keeps for later what the socket has no room for. Never waits. What is said while the tasks are worked on goes out when all
    /// of them have had their turn: several may have something to say.
    fn send(&self, message: &ToDen<&Ask>) -> io::Result<()> {
        let message = encode(message)?;
        if self.gathers.load(Ordering::Relaxed) {
            self.socket.keep(&message);
            return Ok(());
        }
        self.socket.send(&message)
    }

    /// The same at once, after what was kept.
    fn send_now(&self, messages: impl Iterator<Item = ToDen>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(encode(&message)?);
        }
        self.socket.flush_now()?;
        self.socket.send(&bytes)
    }

    /// Sends what was kept. What there is no room for goes later.
    fn send_gathered(&self) {
        if !self.socket.has_sent_all() {
            // An error shows again when that is done.
            let _broken = self.socket.flush_now();
            self.socket.go_on();
        }
    }
}
