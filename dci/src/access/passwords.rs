//! Compares passwords. Each comparison takes tens of milliseconds of a processor, so they are made one after another, and
//! a right one is remembered for a while: programs send the password with every request.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use disbatch_core::accounts::{Key, PasswordError, PasswordHash, User, UserName};
use disbatch_core::lock;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::address::network;
use crate::changes::Refusals;
use crate::error::HttpError;
use crate::state::State;

const REMEMBERED: Duration = Duration::from_secs(300);

const MOST_REMEMBERED: usize = 1_000;

type Fingerprint = [u8; 32];

#[derive(Debug)]
pub struct Passwords {
    throttle: Throttle,
    refusals: Refusals,
    /// Keeps what is remembered from being of use elsewhere.
    salt: Option<Key>,
    remembered: Mutex<HashMap<Fingerprint, Instant>>,
    one_at_a_time: tokio::sync::Mutex<()>,
    bench: Bench,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            throttle: Throttle::default(),
            refusals: Refusals::default(),
            // Without random numbers nothing is remembered.
            salt: Key::new().ok(),
            remembered: Mutex::default(),
            one_at_a_time: tokio::sync::Mutex::default(),
            bench: Bench::default(),
        }
    }
}

impl Passwords {
    /// The user of this name, if this is their password.
    pub async fn user(
        &self,
        state: &State,
        name: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<Option<User>, HttpError> {
        let user = match name.parse::<UserName>() {
            Ok(name) => state.store.find_user(&name).await?,
            Err(_) => None,
        };
        // What cannot be a name is as long as anybody likes, and not worth being remembered.
        let name = if name.parse::<UserName>().is_ok() { name } else { "" };
        let fingerprint = self.fingerprint(user.as_ref(), password);
        if self.remembers(fingerprint) {
            return Ok(user);
        }
        let turn = self.one_at_a_time.lock().await;
        // Another request of the same program may have been first.
        if self.remembers(fingerprint) {
            return Ok(user);
        }
        self.throttle.begin(from, name).map_err(HttpError::too_many_attempts)?;
        let hash = user.as_ref().and_then(|user| user.password.clone());
        let password = password.to_owned();
        let compare = move || match hash {
            Some(hash) => hash.is_of(&password),
            None => {
                PasswordHash::of_nobody(&password);
                false
            }
        };
        let is_right = self.bench.work(compare).await?;
        if !is_right {
            // Somebody may have typed the password in place of the name: only names of users are told.
            let name = user.as_ref().map(|user| user.name.as_str());
            tracing::warn!(user = name, from = from.map(tracing::field::display), "wrong name or password");
            drop(turn);
            self.refusals.note(state, user.as_ref().map(|user| &user.name), from);
            return Ok(None);
        }
        self.throttle.succeeded(from, name);
        self.remember(fingerprint);
        Ok(user)
    }

    /// Waits for what is still to be written about those that were wrong.
    pub async fn written(&self) {
        self.refusals.written().await;
    }

    pub async fn hash(&self, password: String) -> Result<Result<PasswordHash, PasswordError>, HttpError> {
        self.bench.work(move || PasswordHash::of(&password)).await
    }

    /// Counts a token that is none. Right ones are not held up by that.
    pub fn count_wrong_token(&self, from: Option<IpAddr>) -> Result<(), HttpError> {
        self.throttle.begin_token(from).map_err(HttpError::too_many_attempts)
    }

    /// Of a user as stored, and a password: once that is changed, it is another.
    fn fingerprint(&self, user: Option<&User>, password: &str) -> Option<Fingerprint> {
        let (salt, user) = (self.salt.as_ref()?, user?);
        let hash = user.password.as_ref()?;
        let mut digest = Sha256::new();
        for part in [&salt.text(), user.name.as_str(), hash.as_stored(), password] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        Some(digest.finalize().into())
    }

    fn remembers(&self, fingerprint: Option<Fingerprint>) -> bool {
        let Some(fingerprint) = fingerprint else { return false };
        let remembered = lock(&self.remembered);
        remembered.get(&fingerprint).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn remember(&self, fingerprint: Option<Fingerprint>) {
        let Some(fingerprint) = fingerprint else { return };
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if remembered.len() < MOST_REMEMBERED {
            remembered.insert(fingerprint, Instant::now());
        }
    }
}

const MOST_WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Where passwords are hashed: one after another, in a thread of its own, whatever becomes of the request. Each takes 19 MiB of
/// memory, which one thread uses again and again.
#[derive(Debug)]
pub struct Bench(Option<SyncSender<Job>>);

impl Default for Bench {
    fn default() -> Self {
        let (sender, jobs) = sync_channel::<Job>(MOST_WAITING);
        let started = std::thread::Builder::new().name("passwords".to_owned()).spawn(move || {
            for job in jobs {
                job();
            }
        });
        match started {
            Ok(_) => Self(Some(sender)),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that compares passwords");
                Self(None)
            }
        }
    }
}

impl Bench {
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let (done, outcome) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Whoever asked may be gone.
            let _nobody_waits = done.send(work());
        });
        let busy = || HttpError::unavailable("too many log in at once: try again");
        self.0.as_ref().and_then(|jobs| jobs.try_send(job).ok()).ok_or_else(busy)?;
        outcome.await.map_err(|_| busy())
    }
}

