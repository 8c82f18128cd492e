//! `disbatch man-pages FOLDER`

use std::path::Path;

use anyhow::Context;

use crate::args;

/// Writes the manual pages: `disbatch.1`, and one for each command.
pub fn run(folder: &Path) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(args::command(), folder);
    written.with_context(|| format!("cannot write manual pages to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
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
        let failure = run(&folder.path().join("none")).unwrap_err().to_string();
        assert!(failure.starts_with("cannot write manual pages to /"), "{failure}");
    }
}
