//! The pipes of a warm plugin, which outlive its tasks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::{Errno, ioctl_fionread, write};
use rustix::pipe::fcntl_getpipe_size;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::consume_budget;

use crate::capture::Captures;
use crate::control::Control;
use crate::descriptors::{PipeSink, is_all, read_some};
use crate::guard::Streams;
use crate::relay::Relay;
use crate::secrets::Wiped;
use crate::storage::Ear;
use crate::supervision::or_never;

/// As much as a pipe holds, unless it is told otherwise.
const READ_SIZE: usize = 64 * 1024;

/// The runtime's own kind of pipe believes that there may be more until it has read in vain.
type Pipe = AsyncFd<OwnedFd>;

/// The runner's ends. An end is dropped when the plugin's is closed.
#[derive(Debug)]
pub struct Pipes {
    stdin: Option<Pipe>,
    control: Option<Pipe>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    buffer: Vec<u8>,
    pub stray: u64,
    /// What standard input had no room for, and how much of the first line it had. Of a task that was done before it was read whole, it stays, and
    /// goes before the next one: half a line would spoil that.
    unsent: VecDeque<Wiped>,
    sent: usize,
    /// How many bytes were to be sent, and were sent.
    queued: u64,
    gone: u64,
}

/// Where a line begins and ends among all bytes that were to be sent.
pub type Line = (u64, u64);

#[derive(Debug)]
pub struct Said<'a> {
    pub captures: &'a mut Captures,
    /// What of that is to be saved.
    pub ear: Ear,
    pub control: Control,
    pub relay: &'a Relay,
}

