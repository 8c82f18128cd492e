//! Logging in and out, and what is there for whom.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_core::accounts::{NewToken, PasswordHash, Role, UserName};
use disbatch_tests::browser::{Browser, visit};
use disbatch_tests::{Dci, World, eventually};
use serde_json::{Value, json};

/// Everybody's password.
pub const PASSWORD: &str = "correct horse battery";

/// A DCI that asks who people are: users are called as their roles. There is a queue, `mail`.
pub struct Closed {
    pub world: World,
    dci: Dci,
}

impl Closed {
    pub async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        let store = world.store();
        store.ensure_indexes().await?;
        let hash = PasswordHash::of(PASSWORD)?;
        for role in Role::ALL {
            let is_new = store.add_user(&name_of(role)?, Some(role), &[], Some(&hash)).await?;
            ensure!(is_new, "there is a user {role} already");
        }
        world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        Ok(Self { world, dci })
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.dci.url())
    }

    /// Somebody's sessions end, wherever they are.
    pub async fn end_sessions(&self, role: Role) -> anyhow::Result<()> {
        let ended = self.world.store().end_sessions(&name_of(role)?).await?;
        ensure!(ended > 0, "{role} has no session");
        Ok(())
    }

    pub async fn until_threads(&self, threads: i32) -> anyhow::Result<()> {
        let queues = self.world.database().collection::<Document>("queues");
        let wanted = doc! { "name": "mail", "threads": threads };
        let what = format!("{threads} threads");
        eventually(&what, async || Ok(queues.find_one(wanted.clone()).await?)).await.map(drop)
    }
}

pub fn name_of(role: Role) -> anyhow::Result<UserName> {
    Ok(role.as_str().parse()?)
}

/// Fills in the form.
pub async fn log_in(browser: &Browser, name: &str, password: &str) -> anyhow::Result<()> {
    let page = browser.page();
    page.fill("Name", name).await?;
    page.fill("Password", password).await?;
    page.click("button", "Log in").await
}

/// Waits until the browser is on this page, and its script has begun.
pub async fn until_at(browser: &Browser, path: &str) -> anyhow::Result<()> {
    let script = format!("return location.pathname === {} && globalThis.disbatch !== undefined", json!(path));
    browser.until(path, &script).await.map(drop)
}

/// Checks that there is nothing in the console but refusals with this status, and takes them out of it.
pub async fn only_refused(browser: &Browser, status: u16) -> anyhow::Result<()> {
    let complaints = browser.complaints().await?;
    let is_meant = |text: &String| {
        text.contains(&format!("status of {status}")) || text.contains(&format!("Error Code {status}"))
    };
    ensure!(complaints.iter().all(is_meant), "{complaints:?}");
    Ok(())
}

#[tokio::test]
async fn a_login_leads_where_one_wanted_and_lasts_until_the_logout() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/mail?span=1h")).await?;
        until_at(browser, "/login").await?;
        let page = browser.page();
        log_in(browser, "operator", "something else").await?;
        page.until_text("wrong name or password").await?;
        only_refused(browser, 401).await?;
        page.fill("Password", PASSWORD).await?;
        page.click("button", "Log in").await?;
        until_at(browser, "/queues/mail").await?;
        ensure!(browser.url().await?.ends_with("/queues/mail?span=1h"), "it led elsewhere");
        page.until_there("link", "Your account: operator").await?;

        // By htmx, and taken back by a script of ours; both show that a page of the session asks.
        page.fill("Threads", "4").await?;
        browser.press("Enter").await?;
        page.until_text("Threads of mail: 4.").await?;
        site.until_threads(4).await?;
        page.click("button", "Undo").await?;
        page.until_text("Undone. Threads of mail: 1.").await?;
        site.until_threads(1).await?;
        // By a form that the browser sends itself, though the page has brought it up to date meanwhile.
        let native = "const form = document.querySelector('#queue-controls form'); \
            form.querySelectorAll('[type=hidden]').forEach((field) => { if (field.name === '.form_token') field.remove(); }); \
            form.querySelector('[name=threads]').value = '5'; \
            const copy = form.cloneNode(true); \
            for (const name of copy.getAttributeNames()) if (name.startsWith('hx-')) copy.removeAttribute(name); \
            form.replaceWith(copy); copy.requestSubmit()";
        browser.script(native, json!([])).await?;
        site.until_threads(5).await?;
        let follows = "return /^\\/queues\\/[0-9a-f]{24}$/.test(location.pathname)";
        browser.until("the page that follows", follows).await?;

        page.click("button", "Log out").await?;
        until_at(browser, "/login").await?;
        browser.open(&site.url("/tasks")).await?;
        until_at(browser, "/login").await?;
        // What the page was asking for at that moment.
        only_refused(browser, 401).await
    })
    .await?;
    site.world.end().await
}

