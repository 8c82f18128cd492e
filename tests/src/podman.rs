//! A private Podman for tests of containers: storage of its own, and one image, which is made of BusyBox.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::process::{Finished, finish};
use crate::{eventually, skipped};

pub const IMAGE: &str = "localhost/disbatch-test:1";

/// With this in the environment, tests of containers fail where they could not be run otherwise. `scripts/podman-runs` tells
/// whether they can be.
const REQUIRED: &str = "DISBATCH_REQUIRE_PODMAN";

/// Where a BusyBox without libraries is.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// Everything that would be shared with others on this machine is apart. Some machines do not let the usual limits be set.
/// `scripts/podman.sh` has the same.
const CONFIGURATION: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"#;

/// A Podman that listens, as Docker does. What it runs ends with it.
#[derive(Debug)]
pub struct Podman {
    /// It is killed before its folder is removed.
    service: Option<Child>,
    folder: TempDir,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub id: String,
    /// What it does, in Podman's words.
    pub state: String,
    pub labels: BTreeMap<String, String>,
}

impl Podman {
    /// Starts it. `None`: it cannot run containers here, which is said.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        match Self::try_start().await {
            Ok(podman) => Ok(Some(podman)),
            Err(error) if std::env::var_os(REQUIRED).is_some() => {
                Err(error.context(format!("{REQUIRED} is set, and Podman cannot run containers here")))
            }
            Err(error) => {
                skipped(&format!("NO CONTAINERS ARE TESTED, as Podman cannot run any here: {error:#}"));
                Ok(None)
            }
        }
    }

    async fn try_start() -> anyhow::Result<Self> {
        let mut podman = Self { service: None, folder: tempfile::tempdir()? };
        let mut configuration = CONFIGURATION.to_owned();
        // Where both are there, this one runs in more places.
        if Command::new("runc").arg("--version").stdout(Stdio::null()).status().await.is_ok() {
            configuration.push_str("runtime = \"runc\"\n");
        }
        fs::write(podman.folder.path().join("containers.conf"), configuration)?;
        podman.make_image().await?;
        podman.run(&["run", "--rm", "--network", "none", IMAGE, "true"]).await?;
        let log = fs::File::create(podman.folder.path().join("log"))?;
        let service = command(podman.folder.path())
            .args(["system", "service", "--time=0"])
            .arg(format!("unix://{}", podman.socket().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        podman.service = Some(service);
        let socket = podman.socket();
        eventually("Podman to listen", || async { Ok(UnixStream::connect(&socket).await.ok()) }).await?;
        Ok(podman)
    }

    async fn make_image(&self) -> anyhow::Result<()> {
        let root = self.folder.path().join("image");
        let busybox = BUSYBOX.iter().map(Path::new).find(|path| path.is_file());
        let busybox = busybox.context("there is no busybox: install busybox-static")?;
        for folder in ["bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr/bin"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::copy(busybox, root.join("bin/busybox"))?;
        let applets = finish(Command::new(busybox).arg("--list")).await?;
        for applet in applets.stdout.lines().filter(|applet| *applet != "busybox") {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        let archive = self.folder.path().join("image.tar");
        let packed =
            finish(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".")).await?;
        ensure!(packed.status.success(), "tar: {}", packed.stderr);
        let archive = archive.to_str().context("the path is no text")?;
        self.run(&["import", "--quiet", "--change", "CMD [\"sh\"]", archive, IMAGE]).await?;
        Ok(())
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Runs a command of Podman's to its end.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<Finished> {
        let run = finish(command(self.folder.path()).args(arguments)).await.context("podman")?;
        if !run.status.success() {
            bail!("podman {}: {}", arguments.join(" "), run.stderr.trim());
        }
        Ok(run)
    }

    /// All containers, whatever they do.
    pub async fn containers(&self) -> anyhow::Result<Vec<Container>> {
        let listed = self.run(&["ps", "--all", "--no-trunc", "--format", "json"]).await?;
        let listed: Vec<Value> = serde_json::from_str(&listed.stdout)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = |value: &Value| {
            let labels = value.as_object().into_iter().flatten();
            labels.map(|(name, value)| (name.clone(), text(value))).collect()
        };
        let container = |listed: &Value| Container {
            id: text(&listed["Id"]),
            state: text(&listed["State"]),
            labels: labels(&listed["Labels"]),
        };
        Ok(listed.iter().map(container).collect())
    }

    /// Waits until there are so many containers, and returns them.
    pub async fn until_containers(&self, count: usize) -> anyhow::Result<Vec<Container>> {
        eventually(&format!("{count} containers"), || async {
            let containers = self.containers().await?;
            Ok((containers.len() == count).then_some(containers))
        })
        .await
    }

    /// All that Podman knows of a container.
    pub async fn inspect(&self, id: &str) -> anyhow::Result<Value> {
        let mut all: Vec<Value> = serde_json::from_str(&self.run(&["inspect", id]).await?.stdout)?;
        all.pop().context("it knows nothing")
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Their storage would be in use otherwise.
        let _left_behind = command(self.folder.path())
            .into_std()
            .args(["rm", "--force", "--all", "--time", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("podman");
    // What watches a container leaves a file in its folder when memory has run out.
    command
        .current_dir(folder)
        .env("CONTAINERS_CONF", folder.join("containers.conf"))
        .args(["--storage-driver", "vfs"]);
    for (option, name) in
        [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp"), ("--network-config-dir", "networks")]
    {
        command.arg(option).arg(folder.join(name));
    }
    command
}
