//! Of which files a plugin consists.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Plugin, perl};

/// So many files are named at most.
pub const MOST: usize = 200;

impl Plugin {
    /// Its program, the files of its folder, and the file of its Perl module, as far as they can be told; in order, at most [`MOST`]. Libraries
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
        files.truncate(MOST);
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
        if found.len() > MOST {
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
