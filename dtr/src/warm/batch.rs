//! Batches: a warm plugin whose process is given several tasks at a time, in one line, and answers each when it is done with it.
//!
//! A runner has such tasks in lanes: each is carried out as if it were the only one, by the same code, with a lease, a custody, a relay and a
//! result of its own. Only where another plugin would be given its task, a lane comes here ([`Batches::execute`]). What is here
//! puts lanes together, and takes them apart again ([`Batcher`]):
//!
//! ```text
//! lane A  --+                                  +--> {"tasks":[{"task":{..A..},"env":{..}}, {..B..}, {..C..}]}
//! lane B  --+--> waiting --(max, or wait_ms)---+        standard input of the one process
//! lane C  --+
//! lane A  <--+
//! lane C  <--+-- by "id" ------------------------- {"id":"A","result":{..},"done":{"exit":0}}  {"id":"C",..}
//! ```
//!
//! - A process has at most `max` tasks that it has not answered. What waits goes as soon as there are as many as it may get, or when the first
//!   of them has waited for `wait_ms`.
//! - Each line that the plugin says names its task by `id`, and may have `stdout` and `stderr`, text that is the task's output. What is on the
//!   pipes of the same names belongs to no task; of standard error the end is kept, and shown to the tasks that the process dies with.
//! - A task is the process's from the moment when its line may have been read, as of any warm plugin ([`Pipes::is_unread`](super::pipes::Pipes)).
//! - The guard lets the process live until the first of the leases is over that its tasks have.
//! - When one task is to end, the process is told by a line, `{"cancel":{"id":..,"reason":..}}`. If it does not answer that task within its
//!   grace, or the lease is lost, it is killed. The others that it has not answered end with it then, as failures, which their rules may have
//!   tried again; those that it cannot have begun go to the next process. While one is to end, it gets no more.

mod batcher;
mod running;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disbatch_core::model::{NodeName, TaskId};
use disbatch_core::plugin::{Plugin, Warm};
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::meter::Usage;
use super::pipes::Said;
use super::{Key, MOST_STARTS, Seen, admit, task_line};
use crate::capture::Captures;
use crate::control::Control;
use crate::isolation::Isolation;
use crate::lock;
use crate::plugin::{Ended, Exited, Job, NotBegun};
use crate::relay::Relay;
use crate::secrets::Wiped;
use crate::storage::Ear;
use crate::supervision::{Reason, Supervision, Wish};

pub use batcher::Batcher;

/// While lanes have more bytes than this to deal with, the plugin is not listened to.
const MOST_UNHEARD: usize = 4 * 1024 * 1024;

/// Where a lane comes with its task.
#[derive(Debug)]
pub struct Batches {
    orders: mpsc::UnboundedSender<Order>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
enum Order {
    Work(Box<Entry>),
    /// What is wished of that task since.
    Wish(TaskId, Wish),
}

#[derive(Debug)]
struct Entry {
    key: Arc<Key>,
    node: NodeName,
    task: TaskId,
    line: Wiped,
    until: Duration,
    words: mpsc::UnboundedSender<Word>,
    arrived: Instant,
}

#[derive(Debug)]
enum Word {
    Said { message: Map<String, Value>, answered: Option<Answered>, weight: Weight },
    Over(Fate),
}

#[derive(Debug)]
struct Answered {
    took: Duration,
    usage: Usage,
    reason: Option<Reason>,
}

/// How many bytes lanes have been told of that they have not dealt with.
#[derive(Debug, Default)]
struct Unheard {
    bytes: AtomicUsize,
    fewer: Notify,
}

/// Bytes that a lane has not dealt with as long as this is there.
#[derive(Debug)]
struct Weight(usize, Arc<Unheard>);

impl Unheard {
    fn is_too_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MOST_UNHEARD
    }
}

impl Weight {
    fn new(bytes: usize, unheard: &Arc<Unheard>) -> Self {
        unheard.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes, Arc::clone(unheard))
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        let before = self.1.bytes.fetch_sub(self.0, Ordering::Relaxed);
        if before > MOST_UNHEARD {
            self.1.fewer.notify_one();
        }
    }
}

