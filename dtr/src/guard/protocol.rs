//! What runner and guard tell each other. See [`crate::guard`].
//!
//! Orders and reports are frames: their length in four bytes, the least significant first, and that many bytes. A
//! report is JSON. An order is a list of words, each with its length before it in the same way: the first one is JSON, and those of a
//! plugin that is to be started follow, as programs, arguments and environment need not be text.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::MOST_DESCRIPTORS;
use super::limits::Exceeded;
use crate::confine::Confinement;
use crate::isolation::Environment;
use crate::secrets::Wiped;

/// No order is longer: the kernel starts no program with so much.
const LONGEST: usize = 8 * 1024 * 1024;

pub const LENGTH: usize = 4;

const READ_SIZE: usize = 16 * 1024;

/// The number of a plugin process of one guard.
pub type Number = u64;

/// What all plugins of a guard have in common. They inherit it: the guard itself is so bound before it starts any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether they can get no privileges that they do not have.
    pub no_new_privs: bool,
    /// The largest core dump that they may leave, in bytes. The guard itself leaves none.
    pub core: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { no_new_privs: true, core: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The plugin may live until this time, by [`crate::boot_time`], unless it is given more.
    Until(Duration),
    Term,
    /// Ask the plugin to stop. It takes its time, and ends by itself.
    Stop,
    Kill,
}

/// A plugin to be started. Its descriptors are sent along, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// Until when it may live at first, by [`crate::boot_time`]. After that it is not started.
    pub until: Duration,
    #[serde(skip)]
    pub program: PathBuf,
    #[serde(skip)]
    pub arguments: Vec<OsString>,
    #[serde(skip)]
    pub environment: Environment,
    /// Its working directory: the task's private folder, or `/` if it takes several tasks.
    #[serde(skip)]
    pub folder: PathBuf,
    pub descriptors: usize,
    pub confinement: Option<Confinement>,
    /// If it is a command of the task's: what the task says of that besides.
    pub direct: Option<Direct>,
}

/// A command of a task's that is the plugin itself. It has no standard input, and its program is looked for in `PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    /// Variables that take the place of those of the plugin. They are not what its processes are known by.
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
}

impl Spawn {
    /// Whether it takes several tasks, and has no folder.
    pub fn is_warm(&self) -> bool {
        self.folder == Path::new("/")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuard {
    Spawn(Number, Box<Spawn>),
    Order(Number, Order),
}

impl ToGuard {
    pub fn to_bytes(&self) -> Wiped {
        let spawn = if let Self::Spawn(_, spawn) = self { Some(spawn) } else { None };
        let arguments = spawn.map_or(0, |spawn| spawn.arguments.len());
        // With room for its length at the beginning.
        let mut frame = Wiped::from(vec![0; LENGTH]);
        // What cannot be written is refused by its receiver.
        let order = serde_json::to_string(&(self, arguments)).unwrap_or_default();
        append_word(&mut frame, order.as_ref());
        if let Some(spawn) = spawn {
            let words = [spawn.folder.as_os_str(), spawn.program.as_os_str()].into_iter();
            let variables = spawn.environment.iter().flat_map(|(name, value)| [name, value]);
            let further = spawn.arguments.iter().chain(variables).map(OsString::as_os_str);
            words.chain(further).for_each(|word| append_word(&mut frame, word));
        }
        let length = length_of(&frame[LENGTH..]);
        frame[..LENGTH].copy_from_slice(&length);
        frame
    }

    /// What a frame without its length means; `None` if it means nothing.
    fn parse(frame: &[u8]) -> Option<Self> {
        let mut words = Words(frame);
        let (mut order, arguments): (Self, usize) = serde_json::from_slice(words.next()?).ok()?;
        if let Self::Spawn(_, spawn) = &mut order {
            spawn.folder = words.string()?.into();
            spawn.program = words.string()?.into();
            spawn.arguments = (0..arguments).map(|_| words.string()).collect::<Option<_>>()?;
            while !words.0.is_empty() {
                let name = words.string()?;
                spawn.environment.add(name, words.string()?);
            }
        }
        words.0.is_empty().then_some(order)
    }

    /// Takes the first order off what has arrived. `None`: it is not complete yet.
    pub fn take(arrived: &mut Wiped) -> io::Result<Option<Self>> {
        let senseless = || io::Error::new(io::ErrorKind::InvalidData, "an order makes no sense");
        let Some(frame) = first_frame(arrived, LONGEST)? else { return Ok(None) };
        let order = Self::parse(frame).ok_or_else(senseless)?;
        let end = LENGTH + frame.len();
        arrived.leave_out(end);
        Ok(Some(order))
    }
}

/// The first frame that has arrived, without its length. `None`: it is not complete yet.
pub fn first_frame(arrived: &[u8], longest: usize) -> io::Result<Option<&[u8]>> {
    let Some((length, rest)) = arrived.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
    if length > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok(rest.get(..length))
}

fn append_word(frame: &mut Wiped, word: &OsStr) {
    // What does not fit into four bytes is refused by its receiver in any case.
    frame.extend(&length_of(word.as_bytes()));
    frame.extend(word.as_bytes());
}

fn length_of(bytes: &[u8]) -> [u8; LENGTH] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (word, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        self.0 = rest;
        Some(word)
    }

    fn string(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.next()?.to_vec()))
    }
}