/// The longest wait of an address.
const ADDRESS_WAIT: Duration = Duration::from_secs(300);

/// The longest wait for a name. It is short, for everybody can make somebody else wait.
const NAME_WAIT: Duration = Duration::from_secs(15);

/// An address may be wrong so often without waiting.
const ADDRESS_FREE: u32 = 5;

/// A name may be tried so often, from anywhere, without waiting.
const NAME_FREE: u32 = 20;

/// After so long, all that was wrong is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);

/// So long it is remembered that a name came from an address, after it has last done so.
const KNOWN: Duration = Duration::from_secs(30 * 24 * 3600);

/// So many are remembered of each kind.
const MOST: usize = 10_000;

/// Makes guessing slow: who is wrong again and again has to wait, longer each time. An address waits, and so does a name, wherever it
/// is tried. As anybody can try a name, its owner would have to wait for others: they do not at the addresses that they have come from
/// before.
///
/// Who was wrong how often. An attempt counts as wrong when it begins, so that many at once are not for free.
#[derive(Debug, Default)]
struct Throttle(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    addresses: Table<IpAddr>,
    /// Of wrong tokens.
    tokens: Table<IpAddr>,
    names: Table<String>,
    known: Places,
}

impl Throttle {
    /// Begins an attempt. One that has to wait does not count: trying in vain makes the wait no longer.
    fn begin(&self, address: Option<IpAddr>, name: &str) -> Result<(), Duration> {
        let address = address.map(network);
        let mut tables = lock(&self.0);
        let of_address = address.map_or(Duration::ZERO, |address| tables.addresses.wait(&address));
        let is_known = tables.known.has(address, name);
        let of_name = if is_known { Duration::ZERO } else { tables.names.wait(&name.to_owned()) };
        let wait = of_address.max(of_name);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        if let Some(address) = address {
            tables.addresses.count(address, ADDRESS_FREE, ADDRESS_WAIT);
        }
        if !is_known {
            tables.names.count(name.to_owned(), NAME_FREE, NAME_WAIT);
        }
        Ok(())
    }

    /// The attempt was right: it does not count, and from now on the name does not wait for others at this address. What was
    /// wrong before stays: the address may have guessed the passwords of others, and others that of this name.
    fn succeeded(&self, address: Option<IpAddr>, name: &str) {
        let address = address.map(network);
        let mut tables = lock(&self.0);
        if !tables.known.has(address, name) {
            tables.names.take_back(&name.to_owned());
        }
        if let Some(address) = address {
            tables.addresses.take_back(&address);
            tables.known.add(address, name);
        }
    }

