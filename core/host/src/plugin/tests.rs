use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn plugin(folder: &Path, name: &str, command: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("plugin.json"), format!(r#"{{"name":"{name}","command":["{command}","-x"]}}"#))
        .unwrap();
}

fn discover(folder: &Path) -> Plugins {
    let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
    Plugins::discover(&Config::parse(text, &folder.join("config.json")).unwrap())
}

#[test]
fn plugins_are_found_in_folders_relative_to_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./run.sh");
    plugin(&folder.path().join("plugins/two"), "My::Two", "run.sh");
    plugin(&folder.path().join("plugins/three"), "My::One", "run.sh");
    plugin(&folder.path().join("plugins/four"), "My::Four", "no-such-program");
    plugin(&folder.path().join("plugins/five"), "not; legal", "run.sh");
    let plugins = discover(folder.path());
    let two = plugins.get(&"My::Two".parse().unwrap()).unwrap();
    assert_eq!(two.program, folder.path().join("plugins/two/run.sh"));
    assert_eq!(two.arguments, ["-x"]);
    assert!(plugins.get(&"My::One".parse().unwrap()).is_some());
    let problems: Vec<String> = plugins
        .problems
        .iter()
        .map(ToString::to_string)
        .filter(|problem| !problem.contains("Disbatch::Plugin"))
        .collect();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems[0].contains("five/plugin.json: name: plugin value 'not; legal'"), "{problems:?}");
    assert!(problems[1].contains("program 'no-such-program'"), "{problems:?}");
    assert!(
        problems[2].contains("three/plugin.json is hidden") || problems[2].contains("hidden by another"),
        "{problems:?}"
    );
}

/// Whoever writes a manifest decides what runs; but only a program does, and a name is nothing but a name.
#[test]
fn what_is_no_program_or_no_name_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let commands = [
        "",
        "/",
        ".",
        "..",
        "./",
        "../",
        "run.sh/",
        "a\\u0000b",
        "bin/sh",
        "%2e%2e/run.sh",
        "..\\\\run.sh",
        "./none",
    ];
    for (number, command) in commands.iter().enumerate() {
        let name = format!("My::P{number}");
        plugin(&folder.path().join(format!("plugins/command{number}")), &name, command);
    }
    let names = ["", "../x", "/x", "a/b", "a.b", "a\\\\b", "a%2fb", "a\\u0000b", "a b"];
    for (number, name) in names.iter().enumerate() {
        plugin(&folder.path().join(format!("plugins/name{number}")), name, "./run.sh");
    }
    let plugins = discover(folder.path());
    let own: Vec<&PluginName> =
        plugins.names().filter(|name| !name.as_str().starts_with("Disbatch::Plugin")).collect();
    assert!(own.is_empty(), "{own:?}");
    let is_wrong = |problem: &&Problem| match problem {
        Problem::Program { name, .. } => name.as_str().starts_with("My::P"),
        Problem::Manifest { path, .. } => path.to_string_lossy().contains("plugins/name"),
        Problem::Folder { .. } | Problem::Duplicate { .. } | Problem::Engine { .. } => false,
    };
    assert_eq!(plugins.problems.iter().filter(is_wrong).count(), commands.len() + names.len());
}

/// Whoever may write to the folder of one plugin does not get to be the adapter of all, nor to run as the user of the DEN.
#[test]
fn a_folder_of_a_plugin_has_no_adapter_and_no_runner() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("plugins/boxed");
    plugin(&own, "Boxed", "./run.sh");
    fs::copy(own.join("run.sh"), own.join("disbatch-container")).unwrap();
    let boxed = r#"{ "name": "Boxed", "engine": "container", "container": { "image": "i" } }"#;
    fs::write(own.join("plugin.json"), boxed).unwrap();
    plugin(&folder.path().join("plugins/hand"), "Hand", "./run.sh");
    let hand =
        r#"{ "name": "Hand", "engine": "program", "program": { "type": "handoff", "path": "./run.sh" } }"#;
    fs::write(folder.path().join("plugins/hand/plugin.json"), hand).unwrap();
    let plugins = configured(folder.path(), r#""plugin_dirs":["plugins"],"engines":{"container":{}}"#);
    // The adapter of this installation may not have been built.
    assert!(get(&plugins, "Boxed").is_none_or(|plugin| !plugin.program.starts_with(folder.path())));
    assert!(get(&plugins, "Hand").is_none());
    let problems = problems(&plugins);
    let is_refused = |problem: &String| problem.contains("hand/plugin.json: program.type: handoff: a DEN");
    assert!(problems.iter().any(is_refused), "{problems:?}");
}

