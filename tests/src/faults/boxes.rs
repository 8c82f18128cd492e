//! The plugin of the suite in a container: a script that does what the program does, and keeps the same record.

use std::path::Path;

use serde_json::{Value, json};

use crate::podman::{IMAGE, Podman};

pub const PLUGIN: &str = "FaultsBox";

/// Times are those of the machine, in hundredths of a second: a start is said to be the next one.
const SCRIPT: &str = r#"
now() { read -r up rest < /proc/uptime; echo "${up%.*}${up#*.}0000000"; }
started=$(($(now) + 10000000))
wall=$(($(date +%s) + 1))000
read -r task
field() { echo "$task" | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }
attempt=$(field attempt) millis=$(field millis) lines=$(field lines) fails=$(field fails)
record=/records/$DISBATCH_TASK_ID.$attempt.1
echo "start $started $wall" >> "$record"
line=0
while [ $line -lt $lines ]; do
    echo "task $DISBATCH_TASK_ID attempt $attempt process 1 line $line of $lines"
    line=$((line + 1))
done
end=$((started + millis * 1000000))
while [ $(now) -lt $end ]; do
    sleep 0.05
    echo "beat $(now)" >> "$record"
done
[ $attempt -gt $fails ] || { echo "attempt $attempt is to fail" >&2; exit 1; }
echo "end $(now)" >> "$record"
"#;

/// The section of its manifest.
pub fn section(records: &Path) -> Value {
    json!({
        "image": IMAGE, "network": "none", "pull": "never", "command": ["sh", "-c", SCRIPT],
        "mounts": [{ "source": records, "target": "/records" }],
    })
}

/// Containers that are there.
pub async fn left(podman: Option<&Podman>) -> anyhow::Result<Vec<String>> {
    let Some(podman) = podman else { return Ok(Vec::new()) };
    let containers = podman.containers().await?;
    Ok(containers
        .iter()
        .map(|left| format!("container {} ({}) {:?}", left.id, left.state, left.labels))
        .collect())
}
