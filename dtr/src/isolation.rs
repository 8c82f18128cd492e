//! What the plugins of this runner get from it, and what they are kept from.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

use disbatch_core::cgroup;
use disbatch_core::config::{Config, ConfigError, Limits, PluginEnvironment};
use disbatch_core::identity::Identity;
use disbatch_core::model::TRACE_VARIABLES;
use disbatch_core::plugin::Manifest;
use disbatch_core::secrets::NamedSecrets;
use zeroize::Zeroize;

use crate::confine::Confinement;
use crate::guard;
use crate::guard::protocol::Settings;

/// The variables that a runner sets for its plugins. They come from nowhere else, whatever is configured.
const SET_HERE: [&str; 32] = [
    TRACE_VARIABLES[0],
    TRACE_VARIABLES[1],
    TRACE_VARIABLES[2],
    guard::TASK_VARIABLE,
    guard::RUNNER_VARIABLE,
    "DISBATCH_QUEUE_ID",
    "DISBATCH_QUEUE",
    "DISBATCH_PLUGIN",
    "DISBATCH_NODE",
    "DISBATCH_ATTEMPT",
    "DISBATCH_WORK_DIR",
    "DISBATCH_DATABASE",
    "DISBATCH_COMMIT",
    "DISBATCH_NOTIFY_ALLOW",
    "DISBATCH_CONTROL_FD",
    "DISBATCH_PERL_CONFIG",
    "DISBATCH_WARM",
    "DISBATCH_SHADOW",
    "DISBATCH_STEP",
    "DISBATCH_STEPS",
    "DISBATCH_STEP_NAME",
    "DISBATCH_ARRAY_ID",
    "DISBATCH_ARRAY_INDEX",
    "DISBATCH_ARRAY_VALUE",
    "JOB_ID",
    "RUN_ID",
    "TENANT_ID",
    "JOB_PARAMS",
    "JOB_SECURE_PARAMS",
    "JOB_STORAGE",
    "LAST_SUCCESS_START",
    "LAST_SUCCESS_FINISH",
];

/// What the configuration says of that.
#[derive(Debug, Clone)]
pub struct Isolation {
    environment: Vec<(OsString, OsString)>,
    user: Option<Identity>,
    limits: Limits,
    cgroup: Option<PathBuf>,
    /// What all plugins have in common by way of their guard.
    pub settings: Settings,
}

impl Isolation {
    pub fn prepare(config: &Config) -> Result<Self, ConfigError> {
        let user = Identity::of(config)?;
        cgroup::prepare(config)?;
        cgroup::remove_left(config);
        let core = config.limits.core.unwrap_or(Settings::default().core);
        Ok(Self {
            environment: environment_of(std::env::vars_os(), &config.plugin_environment, user.as_ref()),
            user,
            limits: Limits { core: None, ..config.limits },
            cgroup: config.cgroup.clone(),
            settings: Settings { no_new_privs: config.no_new_privs.0, core },
        })
    }

    /// What is in the environment of every plugin, and secrets, which take the place of what has the same name.
    pub fn environment_with(&self, secrets: &NamedSecrets) -> Environment {
        let mut environment = Environment::of(self.environment.clone());
        for (variable, value) in secrets.variables() {
            environment.set(variable, value);
        }
        environment
    }

    pub fn user(&self) -> Option<&Identity> {
        self.user.as_ref()
    }

    /// What this plugin is to have less of than its guard. `None`: nothing, so it is started without a detour.
    pub fn confinement(&self, plugin: &Manifest) -> Option<Confinement> {
        // The guard leaves none itself, so a plugin that may leave a core dump needs to be told so. Where none may, the
        // guard bounds them all.
        let most = Some(self.settings.core).filter(|most| *most > 0);
        let core = most.map(|most| plugin.limits.core.map_or(most, |core| core.min(most)));
        let limits = Limits { core, ..self.limits.lower_of(plugin.limits) };
        let is_needed = self.user.is_some() || self.cgroup.is_some() || limits != Limits::default();
        is_needed.then(|| Confinement {
            user: self.user.clone(),
            limits,
            cgroup: self.cgroup.clone(),
            handed_over: false,
        })
    }

    /// Makes the private folder of a task the property of the user whom its plugin runs as. A plugin that has a process
    /// for each task gets it from the guard.
    pub fn hand_over(&self, folder: &Path) -> io::Result<()> {
        // As long as it belongs to this process, nobody else can put another folder in its place.
        self.user.as_ref().map_or(Ok(()), |user| lchown(folder, Some(user.uid), Some(user.gid)))
    }
}

/// Whether a runner sets this variable for each of its plugins.
pub fn is_set_here(name: &OsStr) -> bool {
    SET_HERE.iter().any(|own| name == *own)
}

/// What `all` has for plugins, who run as `user` if that is given.
fn environment_of(
    all: impl Iterator<Item = (OsString, OsString)>,
    configured: &PluginEnvironment,
    user: Option<&Identity>,
) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> =
        all.filter(|(name, _)| configured.passes(name) && !is_set_here(name)).collect();
    if let Some(user) = user {
        let name: &OsStr = user.name.as_ref();
        let own = [("HOME", user.home.as_os_str()), ("USER", name), ("LOGNAME", name)];
        environment.retain(|(name, _)| own.iter().all(|(own, _)| name != own));
        environment.extend(own.map(|(name, value)| (OsString::from(name), value.to_owned())));
    }
    environment
}

