//! `disbatch completion SHELL`

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
}
