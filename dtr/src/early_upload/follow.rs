//! Reads a file from its start while it is still being written.

use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use disbatch_core::output::Encoding;
use futures::stream;
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio_util::io::StreamReader;

use crate::places::Shape;

/// So much is read at once, and waited for.
const READ_BYTES: u64 = 1024 * 1024;

/// How far a stream has come.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// What there is of it.
    pub so_far: Shape,
    pub complete: bool,
}

impl Growth {
    /// How it is to be stored, as far as that is known.
    pub fn encoding(&self) -> Encoding {
        if self.so_far.binary { Encoding::Binary } else { Encoding::Text }
    }
}

/// Reads the stream in `file` to its end, as something that is stored like this. Fails when nobody tells any more how
/// it grows, and with `InvalidData` as soon as it is known to be no text although it was to be.
pub fn follow(
    file: Arc<File>,
    grown: watch::Receiver<Growth>,
    encoding: Encoding,
) -> impl AsyncRead + Unpin + Send {
    let follower = Follower { file, grown, encoding, position: 0 };
    StreamReader::new(Box::pin(stream::try_unfold(follower, Follower::next)))
}

struct Follower {
    file: Arc<File>,
    grown: watch::Receiver<Growth>,
    encoding: Encoding,
    position: u64,
}

impl Follower {
    async fn next(mut self) -> io::Result<Option<(Cursor<Vec<u8>>, Self)>> {
        let (position, encoding) = (self.position, self.encoding);
        let is_enough = |growth: &Growth| {
            let turned = growth.encoding() != encoding;
            turned || growth.complete || growth.so_far.length >= position + READ_BYTES
        };
        let growth = *self.grown.wait_for(is_enough).await.map_err(io::Error::other)?;
        if growth.encoding() != encoding {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it turned out to be no text"));
        }
        let wanted = growth.so_far.length.saturating_sub(position).min(READ_BYTES);
        if wanted == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
        let file = Arc::clone(&self.file);
        let read = tokio::task::spawn_blocking(move || {
            // With a position of its own: the capture writes at that of the file.
            file.read_exact_at(&mut bytes, position).map(|()| bytes)
        });
        let bytes = read.await.map_err(io::Error::other)??;
        self.position += wanted;
        Ok(Some((Cursor::new(bytes), self)))
    }
}
