//! Stores what is in files, chunk by chunk; nothing of it that is there already.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;

use disbatch_core::files::{
    CHUNK_BYTES, Check, Chunk, ContentHasher, ContentId, FilesError, LONGEST, NewEntry, Put, Sender,
    chunk_length, chunks_of,
};
use disbatch_core::store::Store;
use futures::{StreamExt, stream};
use tokio::sync::SemaphorePermit;

use super::root::FolderFile;
use super::transfer::{Meter, aside};
use super::{Exchange, Trouble};

/// So many bytes of a file are looked through before anything else gets its turn.
const SLICE: u64 = 16 * 1024 * 1024;

/// So many bytes are read at once to look through a file.
const BUFFER: usize = 256 * 1024;

/// Files of up to so many bytes are stored together.
const SMALL: u64 = 16 * 1024;

const ON_THEIR_WAY: usize = 3;

/// So often a file is stored anew if somebody who stores the same gets in the way.
const TRIES: usize = 8;

#[derive(Debug)]
pub struct HashedFile {
    pub entry: NewEntry,
    file: Arc<File>,
}

struct Piece<'a> {
    n: u64,
    bytes: Vec<u8>,
    /// Given back when it is stored.
    _room: Option<SemaphorePermit<'a>>,
}

impl Exchange<'_> {
    pub(super) async fn look_through(&self, found: FolderFile) -> Result<HashedFile, Trouble> {
        let FolderFile { path, file, mode, mtime } = found;
        let file = Arc::new(file);
        let hashed = hash(&file, LONGEST).await;
        let hashed = hashed.map_err(|source| Trouble::Read { path: path.clone(), source })?;
        let Some(hasher) = hashed else { return Err(Trouble::TooLong(path)) };
        let size = hasher.length();
        Ok(HashedFile { entry: NewEntry { path, file: hasher.finish(), size, mode, mtime }, file })
    }

    /// Stores small files together. Returns those that are still to be stored.
    pub(super) async fn store_small<'k>(
        &self,
        known: &'k [HashedFile],
        meter: &Meter<'_>,
    ) -> Result<Vec<&'k HashedFile>, Trouble> {
        let is_small = |known: &&HashedFile| (1..=SMALL).contains(&known.entry.size);
        let (small, mut left): (Vec<&HashedFile>, Vec<&HashedFile>) = known.iter().partition(is_small);
        if small.is_empty() {
            return Ok(left);
        }
        let files: Vec<(Arc<File>, u64)> =
            small.iter().map(|known| (known.file.clone(), known.entry.size)).collect();
        let read = aside(move || Ok(files.iter().map(|(file, size)| read_all(file, *size)).collect()));
        let read: Vec<io::Result<Vec<u8>>> = read.await.map_err(Trouble::Walk)?;
        let mut contents = BTreeMap::new();
        for (known, bytes) in small.iter().zip(read) {
            let path = &known.entry.path;
            let bytes = bytes.map_err(|source| Trouble::Read { path: path.clone(), source })?;
            if ContentId::of(&bytes) != known.entry.file {
                return Err(Trouble::Changed(path.clone()));
            }
            contents.insert(known.entry.file, bytes);
        }
        let sender = Sender::runner();
        let store = async |store: &Store| store.store_small_contents(&contents, &sender).await;
        let there = self.ask("storing small files", store).await?;
        for known in small {
            if there.contains(&known.entry.file) {
                meter.add_bytes(known.entry.size);
                meter.add_file();
            } else {
                left.push(known);
            }
        }
        Ok(left)
    }

    /// Stores what is in a file, as far as it is not there.
    pub(super) async fn store(&self, known: &HashedFile, meter: &Meter<'_>) -> Result<(), Trouble> {
        let (id, chunks, sender) = (known.entry.file, chunks_of(known.entry.size), Sender::runner());
        for _ in 0..TRIES {
            let look = async |store: &Store| store.content_state(id, &sender, true).await;
            let state = self.ask("looking what is stored", look).await?;
            if state.done {
                meter.add_bytes(known.entry.size);
                break;
            }
            let missing = match state.length {
                Some(_) => state.missing,
                None => iter::once(0..chunks).collect(),
            };
            let check = self.send(known, &missing, meter).await?;
            let finish = async |store: &Store| store.content_finish(id, &sender, check).await;
            match self.ask("storing a file", finish).await {
                Ok(()) => break,
                // Somebody who stores the same has got in the way, or has left something wrong.
                Err(Trouble::Files(
                    FilesError::NotSent | FilesError::Incomplete(_) | FilesError::WrongContent,
                )) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        meter.add_file();
        Ok(())
    }

    /// Sends chunks. Returns how it is known that they are what they should be.
    async fn send(
        &self,
        known: &HashedFile,
        missing: &[Range<u64>],
        meter: &Meter<'_>,
    ) -> Result<Check, Trouble> {
        let (id, size) = (known.entry.file, known.entry.size);
        let is_all = missing.iter().map(|range| range.end - range.start).sum::<u64>() == chunks_of(size);
        let mut hasher = ContentHasher::default();
        let mut is_ours = is_all;
        {
            let numbers = missing.iter().cloned().flatten();
            let pieces = stream::iter(numbers).then(|n| self.read(known, n));
            let puts = pieces.map(|piece| {
                if let Ok(piece) = &piece {
                    hasher.update(&piece.bytes);
                }
                self.put(known, piece, meter)
            });
            let mut puts = pin!(puts.buffer_unordered(ON_THEIR_WAY));
            while let Some(put) = puts.next().await {
                is_ours &= put? == Put::Stored;
            }
        }
        if is_all && hasher.finish() != id {
            return Err(Trouble::Changed(known.entry.path.clone()));
        }
        Ok(if is_ours { Check::Computed } else { Check::ReadBack })
    }

    async fn read(&self, known: &HashedFile, n: u64) -> Result<Piece<'_>, Trouble> {
        let room = self.room.acquire().await.ok();
        let length = chunk_length(known.entry.size, n).and_then(|length| usize::try_from(length).ok());
        let file = known.file.clone();
        let read = aside(move || {
            let mut bytes = vec![0; length.unwrap_or(0)];
            file.read_exact_at(&mut bytes, n.saturating_mul(CHUNK_BYTES))?;
            Ok(bytes)
        });
        let path = &known.entry.path;
        match read.await {
            Ok(bytes) => Ok(Piece { n, bytes, _room: room }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Trouble::Changed(path.clone())),
            Err(source) => Err(Trouble::Read { path: path.clone(), source }),
        }
    }

    async fn put(
        &self,
        known: &HashedFile,
        piece: Result<Piece<'_>, Trouble>,
        meter: &Meter<'_>,
    ) -> Result<Put, Trouble> {
        let piece = piece?;
        let sender = Sender::runner();
        let chunk = Chunk { of: known.entry.file, length: known.entry.size, n: piece.n, bytes: &piece.bytes };
        let store = async |store: &Store| store.content_put_chunk(chunk, &sender).await;
        let put = self.ask("storing a part of a file", store).await?;
        meter.add_bytes(piece.bytes.len() as u64);
        Ok(put)
    }
}

