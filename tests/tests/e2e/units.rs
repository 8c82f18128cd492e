//! The systemd units in `packaging/systemd`, as far as systemd can check them without starting them.

use std::fs;

use anyhow::Context;
use disbatch_tests::{binary, skipped};
use tokio::process::Command;

const DEN: &str = include_str!("../../../packaging/systemd/disbatch-den.service");
const DCI: &str = include_str!("../../../packaging/systemd/disbatch-dci.service");

/// The first release that tells by its exit status what it thinks of a unit.
const TELLS: u32 = 250;

/// The first release that knows `DelegateSubgroup=`.
const KNOWS_SUBGROUPS: u32 = 254;

/// The release of systemd; `None` where it is not installed.
async fn release() -> anyhow::Result<Option<u32>> {
    let Ok(output) = Command::new("systemd-analyze").arg("--version").output().await else { return Ok(None) };
    let text = String::from_utf8(output.stdout)?;
    // systemd 252 (252.38-1~deb12u1)
    let word = text.split_whitespace().nth(1).context("systemd-analyze does not tell its release")?;
    let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
    Ok(Some(digits.parse()?))
}

#[tokio::test]
async fn systemd_finds_nothing_wrong_with_the_units() -> anyhow::Result<()> {
    let Some(release) = release().await?.filter(|release| *release >= TELLS) else {
        skipped("there is no systemd-analyze that could check the units");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    for (name, unit, program) in [("disbatch-den", DEN, "den"), ("disbatch-dci", DCI, "dci")] {
        // What is to be started has to be there.
        let installed = format!("ExecStart=/usr/bin/{program} ");
        assert!(unit.contains(&installed), "{unit}");
        let built = format!("ExecStart={} ", binary(program)?.display());
        let is_known = |line: &&str| release >= KNOWS_SUBGROUPS || !line.starts_with("DelegateSubgroup=");
        let lines: Vec<&str> = unit.lines().filter(is_known).collect();
        let path = folder.path().join(format!("{name}.service"));
        fs::write(&path, lines.join("\n").replace(&installed, &built))?;
        let verify = ["verify", "--man=no", "--recursive-errors=no"];
        let output = Command::new("systemd-analyze").args(verify).arg(&path).output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("Unknown"), "{name}: {stderr}");
    }
    Ok(())
}

/// systemd gives up what has failed five times within ten seconds, unless it is told not to.
#[test]
fn what_passes_by_itself_is_waited_for() {
    for unit in [DEN, DCI] {
        for needed in ["StartLimitIntervalSec=0", "Restart=always", "RestartPreventExitStatus=2 3"] {
            assert!(unit.lines().any(|line| line == needed), "{needed}: {unit}");
        }
    }
}

#[test]
fn nothing_is_taken_from_plugins_that_they_need() {
    let settings: Vec<&str> = DEN.lines().filter(|line| !line.starts_with('#')).collect();
    for needed in ["KillMode=process", "OOMPolicy=continue", "PrivateTmp=no", "Delegate=yes"] {
        assert!(settings.contains(&needed), "{needed}");
    }
    for breaking in ["NoNewPrivileges=", "ProtectHome=", "SystemCallFilter=", "ProtectControlGroups="] {
        assert!(!settings.iter().any(|line| line.starts_with(breaking)), "{breaking}");
    }
}
