//! Output of tasks that is in `GridFS`, as text.

use bson::oid::ObjectId;
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, pin_mut};

use crate::allowance::answers::TOGETHER;

/// The first bytes of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether there is more.
    pub cut: bool,
    /// What is wrong with the stored file.
    pub damage: Option<String>,
}

/// All of the file `id`, nothing if it is empty or gone. A damaged file counts as far as it can be read, and one that is longer than
/// an answer may be as far as it is too long.
pub async fn whole(store: &Store, id: ObjectId) -> Result<Option<String>, StoreError> {
    let excerpt = excerpt(store, id, TOGETHER).await?;
    Ok(Some(excerpt.text).filter(|text| !text.is_empty()))
}

/// At most the first `limit` bytes of the file `id`.
pub async fn excerpt(store: &Store, id: ObjectId, limit: usize) -> Result<Excerpt, StoreError> {
    let chunks = store.read_output(id).await?;
    pin_mut!(chunks);
    let mut bytes = Vec::new();
    let mut damage = None;
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => bytes.extend(chunk),
            Err(error @ StoreError::DamagedOutput { .. }) => {
                tracing::warn!(%error, "output is shown in part");
                damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
        if bytes.len() > limit {
            break;
        }
    }
    Ok(Excerpt { damage, ..cut(bytes, limit) })
}

/// At most the first `limit` bytes of `bytes`, without half a character at the end.
pub fn cut(mut bytes: Vec<u8>, limit: usize) -> Excerpt {
    let cut = bytes.len() > limit;
    if cut {
        let start = (0..=limit).rev().find(|at| !is_continuation(bytes[*at])).unwrap_or(limit);
        // Four bytes are the longest character; more are no text, and cut anywhere.
        bytes.truncate(if limit - start < 4 { start } else { limit });
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Excerpt { text, cut, damage: None }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut_in_half() {
        let cut_at = |limit| cut("aé☃b".as_bytes().to_vec(), limit);
        assert_eq!(cut_at(7), Excerpt { text: "aé☃b".into(), cut: false, damage: None });
        assert_eq!(cut_at(6).text, "aé☃");
        assert_eq!(cut_at(5).text, "aé");
        assert_eq!(cut_at(2).text, "a");
        assert!(cut_at(2).cut);
        assert_eq!(cut(vec![0x80; 9], 5).text.chars().count(), 5);
    }
}
