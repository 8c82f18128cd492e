//! Perl modules: which interpreter runs them, and where they are. Interpreters say themselves where they look for modules. What is asked is
//! a program: it may be slow, wait for ever for a file system that has gone, or not work at all, and whoever asks has other things to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::find::find_program;
use super::{Manifest, Perl};
use crate::config::Engines;
use crate::lock;

#[derive(Debug)]
pub(super) struct PerlCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Why it is not known whether the module is there, if it is not: the interpreter says nothing for now.
    pub doubt: Option<String>,
}

/// Whether a module that nothing more is known of can be run, as far as its interpreter has said.
pub(super) fn is_there(manifest: &Manifest, engines: &Engines) -> bool {
    resolve(manifest, None, engines).is_ok()
}

/// How a module is run.
pub(super) fn resolve(
    manifest: &Manifest,
    own: Option<&Path>,
    engines: &Engines,
) -> Result<PerlCommand, String> {
    let Perl { class, lib, perl } = manifest.perl.clone().unwrap_or_default();
    let class = class.unwrap_or_else(|| manifest.name.as_str().to_owned());
    let of_node = engines.perl.interpreter.as_deref().unwrap_or("perl");
    // What a plugin's folder has is run as the plugin's user, and not to look for modules: only the node's own is asked.
    let (word, own_place) = perl.as_deref().map_or((of_node, None), |word| (word, own));
    let interpreter = find_program(word, own_place)
        .map_err(|searched| format!("program '{word}' is not an executable file in {searched}"))?;
    let mut libraries = Vec::new();
    for folder in lib {
        match own {
            Some(own) => libraries.push(own.join(folder)),
            None if Path::new(&folder).is_absolute() => libraries.push(folder.into()),
            None => return Err(format!("perl.lib has the relative path {folder:?}, and it has no folder")),
        }
    }
    libraries.extend(engines.perl.lib.iter().cloned());
    let Some(file) = file_of(&class) else {
        return Err(format!("{class} is not the name of a Perl module"));
    };
    let is_there = |folder: &PathBuf| folder.join(&file).is_file();
    let mut doubt = None;
    let is_found = libraries.iter().any(is_there)
        || perl.is_some()
        || match folders_of(&interpreter) {
            Ok(folders) => folders.iter().any(is_there),
            Err(Unknown::Broken(why)) => return Err(why),
            Err(Unknown::Silent(why)) => {
                doubt = Some(why);
                true
            }
        };
    if !is_found {
        let further: String = libraries.iter().map(|folder| format!(" {}", folder.display())).collect();
        return Err(format!(
            "the Perl module {class} is neither where {} looks nor in its own folders:{further}",
            interpreter.display()
        ));
    }
    let mut arguments = vec!["--class".to_owned(), class];
    for folder in libraries {
        let Some(folder) = folder.to_str() else { return Err("the path of a folder is no text".to_owned()) };
        arguments.extend(["--lib".to_owned(), folder.to_owned()]);
    }
    Ok(PerlCommand { program: interpreter, arguments, doubt })
}

/// The file of a module, relative to a folder of modules. `None`: this is the name of no module.
pub(super) fn file_of(class: &str) -> Option<PathBuf> {
    let is_word = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let file = format!("{}.pm", class.replace("::", "/"));
    class.split("::").all(is_word).then(|| PathBuf::from(file))
}

/// Has an interpreter say it.
const FOLDERS: &str = r#"print map { "$_\0" } @INC"#;

/// One that takes longer is killed.
const LONGEST: Duration = Duration::from_secs(10);

/// So much later it is not waited for any more, if it cannot even be killed.
const GRACE: Duration = Duration::from_secs(1);

/// One of which nothing was heard is asked again after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// It is listened to for so many bytes.
const MOST: usize = 1024 * 1024;

/// What is known of interpreters.
static KNOWN: Mutex<BTreeMap<PathBuf, FolderQuery>> = Mutex::new(BTreeMap::new());

/// Something more is.
static TOLD: Condvar = Condvar::new();

/// Why it is not known where an interpreter looks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unknown {
    #[error("{0}")]
    Broken(String),
    /// Nothing was heard of it in time. It may well work.
    #[error("{0}")]
    Silent(String),
}

#[derive(Debug)]
enum FolderQuery {
    /// It is being asked, since then.
    Asked(Instant),
    /// What came of it, at that time.
    Heard(Result<Vec<PathBuf>, Unknown>, Instant),
}

