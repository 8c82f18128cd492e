//! That what programs call of the store is compiled here, and not once more in each of them.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// The public methods of `Store` that are `async` and compiled where they are called. Those with type parameters cannot be otherwise.
fn unboxed(source: &str) -> Vec<&str> {
    let (mut of_store, mut is_operation, mut found) = (false, false, Vec::new());
    for line in source.lines() {
        match line.trim_start() {
            _ if line.starts_with("impl") => of_store = line == "impl Store {",
            _ if line.starts_with('}') => of_store = false,
            text if text.starts_with("#[operation") => is_operation = true,
            text if text.starts_with("#[") || text.starts_with("//") => {}
            text => {
                let name = text.strip_prefix("pub async fn ").and_then(|rest| rest.split('(').next());
                let is_generic = name.is_some_and(|name| name.contains('<'));
                found.extend(name.filter(|_| of_store && !is_operation && !is_generic));
                is_operation = false;
            }
        }
    }
    found
}

#[test]
fn programs_compile_no_bodies_of_the_store() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 100, "these are not all");
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let unboxed = unboxed(&source);
        assert!(unboxed.is_empty(), "{}: {unboxed:?} should be an #[operation]", file.display());
    }
    let one = "impl Store {\n    #[operation]\n    pub async fn a(&self) {}\n    pub async fn b(&self) {}\n    pub async fn c<T>() {}\n}";
    assert_eq!(unboxed(one), ["b"]);
}
