//! `disbatch plugin new NAME`

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use disbatch_cli::args::{Language, NewPlugin};
use disbatch_cli::output::print;
use disbatch_core::model::PluginName;
use disbatch_core::plugin::{Engine, Manifest};

const EXEC: &str = include_str!("templates/exec.json");
const EXEC_SH: &str = include_str!("templates/exec.sh");
const EXEC_PYTHON: &str = include_str!("templates/exec.py");
const EXEC_PERL: &str = include_str!("templates/exec.pl");
const CARGO: &str = include_str!("templates/Cargo.toml.txt");
const RUST: &str = include_str!("templates/main.rs.txt");
const PERL: &str = include_str!("templates/perl.json");
const MODULE: &str = include_str!("templates/Plugin.pm");
const PROGRAM: &str = include_str!("templates/program.json");
const PROGRAM_SH: &str = include_str!("templates/program.sh");
const PROGRAM_PYTHON: &str = include_str!("templates/program.py");
const PROGRAM_PERL: &str = include_str!("templates/program.pl");
const CONTAINER: &str = include_str!("templates/container.json");
const HTTP: &str = include_str!("templates/http.json");
const SERVICE: &str = include_str!("templates/service.py");
const KUBERNETES: &str = include_str!("templates/kubernetes.json");

const MANIFEST: &str = "plugin.json";

#[derive(Debug)]
struct NewFile {
    /// Where it is in the folder.
    path: String,
    text: String,
    is_program: bool,
}

/// Makes a folder with a plugin that works.
pub fn run(new: &NewPlugin) -> anyhow::Result<()> {
    let name: PluginName = new.name.parse()?;
    let slug = slug(&name);
    let files = files(new.engine, new.language, &name, &slug)?;
    check(&name, &files)?;
    let folder = new.folder.clone().unwrap_or_else(|| PathBuf::from(&slug));
    let shown = folder.display();
    ensure!(is_empty(&folder)?, "{shown} is there already, and has something in it");
    for file in &files {
        write(&folder, file)
            .with_context(|| format!("cannot write {}", folder.join(&file.path).display()))?;
    }
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let build = if new.language == Some(Language::Rust) {
        format!("  (cd {shown} && cargo build --release)\n")
    } else {
        String::new()
    };
    print(&format!(
        "Made {name} in {shown}: {}\n\n{build}  disbatch plugin check {shown}\n  \
         disbatch plugin run {shown} --params '{{\"name\": \"Ada\"}}'\n\n\
         Nodes run it when their configuration has this folder, or the one that it is in, in plugin_dirs.\n",
        names.join(", "),
    ))
}

fn files(
    engine: Engine,
    language: Option<Language>,
    name: &PluginName,
    slug: &str,
) -> anyhow::Result<Vec<NewFile>> {
    let has_language = matches!(engine, Engine::Exec | Engine::Program);
    ensure!(
        has_language || language.is_none(),
        "--language is for the engines exec and program, not for {engine}"
    );
    let language = language.unwrap_or(Language::Python);
    let filled = |text: &str, program: &str| {
        text.replace("@NAME@", name.as_str()).replace("@SLUG@", slug).replace("@PROGRAM@", program)
    };
    let manifest = |text: &str, program: &str| NewFile {
        path: MANIFEST.to_owned(),
        text: filled(text, program),
        is_program: false,
    };
    let file =
        |path: String, text: &str, is_program: bool| NewFile { path, text: filled(text, ""), is_program };
    // A script beside the manifest.
    let with_script = |of_engine: &str, suffix: &str, text: &str| {
        let program = format!("{slug}.{suffix}");
        vec![manifest(of_engine, &format!("./{program}")), file(program, text, true)]
    };
    Ok(match (engine, language) {
        (Engine::Exec, Language::Sh) => with_script(EXEC, "sh", EXEC_SH),
        (Engine::Exec, Language::Python) => with_script(EXEC, "py", EXEC_PYTHON),
        (Engine::Exec, Language::Perl) => with_script(EXEC, "pl", EXEC_PERL),
        (Engine::Exec, Language::Rust) => vec![
            manifest(EXEC, &format!("./target/release/{slug}")),
            file("Cargo.toml".to_owned(), CARGO, false),
            file("src/main.rs".to_owned(), RUST, false),
            file(".gitignore".to_owned(), "/target\n", false),
        ],
        (Engine::Program, Language::Sh) => with_script(PROGRAM, "sh", PROGRAM_SH),
        (Engine::Program, Language::Python) => with_script(PROGRAM, "py", PROGRAM_PYTHON),
        (Engine::Program, Language::Perl) => with_script(PROGRAM, "pl", PROGRAM_PERL),
        (Engine::Program, Language::Rust) => {
            bail!("there is no plugin in Rust with the engine program to begin with")
        }
        (Engine::Perl, _) => {
            let module = format!("lib/{}.pm", name.as_str().replace("::", "/"));
            vec![manifest(PERL, ""), file(module, MODULE, false)]
        }
        (Engine::Container, _) => vec![manifest(CONTAINER, "")],
        (Engine::Http, _) => vec![manifest(HTTP, ""), file("service.py".to_owned(), SERVICE, true)],
        (Engine::Kubernetes, _) => vec![manifest(KUBERNETES, "")],
    })
}