impl FolderQuery {
    /// Folders do not change; all else may.
    fn is_to_be_asked(&self, now: Instant) -> bool {
        match self {
            Self::Asked(_) => false,
            Self::Heard(Ok(folders), _) if !folders.is_empty() => false,
            Self::Heard(_, at) => now.saturating_duration_since(*at) >= AGAIN,
        }
    }
}

/// Where an interpreter looks for modules. It is asked once, and again after a while if it says nothing.
fn folders_of(interpreter: &Path) -> Result<Vec<PathBuf>, Unknown> {
    let mut known = lock(&KNOWN);
    let now = Instant::now();
    if known.get(interpreter).is_none_or(|known| known.is_to_be_asked(now)) {
        let asked = ask_beside(interpreter.to_owned());
        let state = asked.map_or_else(|why| FolderQuery::Heard(Err(why), now), |()| FolderQuery::Asked(now));
        known.insert(interpreter.to_owned(), state);
    }
    loop {
        let since = match known.get(interpreter) {
            Some(FolderQuery::Heard(heard, _)) => return heard.clone(),
            Some(FolderQuery::Asked(since)) => *since,
            None => now,
        };
        let left = (LONGEST + GRACE).saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(silent(interpreter, LONGEST));
        }
        known = TOLD.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Asks it in a thread of its own: to start a program may take for ever, too.
fn ask_beside(interpreter: PathBuf) -> Result<(), Unknown> {
    let work = move || {
        let heard = ask(&interpreter, LONGEST);
        if let Err(why) = &heard {
            tracing::debug!("cannot ask for folders of modules: {why}");
        }
        lock(&KNOWN).insert(interpreter, FolderQuery::Heard(heard, Instant::now()));
        TOLD.notify_all();
    };
    match thread::Builder::new().name("perl".to_owned()).spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => Err(Unknown::Silent(format!("cannot start a thread: {error}"))),
    }
}

fn ask(interpreter: &Path, longest: Duration) -> Result<Vec<PathBuf>, Unknown> {
    let begun = Instant::now();
    let mut command = Command::new(interpreter);
    command.arg("-e").arg(FOLDERS).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => silent(interpreter, longest),
        _ => Unknown::Broken(format!("{} cannot be run: {error}", interpreter.display())),
    };
    let mut child = command.process_group(0).spawn().map_err(failed)?;
    let said = child.stdout.take().map_or_else(|| Ok(Vec::new()), |pipe| listen(pipe, begun, longest));
    end(&mut child);
    let said = said.map_err(failed)?;
    let folders = said.split(|byte| *byte == 0).map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
    // Plugins begin in a folder of their own, where a relative path leads nowhere.
    Ok(folders.filter(|folder| folder.is_absolute()).collect())
}

fn silent(interpreter: &Path, longest: Duration) -> Unknown {
    let seconds = longest.as_secs_f64();
    let interpreter = interpreter.display();
    Unknown::Silent(format!("{interpreter} has not said within {seconds} s where it looks for modules"))
}

fn listen(mut pipe: ChildStdout, begun: Instant, longest: Duration) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let left = longest.saturating_sub(begun.elapsed());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let read = match pipe.read(&mut piece) {
            Ok(0) => return Ok(said),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        said.extend_from_slice(&piece[..read]);
        if said.len() > MOST {
            return Err(io::Error::other("it says too much"));
        }
    }
}

