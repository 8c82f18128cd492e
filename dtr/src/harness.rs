//! The program in Perl that runs Perl modules: it is part of this program, and is written to a file where an interpreter can
//! read it.
//!
//! All runners of a user share the file, whose name says whose it is and what is in it. Others may write where it is; so one
//! that is not exactly as it should be, or belongs to somebody else, is not used. Then each task has its own, in its private
//! folder.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::Uid;
use sha2::{Digest, Sha256};

/// The program.
pub const TEXT: &str = include_str!("../../plugins/perl/disbatch-perl.pl");

/// Everybody can read it: plugins may run as another user.
const MODE: u32 = 0o644;

/// So many bytes of a hash are in its name.
const HASH: usize = 12;

/// Where the program is. It is written if need be. `None`: somebody has put something else there.
pub fn path() -> io::Result<Option<PathBuf>> {
    path_in(&std::env::temp_dir())
}

fn path_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    let usual = usual(folder);
    if is_right(&usual) {
        return Ok(Some(usual));
    }
    let mut file = tempfile::Builder::new().prefix("disbatch-perl-").suffix(".pl").tempfile_in(folder)?;
    file.write_all(TEXT.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    // What is refused is removed.
    Ok(file.persist(&usual).is_ok().then_some(usual))
}

fn usual(folder: &Path) -> PathBuf {
    let hash = Sha256::digest(TEXT.as_bytes());
    let hash: String = hash.iter().take(HASH).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("disbatch-perl-{}-{hash}.pl", Uid::effective()))
}

/// Whether the program is there as it was written, and nobody else could have changed it.
fn is_right(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file: File = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        let is_ours = found.is_file()
            && found.uid() == Uid::effective().as_raw()
            && found.permissions().mode() & 0o777 == MODE
            && found.len() == TEXT.len() as u64;
        let mut text = Vec::new();
        file.take(found.len()).read_to_end(&mut text)?;
        Ok(is_ours && text == TEXT.as_bytes())
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn it_is_written_once_and_again_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let first = path_in(folder.path()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&first).unwrap(), TEXT);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, MODE);
        let written = fs::metadata(&first).unwrap().ino();
        assert_eq!(path_in(folder.path()).unwrap(), Some(first.clone()));
        assert_eq!(fs::metadata(&first).unwrap().ino(), written);
        fs::write(&first, "exit").unwrap();
        assert_eq!(path_in(folder.path()).unwrap(), Some(first.clone()));
        assert_eq!(fs::read_to_string(&first).unwrap(), TEXT);
    }

    #[test]
    fn where_something_else_is_in_its_place_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        // As what belongs to somebody else, it cannot be replaced.
        fs::create_dir(usual(folder.path())).unwrap();
        assert_eq!(path_in(folder.path()).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn users_have_files_of_their_own() {
        let name = format!("/tmp/disbatch-perl-{}-", Uid::effective());
        assert!(usual(Path::new("/tmp")).to_str().unwrap().starts_with(&name));
    }

    #[test]
    fn what_is_not_exactly_it_is_not_right() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert!(!is_right(&file));
        fs::write(&file, TEXT).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(MODE)).unwrap();
        assert!(is_right(&file));
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(!is_right(&file), "everybody could have changed it");
        fs::set_permissions(&file, Permissions::from_mode(MODE)).unwrap();
        symlink(&file, folder.path().join("link")).unwrap();
        assert!(!is_right(&folder.path().join("link")));
        fs::write(&file, TEXT.replacen('a', "b", 1)).unwrap();
        assert!(!is_right(&file));
    }
}
