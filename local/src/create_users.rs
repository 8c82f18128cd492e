//! `create-users`: one MongoDB user for each kind of process. Administration goes directly to the database.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use disbatch_cli::args::CreateUsers;
use disbatch_cli::output::print;
use disbatch_core::config::{Config, DEFAULT_PATH, Role};
use disbatch_core::users::{Administrator, PRODUCER, Permissions, Privileges, Put};
use disbatch_core::users::{additional_permissions, plugin_permissions};

use crate::password::{self, Typed};

/// Holds the password for those who cannot be asked.
const PASSWORD_VARIABLE: &str = "DISBATCH_ROOT_PASSWORD";

/// Creates the users, or brings those that are there up to date.
pub async fn run(options: CreateUsers, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = Config::load(config.unwrap_or(Path::new(DEFAULT_PATH)))?;
    if let Some(exposure) = config.exposure() {
        eprintln!("Warning: {exposure}");
    }
    let plugin = file(options.plugin_perms.as_deref(), plugin_permissions)?;
    let additional = file(options.additional_perms.as_deref(), additional_permissions)?.unwrap_or_default();
    let users: Vec<(Role, &str)> =
        Role::ALL.into_iter().filter_map(|role| Some((role, config.auth.password(role)?))).collect();
    if users.is_empty() {
        bail!("{} has no passwords in 'auth', so there are no users to create", config.path.display());
    }
    let password = password::read(PASSWORD_VARIABLE, &options.root_user, Typed::Once)?;
    if options.create_root {
        Administrator::create_root(&config, &options.root_user, &password)
            .await
            .with_context(|| format!("cannot create user '{}'", options.root_user))?;
        print(&format!("Created user '{}' in database 'admin'.\n", options.root_user))?;
    }
    let administrator = Administrator::connect(&config, &options.root_user, &password)
        .await
        .with_context(|| format!("cannot work as the MongoDB user '{}'", options.root_user))?;
    if options.drop_roles {
        for role in Role::ALL {
            let dropped = administrator.drop_user(role).await;
            dropped.with_context(|| format!("cannot remove user '{}'", role.as_str()))?;
        }
    }
    for (role, password) in users {
        let privileges = privileges(role, &config, plugin.as_ref(), additional.get(role.as_str()));
        let put = administrator.put_user(role, password, &privileges).await;
        let done = match put.with_context(|| format!("cannot create user '{}'", role.as_str()))? {
            Put::Created => "Created",
            Put::Updated => "Updated",
        };
        print(&format!("{done} user '{}' in database '{}'.\n", role.as_str(), config.database))?;
    }
    // It stays with `--drop-roles`: users have it whom somebody else has made.
    let put = administrator.put_producer_role().await;
    let done = match put.with_context(|| format!("cannot create role '{PRODUCER}'"))? {
        Put::Created => "Created",
        Put::Updated => "Updated",
    };
    print(&format!("{done} role '{PRODUCER}' in database '{}'.\n", config.database))?;
    for role in Role::ALL.into_iter().filter(|role| config.auth.password(*role).is_none()) {
        print(&format!("No user '{0}': there is no 'auth.{0}' in the configuration.\n", role.as_str()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn privileges(
    role: Role,
    config: &Config,
    plugin: Option<&Permissions>,
    additional: Option<&Permissions>,
) -> Privileges {
    let mut privileges = match plugin {
        Some(permissions) if role == Role::Plugin => Privileges::only(permissions.clone()),
        _ => Privileges::of(role, config), // The file is about plugins alone.
    };
    if let Some(more) = additional {
        privileges.add(more);
    }
    privileges
}

fn file<T, E>(path: Option<&Path>, read: impl Fn(&str) -> Result<T, E>) -> anyhow::Result<Option<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(read(&text).with_context(|| format!("cannot use {}", path.display()))?))
}
