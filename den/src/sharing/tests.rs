//! Single decisions, and whole clusters that follow them.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::Node;
use proptest::prelude::*;

use super::*;

const MILLIS: Duration = Duration::from_millis(1);

fn queue(threads: i64) -> Queue {
    let id = ObjectId::from_bytes([7; 12]);
    let queue = doc! { "_id": id, "name": "q", "plugin": "P", "threads": threads };
    bson::deserialize_from_document(queue).unwrap()
}

fn peer(name: &str, fields: Document) -> Peer {
    let mut node = doc! {
        "_id": ObjectId::new(), "node": name, "state": "alive", "plugins": ["P"], "running": 0,
        "seen": DateTime::from_millis(0),
    };
    node.extend(fields);
    Peer::of(&bson::deserialize_from_document::<Node>(node).unwrap()).unwrap()
}

/// The node `a`, which knows of these.
fn sharing(peers: Vec<Peer>, now: Instant) -> Sharing {
    let mut sharing = Sharing::default();
    sharing.set_peers(peers, now);
    sharing
}

/// What `a` may take of 40 slots when it was seen at `now` that each node has so many.
fn allowed(sharing: &mut Sharing, nodes: &[(&str, u64)], now: Instant) -> u64 {
    let nodes: HashMap<String, u64> =
        nodes.iter().map(|(name, tasks)| ((*name).to_owned(), *tasks)).collect();
    let mine = nodes.get("a").copied().unwrap_or(0);
    let view = View { seen: now, mine, on_node: mine, running: nodes.values().sum(), nodes: &nodes };
    sharing.allowance(&NodeName::new("a"), &queue(40), &view, now)
}

#[test]
fn a_node_that_is_alone_takes_everything() {
    let now = Instant::now();
    assert_eq!(allowed(&mut sharing(vec![], now), &[], now), u64::MAX);
    assert_eq!(allowed(&mut sharing(vec![peer("a", doc! {})], now), &[("a", 30)], now), u64::MAX);
    let others = [
        doc! { "state": "draining" },
        doc! { "draining": true },
        doc! { "plugins": ["Other"] },
        doc! { "serves": { "ignored": [ObjectId::from_bytes([7; 12])] } },
        doc! { "serves": { "active": [ObjectId::from_bytes([8; 12])] } },
    ];
    for other in others {
        let mut sharing = sharing(vec![peer("a", doc! {}), peer("b", other.clone())], now);
        assert_eq!(allowed(&mut sharing, &[("a", 30)], now), u64::MAX, "{other}");
    }
    let full = peer("b", doc! { "maxthreads": 3, "running": 3 });
    assert_eq!(allowed(&mut sharing(vec![peer("a", doc! {}), full], now), &[], now), 40, "it has no room");
}

#[test]
fn what_others_leave_for_a_second_is_anybodys() {
    let now = Instant::now();
    let peers = || vec![peer("a", doc! {}), peer("b", doc! {})];
    let mut sharing = sharing(peers(), now);
    assert_eq!(allowed(&mut sharing, &[], now), 20);
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now), 0);
    assert_eq!(sharing.next(now), Some(now + PATIENCE));
    assert_eq!(allowed(&mut sharing, &[("a", 20), ("b", 5)], now + 900 * MILLIS), 0);
    let over = now + PATIENCE;
    assert!(sharing.must_look(queue(40).id, now, over), "what was seen before that does not tell");
    assert_eq!(
        allowed(&mut sharing, &[("a", 20), ("b", 5)], over),
        15,
        "the rest, as b takes no more than 5"
    );
    assert_eq!(allowed(&mut sharing, &[("a", 30), ("b", 3)], over + PATIENCE), 5, "and that stays its share");
    assert_eq!(
        allowed(&mut sharing, &[("a", 35), ("b", 4)], over + REMEMBERED),
        0,
        "until that is forgotten"
    );
}

#[test]
fn a_node_that_wants_more_is_reckoned_with_again() {
    let now = Instant::now();
    let mut sharing = sharing(vec![peer("a", doc! {}), peer("b", doc! {})], now);
    allowed(&mut sharing, &[("a", 20)], now);
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now + PATIENCE), 20);
    let wants = |seen: i64| {
        let wants = doc! { "wants": [queue(40).id], "seen": DateTime::from_millis(seen) };
        vec![peer("a", doc! {}), peer("b", wants)]
    };
    let later = now + PATIENCE + AT_LEAST_REMEMBERED;
    sharing.set_peers(wants(0), later);
    assert_eq!(allowed(&mut sharing, &[("a", 39)], later), 1, "it has said so before");
    sharing.set_peers(wants(1), later);
    assert_eq!(allowed(&mut sharing, &[("a", 39)], later), 0);
}

