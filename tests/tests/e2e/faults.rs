//! The short form of `make faults`.

use disbatch_tests::binary;
use tokio::process::Command;

#[tokio::test]
async fn nothing_is_lost_or_run_twice_while_everything_breaks() -> anyhow::Result<()> {
    let output = Command::new(binary("disbatch-faults")?)
        .args(["--tasks", "300", "--duration", "25"])
        .kill_on_drop(true)
        .output()
        .await?;
    let (report, problem) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{report}\n{problem}", output.status);
    Ok(())
}
