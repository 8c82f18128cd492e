//! The notifier next to the node: notes what subscriptions want to be told, and has messages delivered. Every DEN has one; whoever holds
//! the lease works. See [`disbatch_core::notifications`] for why nothing is told twice, whoever dies when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::Timestamp;
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels;
use disbatch_core::notifications::{
    About, Channel, Delivered, Event, FollowError, Followed, Follower, Kind, Position, State, Subscription,
};
use disbatch_core::shadow::place_before;
use disbatch_core::store::StoreError;
use disbatch_core::wake::Hints;
use tokio::time::sleep;

use super::{Leader, measured};
use crate::pace::is_due;

pub const LEASE: LeaseName = LeaseName::new("notifier", Duration::from_secs(30));

/// How often the lease is prolonged or asked for, and subscriptions are read anew.
const TURN: Duration = Duration::from_secs(5);

/// How often it is looked whether there is anything to do, where another DEN does it, or there was nothing and no hint tells of what comes.
const IDLE: Duration = Duration::from_secs(10);

/// How often where a hint would tell of it.
const HINTED: Duration = Duration::from_secs(60);

/// How often it is looked for what lasts too long, and the places in the log of changes are stored.
const LOOK: Duration = Duration::from_secs(10);

/// How long it waits when nothing has changed.
const PAUSE: Duration = Duration::from_millis(250);

/// How long nobody asks for the log of a server that has none.
const NO_LOG: Duration = Duration::from_secs(60);

/// After so long a schedule whose time has passed will not be made up for.
const SETTLED: Duration = Duration::from_secs(60);

/// So many changes are seen to at once.
const MOST: usize = 1_000;

struct Notifier {
    leader: Leader,
    /// The address of the pages.
    url: Option<String>,
    turned: Option<Instant>,
    /// When it was looked last, no subscription was switched on.
    has_none: bool,
    looked: Option<Instant>,
    subscriptions: Vec<Subscription>,
    follower: Option<Follower>,
    /// Since when it has had the lease without a pause.
    leads: Option<Instant>,
    /// When it was found, and said, that the server has no log of changes.
    no_log: Option<Instant>,
    /// When a message could not be delivered.
    stuck: Option<Instant>,
}

pub async fn run(leader: Leader, hints: Arc<Hints>, url: Option<String>) {
    let stop = leader.stop.clone();
    let mut notifier = Notifier {
        leader,
        url,
        turned: None,
        has_none: false,
        looked: None,
        subscriptions: vec![],
        follower: None,
        leads: None,
        no_log: None,
        stuck: None,
    };
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
            () = hints.subscribed.notified() => notifier.turned = None,
        }
        pause = match notifier.round().await {
            Ok(true) => Duration::ZERO,
            Ok(false) if notifier.has_none && hints.are_coming() => HINTED,
            Ok(false) if notifier.subscriptions.is_empty() => IDLE,
            Ok(false) => PAUSE,
            Err(error) => {
                notifier.forget();
                // A user that an older release made may not.
                if !error.is_forbidden() {
                    tracing::warn!(%error, "the notifier could not work");
                }
                TURN
            }
        };
    }
    notifier.leader.resign().await;
}

impl Notifier {
    /// What is known is read anew.
    fn forget(&mut self) {
        self.turned = None;
        self.subscriptions.clear();
        self.follower = None;
        self.leads = None;
    }

    /// Returns whether there is more to be done at once.
    async fn round(&mut self) -> Result<bool, StoreError> {
        if self.turned.is_none_or(|turned| turned.elapsed() >= TURN) {
            self.turn().await?;
        }
        if self.subscriptions.is_empty() {
            return Ok(false);
        }
        let store = self.leader.store.clone();
        measured(&store, labels::Worker::Notify, self.work()).await
    }

    /// What the one who has the lease does.
    async fn work(&mut self) -> Result<bool, StoreError> {
        let before: Vec<State> = self.subscriptions.iter().map(|one| one.state.clone()).collect();
        let more = self.follow().await?;
        let is_time = is_due(&mut self.looked, LOOK, Instant::now());
        if is_time {
            self.look().await?;
            self.move_on();
        }
        self.compose().await?;
        if !self.store_changes(&before, is_time).await? || !self.deliver().await? {
            // Somebody else has changed one: what was seen meanwhile is read once more.
            self.forget();
        }
        Ok(more)
    }

