//! A page, or a part of it: what it says, and what can be done there.

use std::sync::atomic::Ordering;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::Browser;
use super::devtools::{self, Node};
use super::session::Element;

/// The key of this name, as the standard has it.
const DELETE: &str = "\u{e017}";

/// The roles of fields that text is written into.
const FIELDS: [&str; 4] = ["textbox", "searchbox", "spinbutton", "combobox"];

/// The roles of fields that offer a choice.
const CHOICES: [&str; 2] = ["combobox", "listbox"];

/// A part of the page. It is looked for again whenever it is used, as pages change by themselves.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    browser: &'a Browser,
    /// A script's expression for its element.
    root: String,
    /// For people.
    name: String,
}

impl<'a> Part<'a> {
    pub(super) fn whole(browser: &'a Browser) -> Self {
        Self { browser, root: "document.documentElement".into(), name: "the page".into() }
    }

    pub(super) fn showing(browser: &'a Browser, selector: &str, text: &str) -> Self {
        // As JSON, texts are what they are as literals of a script.
        let (quoted, shown) = (Value::from(selector), Value::from(text));
        let all = format!("[...document.querySelectorAll({quoted})]");
        let root = format!("{all}.find((element) => element.innerText.includes({shown}))");
        Self { browser, root, name: format!("{selector} with '{text}'") }
    }

    /// Its text as people see it.
    pub async fn text(&self) -> anyhow::Result<String> {
        let script = format!("const part = {}; return part ? part.innerText : null", self.root);
        let text = self.browser.script(&script, json!([])).await?;
        Ok(text.as_str().with_context(|| format!("there is no {}", self.name))?.to_owned())
    }

    pub async fn until_text(&self, text: &str) -> anyhow::Result<()> {
        let what = format!("'{text}' in {}", self.name);
        self.until_its_text(&what, |shown| shown.contains(text)).await
    }

    /// Waits until it does not show `text` any more, while it is there.
    pub async fn until_no_text(&self, text: &str) -> anyhow::Result<()> {
        let what = format!("no '{text}' in {}", self.name);
        self.until_its_text(&what, |shown| !shown.contains(text)).await
    }

    /// The names of all that has a role, as Chromium's accessibility tree has them: `button`, `link`, `heading`,
    /// `DisclosureTriangle` for a summary.
    pub async fn names(&self, role: &str) -> anyhow::Result<Vec<String>> {
        Ok(self.nodes(&[role]).await?.into_iter().map(|node| node.name).collect())
    }

    /// Waits until there is something of this role and name.
    pub async fn until_there(&self, role: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("{role} '{name}' in {}", self.name);
        self.browser.retry(&what, async || self.find(&[role], name).await.map(drop)).await
    }

    /// Clicks what has this role and name as soon as that is possible.
    pub async fn click(&self, role: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("a click on {role} '{name}' in {}", self.name);
        self.browser
            .retry(&what, async || {
                let element = self.find(&[role], name).await?;
                // As people do, who see that a bar at the edge of the window lies over it.
                let scroll = "arguments[0].scrollIntoView({ block: 'center' })";
                self.browser.script(scroll, json!([element.reference()])).await?;
                self.command(&element, "click", json!({})).await
            })
            .await?;
        self.browser.clicks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Replaces what is in the field of this label.
    pub async fn fill(&self, label: &str, text: &str) -> anyhow::Result<()> {
        let what = format!("'{text}' for the field '{label}' in {}", self.name);
        self.browser
            .retry(&what, async || {
                let element = self.find(&FIELDS, label).await?;
                // At once, as people do it: what is there is written over, and the page hears of it key by key.
                let select = "const [field] = arguments; field.focus(); field.select()";
                self.browser.script(select, json!([element.reference()])).await?;
                let keys = if text.is_empty() { DELETE } else { text };
                self.command(&element, "value", json!({ "text": keys })).await
            })
            .await
    }

    /// Takes an option of the choice of this label.
    pub async fn choose(&self, label: &str, option: &str) -> anyhow::Result<()> {
        let what = format!("the option '{option}' of '{label}' in {}", self.name);
        let find = "const [select, label] = arguments;
            return [...select.options].find((option) => option.label === label) ?? null";
        self.browser
            .retry(&what, async || {
                let element = self.find(&CHOICES, label).await?;
                let found = self.browser.script(find, json!([element.reference(), option])).await?;
                let chosen = Element::of(&found).context("there is no such option")?;
                self.command(&chosen, "click", json!({})).await
            })
            .await
    }

    async fn until_its_text(&self, what: &str, is_right: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        self.browser
            .retry(what, async || {
                ensure!(is_right(&self.text().await?), "it shows something else");
                Ok(())
            })
            .await
    }

    async fn command(&self, element: &Element, command: &str, body: Value) -> anyhow::Result<()> {
        self.browser.session.post(&element.path(command), &body).await.map(drop)
    }

    async fn nodes(&self, roles: &[&str]) -> anyhow::Result<Vec<Node>> {
        let nodes = devtools::of_roles(&self.browser.session, &self.root, roles).await?;
        nodes.with_context(|| format!("there is no {}", self.name))
    }

    async fn find(&self, roles: &[&str], name: &str) -> anyhow::Result<Element> {
        let nodes = self.nodes(roles).await?;
        match nodes.iter().find(|node| node.name == name) {
            Some(node) => node.element(&self.browser.session).await,
            None if nodes.is_empty() => bail!("there is no {}", roles.join(" or ")),
            None => {
                let others: Vec<String> = nodes.iter().map(Node::describe).collect();
                bail!("there is only: {}", others.join(", "))
            }
        }
    }
}