    /// Counts a wrong token, which nobody finds by guessing: this is to keep the log short.
    fn begin_token(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        let Some(address) = address.map(network) else { return Ok(()) };
        let mut tables = lock(&self.0);
        let wait = tables.tokens.wait(&address);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        tables.tokens.count(address, NAME_FREE, NAME_WAIT);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    until: Instant,
}

#[derive(Debug)]
struct Table<K>(HashMap<K, Failures>);

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Table<K> {
    fn wait(&self, key: &K) -> Duration {
        self.0
            .get(key)
            .map_or(Duration::ZERO, |failures| failures.until.saturating_duration_since(Instant::now()))
    }

    fn count(&mut self, key: K, free: u32, longest: Duration) {
        let now = Instant::now();
        make_room(&mut self.0, &key, |failures| failures.last, FORGOTTEN);
        let failures = self.0.entry(key).or_insert(Failures { count: 0, last: now, until: now });
        if now.duration_since(failures.last) > FORGOTTEN {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        if let Some(doubled) = failures.count.checked_sub(free) {
            let wait = Duration::from_secs(1).saturating_mul(1_u32.checked_shl(doubled).unwrap_or(u32::MAX));
            failures.until = now + wait.min(longest);
        }
    }

    /// The last attempt does not count. It did not have to wait, so nobody had to.
    fn take_back(&mut self, key: &K) {
        if let Some(failures) = self.0.get_mut(key) {
            failures.count = failures.count.saturating_sub(1);
            failures.until = Instant::now();
        }
    }
}

/// From where names have come with the right password, and when last.
#[derive(Debug, Default)]
struct Places(HashMap<(IpAddr, String), Instant>);

impl Places {
    fn has(&self, address: Option<IpAddr>, name: &str) -> bool {
        let Some(address) = address else { return false };
        self.0.get(&(address, name.to_owned())).is_some_and(|at| at.elapsed() <= KNOWN)
    }

    fn add(&mut self, address: IpAddr, name: &str) {
        let place = (address, name.to_owned());
        make_room(&mut self.0, &place, |at| *at, KNOWN);
        self.0.insert(place, Instant::now());
    }
}

/// Makes room for `new`, if it is: forgets what is older than `longest`, and if need be the oldest.
fn make_room<K: Hash + Eq + Clone, V>(
    all: &mut HashMap<K, V>,
    new: &K,
    last: impl Fn(&V) -> Instant,
    longest: Duration,
) {
    if all.len() < MOST || all.contains_key(new) {
        return;
    }
    all.retain(|_, value| last(value).elapsed() <= longest);
    if all.len() >= MOST
        && let Some(oldest) = all.iter().min_by_key(|(_, value)| last(value)).map(|(key, _)| key.clone())
    {
        all.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_is_too_much_is_refused_and_the_rest_is_done_by_one_thread() {
        let bench = Bench::default();
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(bench.work(name).await.unwrap().as_deref(), Some("passwords"));
        let (go, wait) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let mut waiting = vec![Box::pin(bench.work(move || {
            let _heard = begun.send(());
            wait.recv().is_ok()
        }))];
        assert!(futures::poll!(waiting[0].as_mut()).is_pending());
        begins.await.unwrap();
        let mut others: Vec<_> = (0..MOST_WAITING).map(|_| Box::pin(bench.work(|| true))).collect();
        for other in &mut others {
            assert!(futures::poll!(other.as_mut()).is_pending());
        }
        assert_eq!(bench.work(|| true).await.unwrap_err().status(), 503);
        go.send(()).unwrap();
        assert!(waiting.remove(0).await.unwrap());
        for other in others {
            assert!(other.await.unwrap());
        }
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_longer_each_time() {
        let throttle = Throttle::default();
        for name in ["a", "b", "c", "d", "e"] {
            assert_eq!(throttle.begin(address("10.0.0.1"), name), Ok(()), "{name}");
        }
        assert_eq!(throttle.begin(address("10.0.0.1"), "f"), Err(Duration::from_secs(1)));
        assert_eq!(throttle.begin(address("10.0.0.2"), "f"), Ok(()), "others do not wait");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(throttle.begin(address("10.0.0.1"), "f"), Ok(()));
        assert_eq!(throttle.begin(address("10.0.0.1"), "g"), Err(Duration::from_secs(2)));
        for _ in 0..20 {
            tokio::time::advance(ADDRESS_WAIT).await;
            assert_eq!(throttle.begin(address("10.0.0.1"), "g"), Ok(()));
        }
        assert_eq!(throttle.begin(address("10.0.0.1"), "g"), Err(ADDRESS_WAIT));
        tokio::time::advance(FORGOTTEN + Duration::from_secs(1)).await;
        for _ in 0..5 {
            assert_eq!(throttle.begin(address("10.0.0.1"), "h"), Ok(()));
        }
        throttle.succeeded(address("10.0.0.1"), "h");
        assert_eq!(throttle.begin(address("10.0.0.1"), "h"), Ok(()), "the right one does not count");
        assert!(throttle.begin(address("10.0.0.1"), "h").is_err(), "and those before do");
        for _ in 0..20 {
            assert_eq!(throttle.begin_token(address("10.0.0.1")), Ok(()));
        }
        assert!(throttle.begin_token(address("10.0.0.1")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_waits_a_little_wherever_it_is_tried() {
        let throttle = Throttle::default();
        for host in 0..20 {
            assert_eq!(throttle.begin(address(&format!("10.0.0.{host}")), "admin"), Ok(()));
        }
        assert_eq!(throttle.begin(address("10.0.0.99"), "admin"), Err(Duration::from_secs(1)));
        assert_eq!(throttle.begin(address("10.0.0.99"), "other"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn trying_in_vain_makes_no_wait_longer() {
        let throttle = Throttle::default();
        for host in 0..20 {
            assert_eq!(throttle.begin(address(&format!("10.0.0.{host}")), "alice"), Ok(()));
        }
        for host in 100..200 {
            let refused = throttle.begin(address(&format!("10.0.0.{host}")), "alice");
            assert_eq!(refused, Err(Duration::from_secs(1)));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(throttle.begin(address("10.0.0.99"), "alice"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_kept_out_by_others_where_they_have_come_from_before() {
        let throttle = Throttle::default();
        let home = address("192.0.2.7");
        let attack = || {
            for host in 0..20 {
                assert_eq!(throttle.begin(address(&format!("10.0.0.{host}")), "alice"), Ok(()));
            }
        };
        assert_eq!(throttle.begin(home, "alice"), Ok(()));
        throttle.succeeded(home, "alice");
        attack();
        let elsewhere = || throttle.begin(address("10.0.1.1"), "alice");
        assert!(elsewhere().is_err());
        assert_eq!(throttle.begin(home, "alice"), Ok(()));
        throttle.succeeded(home, "alice");
        assert!(elsewhere().is_err(), "others go on waiting");
        for _ in 0..5 {
            assert_eq!(throttle.begin(home, "alice"), Ok(()));
        }
        assert!(throttle.begin(home, "alice").is_err(), "the address waits for what is wrong there");
        tokio::time::advance(KNOWN + Duration::from_secs(1)).await;
        attack();
        assert!(throttle.begin(home, "alice").is_err(), "it has been away for long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_password_does_not_count_for_the_name() {
        let throttle = Throttle::default();
        for host in 0..19 {
            assert_eq!(throttle.begin(address(&format!("10.0.0.{host}")), "alice"), Ok(()));
        }
        for host in 20..30 {
            let new = address(&format!("10.0.0.{host}"));
            assert_eq!(throttle.begin(new, "alice"), Ok(()));
            throttle.succeeded(new, "alice");
        }
        assert_eq!(throttle.begin(address("10.0.0.99"), "alice"), Ok(()));
        assert!(throttle.begin(address("10.0.0.98"), "alice").is_err(), "what was wrong before counts");
    }

    #[test]
    fn addresses_of_one_customer_are_one() {
        assert_eq!(address("2001:db8:1:2:3::4").map(network), address("2001:db8:1:2::"));
        assert_eq!(address("::ffff:10.0.0.1").map(network), address("10.0.0.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_limited() {
        let mut table = Table::default();
        for key in 0..MOST + 10 {
            table.count(key, 5, ADDRESS_WAIT);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(table.0.len(), MOST);
        assert!(!table.0.contains_key(&0) && table.0.contains_key(&(MOST + 9)));
        let (mut places, home) = (Places::default(), IpAddr::from([192, 0, 2, 7]));
        for name in 0..MOST + 10 {
            places.add(home, &name.to_string());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(places.0.len(), MOST);
        assert!(!places.has(Some(home), "0") && places.has(Some(home), &(MOST + 9).to_string()));
    }
}
