//! What one task has at a time: a guard, and the process of a warm plugin. A runner has as many of these as it has had tasks at
//! the same time, up to a bound.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disbatch_core::link::WARM_LANES;
use disbatch_core::model::PluginName;
use futures::future::{join_all, select_all};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::guard::Guards;
use crate::isolation::Isolation;
use crate::lock;
use crate::warm::Keeper;

/// So often it is looked after the processes that no task has, while others have one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Tools {
    pub guards: Guards,
    pub warm: Keeper,
}

/// Those that no task has, the one that was used last at the end.
#[derive(Debug)]
pub struct Toolbox {
    isolation: Arc<Isolation>,
    free: Mutex<Vec<Tools>>,
    /// How many more tasks may have some.
    left: Semaphore,
}

/// Those that a task has. They go back when this is dropped.
#[derive(Debug)]
pub struct InUse<'a> {
    tools: Vec<Tools>,
    toolbox: &'a Toolbox,
    _one_of_few: Option<SemaphorePermit<'a>>,
}

impl Toolbox {
    /// None yet. Plugins are kept from what they are not to have.
    pub fn new(isolation: Arc<Isolation>) -> Self {
        Self { isolation, free: Mutex::default(), left: Semaphore::new(WARM_LANES) }
    }

    /// For a task of this plugin, with its process if there is one that is free. One of another plugin is given up only if there is
    /// nothing else, and one of another version not while `both` are needed. Where many tasks have some, this waits until others have ended.
    pub async fn take(&self, plugin: &PluginName, both: bool) -> InUse<'_> {
        // It is never closed.
        let permit = self.left.acquire().await.ok();
        let mut free = lock(&self.free);
        let with = |wanted: Option<&PluginName>| free.iter().rposition(|tools| tools.warm.plugin() == wanted);
        let is_version = |of: &PluginName| both && of.base() == plugin.base();
        let any = || free.iter().rposition(|tools| !tools.warm.plugin().is_some_and(is_version));
        let at = with(Some(plugin)).or_else(|| with(None)).or_else(any);
        let tools = at.map_or_else(|| self.more(), |at| free.remove(at));
        InUse { tools: vec![tools], toolbox: self, _one_of_few: permit }
    }

    /// Has a guard there, so that the first task need not wait for it.
    pub fn be_ready(&self) -> std::io::Result<()> {
        let mut tools = self.more();
        tools.guards.renew()?;
        lock(&self.free).push(tools);
        Ok(())
    }

    /// Looks after the processes of warm plugins while there is no task, until one has ended. Loses nothing when dropped.
    pub async fn idle(&self) {
        let mut all = self.all();
        let kept = all.tools.iter_mut().filter(|tools| tools.warm.plugin().is_some());
        let idle: Vec<_> = kept.map(|tools| Box::pin(tools.warm.idle())).collect();
        if idle.is_empty() {
            std::future::pending().await
        }
        select_all(idle).await;
    }

    /// The same while there are tasks, for those that none of them has. Never returns.
    pub async fn look_after(&self) -> Infallible {
        loop {
            sleep(LOOK_EVERY).await;
            self.all().tools.iter_mut().for_each(|tools| tools.warm.look_after());
        }
    }

    /// Whether there are some besides those that the next task has. If not, nobody need wake up to look after them.
    pub fn has_several(&self) -> bool {
        lock(&self.free).len() > 1
    }

    pub async fn end(&self) {
        let mut all = self.all();
        join_all(all.tools.iter_mut().map(|tools| tools.warm.end())).await;
    }

    fn more(&self) -> Tools {
        Tools { guards: Guards::new(Arc::clone(&self.isolation)), warm: Keeper::default() }
    }

    fn all(&self) -> InUse<'_> {
        InUse { tools: std::mem::take(&mut *lock(&self.free)), toolbox: self, _one_of_few: None }
    }
}

impl InUse<'_> {
    /// Those of a task, which has one of each.
    pub fn of_task(&mut self) -> &mut Tools {
        &mut self.tools[0]
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        // Not even a guard that has nothing to guard may end before the runner: it would remove the folders of all tasks.
        lock(&self.toolbox.free).append(&mut self.tools);
    }
}
