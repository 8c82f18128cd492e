//! Who asks, and whether they may.
//!
//! Each route says what it needs ([`Need`]), and cannot be added without. [`enforce`] stands before every handler: it finds
//! out who asks ([`Who`]), and lets nobody through who may not. Where what somebody may do depends on the queue, it looks
//! up the queue; only routes for several queues at once, whose need is [`Need::Somewhere`], have to ask for
//! [`Who::reach`] themselves.

pub mod address;
mod enforce;
pub mod form;
mod passwords;
pub mod session;
mod target;
mod throttle;
pub mod viewer;
mod who;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use disbatch_core::config::SessionLimits;
use disbatch_core::config::{Config, Proxy};
use disbatch_core::store::{Store, StoreError};
use tokio::time::Instant;

pub use enforce::{Need, enforce, may_bulk};
pub use passwords::Passwords;
pub use session::{Login, log_in};
pub use target::{NamedQueue, NamedSchedule, Sight, may_change_schedule, no_such_schedule, owns_schedule};
pub use who::{Via, Who, identify};

/// How long it may take until the first user is noticed.
const NOTICED: Duration = Duration::from_secs(2);

/// Whether anybody is asked who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Nobody, ever: the operator has said so in words.
    Open,
    /// As long as there are no users, nobody is asked: only this machine is served.
    OpenWithoutUsers,
    /// Everybody.
    Closed,
}

/// What is needed to find out who asks.
#[derive(Debug)]
pub struct Access {
    door: Door,
    /// There are users, or were once: from then on everybody is asked.
    has_users: AtomicBool,
    looked: Mutex<Option<Instant>>,
    pub limits: SessionLimits,
    pub proxy: Option<Proxy>,
    pub passwords: Passwords,
}

impl Access {
    pub fn new(config: &Config, door: Door) -> Self {
        Self {
            door,
            has_users: AtomicBool::new(false),
            looked: Mutex::default(),
            limits: config.access.session_limits(),
            proxy: config.access.proxy.clone(),
            passwords: Passwords::default(),
        }
    }

    /// Whether whoever asks may do anything.
    pub async fn is_open(&self, store: &Store, is_forwarded: bool) -> Result<bool, StoreError> {
        match self.door {
            Door::Open => return Ok(true),
            Door::Closed => return Ok(false),
            // What a proxy of this machine passes on comes from elsewhere.
            Door::OpenWithoutUsers if is_forwarded => return Ok(false),
            Door::OpenWithoutUsers => {}
        }
        if self.has_users.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_some_and(|at| at.elapsed() < NOTICED) {
            return Ok(true);
        }
        let asked = Instant::now();
        if store.has_users().await? {
            tracing::info!("there are users now: everybody has to log in");
            self.has_users.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        Ok(true)
    }
}
