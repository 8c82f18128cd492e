//! The processes: chromedriver, and the Chromium that it starts. They never outlive the process that started them, even
//! if that one is killed.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use disbatch_mongod::testing;
use serde_json::{Value, json};

use super::console;
use crate::{PATIENCE, eventually};

/// A small shell is the parent of the driver, so that the driver's id cannot become another's, and waits on a pipe that
/// only this process holds. When that is closed, it ends all that the driver has started and removes their folder,
/// or gives that up after some seconds.
/// What has crashed is noted in that folder, too, and not in a person's.
const KEEPER: &str = r#"
folder=$1
shift
TMPDIR=$folder XDG_CONFIG_HOME=$folder setsid "$@" >"$folder/driver.log" 2>&1 </dev/null &
driver=$!
trap '' HUP INT TERM
read -r _
kill -s KILL -- "-$driver" || kill -s KILL "$driver"
wait
tries=0
until rm -rf -- "$folder" || [ "$((tries += 1))" -ge 100 ]; do sleep 0.1; done
"#;

/// What the driver says when it listens.
const LISTENING: &str = "started successfully on port ";

/// What it says when its port for one kind of address is somebody else's for the other. It ends then.
const TAKEN: &str = "port not available";

/// So often it is started until it finds one.
const TRIES: usize = 5;

/// A running driver, and soon its browser. Both end when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    keeper: Child,
    url: String,
    folder: PathBuf,
    chromium: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It needs a moment only: nobody is asked to end, and a test's end is to be the end of all.
        let _nothing_to_be_done = self.keeper.wait();
    }
}

impl Process {
    /// Starts a driver on a free port and waits until it listens.
    pub async fn start() -> anyhow::Result<Self> {
        for _ in 0..TRIES {
            if let Some(process) = Self::listening().await? {
                return Ok(process);
            }
        }
        bail!("chromedriver has found no free port in {TRIES} tries")
    }

    /// `None`: its port was taken.
    async fn listening() -> anyhow::Result<Option<Self>> {
        let driver = program("DISBATCH_CHROMEDRIVER", &["chromedriver"])?;
        // The shell is Chromium without what is around pages: it starts with a third of the work.
        let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
        let chromium = program("DISBATCH_CHROMIUM", &names)?;
        let within = testing::temporary_folder();
        let folder = tempfile::Builder::new().prefix("disbatch-browser-").tempdir_in(within)?.keep();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "disbatch-browser"]).arg(&folder).arg(driver).arg("--port=0");
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        // A ^C in the terminal is for the starter alone.
        keeper.process_group(0);
        let keeper = keeper.spawn().context("cannot start sh")?;
        let mut process = Self { keeper, url: String::new(), folder, chromium };
        let Some(port) = process.port().await? else { return Ok(None) };
        process.url = format!("http://127.0.0.1:{port}");
        Ok(Some(process))
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the browser is to be like.
    pub fn capabilities(&self) -> Value {
        let mut arguments = vec![
            "--headless".to_owned(),
            "--disable-dev-shm-usage".to_owned(), // It is small in containers.
            "--hide-scrollbars".to_owned(),
            "--force-color-profile=srgb".to_owned(),
            // Pages have to do without other hosts, and the browser does.
            "--no-proxy-server".to_owned(),
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost".to_owned(),
        ];
        if nix::unistd::geteuid().is_root() {
            arguments.push("--no-sandbox".to_owned()); // It does not start otherwise.
        }
        let patience = PATIENCE.as_secs() * 1000;
        json!({
            "browserName": "chrome",
            "timeouts": { "script": patience, "pageLoad": patience },
            "goog:loggingPrefs": console::preferences(),
            "goog:chromeOptions": { "binary": self.chromium, "args": arguments },
        })
    }

    async fn port(&self) -> anyhow::Result<Option<u16>> {
        let log = self.folder.join("driver.log");
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        let found = eventually("chromedriver to listen", || async {
            let log = read();
            Ok(listening_on(&log).map(Some).or_else(|| log.contains(TAKEN).then_some(None)))
        })
        .await;
        found.with_context(|| format!("chromedriver says '{}'", read().trim()))
    }
}

/// The port, if the whole of it is in the log.
fn listening_on(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once(LISTENING)?;
    let (port, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
    port.parse().ok()
}

/// The program that a variable names, else the first of `names` on `PATH`.
fn program(variable: &str, names: &[&str]) -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(told) = set(variable).map(PathBuf::from) {
        ensure!(told.is_file(), "{variable}: '{}' is no file", told.display());
        return Ok(told);
    }
    let path = set("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    match find(&folders, names) {
        Some(found) => Ok(found),
        None => bail!(
            "no {} on PATH, which these tests need: install Chromium, its chromedriver and a font, as \
             'scripts/prepare browser' does on Debian, or set {variable}",
            names.first().unwrap_or(&"browser")
        ),
    }
}

fn find(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let mut paths = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    paths.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_port_is_read_when_its_line_is_complete() {
        assert_eq!(listening_on("ChromeDriver was started successfully on port 39559.\n"), Some(39559));
        assert_eq!(listening_on("ChromeDriver was started successfully on port 39"), None);
        assert_eq!(listening_on("Starting ChromeDriver 156 on port 0\n"), None);
    }

    #[test]
    fn a_folder_that_cannot_be_removed_is_left_after_some_tries() {
        let folder = tempfile::tempdir().unwrap();
        let tries = folder.path().join("tries");
        // It gives in at last, so that this ends in any case.
        let rm = format!("echo >>'{0}'\n[ \"$(wc -l <'{0}')\" -gt 300 ]", tries.display());
        for (name, text) in [("rm", rm.as_str()), ("sleep", "exit 0"), ("driver", "exit 0")] {
            let program = folder.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "disbatch-browser"]).arg(folder.path()).arg(folder.path().join("driver"));
        keeper.env("PATH", format!("{}:{path}", folder.path().display())).stdin(Stdio::null());
        keeper.stderr(Stdio::null());
        assert!(keeper.status().unwrap().code().is_some(), "nothing killed it");
        assert_eq!(std::fs::read_to_string(tries).unwrap().lines().count(), 100);
    }

    #[test]
    fn the_first_name_is_looked_for_everywhere_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| folder.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::fs::write(folders[0].join("second"), "").unwrap();
        assert_eq!(find(&folders, &["first", "second"]), Some(folders[0].join("second")));
        std::fs::write(folders[1].join("first"), "").unwrap();
        assert_eq!(find(&folders, &["first", "second"]), Some(folders[1].join("first")));
        assert_eq!(find(&folders, &["third"]), None);
    }

    #[test]
    fn a_missing_program_is_told_with_what_to_install() {
        let error = program("DISBATCH_TEST_NOT_SET", &["no-such-browser"]).unwrap_err().to_string();
        assert!(error.starts_with("no no-such-browser on PATH, which these tests need"), "{error}");
        assert!(error.ends_with("or set DISBATCH_TEST_NOT_SET"), "{error}");
    }
}
