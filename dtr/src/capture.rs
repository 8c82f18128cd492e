//! Captures a stream completely in bounded memory: the first part in memory, all of it in an unnamed file
//! once it is longer.
//!
//! Whether a stream is text is known only at its end, and decides how it is stored; and a plugin must not stall because the database does. So what is
//! captured here counts, and whatever is shown or stored of it meanwhile is a copy.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use bson::DateTime;
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::output::{Marks, StreamName};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::deliver::Shape;
use crate::early_upload::{self, Early};
use crate::live::{Live, Tap};
use crate::recorder::Recorder;

/// Longer streams are kept on disk.
const IN_MEMORY: usize = 256 * 1024;

/// Most streams are short; the buffer of others grows to what a pipe holds.
const READ_SIZES: [usize; 2] = [4 * 1024, 64 * 1024];

/// Both streams of a task, whichever of its plugins writes to them.
#[derive(Debug)]
pub struct Captures {
    pub stdout: Capture,
    pub stderr: Capture,
}

impl Captures {
    /// Empty ones, which also show what they get through `live`, and have it stored through `early` once it is long.
    pub fn new(live: Option<&Live<'_>>, early: Option<&Early>) -> Self {
        let began = Began::now();
        let capture = |stream| {
            let (tap, early) = (live.map(|live| live.tap(stream)), early.map(|early| early.tap(stream)));
            Capture { began, tap, early, ..Capture::new(std::env::temp_dir()) }
        };
        Self { stdout: capture(StreamName::Stdout), stderr: capture(StreamName::Stderr) }
    }

    pub fn be_recorded(&mut self, recorder: Option<&Recorder>) {
        let of = |stream| recorder.map(|recorder| (recorder.clone(), stream));
        self.stdout.recorder = of(StreamName::Stdout);
        self.stderr.recorder = of(StreamName::Stderr);
    }

    pub fn reopen(&self) {
        for capture in [&self.stdout, &self.stderr] {
            if let Some(tap) = &capture.tap {
                tap.open();
            }
        }
    }
}

/// When the output of an attempt began, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Began {
    instant: Instant,
    time: DateTime,
}

impl Began {
    fn now() -> Self {
        Self { instant: Instant::now(), time: SystemClock.now() }
    }
}

/// A stream that is being captured, and then what was captured.
#[derive(Debug)]
pub struct Capture {
    memory: Vec<u8>,
    file: Option<File>,
    folder: PathBuf,
    length: u64,
    began: Began,
    /// When its pieces came, from then on.
    pub marks: Marks,
    check: Utf8Check,
    failure: Option<io::Error>,
    lost: u64,
    tap: Option<Tap>,
    /// What may have begun to store it.
    pub early: Option<early_upload::Tap>,
    recorder: Option<(Recorder, StreamName)>,
}

impl Capture {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            memory: Vec::new(),
            file: None,
            folder,
            length: 0,
            began: Began::now(),
            marks: Marks::default(),
            check: Utf8Check::default(),
            failure: None,
            lost: 0,
            tap: None,
            early: None,
            recorder: None,
        }
    }

    /// Also shows what is captured from now on to `tap`.
    pub fn tapped(self, tap: Tap) -> Self {
        Self { tap: Some(tap), ..self }
    }

    /// Reads `source` to its end. Keeps everything read so far when dropped between reads.
    ///
    /// A full disk does not stop the plugin: what cannot be kept is counted, see [`Capture::failure`].
    pub async fn drain(&mut self, mut source: impl AsyncRead + Unpin) {
        let [short, long] = READ_SIZES;
        let mut buffer = vec![0; short];
        loop {
            match source.read(&mut buffer).await {
                Ok(0) => break,
                Ok(read) => {
                    if let Some((recorder, stream)) = &self.recorder {
                        recorder.wrote(*stream, self.length, read);
                    }
                    self.push(&buffer[..read]);
                    if read == buffer.len() {
                        buffer.resize(long, 0);
                    }
                }
                Err(error) => {
                    self.failure.get_or_insert(error);
                    break;
                }
            }
        }
        if let Some(tap) = &self.tap {
            tap.close();
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.keep(bytes).err();
        }
        if self.failure.is_some() {
            self.lost += bytes.len() as u64;
            return;
        }
        self.marks.note(self.began.instant.elapsed(), self.length);
        self.length += bytes.len() as u64;
        self.check.push(bytes);
        if let Some(tap) = &self.tap {
            tap.push(bytes);
        }
        if let (Some(early), Some(file)) = (&self.early, &self.file) {
            early.grown(file, Shape { length: self.length, binary: self.check.invalid });
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(bytes);
        }
        if self.memory.len() + bytes.len() <= IN_MEMORY {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let mut file = tempfile::tempfile_in(&self.folder)?;
        file.write_all(&self.memory)?;
        file.write_all(bytes)?;
        self.file = Some(file);
        self.memory = Vec::new();
        Ok(())
    }

    /// Appends a line of the runner's own, starting on a line of its own.
    pub fn note(&mut self, line: &str) {
        if self.length > 0 && self.check.last != Some(b'\n') {
            self.push(b"\n");
        }
        self.push(line.as_bytes());
    }

    pub fn len(&self) -> u64 {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its length, and whether it is text, now that it is complete.
    pub fn shape(&self) -> Shape {
        Shape { length: self.length, binary: !self.check.is_text() }
    }

    /// The time from which its marks count.
    pub fn began(&self) -> DateTime {
        self.began.time
    }

    /// Why something could not be kept, and how many bytes.
    pub fn failure(&self) -> Option<String> {
        let error = self.failure.as_ref()?;
        Some(format!("{} bytes of output could not be kept: {error}", self.lost))
    }

    /// The captured bytes from the start. Only one reader at a time.
    pub fn reader(&self) -> io::Result<Box<dyn AsyncRead + Unpin + Send + '_>> {
        match &self.file {
            None => Ok(Box::new(&self.memory[..])),
            Some(file) => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                // What a write cut short left behind is not part of the output.
                Ok(Box::new(tokio::fs::File::from_std(file).take(self.length)))
            }
        }
    }

    pub fn tail(&self, most: usize) -> io::Result<Vec<u8>> {
        let Some(file) = &self.file else {
            let begin = self.memory.len().saturating_sub(most);
            return Ok(self.memory[begin..].to_vec());
        };
        let length = self.length.min(most as u64);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, self.length - length)?;
        Ok(bytes)
    }

    /// All of it as text, for output that is known to be small.
    pub async fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        self.reader()?.read_to_string(&mut text).await?;
        Ok(text)
    }
}