/// A name of a plugin need not be one of a Perl module.
fn check(name: &PluginName, files: &[NewFile]) -> anyhow::Result<()> {
    for file in files.iter().filter(|file| file.path == MANIFEST) {
        Manifest::parse(&file.text).map_err(|error| anyhow!("{name} cannot be the name: {error}"))?;
    }
    Ok(())
}

/// The name as that of a file: `my-greet` for `My::Greet`.
fn slug(name: &PluginName) -> String {
    let lower = name.as_str().to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "plugin".to_owned() } else { words.join("-") }
}

fn is_empty(folder: &Path) -> anyhow::Result<bool> {
    if !folder.exists() {
        return Ok(true);
    }
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.next().is_none())
}

fn write(folder: &Path, file: &NewFile) -> std::io::Result<()> {
    let path = folder.join(&file.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&path, &file.text)?;
    if file.is_program {
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(engine: Engine, language: Option<Language>, name: &str) -> anyhow::Result<Vec<NewFile>> {
        let name = name.parse().unwrap();
        files(engine, language, &name, &slug(&name))
    }

    #[test]
    fn every_manifest_is_right_and_names_what_is_there() {
        let languages = [Language::Sh, Language::Python, Language::Perl, Language::Rust].map(Some);
        for engine in Engine::ALL {
            let possible: &[Option<Language>] = match engine {
                Engine::Exec => &languages,
                Engine::Program => &languages[..3],
                Engine::Perl | Engine::Container | Engine::Http | Engine::Kubernetes => &[None],
            };
            for language in possible {
                let files = of(engine, *language, "My::Greet").unwrap();
                let manifest = Manifest::parse(&files[0].text).unwrap();
                assert_eq!((manifest.engine, manifest.name.as_str()), (engine, "My::Greet"));
                assert!(manifest.unknown_keys.is_empty() && manifest.params.is_some());
                let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
                let program =
                    manifest.command.first().or(manifest.program.as_ref().and_then(|p| p.path.as_ref()));
                if let Some(script) = program.and_then(|program| program.strip_prefix("./my-greet")) {
                    let script = format!("my-greet{script}");
                    assert!(paths.contains(&script.as_str()), "{engine} {language:?}: {paths:?}");
                }
                let is_filled = |file: &NewFile| {
                    !["@NAME@", "@SLUG@", "@PROGRAM@"].iter().any(|gap| file.text.contains(gap))
                };
                assert!(files.iter().all(is_filled), "{paths:?}");
            }
        }
    }

    #[test]
    fn a_module_is_where_perl_looks_for_it() {
        let files = of(Engine::Perl, None, "My::Greet").unwrap();
        assert_eq!(files[1].path, "lib/My/Greet.pm");
        assert!(files[1].text.starts_with("package My::Greet;\n"));
        let odd = of(Engine::Perl, None, "My:Greet").unwrap();
        let error = check(&"My:Greet".parse().unwrap(), &odd).unwrap_err().to_string();
        assert!(error.starts_with("My:Greet cannot be the name: perl.class: "), "{error}");
    }

    #[test]
    fn what_there_is_none_of_is_said() {
        assert!(of(Engine::Http, Some(Language::Sh), "A").is_err());
        assert!(of(Engine::Program, Some(Language::Rust), "A").is_err());
        let slugs = ["My::Greet", "A_b", "::", "Ä1"].map(|name| slug(&name.parse().unwrap()));
        assert_eq!(slugs, ["my-greet", "a-b", "plugin", "ä1"]);
    }
}
