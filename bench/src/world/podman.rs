//! A Podman of the benchmark's own, with one image: of a single program, which does nothing. That of the system, its
//! images and its containers are not touched.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use disbatch_mongod::watchdog::Watchdog;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

pub const IMAGE: &str = "localhost/disbatch-bench:1";

/// How long each command may take.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where a BusyBox without libraries is. It does what the name says by which it is called.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// As the tests have it: some machines do not let the usual limits be set.
const CONFIGURATION: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"#;

/// A Podman that listens.
#[derive(Debug)]
pub struct Podman {
    folder: PathBuf,
    child: Child,
    watchdog: Watchdog,
}

impl Podman {
    /// Makes the image, runs a container of it, and starts the service.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("disbatch-bench-podman-").tempdir()?;
        write_configuration(folder.path()).await?;
        make_image(folder.path()).await?;
        podman(folder.path(), &["run", "--rm", "--network", "none", IMAGE]).await?;
        Box::pin(Self::serve(folder)).await
    }

    async fn serve(folder: TempDir) -> anyhow::Result<Self> {
        let address = address(folder.path());
        let mut service = command(folder.path());
        service.args(["system", "service", "--time=0"]).arg(&address);
        service.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(folder.path().join("log"))?);
        // A ^C in the terminal is for the benchmark, which ends its servers last.
        let child = service.process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().context("podman ended at once")?;
        let watchdog = Watchdog::start(pid, &address, Some(folder.path()));
        let mut podman = Self {
            watchdog: watchdog.context("cannot start sh to watch podman")?,
            child,
            folder: folder.keep(),
        };
        podman.wait_until_ready().await?;
        Ok(podman)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let (begun, mut look) = (Instant::now(), interval(LOOK_EVERY));
        while UnixStream::connect(self.socket()).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("podman ended with {status}: {}", log.trim_end());
            }
            ensure!(begun.elapsed() < DEADLINE, "podman does not listen after {} s", DEADLINE.as_secs());
            look.tick().await;
        }
        Ok(())
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// Ends it, and removes what it has left.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        // Nothing is to be in use when the folder is removed.
        podman(&self.folder, &["rm", "--force", "--all", "--time", "0"]).await?;
        if let Some(pid) = self.child.id() {
            kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM).context("cannot signal podman")?;
        }
        timeout(DEADLINE, self.child.wait()).await.context("podman does not end")??;
        self.watchdog.release();
        fs::remove_dir_all(&self.folder).context("cannot remove what podman has left")
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

fn address(folder: &Path) -> OsString {
    let mut address = OsString::from("unix://");
    address.push(socket(folder));
    address
}

async fn write_configuration(folder: &Path) -> anyhow::Result<()> {
    let mut configuration = CONFIGURATION.to_owned();
    // Where both are there, this one runs in more places.
    if Command::new("runc").arg("--version").stdout(Stdio::null()).status().await.is_ok() {
        configuration.push_str("runtime = \"runc\"\n");
    }
    Ok(fs::write(folder.join("containers.conf"), configuration)?)
}

/// The less there is in an image, the less of what is measured is the copying of files.
async fn make_image(folder: &Path) -> anyhow::Result<()> {
    let busybox = BUSYBOX.iter().map(Path::new).find(|path| path.is_file());
    let busybox = busybox.context("there is no busybox: install busybox-static")?;
    let (root, archive) = (folder.join("image"), folder.join("image.tar"));
    for empty in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(empty))?;
    }
    fs::copy(busybox, root.join("bin/true"))?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/true\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    let mut tar = Command::new("tar");
    // Who is not root could not remove what other users have in the image.
    tar.args(["--owner=0", "--group=0", "-C"]).arg(&root).arg("-cf").arg(&archive).arg(".");
    finish(&mut tar, "tar").await?;
    let archive = archive.to_str().context("the path of the folder for temporary files is no text")?;
    podman(folder, &["import", "--quiet", "--change", "CMD [\"/bin/true\"]", archive, IMAGE]).await
}

/// Runs a command of Podman's to its end.
async fn podman(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    finish(command(folder).args(arguments), &format!("podman {}", arguments.join(" "))).await
}

async fn finish(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = timeout(DEADLINE, running).await;
    let ended = ended
        .with_context(|| format!("{what} takes too long"))?
        .with_context(|| format!("{what}: cannot be started"))?;
    let complaints = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{what}: {}", complaints.trim_end());
    Ok(())
}

/// Everything that would be shared with others on this machine is apart.
fn command(folder: &Path) -> Command {
    let mut command = Command::new("podman");
    command.env("CONTAINERS_CONF", folder.join("containers.conf")).args(["--storage-driver", "vfs"]);
    for (option, name) in
        [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp"), ("--network-config-dir", "networks")]
    {
        command.arg(option).arg(folder.join(name));
    }
    command
}