#[tokio::test]
async fn who_may_only_look_is_offered_nothing_else() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        until_at(browser, "/login").await?;
        log_in(browser, "viewer", PASSWORD).await?;
        until_at(browser, "/").await?;
        let page = browser.page();
        page.until_text("Live").await?;
        page.click("DisclosureTriangle", "More").await?;
        page.until_there("link", "Bulk").await?;
        let links = page.names("link").await?;
        for missing in ["New queue", "Audit", "Users", "Tenants"] {
            ensure!(!links.iter().any(|name| name == missing), "{missing} is among {links:?}");
        }
        let is_off = "const field = document.querySelector('input[name=threads]'); \
            return field.disabled && field.value === VALUE \
              && [...document.querySelectorAll('tbody button.switch')].every((button) => button.disabled)";
        browser.until("threads that cannot be changed", &is_off.replace("VALUE", "'1'")).await?;
        // What changes by itself is made for everybody.
        let queues = site.world.database().collection::<Document>("queues");
        queues.update_one(doc! { "name": "mail" }, doc! { "$set": { "threads": 7, "paused": true } }).await?;
        page.until_text("paused").await?;
        browser.until("threads that still cannot be changed", &is_off.replace("VALUE", "'7'")).await?;
        let post = "const done = arguments[arguments.length - 1]; \
            window.disbatch.post('/queues/mail', { threads: '9' }).then(() => done('done'), (error) => done(error.message))";
        let refused = browser.script_that_calls_back(post).await?;
        ensure!(refused.as_str().is_some_and(|text| text.contains("needs the role operator")), "{refused}");
        only_refused(browser, 403).await?;
        site.until_threads(7).await?;

        browser.open(&site.url("/audit")).await?;
        page.until_text("You are viewer (viewer). Only admins can see this page.").await?;
        only_refused(browser, 403).await?;

        browser.open(&site.url("/queues/mail")).await?;
        until_at(browser, "/queues/mail").await?;
        page.until_text("Live").await?;
        let headings = page.names("heading").await?;
        for missing in ["New tasks", "Delete this queue"] {
            ensure!(!headings.iter().any(|name| name == missing), "{missing} is among {headings:?}");
        }
        let offered = "return [...document.querySelectorAll('main form :is(input, select, button)')] \
            .filter((control) => control.type !== 'hidden' && !control.disabled).map((control) => control.outerHTML)";
        ensure!(browser.script(offered, json!([])).await? == json!([]), "there is something to change");
        Ok(())
    })
    .await?;
    site.world.end().await
}

#[tokio::test]
async fn people_look_after_their_accounts() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        browser.time_zone("Europe/Berlin").await?;
        browser.open(&site.url("/account")).await?;
        until_at(browser, "/login").await?;
        log_in(browser, "submitter", PASSWORD).await?;
        until_at(browser, "/account").await?;
        let page = browser.page();
        page.fill("What it is for", "nightly").await?;
        page.choose("Role at most", "submitter").await?;
        page.click("button", "Create token").await?;
        page.until_text("It is shown only now").await?;
        let token = browser.script("return document.querySelector('#token-text').value", json!([])).await?;
        ensure!(token.as_str().is_some_and(|token| token.starts_with("disbatch_")), "{token}");
        page.click("button", "Copy").await?;
        let said = "return /Copied|It is selected/.test(document.querySelector('#toasts').textContent)";
        browser.until("what became of the copy", said).await?;
        // The page would be made anew by asking for another token.
        page.choose("Time zone", "UTC").await?;
        page.until_text("Times in forms are those of UTC now.").await?;
        let kept = browser.script("return document.querySelector('#token-text').value", json!([])).await?;
        ensure!(kept == token, "{kept}");
        page.click("link", "I have copied it").await?;
        page.click("button", "Revoke nightly").await?;
        page.until_text("Revoke the token nightly?").await?;
        page.click("button", "Revoke the token").await?;
        page.until_text("The token is revoked").await?;

        page.fill("Present password", PASSWORD).await?;
        page.fill("New password", "another horse battery").await?;
        page.fill("New password again", "another horse battery").await?;
        page.click("button", "Change password").await?;
        page.until_text("Your password is changed").await?;
        page.until_there("link", "Your account: submitter").await?;
        page.click("button", "Log out").await?;
        until_at(browser, "/login").await?;
        log_in(browser, "submitter", "another horse battery").await?;
        until_at(browser, "/").await
    })
    .await?;
    site.world.end().await
}

/// What sticks out of the window to the right, and is in nothing that can be scrolled.
const BEYOND: &str = "const scrolls = (e) => e !== document.documentElement && e !== document.body && \
    getComputedStyle(e).overflowX !== 'visible'; \
    const out = [...document.querySelectorAll('body *')].filter((e) => { \
        for (let up = e.parentElement; up; up = up.parentElement) if (scrolls(up)) return false; \
        return e.getBoundingClientRect().right > innerWidth; }); \
    return out.slice(0, 5).map((e) => e.tagName + ' ' + e.id + ' ' + e.className).join(', ')";

/// What axe-core finds on the pages of accounts, and what does not fit.
async fn wrong_with_pages(browser: &Browser, site: &Closed, paths: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for width in [360, 1440] {
        browser.resize(width, 900).await?;
        for path in paths {
            browser.open(&site.url(path)).await?;
            let violations = browser.violations_in_both_themes().await?;
            found.extend(violations.iter().map(|text| format!("{path}, {width} px: {text}")));
            let width_of_page = "return document.documentElement.scrollWidth";
            let Value::Number(needed) = browser.script(width_of_page, json!([])).await? else { continue };
            if needed.as_u64() > Some(u64::from(width)) {
                let beyond = browser.script(BEYOND, json!([])).await?;
                found.push(format!("{path} needs {needed} of {width} px: {beyond}"));
            }
        }
    }
    Ok(found)
}

#[tokio::test]
async fn pages_of_accounts_are_accessible() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        let mut found = wrong_with_pages(browser, &site, &["/login"]).await?;
        log_in(browser, "admin", PASSWORD).await?;
        until_at(browser, "/").await?;
        let user = name_of(Role::Admin)?;
        let token = NewToken { user, name: "x".repeat(200), role: Role::Viewer, queues: None, lasts: None };
        site.world.store().create_token(&token).await?;
        found.extend(wrong_with_pages(browser, &site, &["/account", "/users", "/", "/queues/mail"]).await?);
        ensure!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
        Ok(())
    })
    .await?;
    site.world.end().await
}
