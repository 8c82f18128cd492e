//! Files that a runner and its plugin leave for each other in a private folder.
//!
//! The folder belongs to the plugin's user, who may put anything in the place of anything. So nothing is written through a
//! link, and nothing is read but a file of theirs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use disbatch_core::identity::Identity;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Makes the file `name`, in place of what there is of that name. Only `user` can read it, or the runner's own user.
pub fn write(folder: &Path, name: &str, bytes: &[u8], user: Option<&Identity>) -> io::Result<()> {
    let folder = enter(folder)?;
    take_away(&folder, name)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&folder, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    file.write_all(bytes)?;
    if let Some(user) = user {
        fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// Removes the file `name`, if there is one.
pub fn remove(folder: &Path, name: &str) -> io::Result<()> {
    take_away(&enter(folder)?, name)
}

/// What is in the file `name`, which has at most so many bytes and belongs to `user`, or to anybody if that is not given.
pub fn read(folder: &Path, name: &str, most: u64, user: Option<&Identity>) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(enter(folder)?, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if user.is_some_and(|user| found.uid() != user.uid) {
        return Err(io::Error::other("it belongs to somebody else than the plugin's user"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

fn enter(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(folder, flags, Mode::empty())?)
}

fn take_away(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::unistd::mkfifo;

    use super::*;

    const MOST: u64 = 100;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder, "a", b"first", None).unwrap();
        write(folder, "a", b"second", None).unwrap();
        assert_eq!(read(folder, "a", MOST, None).unwrap(), b"second");
        assert_eq!(fs::metadata(folder.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
        let error = read(folder, "a", 5, None).unwrap_err().to_string();
        assert_eq!(error, "it has more than 5 bytes");
        remove(folder, "a").unwrap();
        remove(folder, "a").unwrap();
        assert_eq!(read(folder, "a", MOST, None).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_are_not_followed_and_what_is_no_file_is_not_waited_for() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (folder, secret) = (folder.path(), elsewhere.path().join("secret"));
        fs::write(&secret, "horse").unwrap();
        symlink(&secret, folder.join("link")).unwrap();
        assert!(read(folder, "link", MOST, None).is_err());
        write(folder, "link", b"new", None).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "horse");
        mkfifo(folder.join("fifo").as_path(), Mode::S_IRWXU).unwrap();
        assert_eq!(read(folder, "fifo", MOST, None).unwrap_err().to_string(), "it is no file");
        fs::create_dir(folder.join("folder")).unwrap();
        assert!(read(folder, "folder", MOST, None).is_err());
        assert!(write(folder, "folder", b"", None).is_err());
        symlink(elsewhere.path(), folder.join("other")).unwrap();
        assert!(read(&folder.join("other"), "secret", MOST, None).is_err(), "the folder itself is a link");
    }

    #[test]
    fn only_what_is_the_plugins_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::metadata(folder.path()).unwrap().uid();
        let of = |uid| Identity { name: "u".to_owned(), uid, gid: 7, groups: vec![], home: "/".into() };
        write(folder.path(), "a", b"x", None).unwrap();
        assert!(read(folder.path(), "a", MOST, Some(&of(own))).is_ok());
        assert!(read(folder.path(), "a", MOST, Some(&of(own + 1))).is_err());
    }
}
