//! A tar archive that is sent while it is read.

use actix_web::web::Bytes;
use disbatch_core::store::StoreError;
use futures::stream::{self, LocalBoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use tar::Header;

use crate::error::HttpError;
use crate::raw::{limited, pieces};

/// What an archive consists of.
const BLOCK: u64 = 512;

/// Only its owner may read what is extracted.
const MODE: u32 = 0o600;

/// Files of an archive, one after the other.
#[derive(Default)]
pub struct Archive {
    length: u64,
    files: Vec<LocalBoxStream<'static, Result<Bytes, HttpError>>>,
}

impl Archive {
    /// Adds a file of this length, which is the first part of `bytes`.
    pub fn add(
        &mut self,
        name: &str,
        length: u64,
        bytes: impl Stream<Item = Result<Vec<u8>, StoreError>> + 'static,
    ) -> Result<(), HttpError> {
        let mut header = Header::new_gnu();
        header.set_path(name).map_err(|error| HttpError::internal(&error.to_string()))?;
        header.set_size(length);
        header.set_mode(MODE);
        header.set_cksum();
        let padding = (BLOCK - length % BLOCK) % BLOCK;
        self.length += BLOCK + length + padding;
        let whole = [Bytes::copy_from_slice(header.as_bytes()), zeros(padding)]
            .map(|bytes| stream::iter([Ok(bytes)]));
        let [header, padding] = whole;
        let bytes = limited(bytes.map_err(HttpError::from), length);
        self.files.push(header.chain(bytes).chain(padding).boxed_local());
        Ok(())
    }

    /// Adds a short file.
    pub fn add_text(&mut self, name: &str, text: String) -> Result<(), HttpError> {
        self.add(name, text.len() as u64, stream::iter([Ok(text.into_bytes())]))
    }

    pub fn followed_by(self, other: Self) -> Self {
        Self {
            length: self.length + other.length,
            files: self.files.into_iter().chain(other.files).collect(),
        }
    }

    /// Its length and its bytes.
    pub fn end(self) -> (u64, impl Stream<Item = Result<Bytes, HttpError>>) {
        let end = stream::iter([Ok(zeros(2 * BLOCK))]);
        (self.length + 2 * BLOCK, pieces(stream::iter(self.files).flatten().chain(end)))
    }
}

fn zeros(count: u64) -> Bytes {
    Bytes::from_static(&[0; 1024]).slice(..usize::try_from(count).unwrap_or_default().min(1024))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[actix_web::test]
    async fn others_can_read_it() {
        let mut archive = Archive::default();
        archive.add_text("a.json", "{}".to_owned()).unwrap();
        let long = stream::iter([Ok(vec![b'x'; 700]), Ok(vec![b'y'; 700])]);
        archive.add("stdout", 1000, long).unwrap();
        archive.add_text("stderr", String::new()).unwrap();
        let (length, bytes) = archive.end();
        let bytes: Vec<Bytes> = bytes.try_collect().await.unwrap();
        let bytes = bytes.concat();
        assert_eq!(bytes.len() as u64, length);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut files = Vec::new();
        for file in archive.entries().unwrap() {
            let mut file = file.unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            files.push((file.path().unwrap().to_string_lossy().into_owned(), text));
        }
        let stdout = format!("{}{}", "x".repeat(700), "y".repeat(300));
        let expected = [("a.json", "{}"), ("stdout", &stdout), ("stderr", "")];
        assert_eq!(files, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
