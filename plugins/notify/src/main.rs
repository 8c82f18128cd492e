//! `disbatch-plugin-notify`: delivers the message of a subscription, see `disbatch_core::notifications`.
//!
//! A message has the same id in each attempt: delivery is at least once, and whoever gets it can tell.

mod addresses;
mod message;
mod post;
mod smtp;

use std::process::ExitCode;

use disbatch_plugin::{Error, Task};

use addresses::Allowed;
use message::{Channel, Message, Words};

/// The variable with the private addresses that this node lets messages go to.
const ALLOWED: &str = "DISBATCH_NOTIFY_ALLOW";

fn deliver(task: &mut Task) -> Result<(), Error> {
    let channel: Channel = task.param("channel")?;
    let message: Message = task.param("message")?;
    let templates: message::Templates = match task.params().get("template") {
        Some(_) => task.param("template")?,
        None => message::Templates::default(),
    };
    let allowed = Allowed::parse(&task.variable(ALLOWED).unwrap_or_default());
    let secret = |name: &str| match task.secure_params().get(name) {
        Some(_) => task.secure_param::<String>(name).map(Some),
        None => Ok(None),
    };
    let (url, secret) = (secret("url")?, secret("secret")?);
    let words = Words { subject: templates.subject(&message)?, text: templates.text(&message)? };
    let post = |request: Result<post::Request, Error>| post::post(&request?, &allowed);
    let delivered = match channel {
        Channel::Webhook { url } => post(post::webhook(&url, &message, &words, secret.as_deref())),
        Channel::Slack => post(post::slack(&secret_address(url)?, &words)),
        Channel::Teams => post(post::teams(&secret_address(url)?, &message, &words)),
        Channel::Mail(mail) => smtp::send(&mail, &message, &words, secret.as_deref(), &allowed),
    };
    task.print(&format!("{}\n", delivered?));
    Ok(())
}

fn secret_address(url: Option<String>) -> Result<String, Error> {
    url.ok_or_else(|| {
        Error::failed(
            "the address of this channel is a secret that is not there: store the subscription once more",
        )
    })
}

fn main() -> ExitCode {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    disbatch_plugin::run(deliver)
}
