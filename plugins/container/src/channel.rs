//! The control channel of a container: a named pipe in the private folder. What is written there goes on to the runner.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use nix::unistd::mkfifo;
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

pub const NAME: &str = ".disbatch-control";

/// The variable by which a container finds it.
pub const VARIABLE: &str = "DISBATCH_CONTROL";

/// Whoever the container runs as may write. Nobody else gets to the private folder.
const MODE: u32 = 0o666;

const READ_SIZE: usize = 8 * 1024;

#[derive(Debug)]
pub struct Channel {
    path: PathBuf,
    source: Receiver,
    /// `None`: nobody listens.
    target: Option<File>,
    /// What was read and has not gone on.
    pending: Vec<u8>,
    /// Whether what has gone on ends with the end of a line.
    is_whole: bool,
}

impl Channel {
    /// Makes the pipe in `folder`. The runner is where the environment says.
    pub fn open(folder: &Path) -> Result<Self, String> {
        Self::between(folder, disbatch_adapter::runner().map(File::from_std))
    }

    fn between(folder: &Path, target: Option<File>) -> Result<Self, String> {
        let path = folder.join(NAME);
        // Read and written: then it has no end, however often the container opens and closes it.
        let opened = make(&path).and_then(|()| OpenOptions::new().read_write(true).open_receiver(&path));
        match opened {
            Ok(source) => Ok(Self { path, source, target, pending: Vec::new(), is_whole: true }),
            Err(error) => Err(format!("cannot make {}: {error}", path.display())),
        }
    }

    /// Passes on what comes, for ever. Nothing is lost when this is dropped.
    pub async fn relay(&mut self) -> Infallible {
        loop {
            self.pass_on().await;
            if self.source.readable().await.is_err() {
                return std::future::pending().await;
            }
            let mut buffer = [0; READ_SIZE];
            if let Ok(read) = self.source.try_read(&mut buffer) {
                self.pending.extend_from_slice(&buffer[..read]);
            }
        }
    }

    pub async fn drain(&mut self) {
        loop {
            self.pass_on().await;
            let mut buffer = [0; READ_SIZE];
            // The runtime may not have noticed yet that there is something, so it is not asked.
            match nix::unistd::read(&self.source, &mut buffer) {
                Ok(read) if read > 0 => self.pending.extend_from_slice(&buffer[..read]),
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// Says something to the runner, in a line of its own.
    pub async fn say(&mut self, message: &Value) {
        let is_whole = self.pending.last().map_or(self.is_whole, |byte| *byte == b'\n');
        if !is_whole {
            self.pending.push(b'\n');
        }
        self.pending.extend_from_slice(format!("{message}\n").as_bytes());
        self.pass_on().await;
        if let Some(target) = &mut self.target {
            let _unheard = target.flush().await;
        }
    }

    async fn pass_on(&mut self) {
        while !self.pending.is_empty() {
            let Some(target) = &mut self.target else {
                self.pending.clear();
                return;
            };
            match target.write(&self.pending).await {
                Ok(0) | Err(_) => self.target = None,
                Ok(written) => {
                    self.is_whole = self.pending.get(written - 1) == Some(&b'\n');
                    self.pending.drain(..written);
                }
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The private folder goes with all that is in it, but not before its files are looked at.
        let _gone = fs::remove_file(&self.path);
    }
}

fn make(path: &Path) -> io::Result<()> {
    // The container of an earlier step may have lost its adapter.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let before = umask(Mode::empty());
    let made = mkfifo(path, Mode::from_bits_truncate(MODE));
    umask(before);
    Ok(made?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::time::Duration;

    use serde_json::json;
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    struct Setup {
        folder: TempDir,
        channel: Channel,
    }

    fn setup() -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let target = fs::File::create(folder.path().join("runner")).unwrap();
        let channel = Channel::between(folder.path(), Some(File::from_std(target))).unwrap();
        Setup { folder, channel }
    }

    impl Setup {
        fn write(&self, text: &str) {
            let mut pipe = fs::OpenOptions::new().write(true).open(self.folder.path().join(NAME)).unwrap();
            pipe.write_all(text.as_bytes()).unwrap();
        }

        fn heard(&self) -> String {
            fs::read_to_string(self.folder.path().join("runner")).unwrap()
        }
    }

    #[tokio::test]
    async fn what_writers_say_one_after_the_other_goes_on() {
        let mut setup = setup();
        let pipe = fs::metadata(setup.folder.path().join(NAME)).unwrap();
        assert!(pipe.file_type().is_fifo() && pipe.permissions().mode() & 0o777 == MODE);
        setup.write("{\"status\":3}\n");
        setup.channel.drain().await;
        setup.write("{\"result\"");
        setup.write(":{}}\n");
        let relayed = timeout(Duration::from_millis(100), setup.channel.relay()).await;
        assert!(relayed.is_err(), "it never ends by itself");
        setup.channel.say(&json!({ "facts": {} })).await;
        assert_eq!(setup.heard(), "{\"status\":3}\n{\"result\":{}}\n{\"facts\":{}}\n");
    }

    #[tokio::test]
    async fn what_the_adapter_says_is_a_line_of_its_own() {
        let mut setup = setup();
        setup.channel.say(&json!(1)).await;
        setup.write("half");
        setup.channel.drain().await;
        setup.channel.say(&json!(2)).await;
        setup.channel.say(&json!(3)).await;
        assert_eq!(setup.heard(), "1\nhalf\n2\n3\n");
    }

    #[tokio::test]
    async fn without_a_runner_nothing_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::write(&path, "in the way").unwrap();
        let mut channel = Channel::between(folder.path(), None).unwrap();
        channel.say(&json!(1)).await;
        assert!(channel.pending.is_empty());
        drop(channel);
        assert!(!path.exists());
        assert!(Channel::between(&path, None).unwrap_err().starts_with("cannot make"));
    }
}