impl Said<'_> {
    pub fn take_output(&mut self, bytes: &[u8]) {
        self.captures.stdout.push(bytes);
        self.ear.hear(bytes, self.relay);
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Ready {
    /// Somebody wants it to end.
    HangUp,
    Stdin,
    Control,
    Stdout,
    Stderr,
}

impl Pipes {
    pub fn new(streams: Streams) -> io::Result<Self> {
        Ok(Self {
            stdin: streams.stdin.map(PipeSink::followed).transpose()?,
            control: Some(streams.control.into_inner()),
            stdout: Some(streams.stdout.into_inner()),
            stderr: Some(streams.stderr.into_inner()),
            buffer: vec![0; READ_SIZE],
            stray: 0,
            unsent: VecDeque::new(),
            sent: 0,
            queued: 0,
            gone: 0,
        })
    }

    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    pub fn put(&mut self, line: Wiped) -> Line {
        let begins = self.queued;
        self.queued += line.len() as u64;
        self.unsent.push_back(line);
        (begins, self.queued)
    }

    /// Sends as much of that as the pipe takes. After an error nothing of it is sent any more.
    pub fn send(&mut self) -> io::Result<()> {
        while let Some(line) = self.unsent.front() {
            let rest = &line[self.sent..];
            let (length, written) = (rest.len(), self.write(rest));
            let sent = written.inspect_err(|_| {
                self.unsent.clear();
                self.sent = 0;
            })?;
            self.gone += sent as u64;
            if sent < length {
                self.sent += sent;
                return Ok(());
            }
            self.sent = 0;
            self.unsent.pop_front();
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(stdin) = &self.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
        match write(stdin.get_ref(), bytes) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells of lines whether the plugin, which has ended, has certainly not begun with them: such a line never was in the pipe as
    /// a whole, or all of it still is and nobody is left to read it.
    pub fn is_unread(&self) -> impl Fn(Line) -> bool + use<> {
        let (gone, unread) = (self.gone, self.unread());
        move |(begins, ends)| ends > gone || begins >= gone.saturating_sub(unread)
    }

    /// How much of what was sent last has certainly not been read by the plugin, and will not be by anybody else.
    fn unread(&self) -> u64 {
        let Some(stdin) = &self.stdin else { return 0 };
        let mut end = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        let asked = poll(&mut end, PollTimeout::ZERO).is_ok();
        let readers_are_gone =
            asked && end[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
        if readers_are_gone { ioctl_fionread(stdin.get_ref()).unwrap_or(0) } else { 0 }
    }

    /// Reads and writes until the task is done, which it tells with true, or until the plugin has closed everything.
    /// After a wish to `hang_up`, a task is not done any more. Not to be dropped before its end, if the task goes on.
    pub async fn follow(&mut self, said: &mut Said<'_>, hang_up: &Notify) -> bool {
        let mut hung_up = false;
        loop {
            if said.control.done.is_some() && !hung_up {
                return true;
            }
            let Some(ready) = self.ready(true, Some(hang_up)).await else { return false };
            match ready {
                Ready::HangUp => {
                    hung_up = true;
                    self.stdin = None;
                }
                Ready::Stdin => {
                    if self.send().is_err() {
                        self.stdin = None;
                    }
                }
                Ready::Control => self.listen(said).await,
                Ready::Stdout => take(&mut self.stdout, &mut self.buffer, |bytes| said.take_output(bytes)),
                Ready::Stderr => {
                    take(&mut self.stderr, &mut self.buffer, |bytes| said.captures.stderr.push(bytes));
                }
            }
            // A plugin that never stops to write must not keep the runner from anything else.
            consume_budget().await;
        }
    }

    /// Waits for the next thing to do; `None` when there will be none.
    pub async fn ready(&self, is_listened_to: bool, hang_up: Option<&Notify>) -> Option<Ready> {
        if self.control.is_none() && self.stdout.is_none() && self.stderr.is_none() {
            return None;
        }
        tokio::select! {
            biased;
            () = or_never(hang_up.map(Notify::notified)) => Some(Ready::HangUp),
            () = readable(self.control.as_ref()), if is_listened_to => Some(Ready::Control),
            () = readable(self.stdout.as_ref()) => Some(Ready::Stdout),
            () = readable(self.stderr.as_ref()) => Some(Ready::Stderr),
            () = writable(self.stdin.as_ref()), if !self.unsent.is_empty() => Some(Ready::Stdin),
        }
    }

    async fn listen(&mut self, said: &mut Said<'_>) {
        let mut read = 0;
        take(&mut self.control, &mut self.buffer, |bytes| read = bytes.len());
        let Said { control, relay, .. } = said;
        if control.done.is_some() {
            self.stray += read as u64;
        } else {
            let rest = control.feed(&self.buffer[..read], relay).await;
            self.stray += rest.len() as u64;
        }
    }

    /// Reads what the plugin wrote before it said that the task is done: all that is in the pipes. Whoever writes
    /// on meanwhile is not followed for longer than a pipe is.
    pub fn take_rest(&mut self, said: &mut Said<'_>) {
        let [stdout, stderr] = filled([&self.stdout, &self.stderr]);
        if stdout {
            empty(&mut self.stdout, &mut self.buffer, |bytes| said.take_output(bytes));
        }
        if stderr {
            empty(&mut self.stderr, &mut self.buffer, |bytes| said.captures.stderr.push(bytes));
        }
    }

    /// Reads what is there of one of the streams that the plugin writes to. `all`: until nothing is left, as it has ended.
    pub fn take_from(&mut self, ready: Ready, all: bool, sink: impl FnMut(&[u8])) {
        let pipe = match ready {
            Ready::HangUp | Ready::Stdin => return,
            Ready::Control => &mut self.control,
            Ready::Stdout => &mut self.stdout,
            Ready::Stderr => &mut self.stderr,
        };
        if all { empty(pipe, &mut self.buffer, sink) } else { take(pipe, &mut self.buffer, sink) }
    }

    /// Throws away what is in the pipes: it belongs to no task.
    pub fn discard(&mut self) {
        let filled = filled([&self.control, &self.stdout, &self.stderr]);
        let pipes = [&mut self.control, &mut self.stdout, &mut self.stderr];
        for (pipe, _) in pipes.into_iter().zip(filled).filter(|(_, filled)| *filled) {
            empty(pipe, &mut self.buffer, |bytes| self.stray += bytes.len() as u64);
        }
    }

    /// Waits for what belongs to no task, and throws it away. Never returns when all is closed.
    pub async fn discard_next(&mut self) {
        tokio::select! {
            () = readable(self.control.as_ref()) => {}
            () = readable(self.stdout.as_ref()) => {}
            () = readable(self.stderr.as_ref()) => {}
        }
        for pipe in [&mut self.control, &mut self.stdout, &mut self.stderr] {
            take(pipe, &mut self.buffer, |bytes| self.stray += bytes.len() as u64);
        }
        consume_budget().await;
    }
}

async fn readable(pipe: Option<&Pipe>) {
    // An error shows when it is read.
    drop(or_never(pipe.map(Pipe::readable)).await.map(|mut there| there.retain_ready()));
}

async fn writable(pipe: Option<&Pipe>) {
    // It is written to in any case.
    drop(or_never(pipe.map(Pipe::writable)).await.map(|mut room| room.clear_ready()));
}

/// Which of these hold something, or have come to their end. The system is asked, in one call.
fn filled<const N: usize>(pipes: [&Option<Pipe>; N]) -> [bool; N] {
    let mut ends: Vec<PollFd<'_>> =
        pipes.iter().copied().flatten().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
    let is_known = poll(&mut ends, PollTimeout::ZERO).is_ok();
    let mut ends = ends.iter();
    pipes.map(|pipe| {
        let end = pipe.as_ref().and_then(|_| ends.next());
        end.is_some_and(|end| !is_known || end.any() != Some(false))
    })
}

/// Reads once what the runtime says is there. Closes what has come to its end.
fn take(pipe: &mut Option<Pipe>, buffer: &mut [u8], mut sink: impl FnMut(&[u8])) {
    let Some(open) = pipe else { return };
    let mut came = None;
    let _has_more = open.try_io(Interest::READABLE, |open| {
        came = try_read(open, buffer);
        // If nothing was left, the runtime is to hear when there is more.
        let has_more = came.is_some_and(|read| !is_all(read, buffer.len()));
        if has_more { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    });
    match came {
        None => {}
        Some(0) => *pipe = None,
        Some(read) => sink(&buffer[..read]),
    }
}

/// Reads until nothing is left, but no more than the pipe can have held when it was called.
///
/// The system is asked, not the runtime, which may not have heard yet of what is there.
fn empty(pipe: &mut Option<Pipe>, buffer: &mut [u8], mut sink: impl FnMut(&[u8])) {
    let Some(open) = pipe else { return };
    let mut taken = 0;
    loop {
        match try_read(open.get_ref(), buffer) {
            None => return,
            Some(0) => {
                *pipe = None;
                return;
            }
            Some(read) => {
                sink(&buffer[..read]);
                taken += read;
                // It was empty then.
                if read < buffer.len() || taken >= fcntl_getpipe_size(open.get_ref()).unwrap_or(READ_SIZE) {
                    return;
                }
            }
        }
    }
}

/// How much there was to be read; 0 at the end, as after an error. `None`: nothing yet.
fn try_read(pipe: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    match read_some(pipe.as_fd(), buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        read => Some(read.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use disbatch_core::model::TaskId;

    use super::*;
    use crate::relay;

    /// The plugin's ends.
    struct Ends {
        stdin: io::PipeReader,
        stdout: io::PipeWriter,
        stderr: io::PipeWriter,
        control: io::PipeWriter,
    }

    fn pipes() -> (Pipes, Ends) {
        let (streams, ends) = Streams::new(true).unwrap();
        let [stdin, stdout, stderr, control] = ends.try_into().unwrap();
        let ends = Ends {
            stdin: stdin.into(),
            stdout: stdout.into(),
            stderr: stderr.into(),
            control: control.into(),
        };
        (Pipes::new(streams).unwrap(), ends)
    }

    /// What a task says.
    struct Speaker {
        id: TaskId,
        captures: Captures,
        relay: Relay,
        _inbox: relay::Inbox,
    }

    impl Speaker {
        fn new() -> Self {
            let (relay, inbox) = relay::channel();
            let id = TaskId(bson::oid::ObjectId::new());
            Self { id, captures: Captures::new(None, None), relay, _inbox: inbox }
        }

        fn said(&mut self) -> Said<'_> {
            let (ear, control) = (Ear::default(), Control::of(self.id));
            Said { captures: &mut self.captures, ear, control, relay: &self.relay }
        }
    }

    fn line(text: &[u8]) -> Wiped {
        text.to_vec().into()
    }

    #[tokio::test]
    async fn what_was_written_before_the_end_is_taken_although_nobody_has_heard_of_it() {
        let (mut pipes, mut plugin) = pipes();
        let mut speaker = Speaker::new();
        let id = speaker.id;
        let mut said = speaker.said();
        // Both pipes are full when the end is said, and it is all there is to be seen.
        plugin.stdout.write_all(&[b'o'; 65_536]).unwrap();
        plugin.stderr.write_all(&[b'e'; 65_536]).unwrap();
        writeln!(plugin.control, "{{\"done\":{{\"id\":\"{id}\"}}}}").unwrap();
        assert!(pipes.follow(&mut said, &Notify::new()).await);
        pipes.take_rest(&mut said);
        let captured = (said.captures.stdout.len(), said.captures.stderr.len());
        assert_eq!((captured, pipes.stray), ((65_536, 65_536), 0));
        // What comes later is nobody's.
        plugin.stdout.write_all(b"late").unwrap();
        plugin.control.write_all(b"{\"status\":5}\n").unwrap();
        pipes.discard();
        assert_eq!((said.captures.stdout.len(), pipes.stray), (65_536, 17));
    }

    #[tokio::test]
    async fn who_never_stops_to_write_is_not_followed_for_ever() {
        let (mut pipes, plugin) = pipes();
        let mut speaker = Speaker::new();
        let mut said = speaker.said();
        let mut stdout = plugin.stdout;
        let writer = std::thread::spawn(move || while stdout.write_all(&[b'x'; 4096]).is_ok() {});
        while said.captures.stdout.is_empty() {
            pipes.take_rest(&mut said);
        }
        pipes.discard();
        assert!(pipes.stray <= 65_536, "{}", pipes.stray);
        drop(pipes);
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn what_is_to_be_saved_is_heard_in_the_output_of_its_task() {
        let (mut pipes, mut plugin) = pipes();
        let mut speaker = Speaker::new();
        let (id, relay) = (speaker.id, speaker.relay.clone());
        let mut said = speaker.said();
        plugin.stdout.write_all(b"[saveJobStorage] {\"a\":1}\n").unwrap();
        writeln!(plugin.control, "{{\"done\":{{\"id\":\"{id}\"}}}}").unwrap();
        assert!(pipes.follow(&mut said, &Notify::new()).await);
        pipes.take_rest(&mut said);
        assert_eq!(relay.saved(), Some(bson::doc! { "a": 1 }.into()));
        plugin.stdout.write_all(b"[saveJobStorage] 2\n").unwrap();
        pipes.discard();
        assert_eq!(relay.saved(), Some(bson::doc! { "a": 1 }.into()), "that belongs to nobody");
    }

    #[tokio::test]
    async fn a_line_that_nobody_has_read_is_known() {
        for (reads, unread) in [(0, true), (1, false), (5, false)] {
            let (mut pipes, mut plugin) = pipes();
            let line = pipes.put(line(b"task\n"));
            pipes.send().unwrap();
            assert!(!pipes.is_unread()(line), "it may still be read");
            plugin.stdin.read_exact(&mut vec![0; reads]).unwrap();
            drop(plugin);
            assert_eq!(pipes.is_unread()(line), unread, "{reads}");
        }
        let (mut pipes, plugin) = pipes();
        drop(plugin);
        let line = pipes.put(line(b"task\n"));
        assert!(pipes.send().is_err());
        assert!(pipes.is_unread()(line));
    }

    #[tokio::test]
    async fn a_line_that_did_not_fit_as_a_whole_counts_as_unread() {
        let (mut pipes, mut plugin) = pipes();
        let line = pipes.put(line(&[b'x'; 1 << 20]));
        pipes.send().unwrap();
        assert!(pipes.gone < pipes.queued);
        plugin.stdin.read_exact(&mut [0; 100]).unwrap();
        drop(plugin);
        assert!(pipes.is_unread()(line));
    }

    #[tokio::test]
    async fn after_hanging_up_everything_is_read_to_its_end() {
        let (mut pipes, plugin) = pipes();
        let mut speaker = Speaker::new();
        let id = speaker.id;
        let mut said = speaker.said();
        let hang_up = Notify::new();
        hang_up.notify_one();
        let plugin = std::thread::spawn(move || {
            let mut plugin = plugin;
            let mut rest = String::new();
            plugin.stdin.read_to_string(&mut rest).unwrap();
            writeln!(plugin.control, "{{\"done\":{{\"id\":\"{id}\"}}}}").unwrap();
            plugin.stdout.write_all(&[b'x'; 1 << 20]).unwrap();
        });
        assert!(!pipes.follow(&mut said, &hang_up).await);
        assert_eq!(said.captures.stdout.len(), 1 << 20);
        plugin.join().unwrap();
    }
}
