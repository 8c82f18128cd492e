//! Where the programs of plugins are, and of which files a plugin consists.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Engine, Plugin, perl};

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
pub(super) fn find_adapter(program: &str) -> Result<PathBuf, String> {
    first_of(&installation(), program)
}

/// Finds a program. A path with a slash is relative to `own`, the plugin's own folder; where it has none, only an absolute
/// path finds anything. One without is looked for in that folder, in this installation, and in `PATH`.
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

pub const MOST_FILES: usize = 200;

impl Plugin {
    /// Its program, the files of its folder, and the file of its Perl module, as far as they can be told; in order, at most [`MOST_FILES`]. Libraries
    /// that these load from elsewhere are not known.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.program.clone()];
        files.extend(self.module());
        if let Some(folder) = &self.folder {
            let mut of_folder = below(folder);
            of_folder.sort();
            files.extend(of_folder);
        }
        let mut seen = std::collections::HashSet::new();
        files.retain(|file| seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
        files.truncate(MOST_FILES);
        files
    }

    /// The file of a Perl module, where a folder that was said has it.
    fn module(&self) -> Option<PathBuf> {
        let mut words = self.arguments.iter();
        let (mut class, mut libraries) = (None, Vec::new());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--class" if class.is_none() => class = words.next(),
                "--lib" => libraries.extend(words.next()),
                _ => return None, // Another engine's.
            }
        }
        let file = perl::file_of(class?)?;
        libraries.into_iter().map(|library| Path::new(library).join(&file)).find(|path| path.is_file())
    }
}

/// The files in a folder and its folders, a few more than are wanted. Hidden ones are not a part of the plugin, nor is what links lead to.
fn below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), VecDeque::from([folder.to_owned()]));
    while let Some(folder) = folders.pop_front() {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".")) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push_back(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {} // It is none of its files, or gone.
            }
        }
        if found.len() > MOST_FILES {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Manifest;

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

    #[test]
    fn a_plugin_consists_of_its_program_and_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("lib/My")).unwrap();
        for file in ["plugin.json", "run", "lib/My/Greet.pm", ".hidden"] {
            fs::write(path(file), file).unwrap();
        }
        let manifest = |text| Manifest::parse(text).unwrap();
        let exec = manifest(r#"{ "name": "A", "command": ["./run"] }"#);
        let mut plugin = Plugin::new(exec, path("./run"), vec!["--class".to_owned()]);
        plugin.folder = Some(folder.path().to_owned());
        assert_eq!(plugin.files(), [path("./run"), path("lib/My/Greet.pm"), path("plugin.json")]);
        let library = path("lib");
        let arguments = ["--class", "My::Greet", "--lib", "/none", "--lib", library.to_str().unwrap()];
        let perl = manifest(r#"{ "name": "My::Greet", "engine": "perl" }"#);
        let plugin = Plugin::new(perl, "/usr/bin/perl".into(), arguments.map(str::to_owned).to_vec());
        assert_eq!(plugin.files(), [PathBuf::from("/usr/bin/perl"), path("lib/My/Greet.pm")]);
    }
}