    /// Reads the subscriptions, and takes or prolongs the lease if there are any.
    async fn turn(&mut self) -> Result<(), StoreError> {
        let mut found = self.leader.store.list_subscriptions().await?;
        found.retain(|one| one.settings.enabled);
        self.has_none = found.is_empty();
        if found.is_empty() || !self.leader.leads().await? {
            self.forget();
            self.turned = Some(Instant::now());
            return Ok(());
        }
        self.turned = Some(Instant::now());
        self.leads.get_or_insert_with(Instant::now);
        let known = |one: &Subscription| (one.name.clone(), one.revision);
        if found.iter().map(known).ne(self.subscriptions.iter().map(known)) {
            self.subscriptions = found;
            self.follower = None;
        }
        Ok(())
    }

    /// Notes what tasks have come to. Returns whether there is more of that.
    async fn follow(&mut self) -> Result<bool, StoreError> {
        let is_blind = self.no_log.is_some_and(|found| found.elapsed() < NO_LOG);
        if is_blind || !self.subscriptions.iter().any(|one| one.settings.follows_tasks()) {
            return Ok(false);
        }
        let followed = match self.followed().await {
            Ok(followed) => followed,
            Err(FollowError::Lost) => {
                tracing::warn!("the database's log of changes does not reach back to what was told last");
                self.begin_anew().await?;
                return Ok(true);
            }
            Err(FollowError::Store(error)) if error.has_no_change_streams() => {
                if self.no_log.replace(Instant::now()).is_none() {
                    tracing::warn!(
                        "this server is no member of a replica set: nobody can be told of tasks that fail"
                    );
                }
                return Ok(false);
            }
            Err(FollowError::Store(error)) => return Err(error),
        };
        let Some(last) = followed.last() else { return Ok(false) };
        let last = last.position.clone();
        self.note(&followed).await?;
        self.move_to(&last);
        Ok(followed.len() >= MOST)
    }

    async fn followed(&mut self) -> Result<Vec<Followed>, FollowError> {
        let follower = match &mut self.follower {
            Some(follower) => follower,
            None => {
                let follow = self.subscriptions.iter().filter(|one| one.settings.follows_tasks());
                let Some(since) = follow.map(place_of).min() else { return Ok(Vec::new()) };
                self.follower.insert(self.leader.store.follow_ends(since).await?)
            }
        };
        follower.followed(MOST).await
    }

    async fn note(&mut self, followed: &[Followed]) -> Result<(), StoreError> {
        let counts = self.subscriptions.iter().any(|one| one.settings.counts_failures());
        let awaits = self.subscriptions.iter().any(|one| one.state.awaits_success());
        let of_success = counts && (awaits || followed.iter().any(|change| !change.is_success()));
        let wanted: Vec<Followed> =
            followed.iter().filter(|change| of_success || !change.is_success()).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for (position, end) in self.leader.store.describe_ends(&wanted).await? {
            for one in &mut self.subscriptions {
                // The log is read from the oldest place on, and a place is one of whole seconds at first.
                let is_new = !one.state.has_seen(&position.token) && end.at >= one.since;
                if is_new && one.settings.follows_tasks() {
                    one.state.ended(&one.settings, &end);
                }
            }
        }
        Ok(())
    }

    /// What happened up to now is not known: that is told, and the log is read from now on.
    async fn begin_anew(&mut self) -> Result<(), StoreError> {
        // The log has the clock of the server.
        let now = self.leader.store.server_time().await?;
        for one in &mut self.subscriptions {
            if one.settings.follows_tasks() {
                let detail = "the database no longer knows what happened until then".to_owned();
                one.state.note(Event {
                    kind: Kind::MissedEvents,
                    about: About::default(),
                    task: None,
                    at: now,
                    detail: Some(detail),
                });
                one.state.begin_at(place_before(now, Duration::ZERO));
            }
        }
        self.follower = None;
        Ok(())
    }