/// The variables of a plugin. Some may be secret, so that all values are overwritten when they are dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    pub const fn of(variables: Vec<(OsString, OsString)>) -> Self {
        Self(variables)
    }

    /// Adds a variable. Of several with one name the last counts.
    pub fn add(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.push((name.into(), value.into()));
    }

    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl Into<OsString>) {
        let (of_name, others) =
            std::mem::take(&mut self.0).into_iter().partition(|(other, _)| other == name.as_ref());
        drop(Self(of_name));
        self.0 = others;
        self.add(name.as_ref(), value);
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for (_, value) in &mut self.0 {
            // The bytes stay where they are.
            std::mem::take(value).into_vec().zeroize();
        }
    }
}

impl Deref for Environment {
    type Target = [(OsString, OsString)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Default for Isolation {
        fn default() -> Self {
            Self {
                environment: environment_of(std::env::vars_os(), &PluginEnvironment::default(), None),
                user: None,
                limits: Limits::default(),
                cgroup: None,
                settings: Settings::default(),
            }
        }
    }

    fn prepare(keys: &str) -> Isolation {
        let text = format!(r#"{{"mongohost":"h","database":"d"{keys}}}"#);
        Isolation::prepare(&Config::parse(&text, Path::new("/etc/d.json")).unwrap()).unwrap()
    }

    fn plugin(limits: &str) -> Manifest {
        Manifest::parse(&format!(r#"{{ "name": "A", "command": ["a"], "limits": {limits} }}"#)).unwrap()
    }

    fn variables(configured: &str, user: Option<&Identity>) -> Vec<String> {
        let all = ["PATH=/bin", "HOME=/root", "LOGNAME=root", "SECRET=s", "AWS_KEY=k", "JOB_PARAMS=old"];
        let all = all.into_iter().chain(["DISBATCH_RUNNER_PID=1", "DISBATCH_ROOT_PASSWORD=p"]);
        let pairs = all.filter_map(|entry| entry.split_once('='));
        let pairs = pairs.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let configured = serde_json::from_str(configured).unwrap();
        let environment = environment_of(pairs, &configured, user);
        let text = |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        environment.into_iter().map(text).collect()
    }

    #[test]
    fn plugins_get_what_they_need_and_what_is_named_and_never_what_is_set_here() {
        assert_eq!(variables("[]", None), ["PATH=/bin", "HOME=/root", "LOGNAME=root"]);
        let named = variables(r#"["AWS_*"]"#, None);
        assert_eq!(named, ["PATH=/bin", "HOME=/root", "LOGNAME=root", "AWS_KEY=k"]);
        let all = variables(r#"["*"]"#, None);
        assert!(!all.contains(&"DISBATCH_ROOT_PASSWORD=p".to_owned()), "{all:?}");
        assert!(!all.iter().any(|entry| entry.starts_with("JOB_") || entry.contains("RUNNER")), "{all:?}");
    }

    #[test]
    fn another_user_has_a_home_of_their_own() {
        let home = PathBuf::from("/home/u");
        let user = Identity { name: "u".to_owned(), uid: 7, gid: 8, groups: vec![8], home };
        let variables = variables("[]", Some(&user));
        assert_eq!(variables, ["PATH=/bin", "HOME=/home/u", "USER=u", "LOGNAME=u"]);
    }

    #[test]
    fn who_has_nothing_less_than_the_guard_is_not_confined() {
        let none = prepare("");
        assert_eq!(none.settings, Settings { no_new_privs: true, core: 0 });
        assert_eq!(none.confinement(&plugin("{}")), None);
        assert_eq!(none.confinement(&plugin(r#"{ "core": "1G" }"#)), None, "the node allows no core dumps");
        let some = prepare(r#","no_new_privs":false,"limits":{"core":"1M"}"#);
        assert_eq!(some.settings, Settings { no_new_privs: false, core: 1 << 20 });
        for (of_plugin, core) in [("{}", 1 << 20), (r#"{ "core": 7 }"#, 7), (r#"{ "core": "1G" }"#, 1 << 20)]
        {
            let confinement = some.confinement(&plugin(of_plugin)).unwrap();
            assert_eq!(confinement.limits, Limits { core: Some(core), ..Limits::default() }, "{of_plugin}");
        }
    }

    #[test]
    fn the_lower_limit_of_node_and_plugin_holds() {
        let node = prepare(r#","limits":{"memory":"1G","cpu_seconds":60}"#);
        let confinement = node.confinement(&plugin(r#"{ "memory": "2G", "processes": 9 }"#)).unwrap();
        let expected =
            Limits { memory: Some(1 << 30), cpu_seconds: Some(60), processes: Some(9), ..Limits::default() };
        assert_eq!(confinement, Confinement { limits: expected, ..Confinement::default() });
    }

    #[test]
    fn a_folder_stays_whose_it_is_where_plugins_are_nobody_else() {
        prepare("").hand_over(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn a_variable_takes_the_place_of_others_with_its_name_and_no_value_is_shown() {
        let mut environment = Environment::of(vec![("KEY".into(), "old".into())]);
        environment.add("PATH", "/bin");
        environment.set("KEY", "horse");
        let shown: Vec<_> = environment.iter().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        assert_eq!(shown, [(Some("PATH"), Some("/bin")), (Some("KEY"), Some("horse"))]);
        assert_eq!(format!("{environment:?}"), r#"{"PATH", "KEY"}"#);
    }
}