/// It has said all, or will not.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _gone = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    if let Err(error) = child.wait() {
        tracing::debug!(%error, "cannot wait for an interpreter");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::signal::kill;

    use super::*;
    use crate::config::Config;
    use crate::plugin::{Manifest, Plugins};

    #[test]
    fn only_names_of_modules_are_files() {
        assert_eq!(file_of("My::Plugin"), Some(PathBuf::from("My/Plugin.pm")));
        assert_eq!(file_of("_a1"), Some(PathBuf::from("_a1.pm")));
        for other in ["", "::A", "A::", "A:B", "A:::B", "A::1", "A/B", "..::A"] {
            assert_eq!(file_of(other), None, "{other}");
        }
    }

    fn interpreter(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("perl");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn an_interpreter_that_hangs_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\necho $$ > \"${0%/*}/pid\"\nsleep 600 &\nwait\n";
        let path = interpreter(folder.path(), text);
        let error = ask(&path, Duration::from_secs(2)).unwrap_err();
        let why = format!("{} has not said within 2 s where it looks for modules", path.display());
        assert_eq!(error, Unknown::Silent(why));
        let pid: i32 = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        assert_eq!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH));
    }

    #[test]
    fn what_it_says_is_known_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = interpreter(folder.path(), "#!/bin/sh\nprintf '/a\\0relative\\0/b c\\0'\n");
        let expected = Ok(vec![PathBuf::from("/a"), PathBuf::from("/b c")]);
        assert_eq!(folders_of(&path), expected);
        fs::remove_file(&path).unwrap();
        assert_eq!(folders_of(&path), expected);
    }

    #[test]
    fn one_that_does_not_work_is_left_alone_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perl");
        let error = folders_of(&path).unwrap_err();
        let is_broken = matches!(&error, Unknown::Broken(why) if why.contains("cannot be run: No such file"));
        assert!(is_broken, "{error}");
        interpreter(folder.path(), "#!/bin/sh\nprintf '/a\\0'\n");
        assert_eq!(folders_of(&path), Err(error));
        let now = Instant::now();
        let nothing = FolderQuery::Heard(Ok(Vec::new()), now);
        assert!(!nothing.is_to_be_asked(now) && nothing.is_to_be_asked(now + AGAIN));
        let failed = FolderQuery::Heard(Err(Unknown::Broken(String::new())), now);
        assert!(!failed.is_to_be_asked(now) && failed.is_to_be_asked(now + AGAIN));
        let known = FolderQuery::Heard(Ok(vec!["/a".into()]), now);
        assert!(!known.is_to_be_asked(now + AGAIN) && !FolderQuery::Asked(now).is_to_be_asked(now + AGAIN));
    }

    #[test]
    fn one_that_is_silent_may_have_the_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = interpreter(folder.path(), "#!/bin/sh\nexit 1\n");
        let discover = |heard: Result<Vec<PathBuf>, Unknown>, plugins: &str| {
            lock(&KNOWN).insert(path.clone(), FolderQuery::Heard(heard, Instant::now()));
            let engines = format!(r#"{{"perl":{{"interpreter":"{}"}}}}"#, path.display());
            let text =
                format!(r#"{{"mongohost":"h","database":"d","engines":{engines},"plugins":{plugins}}}"#);
            Plugins::discover(&Config::parse(&text, &folder.path().join("config.json")).unwrap())
        };
        let silent = || Err(Unknown::Silent("silent".to_owned()));
        let name = "My::Module".parse().unwrap();
        let of_database = serde_json::json!({ "name": "My::Module", "command": ["/bin/sh"] });
        let of_database = [Manifest::from_value(of_database).unwrap()];
        for listed in [r#"{"My::Module":1}"#, r#"["My::Module"]"#] {
            let mut plugins = discover(silent(), listed);
            for _ in 0..2 {
                assert!(plugins.get(&name).is_none() && !plugins.names().any(|known| *known == name));
                let why: Vec<String> = plugins.problems.iter().map(ToString::to_string).collect();
                assert!(why.contains(&"plugin My::Module: silent".to_owned()), "{why:?}");
                assert_eq!(plugins.get_to_run(&name).unwrap().program, path);
                // Nor is it replaced for now.
                plugins.with_workers(&of_database);
            }
            assert!(discover(Ok(vec!["/none".into()]), listed).get_to_run(&name).is_none());
            let broken = Err(Unknown::Broken("broken".to_owned()));
            assert!(discover(broken, listed).get_to_run(&name).is_none());
        }
        // A manifest without a program is what the name means, and not a module.
        fs::create_dir_all(folder.path().join("own")).unwrap();
        fs::write(folder.path().join("own/plugin.json"), r#"{"name":"My::Module","command":["./none"]}"#)
            .unwrap();
        let plugins = discover(silent(), r#"["My::Module"],"plugin_dirs":["own"]"#);
        assert!(plugins.get_to_run(&name).is_none() && plugins.defines(&name));
        // What the configuration leaves out is not run either, if the database has that name.
        fs::write(folder.path().join("own/plugin.json"), r#"{"name":"My::Module","engine":"perl"}"#).unwrap();
        let mut plugins = discover(silent(), r#"["Other"],"plugin_dirs":["own"]"#);
        assert!(plugins.get_to_run(&name).is_some());
        plugins.with_workers(&of_database);
        assert!(plugins.get_to_run(&name).is_none());
    }
}