#[derive(Debug)]
enum Fate {
    Answered(Answered),
    /// No process was given it, or can be.
    Refused(NotBegun),
    /// The process has ended, and certainly not begun with it. Whether that was its first line.
    NotBegun {
        was_first: bool,
    },
    /// The process has ended, and what is to be said of that.
    Ended(Exited, Arc<str>),
}

impl Batches {
    /// Has the task done by the plugin's process, together with others. What it writes comes into `captures`, and after it the runner's
    /// notes.
    pub async fn execute(
        &self,
        (plugin, limits): (&Plugin, Warm),
        (job, isolation): (Job<'_>, &Isolation),
        captures: &mut Captures,
        relay: &Relay,
        supervision: &mut Supervision,
    ) -> Result<Ended, NotBegun> {
        admit(&job, isolation)?;
        let key = Arc::new(Key::of((plugin, limits), (&job, isolation), &mut lock(&self.seen)));
        let task = job.task.id;
        let mut said = Said { captures, ear: Ear::default(), control: Control::among_others(task), relay };
        let (mut starts, mut until) = (0, job.until);
        loop {
            let (words, heard) = mpsc::unbounded_channel();
            let (key, node) = (Arc::clone(&key), job.run.node.clone());
            let line = task_line(&job)?;
            let entry = Entry { key, node, task, line, until, words, arrived: Instant::now() };
            self.order(Order::Work(Box::new(entry)));
            match self.follow(task, &mut said, heard, (&mut *supervision, &mut until)).await {
                Fate::Answered(Answered { took, usage, reason }) => {
                    return Ok(said.answered(took, usage, reason));
                }
                Fate::Refused(error) => return Err(error),
                Fate::NotBegun { was_first } => {
                    // It may have been said to the process that has ended, and is not said again.
                    if let Some(end) = supervision.so_far().end {
                        let why = "it was to end before the plugin had begun with it".to_owned();
                        return Err(NotBegun::new(why, Some(end.reason)));
                    }
                    starts += u32::from(was_first);
                    if starts >= MOST_STARTS {
                        return Err(io::Error::other("it ends before it takes a task").into());
                    }
                    said.control = Control::among_others(task);
                }
                Fate::Ended(exited, last_words) => {
                    said.captures.stderr.push(last_words.as_bytes());
                    return Ok(said.ended_with_process(&exited));
                }
            }
        }
    }

    /// Hears what becomes of a task, and hands on what is wished of it.
    async fn follow(
        &self,
        task: TaskId,
        said: &mut Said<'_>,
        mut heard: mpsc::UnboundedReceiver<Word>,
        (supervision, until): (&mut Supervision, &mut Duration),
    ) -> Fate {
        let listen = async {
            loop {
                match heard.recv().await {
                    Some(Word::Said { message, answered, weight }) => {
                        said.take(message).await;
                        drop(weight);
                        if let Some(answered) = answered {
                            return Fate::Answered(answered);
                        }
                    }
                    Some(Word::Over(fate)) => return fate,
                    None => return Fate::Refused(NotBegun::new("its runner is ending".to_owned(), None)),
                }
            }
        };
        tokio::pin!(listen);
        loop {
            tokio::select! {
                biased;
                wish = supervision.next() => {
                    if let Wish::Until(time) = wish {
                        *until = time;
                    }
                    self.order(Order::Wish(task, wish));
                }
                fate = &mut listen => return fate,
            }
        }
    }

    fn order(&self, order: Order) {
        // It is polled as long as there are tasks.
        let _ending = self.orders.send(order);
    }
}

impl Said<'_> {
    async fn take(&mut self, mut message: Map<String, Value>) {
        for name in ["stdout", "stderr"] {
            match message.remove(name) {
                None => {}
                Some(Value::String(text)) if name == "stdout" => self.take_output(text.as_bytes()),
                Some(Value::String(text)) => self.captures.stderr.push(text.as_bytes()),
                Some(other) => self.control.complain(format!("{name} is ignored: {other} is no text")),
            }
        }
        self.control.take(message, self.relay).await;
    }
}

impl Entry {
    fn refuse(self, why: &str, reason: Option<Reason>) {
        let _ended = self.words.send(Word::Over(Fate::Refused(NotBegun::new(why.to_owned(), reason))));
    }
}
