//! SHA-256 sums of the files of plugins. Which a plugin has is looked at once a second, as its manifest is, and each is read
//! again only when it looks different.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use disbatch_core::plugin::Plugin;
use disbatch_wire::bundles::PluginFile;
use sha2::{Digest, Sha256};

/// Larger files are not read.
const LARGEST: u64 = 64 * 1024 * 1024;

/// So many sums are remembered.
const MOST: usize = 2_000;

/// By what a file that has changed is known: its place, length, and when it was written.
type Looks = (u64, u64, u64, i64, i64);

/// For so long a plugin is taken to have the files that it had. That these are the same is looked at each time.
const STAY: Duration = Duration::from_secs(1);

/// By what it follows which files a plugin has.
type Place = (PathBuf, Vec<String>, Option<PathBuf>);

/// Those that are known. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sums(Arc<Mutex<SumCache>>);

#[derive(Debug, Default)]
struct SumCache {
    sums: HashMap<PathBuf, (Looks, String)>,
    plugins: HashMap<Place, (Instant, Vec<PathBuf>)>,
}

impl Sums {
    /// The files of a plugin with their sums, without those that are gone.
    pub fn of(&self, plugin: &Plugin) -> Vec<PluginFile> {
        let now = Instant::now();
        let files = plugin.files();
        let found = self.of_files(&files);
        let mut known = self.known();
        known.plugins.retain(|_, (at, _)| at.elapsed() < STAY);
        known.plugins.insert(place(plugin), (now, files));
        found
    }

    /// The same, if no file has to be read for it.
    pub fn known_of(&self, plugin: &Plugin) -> Option<Vec<PluginFile>> {
        let known = self.known();
        let (at, files) = known.plugins.get(&place(plugin))?;
        let file = |path: &PathBuf| {
            let found = fs::metadata(path).ok()?;
            let sum = match known.sums.get(path) {
                Some((same, sum)) if *same == looks(&found) => Some(sum.clone()),
                _ if found.len() > LARGEST => None,
                _ => return None,
            };
            Some(plugin_file(path, &found, sum))
        };
        (at.elapsed() < STAY).then(|| files.iter().map(file).collect()).flatten()
    }

    fn of_files(&self, files: &[PathBuf]) -> Vec<PluginFile> {
        files.iter().filter_map(|file| self.one(file).ok()).collect()
    }

    fn one(&self, path: &Path) -> io::Result<PluginFile> {
        let found = fs::metadata(path)?;
        if found.len() > LARGEST {
            return Ok(plugin_file(path, &found, None));
        }
        if let Some((same, sum)) = self.known().sums.get(path)
            && *same == looks(&found)
        {
            return Ok(plugin_file(path, &found, Some(sum.clone())));
        }
        let mut digest = Digester(Sha256::new());
        io::copy(&mut File::open(path)?, &mut digest)?;
        let sum: String = digest.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut known = self.known();
        if known.sums.len() >= MOST {
            known.sums.clear();
        }
        known.sums.insert(path.to_owned(), (looks(&found), sum.clone()));
        Ok(plugin_file(path, &found, Some(sum)))
    }

    fn known(&self) -> MutexGuard<'_, SumCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(plugin: &Plugin) -> Place {
    (plugin.program.clone(), plugin.arguments.clone(), plugin.folder.clone())
}

fn looks(found: &Metadata) -> Looks {
    (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

fn plugin_file(path: &Path, found: &Metadata, sha256: Option<String>) -> PluginFile {
    PluginFile { path: path.to_string_lossy().into_owned(), size: found.len(), sha256 }
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
        let sum = || {
            sums.of_files(&files)
                .into_iter()
                .map(|file| (file.size, file.sha256.unwrap()))
                .collect::<Vec<_>>()
        };
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(), [(3, abc.to_owned())]);
        assert_eq!(sum(), [(3, abc.to_owned())]);
        fs::write(&path, "abcd").unwrap();
        assert_ne!(sum()[0].1, abc);
    }
}
