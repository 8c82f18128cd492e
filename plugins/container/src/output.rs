//! What a container writes: frames of both streams over one connection, and their bytes as the output of this process.
//!
//! The streams are attached to, and not read from the engine's log: logs are text for some drivers, and lines for others.

use std::io;

use disbatch_adapter::Output;
use tokio::io::{AsyncRead, AsyncReadExt};

const READ_SIZE: usize = 64 * 1024;

const HEADER: usize = 8;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stream {
    #[default]
    Stdout,
    Stderr,
}

#[derive(Debug)]
pub struct Targets {
    stdout: Output,
    stderr: Output,
}

impl Targets {
    pub fn own() -> io::Result<Self> {
        Ok(Self { stdout: Output::to(io::stdout())?, stderr: Output::to(io::stderr())? })
    }

    fn of(&mut self, stream: Stream) -> &mut Output {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Takes frames apart, in whatever pieces they come.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; HEADER],
    known: usize,
    stream: Stream,
    left: usize,
}

impl Frames {
    /// The next bytes of a stream, which are taken away from `bytes`. `None`: there are no more.
    fn piece<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<(Stream, &'a [u8])> {
        while self.left == 0 {
            let (first, rest) = bytes.split_first()?;
            self.header[self.known] = *first;
            self.known += 1;
            *bytes = rest;
            if self.known == HEADER {
                self.known = 0;
                let [kind, _, _, _, length @ ..] = self.header;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                // What an engine itself has to say comes as a third one.
                self.stream = if kind <= 1 { Stream::Stdout } else { Stream::Stderr };
            }
        }
        if bytes.is_empty() {
            return None;
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(self.left));
        *bytes = rest;
        self.left -= piece.len();
        Some((self.stream, piece))
    }
}

pub async fn copy(mut source: impl AsyncRead + Unpin, targets: &mut Targets) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut buffer = vec![0; READ_SIZE];
    let ended = loop {
        let mut bytes = match source.read(&mut buffer).await {
            Ok(0) => break Ok(()),
            Ok(read) => &buffer[..read],
            Err(error) => break Err(error),
        };
        while let Some((stream, piece)) = frames.piece(&mut bytes) {
            targets.of(stream).write(piece).await;
        }
    };
    targets.stdout.flush().await;
    targets.stderr.flush().await;
    ended
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, 0, 0, 0];
        frame.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(bytes);
        frame
    }

    fn sent() -> Vec<u8> {
        let long = vec![0xff; 300];
        [
            frame(1, b"out"),
            frame(2, b"err\0"),
            frame(1, b""),
            frame(1, &long),
            frame(3, b"!"),
            frame(0, b"\n"),
        ]
        .concat()
    }

    /// What the two streams have got, when frames come in pieces of so many bytes.
    fn streams(size: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut frames, mut stdout, mut stderr) = (Frames::default(), Vec::new(), Vec::new());
        for mut bytes in sent().chunks(size) {
            while let Some((stream, piece)) = frames.piece(&mut bytes) {
                match stream {
                    Stream::Stdout => stdout.extend_from_slice(piece),
                    Stream::Stderr => stderr.extend_from_slice(piece),
                }
            }
        }
        (stdout, stderr)
    }

    #[test]
    fn both_streams_come_apart_in_whatever_pieces_they_come() {
        let stdout = [&b"out"[..], &[0xff; 300], b"\n"].concat();
        for size in [1, 2, 7, 8, 9, 11, 64, 10_000] {
            assert_eq!(streams(size), (stdout.clone(), b"err\0!".to_vec()), "pieces of {size}");
        }
    }

    fn open(path: &Path) -> Output {
        Output::to(fs::File::create(path).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn all_of_it_is_written_and_one_stream_does_without_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let mut targets = Targets { stdout: open(&out), stderr: open(&err) };
        copy(sent().as_slice(), &mut targets).await.unwrap();
        assert_eq!((fs::read(&out).unwrap().len(), fs::read(&err).unwrap()), (304, b"err\0!".to_vec()));
        // As where nobody reads any more: it cannot be written to.
        let closed = Output::to(fs::File::open("/dev/null").unwrap()).unwrap();
        let mut targets = Targets { stdout: closed, stderr: open(&err) };
        copy(sent().as_slice(), &mut targets).await.unwrap();
        assert_eq!(fs::read(&err).unwrap(), b"err\0!");
    }
}
