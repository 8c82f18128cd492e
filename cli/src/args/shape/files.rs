//! What the help of the commands about sets of files shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 5] = [
    shape("files", &[], "disbatch files put data ./input\n  disbatch files get result ./output"),
    shape(
        "files put",
        &[],
        "disbatch files put data ./input\n  disbatch files put tools ./bin run.py --match 'bin/*' --match '*.py'",
    ),
    shape(
        "files get",
        &[],
        "disbatch files get result ./output\n  disbatch files get result . --match '**/*.csv' --version 3",
    ),
    shape(
        "files ls",
        LIST,
        "disbatch files ls\n  disbatch files ls data --prefix bin/\n  disbatch files ls data --versions",
    ),
    shape("files rm", &[], "disbatch files rm data --version 3\n  disbatch files rm data"),
];