#[test]
fn a_node_that_finds_no_slot_says_so_for_a_while() {
    let now = Instant::now();
    let mut sharing = sharing(vec![peer("a", doc! {}), peer("b", doc! {})], now);
    assert_eq!(allowed(&mut sharing, &[("a", 5), ("b", 35)], now), 0);
    assert_eq!(sharing.wants(now), [queue(40).id]);
    assert_eq!(sharing.next(now), Some(now + HURRY));
    assert!(sharing.must_look(queue(40).id, now, now + HURRY));
    assert_eq!(sharing.wants(now + SAID), [], "it has not looked since");
    assert_eq!(allowed(&mut sharing, &[("a", 5), ("b", 34)], now + HURRY), 1);
    assert_eq!(sharing.wants(now + HURRY), []);
    assert_eq!(allowed(&mut sharing, &[("a", 20), ("b", 20)], now), 0);
    assert_eq!(sharing.wants(now), [], "it has its share");
}

#[test]
fn a_queue_that_runs_dry_forgets_who_was_waited_for_and_not_who_did_not_come() {
    let now = Instant::now();
    let mut sharing = sharing(vec![peer("a", doc! {}), peer("b", doc! {})], now);
    allowed(&mut sharing, &[("a", 20)], now);
    sharing.keep_only(|_| false, now);
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now + PATIENCE), 0, "the waiting begins anew");
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now + 2 * PATIENCE), 20);
    sharing.keep_only(|_| false, now + 3 * PATIENCE);
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now + 3 * PATIENCE), 20);
    sharing.keep_only(|_| false, now + 3 * REMEMBERED);
    assert_eq!(allowed(&mut sharing, &[("a", 20)], now + 3 * REMEMBERED), 0);
}

#[test]
fn many_nodes_are_read_less_often() {
    let now = Instant::now();
    let few = sharing(vec![peer("a", doc! {})], now);
    assert!(
        Sharing::default().wants_peers(now) && !few.wants_peers(now) && few.wants_peers(now + 1_000 * MILLIS)
    );
    let many = sharing(vec![peer("a", doc! {}); 1_000], now);
    assert!(!many.wants_peers(now + 30_000 * MILLIS) && many.wants_peers(now + 40_000 * MILLIS));
}

#[test]
fn of_many_nodes_a_few_that_could_run_the_tasks_wait_for_them() {
    let prompt_at = |peers: &[Peer], queues: &[Queue], hour: i64| -> Vec<String> {
        let sharing = sharing(peers.to_vec(), Instant::now());
        let is_prompt = |peer: &&Peer| {
            let served: Vec<Queue> = queues.iter().filter(|queue| peer.could_run(queue)).cloned().collect();
            sharing.is_prompt(&NodeName::new(peer.name.as_str()), &served, hour)
        };
        peers.iter().filter(is_prompt).map(|peer| peer.name.clone()).collect()
    };
    let some = |number: usize, fields: &Document| -> Vec<Peer> {
        (0..number).map(|n| peer(&format!("n{n}"), fields.clone())).collect()
    };
    let ours = [queue(40)];
    for number in [1, 4] {
        assert_eq!(prompt_at(&some(number, &doc! {}), &ours, 0).len(), number);
    }
    let many = some(20, &doc! {});
    let each_hour: Vec<Vec<String>> = (0..50).map(|hour| prompt_at(&many, &ours, hour)).collect();
    assert!(each_hour.iter().all(|prompt| prompt.len() == PROMPT));
    let ever: HashSet<&String> = each_hour.iter().flatten().collect();
    assert_eq!(ever.len(), 20, "each has its turn");
    // What only a few can run is waited for by these.
    let own = || doc! { "serves": { "active": [ObjectId::from_bytes([7; 12])] } };
    let rest = || doc! { "serves": { "active": [ObjectId::from_bytes([8; 12])] } };
    let mut divided = some(20, &rest());
    divided[17..].iter_mut().for_each(|node| *node = peer(&node.name, own()));
    assert_eq!(prompt_at(&divided, &ours, 0), ["n17", "n18", "n19"]);
    // Who is full leaves it to others.
    let mut full = some(20, &doc! { "maxthreads": 3, "running": 3 });
    full[5..8].iter_mut().for_each(|node| *node = peer(&node.name, doc! { "maxthreads": 3, "running": 2 }));
    let prompt = prompt_at(&full, &ours, 0);
    assert!(
        prompt.len() == PROMPT && ["n5", "n6", "n7"].iter().all(|name| prompt.contains(&(*name).to_owned()))
    );
    assert_eq!(prompt_at(&many, &[], 0), Vec::<String>::new(), "who could run nothing");
    assert!(sharing(many, Instant::now()).is_prompt(&NodeName::new("new"), &ours, 0), "who is not known yet");
}

