//! `disbatch subscription ..`

use std::path::Path;

use anyhow::Context;
use disbatch_wire::subscriptions::{Subscription, SubscriptionTest};
use serde_json::{Value, json};

use crate::api::{read, segment};
use crate::args::SubscriptionCommand;
use crate::command::Session;
use crate::output::{Column, Cut, Table, print, visible};

const TABLE: Table<Subscription> = Table {
    columns: &[
        Column { title: "Name", cell: |one| one.name.clone(), cut: Cut::Early },
        Column { title: "Tells", cell: told, cut: Cut::Early },
        Column { title: "Channel", cell: |one| one.channel.clone(), cut: Cut::Never },
        Column { title: "Messages", cell: |one| one.messages.to_string(), cut: Cut::Never },
        Column { title: "State", cell: state, cut: Cut::Late },
    ],
    noun: "subscriptions",
};

pub async fn run(session: &Session, command: SubscriptionCommand) -> anyhow::Result<()> {
    let client = &session.client;
    match command {
        SubscriptionCommand::List => session.print_list("/subscriptions", &TABLE).await,
        SubscriptionCommand::Show { subscription } => {
            session.print_document(&path(&subscription)?, text).await
        }
        SubscriptionCommand::Set { subscription, mut settings, secret_file, address_file } => {
            if let Some(file) = secret_file {
                settings.secret = Some(line(&file)?);
            }
            if let Some(file) = address_file {
                settings.url = Some(line(&file)?);
            }
            client.post(&path(&subscription)?, &settings).await?;
            print(&format!("Set subscription {subscription}\n"))
        }
        SubscriptionCommand::Test { subscription } => {
            let path = format!("{}/test", path(&subscription)?);
            let SubscriptionTest { task, .. } = read(client.post(&path, &json!({})).await?)?;
            print(&format!("Task {task} delivers a test\n"))
        }
        SubscriptionCommand::Delete { subscription } => {
            client.delete(&path(&subscription)?).await?;
            print(&format!("Deleted subscription {subscription}\n"))
        }
    }
}

fn path(name: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!name.is_empty(), "Subscription name not given");
    Ok(format!("/subscriptions/{}", segment(name)))
}

fn line(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn told(one: &Subscription) -> String {
    let mut told: Vec<String> = one.events.iter().map(|event| visible(event)).collect();
    told.extend(one.failures_in_row.map(|number| format!("failures_in_row {number}")));
    told.extend(one.waits_longer.map(|time| format!("waits_longer {time} s")));
    told.extend(one.runs_longer.map(|time| format!("runs_longer {time} s")));
    told.join(", ")
}

fn state(one: &Subscription) -> String {
    match &one.trouble {
        Some(trouble) => visible(trouble),
        None if !one.enabled => "off".to_owned(),
        None if one.pending > 0 => format!("{} to be told", one.pending),
        None => String::new(),
    }
}

fn text(one: &Subscription) -> String {
    let json = serde_json::to_value(one).unwrap_or_default();
    let of = |(name, value): (&String, &Value)| match value {
        Value::Null => None,
        Value::Array(all) if all.is_empty() => None,
        Value::Array(all) => {
            let words = all.iter().filter_map(Value::as_str).map(visible).collect::<Vec<_>>();
            Some(format!("{name}: {}\n", words.join(", ")))
        }
        Value::String(text) => Some(format!("{name}: {}\n", visible(text))),
        Value::Number(number) => Some(format!("{name}: {}\n", number.as_f64().unwrap_or_default())),
        other => Some(format!("{name}: {other}\n")),
    };
    json.as_object().into_iter().flatten().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Screen;

    #[test]
    fn a_subscription_is_what_was_said_of_it() {
        let one = Subscription {
            name: "nights".to_owned(),
            events: vec!["failed".to_owned(), "lost".to_owned()],
            waits_longer: Some(3600.0),
            channel: "webhook".to_owned(),
            enabled: true,
            pending: 3,
            ..Subscription::default()
        };
        let table = TABLE.render(std::slice::from_ref(&one), Screen::default());
        for part in ["nights", "failed, lost, waits_longer 3600 s", "webhook", "3 to be told"] {
            assert!(table.contains(part), "{table}");
        }
        let text = text(&one);
        assert!(text.contains("events: failed, lost\n") && !text.contains("schedules"), "{text}");
        assert_eq!(path("a b").unwrap(), "/subscriptions/a%20b");
    }
}