/// Tells whether a stream is UTF-8 while it passes by: holds at most three bytes of a character that is not complete yet.
#[derive(Debug, Default)]
struct Utf8Check {
    /// It is not UTF-8, whatever follows.
    invalid: bool,
    pending: Vec<u8>,
    last: Option<u8>,
}

impl Utf8Check {
    fn push(&mut self, mut bytes: &[u8]) {
        self.last = bytes.last().copied().or(self.last);
        while !self.pending.is_empty() && !self.invalid {
            let Some((first, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.pending.push(*first);
            match std::str::from_utf8(&self.pending) {
                Ok(_) => self.pending.clear(),
                Err(error) => self.invalid = error.error_len().is_some(),
            }
        }
        if self.invalid {
            return;
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            self.invalid = error.error_len().is_some();
            self.pending = bytes[error.valid_up_to()..].to_vec();
        }
    }

    fn is_text(&self) -> bool {
        !self.invalid && self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn bytes(capture: &Capture) -> Vec<u8> {
        let mut bytes = Vec::new();
        capture.reader().unwrap().read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn short_and_long_streams_come_back_unchanged() {
        for length in [0, 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY + 17] {
            let mut capture = Capture::new(std::env::temp_dir());
            let source: Vec<u8> = (0..length).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
            capture.drain(&source[..]).await;
            assert_eq!(capture.len(), length as u64);
            assert_eq!(capture.file.is_some(), length > IN_MEMORY);
            assert_eq!(bytes(&capture).await, source);
            assert_eq!(bytes(&capture).await, source, "it can be read again");
            assert_eq!(capture.tail(10).unwrap(), source[length.saturating_sub(10)..]);
            assert!(!capture.shape().binary);
        }
    }

    #[tokio::test]
    async fn notes_start_on_a_line_of_their_own() {
        let mut capture = Capture::new(std::env::temp_dir());
        capture.note("first\n");
        capture.push(b"half a line");
        capture.note("second\n");
        assert_eq!(bytes(&capture).await, b"first\nhalf a line\nsecond\n");
    }

    #[tokio::test]
    async fn a_tap_gets_what_is_kept() {
        let tap = Tap::new(std::sync::Arc::default());
        let mut capture = Capture::new("/nonexistent".into()).tapped(tap.clone());
        capture.drain(&b"half a line"[..]).await;
        assert!(tap.is_closed());
        capture.note("note\n");
        capture.push(&vec![b'x'; IN_MEMORY]);
        assert_eq!(tap.peek().unwrap().bytes, bytes(&capture).await);
    }

    #[tokio::test]
    async fn an_unwritable_folder_is_reported_and_does_not_stop_the_stream() {
        let mut capture = Capture::new("/nonexistent".into());
        capture.push(b"kept");
        capture.drain(&vec![b'x'; IN_MEMORY + 1][..]).await;
        assert_eq!(bytes(&capture).await[..4], *b"kept");
        let failure = capture.failure().unwrap();
        assert!(failure.contains("could not be kept: No such file or directory"), "{failure}");
    }

    fn is_text(bytes: &[u8], step: usize) -> bool {
        let mut check = Utf8Check::default();
        for piece in bytes.chunks(step) {
            check.push(piece);
        }
        check.is_text()
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(bytes in any::<Vec<u8>>(), step in 1usize..9) {
            prop_assert_eq!(is_text(&bytes, step), std::str::from_utf8(&bytes).is_ok());
        }

        #[test]
        fn text_is_text_however_it_is_cut(text in "[a☃é𝄞]{0,30}", cut in 0usize..4, step in 1usize..9) {
            prop_assert!(is_text(text.as_bytes(), step));
            let bytes = text.as_bytes();
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(is_text(shorter, step), std::str::from_utf8(shorter).is_ok());
        }
    }
}
