//! Files of file sets: what a content is known by, and names, paths and patterns.

pub mod content;
mod paths;
mod patterns;

pub use content::{CHUNK_BYTES, ContentHasher, ContentId, ContentIdError, LONGEST, chunk_length, chunks_of};
pub use paths::{EntryPath, PathError, RESERVED_PREFIX, SetName, SetNameError};
pub use patterns::{PatternError, Patterns};
