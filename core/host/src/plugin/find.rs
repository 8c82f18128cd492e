//! Where the programs of plugins are.

use std::path::{Path, PathBuf};

use super::Engine;

/// The program of ours that runs plugins of an engine with the means of another system. `None`: there is none here.
pub fn adapter_program(engine: Engine) -> Option<PathBuf> {
    find_adapter(engine.adapter()?).ok()
}

/// Where the programs of this installation are: beside this binary, and where packages put the shipped ones.
fn installation() -> Vec<PathBuf> {
    let this = std::env::current_exe().ok();
    let beside = this.as_deref().and_then(Path::parent);
    beside.map_or_else(Vec::new, |beside| vec![beside.to_owned(), beside.join("../libexec/disbatch")])
}

/// Finds an adapter, which is a program of this installation. One of its name that is in a plugin's folder or in `PATH` may be
/// anybody's, and would be told what is secret, and be run as the DEN itself.
///
/// # Errors
/// There is none. Says where it was looked for.
pub(super) fn find_adapter(program: &str) -> Result<PathBuf, String> {
    first_of(&installation(), program)
}

/// Finds a program. A path with a slash is relative to `own`, the plugin's own folder; where it has none, only an absolute
/// path finds anything. One without is looked for in that folder, in this installation, and in `PATH`.
///
/// # Errors
/// There is none. Says where it was looked for.
pub(super) fn find_program(program: &str, own: Option<&Path>) -> Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = own.map(Path::to_owned).into_iter().collect();
    if !program.contains('/') {
        folders.extend(installation());
        folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    } else if folders.is_empty() && Path::new(program).is_absolute() {
        folders.push(PathBuf::from("/"));
    }
    first_of(&folders, program)
}

fn first_of(folders: &[PathBuf], program: &str) -> Result<PathBuf, String> {
    let found = folders.iter().map(|folder| folder.join(program)).find(|path| is_executable(path));
    found.ok_or_else(|| match folders {
        [] => "no folder: it is a relative path, and the plugin has no folder of its own".to_owned(),
        folders => folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_folder_needs_an_absolute_path() {
        assert_eq!(find_program("/bin/sh", None), Ok(PathBuf::from("/bin/sh")));
        assert!(find_program("sh", None).is_ok());
        let error = find_program("bin/../bin/sh", None).unwrap_err();
        assert!(error.starts_with("no folder"), "{error}");
        assert_eq!(find_program("./sh", Some(Path::new("/bin"))), Ok(PathBuf::from("/bin/./sh")));
        assert_eq!(find_program("/bin/sh", Some(Path::new("/etc"))), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("./none", Some(Path::new("/etc"))), Err("/etc".to_owned()));
    }

    #[test]
    fn an_adapter_is_not_whatever_is_called_so() {
        assert!(find_program("sh", None).is_ok(), "it is in PATH");
        let searched = find_adapter("sh").unwrap_err();
        assert!(searched.ends_with("/../libexec/disbatch"), "{searched}");
    }
}
