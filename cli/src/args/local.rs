//! The options of what is done without a DCI, by `disbatch-local`; those about users and plugins are with their like.

use std::path::PathBuf;

use clap::Args;

/// What `create-users` takes, beside `--config` with the configuration of Disbatch.
#[derive(Debug, Args)]
pub struct CreateUsers {
    /// The MongoDB user who may create others
    #[arg(long = "root_user", value_name = "NAME", default_value = "root")]
    pub root_user: String,
    /// What plugins may do, as JSON: {"COLLECTION": ["ACTION", ..]} [default: insert into reports]
    #[arg(long = "plugin_perms", value_name = "FILE")]
    pub plugin_perms: Option<PathBuf>,
    /// What users may do besides, as JSON: {"USER": {"COLLECTION": ["ACTION", ..]}}
    #[arg(long = "additional_perms", value_name = "FILE")]
    pub additional_perms: Option<PathBuf>,
    /// Create the root user first; only a server without any users lets you
    #[arg(long = "create_root")]
    pub create_root: bool,
    /// Remove the users and roles before they are created
    #[arg(long = "drop_roles")]
    pub drop_roles: bool,
}

/// Options of `disbatch dev`.
#[derive(Debug, Args)]
pub struct DevOptions {
    /// Folder of the data, the logs and the configuration [default: ~/.local/share/disbatch/dev]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Port of the DCI on 127.0.0.1
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Port of MongoDB on 127.0.0.1 [default: the one before, else any that is free]
    #[arg(long, value_name = "N")]
    pub mongo_port: Option<u16>,
    /// Folder of plugins, or of one, that can be used beside the shipped ones; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugins: Vec<PathBuf>,
    /// Create two queues, run 20 tasks in them and show what comes out
    #[arg(long)]
    pub demo: bool,
    /// Stop after the demo; the exit status is 0 only if all went as expected
    #[arg(long, requires = "demo")]
    pub exit: bool,
}
