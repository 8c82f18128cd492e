//! One container from its image to its removal.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::time::Duration;

use disbatch_adapter::{CANNOT_RUN, Stop, TOLD_TO_END, note};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Engine, Error, FromContainer, Signposts, ToContainer, is_usable};
use crate::channel::Channel;
use crate::input::ContainerInput;
use crate::labels::Process;
use crate::output::Targets;
use crate::request::Create;
use crate::{image, labels, output, tidy};

/// The exit code of what SIGKILL has ended.
const KILLED: i64 = 128 + 9;

const OUTPUT_TAKES: Duration = Duration::from_secs(30);

/// How long an engine may be away while a container runs: it may be started anew.
const ENGINE_TAKES: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_secs(1);

const REMOVALS: u32 = 5;

pub async fn run(line: &[u8]) -> Result<u8, String> {
    let told = ContainerInput::parse(line)?;
    let mut stop = Stop::listen().map_err(|error| format!("cannot listen to signals: {error}"))?;
    let mut channel = Channel::open(&told.worker.work_dir)?;
    let this = Process::this().map_err(|error| error.to_string())?;
    let mut create = Create::new(&told, &labels::of(&told, &this))?;
    let prepare = async {
        let engine = engine(&told).await?;
        tidy::before(&engine, &told, &this).await?;
        choose_user(&engine, &mut create).await?;
        image::ensure(&engine, &told, &create, &mut channel).await?;
        Ok::<_, String>(engine)
    };
    let engine = tokio::select! {
        engine = prepare => engine?,
        () = stop.wanted() => return Ok(TOLD_TO_END),
    };
    let folder = hand_over(&told, &create);
    folder.map_err(|error| format!("cannot give the private folder to the container's user: {error}"))?;
    let created = engine.create(&create.name, &create.body).await;
    let id = created.map_err(|error| format!("cannot create the container {}: {error}", create.name))?;
    let container = Container { engine: &engine, id: &id, told: &told, create: &create };
    let ran = Box::pin(container.live(&mut channel, &mut stop)).await;
    container.remove().await;
    ran
}

async fn engine(told: &ContainerInput) -> Result<Engine, String> {
    let of_node = told.worker.engine_config.as_ref().and_then(|config| config.socket.as_deref());
    let of_plugin = told.worker.settings.socket.as_deref();
    let address = Signposts::here(None).find([of_plugin, of_node], is_usable)?;
    Engine::connect(address).await.map_err(|error| error.to_string())
}

/// Where an engine that is root's serves somebody else, what root in a container leaves in the private folder could not be
/// removed or stored, and another user of the image's could not get in. So it is the user whom the folder belongs to, unless
/// somebody has said another one.
async fn choose_user(engine: &Engine, create: &mut Create) -> Result<(), String> {
    let (user, group) = (Uid::effective(), Gid::effective());
    if user.is_root() || !create.is_without_user() {
        return Ok(());
    }
    if !engine.is_rootless().await.map_err(|error| error.to_string())? {
        create.set_user(user.as_raw(), group.as_raw());
    }
    Ok(())
}

/// Makes the private folder the property of the user in the container, who could not get into it otherwise. Only root
/// can, and only a user with a number is known here.
fn hand_over(told: &ContainerInput, create: &Create) -> io::Result<()> {
    match create.user() {
        Some((user, group)) if user != 0 && Uid::effective().is_root() => {
            lchown(&told.worker.work_dir, Some(user), group)
        }
        _ => Ok(()),
    }
}

struct Container<'a> {
    engine: &'a Engine,
    id: &'a str,
    told: &'a ContainerInput,
    create: &'a Create,
}

#[derive(Debug, Default)]
struct Way {
    /// Whether nothing more comes of what it writes.
    is_over: Cell<bool>,
    was_away: Cell<bool>,
}

