//! SHA-256 sums of the files of plugins, of which each is read again only when it looks different.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use disbatch_wire::bundles::PluginFile;
use sha2::{Digest, Sha256};

/// Larger files are not read.
const LARGEST: u64 = 64 * 1024 * 1024;

/// So many sums are remembered.
const MOST: usize = 2_000;

/// By what a file that has changed is known: its place, length, and when it was written.
type Looks = (u64, u64, u64, i64, i64);

/// Those that are known. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sums(Arc<Mutex<HashMap<PathBuf, (Looks, String)>>>);

impl Sums {
    /// The files with their sums, without those that are gone.
    pub fn of(&self, files: &[PathBuf]) -> Vec<PluginFile> {
        files.iter().filter_map(|file| self.one(file).ok()).collect()
    }

    fn one(&self, path: &Path) -> io::Result<PluginFile> {
        let found = fs::metadata(path)?;
        let looks = (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        let file =
            |sha256| PluginFile { path: path.to_string_lossy().into_owned(), size: found.len(), sha256 };
        if found.len() > LARGEST {
            return Ok(file(None));
        }
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((same, sum)) = known().get(path)
            && *same == looks
        {
            return Ok(file(Some(sum.clone())));
        }
        let mut digest = Digester(Sha256::new());
        io::copy(&mut File::open(path)?, &mut digest)?;
        let sum: String = digest.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(path.to_owned(), (looks, sum.clone()));
        Ok(file(Some(sum)))
    }
}

struct Digester(Sha256);

impl io::Write for Digester {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_changed_has_another_sum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let (sums, files) = (Sums::default(), [path.clone(), folder.path().join("gone")]);
        fs::write(&path, "abc").unwrap();
        let sum =
            || sums.of(&files).into_iter().map(|file| (file.size, file.sha256.unwrap())).collect::<Vec<_>>();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(), [(3, abc.to_owned())]);
        assert_eq!(sum(), [(3, abc.to_owned())]);
        fs::write(&path, "abcd").unwrap();
        assert_ne!(sum()[0].1, abc);
    }
}
