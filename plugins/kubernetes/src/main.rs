//! `disbatch-kubernetes`: runs the tasks of plugins with the engine `kubernetes`, each as a Job of a cluster.
//!
//! A runner starts it as it starts any plugin, and what holds for plugins holds for it: it reads the task from its
//! standard input, its output is the task's, and SIGTERM means that the task is to end.
//!
//! Its client is the feature `client` of this crate. Without it there is no such program: a node that has none leaves tasks
//! of such plugins to others.

mod adapter;

use std::process::ExitCode;

fn main() -> ExitCode {
    adapter::main()
}