#[test]
fn of_many_nodes_a_few_look_for_what_any_may_do_and_the_rest_now_and_then() {
    let now = Instant::now();
    let first_at = |fields: &[Document], later: Duration| -> Vec<usize> {
        let name = |number: usize| format!("n{number}");
        let peers: Vec<Peer> =
            fields.iter().enumerate().map(|(n, fields)| peer(&name(n), fields.clone())).collect();
        let mut sharing = sharing(peers, now);
        sharing.looked_for_all(now);
        let looks = |n: &usize| sharing.looks_for_all(&NodeName::new(name(*n)), 0, now + later);
        (0..fields.len()).filter(looks).collect()
    };
    let some = |number| vec![doc! {}; number];
    assert_eq!(first_at(&some(4), Duration::ZERO).len(), 4);
    assert_eq!(first_at(&some(20), FOR_ALL - MILLIS).len(), PROMPT);
    assert_eq!(first_at(&some(20), FOR_ALL).len(), 20);
    assert_eq!(first_at(&some(100), FOR_ALL).len(), PROMPT, "where there are many, each does so less often");
    assert_eq!(first_at(&some(100), ONE_FOR_ALL * 100).len(), 100);
    // Those from which no schedules fire are nobody's reason not to look.
    let mut few_fire = vec![doc! { "schedules": false }; 20];
    few_fire[7..10].fill(doc! {});
    let first = first_at(&few_fire, Duration::ZERO);
    assert!([7, 8, 9].iter().all(|fires| first.contains(fires)), "{first:?}");
    let mut sharing = sharing(vec![peer("a", doc! {})], now);
    assert!(sharing.looks_for_all(&NodeName::new("a"), 0, now), "it has never looked");
    sharing.looked_for_all(now);
    assert!(sharing.looks_for_all(&NodeName::new("new"), 0, now), "who is not known yet");
}

/// How a node of the cluster behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// As it should.
    Well,
    /// It is alive, but takes nothing.
    Idle,
    /// It has so many tasks at most.
    Limited(u64),
}

struct Member {
    name: String,
    kind: Kind,
    sharing: Sharing,
    /// When its tasks end.
    tasks: Vec<Instant>,
    /// When it looks by itself.
    look: Instant,
    beats: i64,
}

struct Cluster {
    threads: i64,
    members: Vec<Member>,
    work: Duration,
}

impl Cluster {
    fn running(&self) -> u64 {
        self.members.iter().map(|member| member.tasks.len() as u64).sum()
    }

    /// Heartbeats, and everybody reads them.
    fn beat(&mut self, now: Instant) {
        let peers: Vec<Peer> = self
            .members
            .iter_mut()
            .map(|member| {
                member.beats += 1;
                let mut fields = doc! {
                    "wants": member.sharing.wants(now), "seen": DateTime::from_millis(member.beats),
                    "running": i64::try_from(member.tasks.len()).unwrap(),
                };
                if let Kind::Limited(most) = member.kind {
                    fields.insert("maxthreads", i64::try_from(most).unwrap());
                }
                peer(&member.name, fields)
            })
            .collect();
        self.members.iter_mut().for_each(|member| member.sharing.set_peers(peers.clone(), now));
    }

