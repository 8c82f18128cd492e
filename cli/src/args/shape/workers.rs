//! What the help of the commands about plugins shows.

use super::{Shape, shape};

const LIST: &[&str] = &["format", "pretty"];

/// A command that speaks to nobody.
const fn alone(name: &'static str, examples: &'static str) -> Shape {
    Shape { name, options: &[], connects: false, examples }
}

/// One for each of them. Those of a group come with its name.
pub static SHAPES: [Shape; 12] = [
    shape("workers", &[], "disbatch workers list\n  disbatch workers set My::Report report.json"),
    shape("workers list", LIST, "disbatch workers list\n  disbatch workers list --format json"),
    shape(
        "workers show",
        LIST,
        "disbatch workers show My::Report\n  disbatch workers show My::Report --format json",
    ),
    shape(
        "workers set",
        &[],
        "disbatch workers set My::Report report.json\n  disbatch workers set My::Report - --rev 3 < report.json",
    ),
    shape("workers check", &[], "disbatch workers check report.json"),
    shape("workers rm", &[], "disbatch workers rm My::Report"),
    shape(
        "workers import",
        &[],
        "disbatch workers import workers.json\n  \
         curl -s http://couch.example:5984/jobs-worker/_all_docs?include_docs=true | disbatch workers import -",
    ),
    alone(
        "plugin",
        "disbatch plugin new My::Greet\n  disbatch plugin run my-greet --params '{\"name\":\"Ada\"}'",
    ),
    alone(
        "plugin new",
        "disbatch plugin new My::Greet\n  disbatch plugin new My::Greet --language sh --folder greet\n  \
         disbatch plugin new My::Greet --engine perl",
    ),
    alone("plugin check", "disbatch plugin check my-greet"),
    Shape {
        name: "replay",
        options: &["config"],
        connects: true,
        examples: "disbatch bundle 6b0003bb686c8275d8013333 > run.tar && disbatch replay run.tar\n  \
                   disbatch replay run.tar --with ./my-plugin --mask 'request [0-9a-f]+'\n  \
                   disbatch replay run.tar --secrets secrets.json --json\n  \
                   disbatch replay run.tar --shell\n  \
                   disbatch replay --last 200 --queue mail --with ./my-plugin --html page.html\n  \
                   disbatch replay --last 50 --queue mail --save bundles && disbatch replay bundles --json\n\n\
                   --config is the configuration of a node, for its plugins; where the DCI is of --last is said by the other \
                   options, the environment, or ~/.config/disbatch/cli.json.\n\n\
                   Exit status: 0 it came out the same, 1 differently (or as --fail-on has it), 2 wrong option, \
                   130 interrupted, 255 it could not be replayed, or none of many.",
    },
    Shape {
        name: "plugin run",
        options: &["config"],
        connects: false,
        examples: "disbatch plugin run my-greet\n  \
                   disbatch plugin run my-greet --params '{\"name\":\"Ada\"}' --timeout 10s\n  \
                   disbatch plugin run my-greet --config config.json",
    },
];
