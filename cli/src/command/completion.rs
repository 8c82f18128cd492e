//! `disbatch completion SHELL` and `disbatch man-pages FOLDER`

use std::path::Path;

use anyhow::Context;
use clap_complete::generate;

use crate::args::{self, Shell};
use crate::output::print;

/// Prints a completion script.
pub fn run(shell: Shell) -> anyhow::Result<()> {
    print(&String::from_utf8(script(shell))?)
}

fn script(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut args::command_for_completion(), "disbatch", &mut script);
    script
}

/// Writes the manual pages: `disbatch.1`, and one for each command.
pub fn man_pages(folder: &Path) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(args::command(), folder);
    written.with_context(|| format!("cannot write manual pages to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            assert!(script.contains("update-node"), "{shell:?}");
            assert!(script.contains("skip-lines"), "{shell:?}");
            // Offered by `tasks` alone.
            let lines = script.lines().filter(|line| line.contains("noterse") || line.contains("--epoch"));
            assert!(!lines.into_iter().any(|line| line.contains("mongo-port")), "{shell:?}");
        }
    }

    #[test]
    fn each_command_has_a_page_with_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        man_pages(folder.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(page("disbatch").contains("disbatch\\-create\\-queue(1)"), "{}", page("disbatch"));
        for (name, shown, hidden) in [
            ("disbatch-tasks", "limit", "collection"),
            ("disbatch-user-add", "no\\-password", "limit"),
            ("disbatch-dev", "demo", "url"),
        ] {
            let page = page(name);
            assert!(page.contains(&format!("\\-\\-{shown}")), "{name} {shown}: {page}");
            assert!(!page.contains(&format!("\\-\\-{hidden}")), "{name} {hidden}: {page}");
            assert!(page.contains("Examples:"), "{name}: {page}");
        }
        let failure = man_pages(&folder.path().join("none")).unwrap_err().to_string();
        assert!(failure.starts_with("cannot write manual pages to /"), "{failure}");
    }
}