    /// The member takes what it may.
    fn claim(&mut self, at: usize, now: Instant) {
        let nodes: HashMap<String, u64> =
            self.members.iter().map(|member| (member.name.clone(), member.tasks.len() as u64)).collect();
        let (queue, running, work) = (queue(self.threads), self.running(), self.work);
        let free = queue.claim_limit().saturating_sub(running);
        let member = &mut self.members[at];
        let mine = member.tasks.len() as u64;
        let view = View { seen: now, mine, on_node: mine, running, nodes: &nodes };
        let allowed = member.sharing.allowance(&NodeName::new(&member.name), &queue, &view, now);
        let room = match member.kind {
            Kind::Well => u64::MAX,
            Kind::Idle => 0,
            Kind::Limited(most) => most.saturating_sub(mine),
        };
        for _ in 0..allowed.min(free).min(room) {
            member.tasks.push(now + work);
        }
    }

    /// What happens at `now`: tasks end and are followed by others, and some look by themselves.
    fn step(&mut self, now: Instant) {
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let before = member.tasks.len();
            member.tasks.retain(|end| *end > now);
            let planned = member.sharing.next(now - STEP).is_some_and(|next| next <= now);
            if member.tasks.len() < before || planned || member.look <= now {
                if member.look <= now {
                    member.look = now + 1_000 * MILLIS;
                }
                self.claim(at, now);
            }
        }
    }
}

const STEP: Duration = Duration::from_millis(20);

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![5 => Just(Kind::Well), 1 => Just(Kind::Idle), 2 => (1_u64..12).prop_map(Kind::Limited)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_backlog_is_spread_within_a_second_and_no_slot_is_left_for_long(
        threads in 1_u32..60,
        kinds in prop::collection::vec(kind(), 1..7),
        work in 20_u32..3_000,
        offsets in prop::collection::vec(0_u32..1_000, 7),
    ) {
        let begin = Instant::now();
        let members = kinds.iter().zip(&offsets).enumerate().map(|(at, (kind, offset))| Member {
            name: format!("n{at}"), kind: *kind, sharing: Sharing::default(), tasks: Vec::new(),
            look: begin + *offset * MILLIS, beats: 0,
        });
        let members: Vec<Member> = members.collect();
        let mut cluster = Cluster { threads: threads.into(), members, work: work * MILLIS };
        let most = |kind: Kind| match kind { Kind::Well => u64::MAX, Kind::Idle => 0, Kind::Limited(most) => most };
        let able = kinds.iter().fold(0_u64, |sum, kind| sum.saturating_add(most(*kind)));
        let usable = able.min(threads.into());
        let mut used = begin;
        // The most that each has within half a second, since short tasks end all the time.
        let mut seen = vec![0; kinds.len()];
        for step in 0_u32..500 {
            let now = begin + STEP * step;
            if step % 50 == 0 {
                cluster.beat(now);
            }
            cluster.step(now);
            let running = cluster.running();
            prop_assert!(running <= threads.into(), "the limit is passed");
            if running == usable {
                used = now;
            }
            // A second of looks, one of patience, and one until a heartbeat is read.
            prop_assert!(now - used <= 3_300 * MILLIS, "{running} of {usable} slots since {:?}", now - used);
            if (50..75).contains(&step) {
                for (most, member) in seen.iter_mut().zip(&cluster.members) {
                    *most = member.tasks.len().max(*most);
                }
            }
        }
        let fair = u64::from(threads) / kinds.len() as u64;
        for (seen, kind) in seen.into_iter().zip(&kinds) {
            prop_assert!(seen as u64 >= most(*kind).min(fair / 2), "{kind:?} has {seen}");
        }
    }

    #[test]
    fn who_comes_later_gets_a_share_too(threads in 4_u32..60, count in 1_usize..5, work in 20_u32..1_000) {
        let begin = Instant::now();
        let member = |name: String| Member {
            name, kind: Kind::Well, sharing: Sharing::default(), tasks: Vec::new(), look: begin, beats: 0,
        };
        let members = (0..count).map(|at| member(format!("n{at}"))).collect();
        let mut cluster = Cluster { threads: threads.into(), members, work: work * MILLIS };
        let mut late = 0;
        for step in 0_u32..400 {
            let now = begin + STEP * step;
            if step == 110 {
                cluster.members.push(Member { look: now, ..member("late".to_owned()) });
            }
            if step % 50 == 0 {
                cluster.beat(now);
            }
            cluster.step(now);
            if step >= 350 {
                late = late.max(cluster.members.last().map_or(0, |member| member.tasks.len() as u64));
            }
        }
        let least = u64::from(threads) / (count as u64 + 1) / 2;
        prop_assert!(late >= least, "{late} of {least}");
    }
}
