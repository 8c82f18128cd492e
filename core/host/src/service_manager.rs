//! What the system's manager of services (systemd) is told by a process that it has started: when it is ready, that it goes on, and that it ends.
//! Without one, nothing happens. See sd_notify(3).

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::lifecycle::Lifecycle;

/// By which a process knows that it is meant. They are not for those that it starts.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

pub fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("at work")]);
}

/// What it waits for before it is ready, in words.
pub fn waiting(what: &str) {
    tell(&[NotifyState::Status(what)]);
}

/// It reads something again, and [`ready`] follows.
pub fn reloading() {
    // A manager that knows when it has asked wants to know that the answer came later.
    let now = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
}

/// Says so when the process begins to end.
pub fn tell_end(lifecycle: Lifecycle) {
    tokio::spawn(async move {
        lifecycle.draining().await;
        tell(&[NotifyState::Stopping]);
    });
}

/// How much more time than its manager gives it has a process that [`stays`], in microseconds: as long as it may be silent while it works.
const MORE: u32 = 180_000_000;

/// It ends, and stays for what it has begun: it is not to be killed within the next [`MORE`].
pub fn stays() {
    tell(&[NotifyState::ExtendTimeoutUsec(MORE)]);
}

/// Whether the manager wants to hear that the process goes on.
pub fn is_watching() -> bool {
    sd_notify::watchdog_enabled().is_some()
}

/// Tells a manager that wants to hear it that the process goes on, twice in the time that it may take, as long as that is so. If it is
/// not, the manager starts the process again.
pub async fn watch(is_well: impl AsyncFn() -> bool) {
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    let mut beats = interval(within / 2);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        if is_well().await {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(
                within_s = within.as_secs_f32(),
                "this process does not go on; the service manager will start it again"
            );
        }
    }
}

fn tell(what: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(what) {
        tracing::warn!(%error, ?what, "cannot tell the service manager");
    }
}