/// To look where modules are is the node's business, and is done as the user of the DEN.
#[test]
fn nothing_in_the_folder_of_a_perl_plugin_is_run_to_look_for_modules() {
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [("one", ""), ("two", r#", "perl": { "perl": "./perl" }"#)] {
        let own = folder.path().join("plugins").join(name);
        plugin(&own, name, "./run.sh");
        fs::write(own.join("run.sh"), "#!/bin/sh\n: > \"${0%/*}/../../ran\"\n").unwrap();
        fs::copy(own.join("run.sh"), own.join("perl")).unwrap();
        let text = format!(r#"{{ "name": "{name}", "engine": "perl"{more} }}"#);
        fs::write(own.join("plugin.json"), text).unwrap();
    }
    let plugins = discover(folder.path());
    assert!(!folder.path().join("ran").exists());
    assert!(get(&plugins, "one").is_none(), "the node's interpreter does not find it");
    let two = get(&plugins, "two").unwrap();
    assert_eq!(two.program, folder.path().join("plugins/two/./perl"), "it is started for tasks alone");
}

#[test]
fn a_missing_folder_is_a_problem_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = discover(folder.path());
    assert!(plugins.problems[0].to_string().starts_with("cannot read plugin folder"));
}

#[test]
fn shipped_manifests_are_valid() {
    for text in SHIPPED {
        let manifest = Manifest::parse(text).unwrap();
        assert!(manifest.name.as_str().starts_with("Disbatch::Plugin::"));
        assert!(manifest.unknown_keys.is_empty());
    }
}

/// A configuration in `folder` with these keys.
fn configured(folder: &Path, keys: &str) -> Plugins {
    let text = format!(r#"{{"mongohost":"h","database":"d",{keys}}}"#);
    Plugins::discover(&Config::parse(&text, &folder.join("config.json")).unwrap())
}

fn get<'a>(plugins: &'a Plugins, name: &str) -> Option<&'a Plugin> {
    plugins.get(&name.parse().unwrap())
}

/// What is wrong with plugins that are none of ours.
fn problems(plugins: &Plugins) -> Vec<String> {
    let all = plugins.problems.iter().map(ToString::to_string);
    all.filter(|problem| !problem.contains("Disbatch::Plugin")).collect()
}

#[test]
fn the_configuration_names_programs_and_perl_modules() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./run.sh");
    fs::create_dir_all(folder.path().join("lib/My")).unwrap();
    fs::write(folder.path().join("lib/My/Module.pm"), "package My::Module; 1;").unwrap();
    let keys = r#""plugin_dirs":["plugins"],"engines":{"perl":{"lib":["lib"],"interpreter":"/bin/sh"}},
        "plugins":{"My::One":{"type":"mongo"},"My::Module":1,"Off":0,"My::Missing":1,
        "File":{"command":["plugins/one/run.sh","-v"]},"Hand":{"type":"handoff","path":"/bin/sh"},"Odd":[]}"#;
    let plugins = configured(folder.path(), keys);
    let one = get(&plugins, "My::One").unwrap();
    assert_eq!(one.manifest.engine, Engine::Exec, "a folder of its own comes first");
    assert!(!one.answers && !one.handoff && one.adapter.is_none());
    let module = get(&plugins, "My::Module").unwrap();
    let lib = folder.path().join("lib").display().to_string();
    assert_eq!(module.arguments, ["--class", "My::Module", "--lib", lib.as_str()]);
    assert!(module.answers && module.program == Path::new("/bin/sh"));
    let file = get(&plugins, "File").unwrap();
    assert_eq!(
        (file.program.clone(), file.arguments.concat()),
        (folder.path().join("plugins/one/run.sh"), "-v".to_owned())
    );
    assert!(file.answers && !file.handoff);
    let hand = get(&plugins, "Hand").unwrap();
    assert!(hand.handoff && !hand.answers);
    assert!(get(&plugins, "Off").is_none());
    let problems = problems(&plugins);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("plugins.Odd: expected 1, 0 or an object"), "{problems:?}");
    assert!(
        problems[1].starts_with("plugin My::Missing: the Perl module My::Missing is neither"),
        "{problems:?}"
    );
}

#[test]
fn a_name_in_a_list_is_a_perl_module_only_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Here.pm"), "package Here; 1;").unwrap();
    let keys =
        r#""engines":{"perl":{"lib":["."],"interpreter":"/bin/sh"}},"plugins":["Here","Missing","no; name"]"#;
    let plugins = configured(folder.path(), keys);
    assert!(get(&plugins, "Here").is_some() && get(&plugins, "Missing").is_none());
    assert_eq!(problems(&plugins), Vec::<String>::new());
    let keys = r#""engines":{"perl":{"enabled":0,"lib":["."],"interpreter":"/bin/sh"}},"plugins":["Here"]"#;
    let plugins = configured(folder.path(), keys);
    assert!(get(&plugins, "Here").is_none() && problems(&plugins).is_empty());
}

