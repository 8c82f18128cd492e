use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn updated(before: Document, fields: Document) -> (Document, u64) {
    let altered = Altered::by_setting_or_removing(before, fields);
    let Updated { matched, modified } = Altered::updated(Some(&altered));
    assert_eq!(matched, 1);
    (altered.after, modified)
}

#[test]
fn it_is_known_what_becomes_of_a_document() {
    let before = doc! { "_id": 1, "name": "mail", "threads": 2 };
    let set = doc! { "threads": 3, "name": Bson::Null };
    assert_eq!(updated(before.clone(), set), (doc! { "_id": 1, "threads": 3 }, 1));
    assert_eq!(updated(before.clone(), doc! { "threads": 2 }), (before.clone(), 0));
    assert_eq!(updated(before.clone(), doc! { "sort": Bson::Null }), (before.clone(), 0));
    assert_eq!(updated(before.clone(), doc! { "threads": 2_i64 }).1, 1, "the type is another");
    assert_eq!(updated(before.clone(), doc! { "sort": "fifo" }).1, 1);
    let kept = Altered::by_setting(Some(before), doc! { "maxthreads": Bson::Null });
    assert_eq!(kept.after.get("maxthreads"), Some(&Bson::Null));
    let made = Altered::by_setting(None, doc! { "queues": [] });
    assert_eq!((made.is_different(), made.after), (true, doc! { "queues": [] }));
    assert_eq!(Altered::updated(None), Updated { matched: 0, modified: 0 });
}

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
