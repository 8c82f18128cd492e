//! Perl modules: which interpreter runs them, and where they are.

mod interpreter;

use std::path::{Path, PathBuf};

use super::find::find_program;
use super::{Manifest, Perl};
use crate::config::Engines;
use interpreter::{Unknown, folders_of};

/// How a module is run.
#[derive(Debug)]
pub(super) struct PerlCommand {
    /// The interpreter.
    pub program: PathBuf,
    /// The arguments of what loads it.
    pub arguments: Vec<String>,
    /// Why it is not known whether the module is there, if it is not: the interpreter says nothing for now.
    pub doubt: Option<String>,
}

/// Whether a module that nothing more is known of can be run, as far as its interpreter has said.
pub(super) fn is_there(manifest: &Manifest, engines: &Engines) -> bool {
    resolve(manifest, None, engines).is_ok()
}

/// How a module is run.
///
/// # Errors
/// The interpreter or the module is missing, or the interpreter does not work. Says which, and where it was looked for.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_modules_are_files() {
        assert_eq!(file_of("My::Plugin"), Some(PathBuf::from("My/Plugin.pm")));
        assert_eq!(file_of("_a1"), Some(PathBuf::from("_a1.pm")));
        for other in ["", "::A", "A::", "A:B", "A:::B", "A::1", "A/B", "..::A"] {
            assert_eq!(file_of(other), None, "{other}");
        }
    }
}