#[test]
fn the_database_adds_what_the_host_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./run.sh");
    let mut plugins = discover(folder.path());
    let before = plugins.problems.len();
    let of = |value: serde_json::Value| Manifest::from_value(value).unwrap();
    let one = of(serde_json::json!({ "name": "My::One", "command": ["/bin/false"] }));
    let two = of(serde_json::json!({ "name": "Two", "command": ["/bin/sh", "-c"] }));
    let relative = of(serde_json::json!({ "name": "Three", "command": ["./run.sh"] }));
    let web = of(serde_json::json!({ "name": "Web", "engine": "http" }));
    plugins.with_workers(&[one, two.clone(), relative, web]);
    assert_eq!(get(&plugins, "My::One").unwrap().arguments, ["-x"], "the host's own hides it");
    assert_eq!(get(&plugins, "Two").unwrap().arguments, ["-c"]);
    let found: Vec<String> = plugins.problems[before..].iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("program './run.sh' is not an executable file in no folder"), "{found:?}");
    assert!(found[1].contains("the engine http is not enabled on this node: see engines.http"), "{found:?}");
    plugins.with_workers(&[]);
    assert!(get(&plugins, "Two").is_none() && get(&plugins, "My::One").is_some());
    assert_eq!(plugins.problems.len(), before);
}

#[test]
fn what_the_configuration_leaves_out_does_not_come_back_by_way_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./run.sh");
    plugin(&folder.path().join("plugins/two"), "My::Two", "./run.sh");
    let mut plugins = configured(folder.path(), r#""plugin_dirs":["plugins"],"plugins":["My::Two"]"#);
    let arguments =
        |plugins: &Plugins, name: &str| get(plugins, name).map(|plugin| plugin.arguments.concat());
    assert_eq!(arguments(&plugins, "My::One").as_deref(), Some("-x"), "queues that have it go on");
    let of = |name: &str| {
        let value = serde_json::json!({ "name": name, "command": ["/bin/sh", "-c"] });
        Manifest::from_value(value).unwrap()
    };
    for _ in 0..2 {
        plugins.with_workers(&[of("My::One"), of("My::Two"), of("Three"), of("My::One")]);
        assert_eq!(arguments(&plugins, "My::One"), None, "neither is run");
        assert_eq!(arguments(&plugins, "My::Two").as_deref(), Some("-x"));
        assert_eq!(arguments(&plugins, "Three").as_deref(), Some("-c"));
        let found = problems(&plugins);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("plugin My::One: this node has it, the list plugins of"), "{found:?}");
        let of_workers: Vec<&str> = plugins.names_of_workers().map(PluginName::as_str).collect();
        assert_eq!(of_workers, ["Three"]);
        let defines = |name: &str| plugins.defines(&name.parse().unwrap());
        assert!(defines("My::One") && defines("My::Two") && !defines("Three"));
    }
    plugins.with_workers(&[]);
    assert_eq!(arguments(&plugins, "My::One").as_deref(), Some("-x"));
    assert_eq!((arguments(&plugins, "Three"), problems(&plugins).len()), (None, 0));
}

#[test]
fn what_cannot_run_just_now_is_not_replaced_by_way_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("plugins/one");
    plugin(&own, "My::One", "./run.sh");
    let value = serde_json::json!({ "name": "My::One", "command": ["/bin/sh", "-c"] });
    let of_database = [Manifest::from_value(value).unwrap()];
    let look = |earlier: &Plugins| {
        let mut plugins = discover(folder.path());
        plugins.remember(earlier);
        plugins.with_workers(&of_database);
        get(&plugins, "My::One").map(|plugin| plugin.arguments.concat())
    };
    let nothing = Plugins::default();
    let earlier = discover(folder.path());
    assert_eq!(look(&nothing).as_deref(), Some("-x"));
    fs::rename(own.join("run.sh"), own.join("new.sh")).unwrap();
    assert_eq!(look(&nothing), None, "its program is missing");
    fs::rename(own.join("new.sh"), own.join("run.sh")).unwrap();
    assert_eq!(look(&nothing).as_deref(), Some("-x"));
    fs::write(own.join("plugin.json"), r#"{"name":"My::One","command":5}"#).unwrap();
    assert_eq!(look(&nothing), None, "its manifest is wrong, and says whose it is");
    fs::write(own.join("plugin.json"), r#"{"name":"#).unwrap();
    assert_eq!(look(&earlier), None, "it was of that name before");
    fs::rename(folder.path().join("plugins"), folder.path().join("away")).unwrap();
    assert_eq!(look(&earlier), None, "nobody can tell what is in the folder");
    fs::create_dir(folder.path().join("plugins")).unwrap();
    assert_eq!(look(&earlier).as_deref(), Some("-c"), "it is gone");
}

#[test]
fn what_the_configuration_leaves_out_and_cannot_run_is_not_replaced_either() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./missing");
    let mut plugins = configured(folder.path(), r#""plugin_dirs":["plugins"],"plugins":["My::Two"]"#);
    let value = serde_json::json!({ "name": "My::One", "command": ["/bin/sh"] });
    plugins.with_workers(&[Manifest::from_value(value).unwrap()]);
    assert!(get(&plugins, "My::One").is_none() && plugins.names_of_workers().next().is_none());
    let found = problems(&plugins);
    assert!(found.iter().any(|problem| problem.contains("neither is run")), "{found:?}");
}

#[test]
fn a_host_knows_of_plugins_that_it_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    plugin(&folder.path().join("plugins/one"), "My::One", "./missing");
    let plugins = discover(folder.path());
    let name = |name: &str| name.parse::<PluginName>().unwrap();
    assert!(get(&plugins, "My::One").is_none() && plugins.defines(&name("My::One")));
    assert!(!plugins.defines(&name("My::Two")));
    // Their programs may not have been built.
    assert!(plugins.defines(&name("Disbatch::Plugin::Shell")));
    assert!(Plugins::is_shipped(&name("Disbatch::Plugin::Shell")) && !Plugins::is_shipped(&name("My::One")));
}