    /// Notes what lasts too long.
    async fn look(&mut self) -> Result<(), StoreError> {
        let kinds =
            [Kind::WaitsLong, Kind::RunsLong, Kind::ScheduleMissed, Kind::NodeDead, Kind::CanaryReturned];
        let is_told = |kind: &Kind| self.subscriptions.iter().any(|one| one.settings.tells(*kind));
        let kinds: Vec<Kind> = kinds.into_iter().filter(is_told).collect();
        if kinds.is_empty() {
            return Ok(());
        }
        let runs = self.subscriptions.iter().filter_map(|one| one.settings.runs_longer);
        let store = &self.leader.store;
        // Whoever has just come may be here before what makes up for an outage.
        let is_settled = self.leads.is_some_and(|since| since.elapsed() >= SETTLED);
        let runs = runs.fold(f64::INFINITY, f64::min);
        let (mut lasting, mut known) = (Vec::new(), Vec::new());
        for kind in kinds {
            match store.lasting(kind, runs, is_settled).await {
                Ok(found) => {
                    lasting.extend(found);
                    known.push(kind);
                }
                // What was held of it before stays so.
                Err(error) if error.is_out_of_time() => {
                    tracing::warn!(
                        kind = kind.as_str(),
                        "what lasts of this kind cannot be told: it takes the database too long"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        let now = store.server_time().await?;
        for one in &mut self.subscriptions {
            one.state.hold((&one.settings, one.since), (&lasting, &known), now);
        }
        Ok(())
    }

    /// Where nothing has happened that is followed, the log need not be read again from there.
    fn move_on(&mut self) {
        if let Some(position) = self.follower.as_ref().and_then(Follower::position) {
            self.move_to(&position);
        }
    }

    /// All up to this place was seen.
    fn move_to(&mut self, position: &Position) {
        for one in self.subscriptions.iter_mut().filter(|one| one.settings.follows_tasks()) {
            if !one.state.has_seen(&position.token) {
                one.state.position = Some(position.clone());
            }
        }
    }

    async fn compose(&mut self) -> Result<(), StoreError> {
        if !self.subscriptions.iter().any(|one| one.state.has_noted()) {
            return Ok(());
        }
        let now = self.leader.store.server_time().await?;
        for one in &mut self.subscriptions {
            if one.state.is_due(&one.settings, now) {
                self.leader.store.compose_message(one, self.url.as_deref(), now).await?;
            }
        }
        Ok(())
    }

    /// Returns whether nobody else has changed one of them. Places in the log alone are stored now and then.
    async fn store_changes(&mut self, before: &[State], with_places: bool) -> Result<bool, StoreError> {
        for (one, before) in self.subscriptions.iter_mut().zip(before) {
            let is_same = match with_places {
                true => one.state == *before,
                false => one.state.tells_as(before),
            };
            if !is_same && !self.leader.store.advance_subscription(one).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the tasks that deliver messages. Returns whether nobody else has.
    async fn deliver(&mut self) -> Result<bool, StoreError> {
        if self.stuck.is_some_and(|since| since.elapsed() < TURN) {
            return Ok(true);
        }
        self.stuck = None;
        for one in &mut self.subscriptions {
            let Some(delivered) = self.leader.store.deliver_message(one).await? else { continue };
            let notices = self.leader.store.metrics().notifications.of(label(one.settings.channel));
            let trouble = match delivered {
                Delivered::Task(task) => {
                    notices.of(labels::Notice::Queued).inc();
                    one.state.delivered(task.0);
                    None
                }
                Delivered::Later(why) => {
                    self.stuck = Some(Instant::now());
                    Some(why)
                }
                Delivered::Never(why) => {
                    notices.of(labels::Notice::Refused).inc();
                    one.state.outbox = None;
                    Some(why)
                }
            };
            if trouble == one.state.trouble && one.state.outbox.is_some() {
                continue;
            }
            if let Some(why) = &trouble {
                tracing::warn!(subscription = one.name, why, "a message cannot be delivered");
            }
            one.state.trouble = trouble;
            if !self.leader.store.advance_subscription(one).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

const fn label(channel: Channel) -> labels::Channel {
    match channel {
        Channel::Webhook => labels::Channel::Webhook,
        Channel::Slack => labels::Channel::Slack,
        Channel::Teams => labels::Channel::Teams,
        Channel::Mail => labels::Channel::Mail,
    }
}

/// From when on a subscription needs the log.
fn place_of(subscription: &Subscription) -> Timestamp {
    match &subscription.state.position {
        Some(position) => position.time,
        None => place_before(subscription.since, Duration::ZERO),
    }
}