/// Reads all of a file, slice by slice. `None`: it has more bytes than so many. What has a hole in it, or grows while it is
/// read, may say that it has more than anybody could ever read.
async fn hash(file: &Arc<File>, most: u64) -> io::Result<Option<ContentHasher>> {
    if file.metadata()?.len() > most {
        return Ok(None);
    }
    let mut hasher = ContentHasher::default();
    loop {
        let (same, before) = (file.clone(), hasher.length());
        hasher = aside(move || hash_on(&same, hasher, SLICE)).await?;
        if hasher.length() > most {
            return Ok(None);
        }
        if hasher.length() < before + SLICE {
            return Ok(Some(hasher));
        }
    }
}

/// Reads on where the hasher is, until there are so many bytes more. Less than that: the file is at its end.
pub fn hash_on(file: &File, mut hasher: ContentHasher, more: u64) -> io::Result<ContentHasher> {
    let end = hasher.length().saturating_add(more);
    let mut buffer = vec![0; BUFFER];
    while hasher.length() < end {
        match file.read_at(&mut buffer, hasher.length()) {
            Ok(0) => break,
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher)
}

fn read_all(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_file_is_looked_through_slice_by_slice() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..SLICE + 12_345).map(|n| u8::try_from(n % 251).unwrap()).collect();
        file.write_all(&bytes).unwrap();
        let first = hash_on(&file, ContentHasher::default(), SLICE).unwrap();
        assert!(first.length() >= SLICE);
        let second = hash_on(&file, first, SLICE).unwrap();
        let third = hash_on(&file, second.clone(), SLICE).unwrap();
        assert_eq!((second.length(), third.length()), (bytes.len() as u64, bytes.len() as u64));
        assert_eq!(third.finish(), ContentId::of(&bytes));
    }

    #[tokio::test]
    async fn what_is_longer_than_any_file_may_be_is_not_read_to_its_end() {
        let length = async |file: File, most: u64| {
            let hashed = timeout(Duration::from_secs(30), hash(&Arc::new(file), most)).await;
            hashed.unwrap().unwrap().map(|hasher| hasher.length())
        };
        let hole = tempfile::tempfile().unwrap();
        hole.set_len(LONGEST + 1).unwrap();
        assert_eq!(length(hole, LONGEST).await, None, "it says so");
        let endless = File::open("/dev/zero").unwrap();
        assert_eq!(length(endless, SLICE - 1).await, None, "it is seen while it is read");
        let ordinary = tempfile::tempfile().unwrap();
        ordinary.set_len(1_000).unwrap();
        assert_eq!(length(ordinary, 1_000).await, Some(1_000));
    }
}