/// Orders as they arrive at the guard, with the descriptors that come along.
pub struct Inbox {
    socket: UnixStream,
    buffer: Vec<u8>,
    /// Orders that have arrived, of which the last need not be complete.
    pub arrived: Wiped,
    descriptors: VecDeque<OwnedFd>,
}

impl Inbox {
    pub fn new(socket: UnixStream) -> Self {
        let (buffer, arrived) = (vec![0; READ_SIZE], Wiped::default());
        Self { socket, buffer, arrived, descriptors: VecDeque::new() }
    }

    /// Takes what there is, and waits if there is nothing. False: nothing will come any more.
    pub fn receive(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        let received = match recvmsg(&self.socket, &mut into, &mut along, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            // Who dies with unread reports resets the connection.
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        for message in along.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.arrived.extend(&self.buffer[..received]);
        // A plugin's variables may be secret.
        self.buffer[..received].zeroize();
        Ok(received > 0)
    }

    /// The descriptors that belong to the order that was taken last.
    pub fn descriptors(&mut self, number: usize) -> io::Result<Vec<OwnedFd>> {
        if self.descriptors.len() < number {
            return Err(io::Error::other("a plugin's descriptors have not come with it"));
        }
        Ok(self.descriptors.drain(..number).collect())
    }
}

/// The guard to the runner, about one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It runs as this process, which leads a group of its own.
    Pid(i32),
    /// It cannot be started, in the operating system's words.
    Error(String),
    /// It is a command of the task's, and cannot be started as it is. Another program has to say why.
    NotDirect,
    Exited(Exit),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromGuard(pub Number, pub Report);

impl FromGuard {
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        Ok([&length_of(&json)[..], &json].concat())
    }

    pub fn parse(frame: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(frame)?)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As `waitpid` gives it.
    pub status: i32,
    /// Whether it ended after an order to end.
    pub ordered: bool,
    /// Whether the guard killed it because its time was over.
    pub lapsed: bool,
    /// Whether no process is left that it has started, nor any other of the guard's: nothing can be in its private folder.
    pub alone: bool,
    /// Whether it was killed because memory ran out.
    pub oom: bool,
    pub limit: Option<Exceeded>,
    pub duration: Duration,
    /// Processor time of the plugin and of the descendants that were waited for.
    pub cpu: Duration,
    /// The most memory that one of these processes had at once, in bytes. The guard's own, some 4 MiB, is the least that the
    /// kernel tells.
    pub peak_memory: u64,
}

impl Exit {
    /// The exit of a plugin of which nothing more is known than that it was killed.
    pub fn unknown() -> Self {
        Self { status: nix::sys::signal::Signal::SIGKILL as i32, ..Self::default() }
    }