impl Container<'_> {
    async fn live(&self, channel: &mut Channel, stop: &mut Stop) -> Result<u8, String> {
        let mut facts = json!({ "container": self.id, "image": self.create.image });
        let kills = memory_kills();
        let cannot = |error: Error| format!("cannot start the container {}: {error}", self.create.name);
        let prepare = async {
            facts["digest"] = self.digest().await.into();
            // Now as well: it may be killed, or this process.
            channel.say(&json!({ "facts": facts })).await;
            self.engine.attach(self.id).await.map_err(cannot)
        };
        // An engine may be slow, and what is to end is not begun.
        let streams = tokio::select! {
            biased;
            () = stop.wanted() => return Ok(TOLD_TO_END),
            streams = prepare => streams?,
        };
        self.engine.start(self.id).await.map_err(cannot)?;
        let (code, stopped) = self.follow(streams, channel, stop).await?;
        channel.drain().await;
        let (code, oom) = self.ended(code, stopped, kills).await;
        facts["exit_code"] = code.into();
        facts["oom"] = oom.into();
        channel.say(&json!({ "facts": facts })).await;
        self.explain(code, oom, stopped);
        // Some engines have no code for a container that they have lost.
        Ok(u8::try_from(code).unwrap_or(CANNOT_RUN))
    }

    /// Feeds and listens until the container has ended. Returns its exit code, and whether it was told to end.
    async fn follow(
        &self,
        (from, mut to): (FromContainer, ToContainer),
        channel: &mut Channel,
        stop: &mut Stop,
    ) -> Result<(i64, bool), String> {
        let mut targets = Targets::own().map_err(|error| format!("cannot pass on output: {error}"))?;
        let feed = async {
            // A container need not read its standard input.
            let _unread = to.write_all(self.told.task.as_bytes()).await;
            let _closed = to.shutdown().await;
            std::future::pending::<io::Result<()>>().await
        };
        let (way, (again, more)) = (Way::default(), unbounded_channel());
        let streams = async {
            tokio::select! {
                copied = copy(from, more, &mut targets, &way) => copied,
                never = feed => never,
            }
        };
        let stopped = Cell::new(false);
        let end = async {
            stop.wanted().await;
            stopped.set(true);
            self.stop().await;
        };
        let wait = self.wait(again, &way);
        tokio::pin!(streams, end, wait);
        let (mut copied, mut is_asked) = (None, false);
        let code = loop {
            tokio::select! {
                code = &mut wait => break code,
                // Not before `wait`, which may connect to them once more.
                ended = &mut streams, if copied.is_none() => copied = Some(ended),
                () = &mut end, if !is_asked => is_asked = true,
                never = channel.relay() => match never {},
            }
        };
        let code = code.map_err(|error| format!("lost the container {}: {error}", self.create.name))?;
        if copied.is_none() {
            copied = timeout(OUTPUT_TAKES, streams).await.ok();
        }
        match copied {
            Some(Ok(())) if way.was_away.get() => {
                note(&"the container engine was away: what the container wrote meanwhile may be missing");
            }
            Some(Ok(())) => {}
            Some(Err(error)) => note(&format_args!("the output of the container broke off: {error}")),
            None => note(&format_args!("the output of the container did not come to its end")),
        }
        Ok((code, stopped.get()))
    }

    /// Waits for the end, also where the engine is started anew meanwhile. Then another connection to what the container writes goes to
    /// `again`, if the one before is over.
    async fn wait(&self, again: UnboundedSender<FromContainer>, way: &Way) -> Result<i64, Error> {
        let mut away_since = None;
        loop {
            match self.engine.wait(self.id).await {
                Err(error) if error.is_lost() => {}
                ended => return ended,
            }
            let since = *away_since.get_or_insert_with(Instant::now);
            sleep(LOOK_AGAIN).await;
            if way.is_over.get() {
                way.was_away.set(true);
            }
            match self.engine.inspect(self.id).await {
                Ok(found) if found.state.running || found.state.paused => away_since = None,
                Ok(found) => return Ok(found.state.exit_code),
                Err(error) if error.is_lost() && since.elapsed() < ENGINE_TAKES => continue,
                Err(error) => return Err(error),
            }
            if way.is_over.get()
                && let Ok(from) = self.engine.output(self.id).await
            {
                way.was_away.set(true);
                let _nobody_listens = again.send(from);
            }
        }
    }

    async fn stop(&self) {
        let Err(error) = self.engine.stop(self.id, self.told.worker.grace()).await else { return };
        if !error.is_missing() {
            note(&format_args!("cannot stop the container, which is removed: {error}"));
            self.remove().await;
        }
    }

    async fn remove(&self) {
        let mut failed = None;
        for _ in 0..REMOVALS {
            match self.engine.remove(self.id).await {
                Ok(()) => return,
                Err(error) => failed = Some(error),
            }
            // Others may be removing it, or the engine is not done with it.
            sleep(LOOK_AGAIN / REMOVALS).await;
        }
        if let Some(error) = failed {
            note(&format_args!("the container {} is left for later: {error}", self.create.name));
        }
    }

    async fn digest(&self) -> Option<String> {
        let id = self.engine.inspect(self.id).await.ok()?.image?;
        // The name may mean another one by now.
        let found = self.engine.image(&id).await.ok()?;
        image::digest(&self.create.image, &found)
    }

    /// Its exit code, as the engine knows it, and whether memory ran out, as the kernel may know: `kills`: how often it had killed before.
    async fn ended(&self, code: i64, stopped: bool, kills: Option<u64>) -> (i64, bool) {
        let state = self.engine.inspect(self.id).await.ok().map(|found| found.state);
        let state = state.filter(|state| !state.running && !state.paused);
        let code = state.as_ref().map_or(code, |state| state.exit_code);
        // Not all engines hear of it.
        let is_killed = code == KILLED && !stopped && memory_kills() > kills;
        (code, is_killed || state.is_some_and(|state| state.oom_killed))
    }

    fn explain(&self, code: i64, oom: bool, stopped: bool) {
        if oom && code != 0 {
            match self.create.memory() {
                Some(limit) => {
                    note(&format_args!("the container ran out of memory: its limit is {limit} bytes"))
                }
                None => note(&format_args!("the container ran out of memory")),
            }
        }
        let signal = i32::try_from(code - 128).ok().and_then(|number| Signal::try_from(number).ok());
        if let Some(signal) = signal.filter(|_| !stopped) {
            note(&format_args!("the container ended with exit code {code}, which is that of {signal}"));
        } else if u8::try_from(code).is_err() {
            note(&format_args!("the container ended with exit code {code}"));
        }
    }
}

/// Copies what a container writes, by one connection after the other, until there are no more.
async fn copy(
    mut from: FromContainer,
    mut more: UnboundedReceiver<FromContainer>,
    targets: &mut Targets,
    way: &Way,
) -> io::Result<()> {
    loop {
        let copied = output::copy(from, targets).await;
        way.is_over.set(true);
        let Some(next) = more.recv().await else { return copied };
        way.is_over.set(false);
        from = next;
    }
}

/// Where the kernel counts that for the whole machine.
const COUNTERS: &str = "/proc/vmstat";

/// How often the kernel has killed something for want of memory. `None`: it does not count. With Podman on control groups of
/// version 1 the container engine never hears of it.
pub fn memory_kills() -> Option<u64> {
    kills_in(&fs::read_to_string(COUNTERS).ok()?)
}

fn kills_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found() {
        assert_eq!(kills_in("nr_free_pages 5\noom_kill 3\ndrop_pagecache 0\n"), Some(3));
        assert_eq!(kills_in("nr_free_pages 5\n"), None);
        assert_eq!(kills_in("oom_kill x\n"), None);
    }
}