#[test]
fn a_container_of_the_database_has_a_network_that_the_host_lends() {
    let folder = tempfile::tempdir().unwrap();
    let boxed = |network: &str| {
        let container = serde_json::json!({ "image": "i", "network": network });
        let value = serde_json::json!({ "name": "Boxed", "engine": "container", "container": container });
        Manifest::from_value(value).unwrap()
    };
    let is_refused = |engine: &str, network: &str| {
        let mut plugins = configured(folder.path(), &format!(r#""engines":{{"container":{engine}}}"#));
        plugins.with_workers(&[boxed(network)]);
        // Whatever else may be missing here.
        problems(&plugins).iter().any(|problem| problem.contains("engines.container.networks of this node"))
    };
    assert!(!is_refused("{}", "none") && is_refused("{}", "batch") && is_refused("{}", "host"));
    let lends = r#"{"networks":["batch"]}"#;
    assert!(!is_refused(lends, "batch") && is_refused(lends, "slirp4netns:allow_host_loopback=true"));
}

/// Writes a plugin that says a version, or whatever else `more` is.
fn version(folder: &Path, name: &str, more: &str) {
    plugin(folder, name, "./run.sh");
    let manifest = format!(r#"{{"name":"{name}","command":["./run.sh"],{more}}}"#);
    fs::write(folder.join("plugin.json"), manifest).unwrap();
}

#[test]
fn a_plugin_may_be_there_in_several_versions() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("plugins").join(name);
    for (place, more) in [
        ("a", r#""version":"1.0""#),
        ("b", r#""version":"2.0""#),
        ("c", r#""version":"1.0""#),
        ("d", r#""version":"two and a half""#),
        ("e", r#""description":"it has none""#),
    ] {
        version(&at(place), "Mail", more);
    }
    let plugins = discover(folder.path());
    let folder_of = |name: PluginName| plugins.get(&name)?.folder.clone();
    let mail: PluginName = "Mail".parse().unwrap();
    let pinned = |version: &str| folder_of(mail.at(&version.parse().unwrap()));
    assert_eq!(folder_of(mail.clone()), Some(at("a")), "the first one found is that of the name");
    assert_eq!([pinned("1.0"), pinned("2.0"), pinned("3.0")], [Some(at("a")), Some(at("b")), None]);
    assert_eq!(plugins.names().filter(|name| name.base() == "Mail").count(), 1);
    let versions: Vec<&str> =
        plugins.versions().filter(|name| name.base() == "Mail").map(PluginName::as_str).collect();
    assert_eq!(versions, ["Mail@1.0", "Mail@2.0"]);
    let problems: Vec<String> = plugins.problems.iter().map(ToString::to_string).collect();
    let of = |place: &str| problems.iter().find(|problem| problem.contains(&format!("/{place}/"))).unwrap();
    assert!(of("c").ends_with("is hidden by another of the same name and version"), "{problems:?}");
    assert!(of("d").contains("its version cannot be used: 'two and a half' is no version"), "{problems:?}");
    assert!(of("e").ends_with("is hidden by another of the same name"), "{problems:?}");
}

#[test]
fn one_that_cannot_run_leaves_its_name_to_no_other_version() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("plugins").join(name);
    version(&at("a"), "Mail", r#""version":"1""#);
    fs::remove_file(at("a/run.sh")).unwrap();
    version(&at("b"), "Mail", r#""version":"2""#);
    let plugins = discover(folder.path());
    let mail: PluginName = "Mail".parse().unwrap();
    assert!(plugins.get(&mail).is_none() && plugins.problem_with(&mail).is_some());
    assert!(plugins.get(&mail.at(&"2".parse().unwrap())).is_some());
}