    pub fn exit_status(&self) -> ExitStatus {
        ExitStatus::from_raw(self.status)
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::config::Limits;
    use disbatch_core::identity::Identity;

    use super::*;

    fn orders() -> Vec<ToGuard> {
        let spawn = Spawn {
            until: Duration::from_millis(1_500),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "".into(), OsString::from_vec(vec![255, 10])],
            environment: Environment::of(vec![
                ("A".into(), "".into()),
                ("C".into(), OsString::from_vec(vec![b'=', 255])),
            ]),
            folder: "/tmp/x y".into(),
            descriptors: 4,
            confinement: None,
            direct: None,
        };
        let user =
            Identity { name: "u".into(), uid: 7, gid: 8, groups: vec![8, 9], home: PathBuf::from("/home/u") };
        let limits = Limits { memory: Some(1 << 30), core: Some(0), ..Limits::default() };
        let cgroup = Some("/sys/fs/cgroup/d".into());
        let confinement = Confinement { user: Some(user), limits, cgroup, handed_over: true };
        let confined = Spawn { confinement: Some(confinement), ..spawn.clone() };
        let direct = Direct { env: vec![("A".to_owned(), "\"".to_owned())], cwd: Some("/".to_owned()) };
        let direct = Spawn { direct: Some(direct), ..spawn.clone() };
        vec![
            ToGuard::Spawn(7, Box::new(spawn)),
            ToGuard::Spawn(8, Box::new(confined)),
            ToGuard::Spawn(9, Box::new(direct)),
            ToGuard::Order(7, Order::Until(Duration::from_millis(1_500))),
            ToGuard::Order(8, Order::Term),
            ToGuard::Order(8, Order::Stop),
            ToGuard::Order(u64::MAX, Order::Kill),
        ]
    }

    #[test]
    fn orders_survive_the_way_however_it_cuts_them() {
        let bytes: Vec<u8> = orders().iter().flat_map(|order| order.to_bytes().to_vec()).collect();
        for step in [1, 2, 7, bytes.len()] {
            let (mut arrived, mut taken) = (Wiped::default(), Vec::new());
            for piece in bytes.chunks(step) {
                arrived.extend(piece);
                while let Some(order) = ToGuard::take(&mut arrived).unwrap() {
                    taken.push(order);
                }
            }
            assert_eq!(taken, orders());
            assert!(arrived.is_empty());
        }
    }

    #[test]
    fn rubbish_is_refused() {
        let mut too_much = ToGuard::Order(8, Order::Term).to_bytes().to_vec();
        too_much.push(0);
        too_much[0] += 1;
        let unknown = [&[8_u8, 0, 0, 0, 4, 0, 0, 0][..], &b"nope"[..]].concat();
        for rubbish in [vec![255; 8], vec![1, 0, 0, 0, 7], vec![0; 4], unknown, too_much] {
            assert!(ToGuard::take(&mut rubbish.clone().into()).is_err(), "{rubbish:?}");
        }
    }

    #[test]
    fn a_confinement_that_makes_no_sense_is_refused_and_not_left_out() {
        let order = orders().swap_remove(0);
        let mut bytes = order.to_bytes().to_vec();
        assert_eq!(ToGuard::take(&mut bytes.clone().into()).unwrap(), Some(order));
        let at = bytes.windows(4).position(|word| word == b"null").unwrap();
        bytes[at] = b'x';
        assert!(ToGuard::take(&mut bytes.into()).is_err());
    }

    #[test]
    fn reports_survive_the_way() {
        let exit = Exit { lapsed: true, oom: true, limit: Some(Exceeded::Memory(7)), ..Exit::unknown() };
        for report in
            [Report::Pid(7), Report::Error("two\nlines".into()), Report::NotDirect, Report::Exited(exit)]
        {
            let report = FromGuard(3, report);
            assert_eq!(FromGuard::parse(&report.to_bytes().unwrap()[4..]).unwrap(), report);
        }
        assert!(FromGuard::parse(b"[3]").is_err());
    }
}
