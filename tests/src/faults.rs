//! The fault suite: tasks run while DENs, runners, guards, plugins, the DCI and MongoDB servers are killed and
//! stopped at random, and afterwards it is checked that nothing was lost, run twice, told twice, or left behind.

pub mod args;
pub mod limits;
pub mod moments;
pub mod records;
pub mod work;

mod bodies;
mod boxes;
mod checks;
mod fault;
mod inbox;
mod inject;
mod node;
mod notifications;
mod poison;
mod processes;
pub(crate) mod random;
mod report;
mod service;
mod submit;
mod ticking;
mod watch;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::time::Instant;

use args::Args;
use checks::{Evidence, Verdict};
use inject::{Injected, Injector};
use random::Random;
use report::say;
use service::Served;
use submit::Submitted;
use ticking::Ticking;
use world::World;

/// Runs the suite. Returns whether every invariant held.
pub async fn run(args: Args) -> anyhow::Result<bool> {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let any = u64::try_from(work::wall_time().as_nanos() % 1_000_000).unwrap_or(0);
    let seed = args.seed.unwrap_or(any);
    let parent = disbatch_mongod::testing::temporary_folder();
    let folder = tempfile::Builder::new().prefix("disbatch-faults-").tempdir_in(parent)?.keep();
    say(&format!("seed {seed}, {} tasks, {} s, {}", args.tasks, args.duration, folder.display()));
    let mut term = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = Box::pin(in_folder(&args, seed, &folder)) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = term.recv() => Err(anyhow::anyhow!("told to end")),
    };
    for process in processes::all(&folder) {
        process.signal(Signal::SIGKILL);
    }
    if matches!(outcome, Ok(true)) {
        std::fs::remove_dir_all(&folder)?;
    } else {
        say(&format!("logs and records are in {}; --seed {seed} repeats the choices", folder.display()));
    }
    outcome
}

async fn in_folder(args: &Args, seed: u64, folder: &Path) -> anyhow::Result<bool> {
    let mut random = Random::new(seed);
    let world = Arc::new(Box::pin(World::start(folder, random.split())).await?);
    let (injected, mut submitted, ticking) = Box::pin(break_things(&world, args, &mut random)).await?;
    say(&format!("no more faults; {} submissions were repeated", submitted.repeated));
    world.heal().await?;
    inbox::until_all_are_moved(&world).await?;
    watch::until_all_fired(&world, &ticking).await?;
    watch::until_all_ended(&world).await?;
    let (ordinary, late) = poison::beside_ordinary_tasks(&world, &mut random).await?;
    submitted.ids.extend(ordinary);
    watch::until_all_ended(&world).await?;
    let poison = watch::until_poison_is_over(&world).await?;
    watch::until_all_is_told(&world).await?;
    watch::until_tidy(&world).await?;
    watch::until_nothing_is_said(&world).await;
    let boxes = watch::until_no_containers(&world).await?;
    let mut verdicts = Box::pin(end(&world)).await?;
    let orders = inbox::wrong_orders(&world, &submitted.ids).await?;
    verdicts.push(Verdict { name: "an order has its tasks", violations: orders });
    verdicts.push(Verdict { name: "no container is left", violations: boxes });
    verdicts.push(Verdict { name: "poison delays nobody", violations: late });
    verdicts.push(Verdict { name: "poison ends or is set aside", violations: poison });
    let served = world.service.served();
    let mut runs = records::read(&world.records())?;
    runs.extend(served.iter().filter_map(Served::run));
    runs.sort_by_key(|run| run.started);
    let evidence = Evidence {
        world: &world,
        tasks: watch::read_tasks(&world).await?,
        runs,
        served,
        submitted: submitted.ids,
        ticking,
    };
    let (wrong, stray) = checks::outputs(&evidence).await?;
    verdicts.extend(checks::of_tasks(&evidence));
    verdicts.push(Verdict { name: "output to the byte", violations: wrong });
    verdicts.extend(checks::messages(&world).await?);
    verdicts.push(checks::recordings(&evidence).await?);
    let held = report::print(&evidence, &injected, &checks::concurrency(&evidence), &verdicts);
    // Costs room and nothing else: a runner that is killed while it stores cannot tidy up.
    say(&format!("output files that no task refers to: {}", stray.len()));
    if args.keep {
        say(&format!("kept until ^C: {} (database faults), {}", world.uri, folder.display()));
        std::future::pending::<()>().await;
    }
    let world = Arc::into_inner(world);
    if let Some(world) = world {
        world.set.into_inner().destroy().await?;
    }
    Ok(held)
}

/// Tasks are submitted, faults injected, and progress is shown, until the time is over.
async fn break_things(
    world: &Arc<World>,
    args: &Args,
    random: &mut Random,
) -> anyhow::Result<(Injected, Submitted, Ticking)> {
    let tasks = usize::try_from(args.tasks.get())?;
    let duration = Duration::from_secs(args.duration.get().into());
    let mut submitted = submit::at_once(world, tasks / 2, &mut random.split()).await?;
    submitted.ids.extend(submit::with_dependencies(world, &mut random.split()).await?);
    let later = tasks.saturating_sub(submitted.ids.len());
    let ordered = later / 2;
    inbox::stock(world).await?;
    let orders = inbox::with_orders(world.clone(), ordered, duration.mul_f64(0.7), random.split());
    let submission =
        submit::little_by_little(world.clone(), later - ordered, duration.mul_f64(0.7), random.split());
    let locks =
        submit::with_locks(world.clone(), args.tasks.get() / 20, duration.mul_f64(0.6), random.split());
    let boxes =
        submit::in_containers(world.clone(), args.tasks.get() / 50, duration.mul_f64(0.6), random.split());
    // What is left to be made is made after twenty seconds, which is not to be waited for at the end.
    let ticking = Ticking::begin(world, duration.mul_f64(0.5)).await?;
    let injector = Injector::new(world.clone(), ticking, random.split(), &args.only);
    let faults = Mutex::new(0);
    let work = async {
        let injecting = Box::pin(injector.work(Instant::now() + duration, &faults));
        tokio::try_join!(injecting, Box::pin(submission), Box::pin(orders), Box::pin(locks), Box::pin(boxes))
    };
    let (injected, rest, orders, locks, boxes) = tokio::select! {
        done = work => done?,
        never = watch::show_progress(world, &faults) => match never {},
    };
    for more in [rest, orders, locks, boxes] {
        submitted.ids.extend(more.ids);
        submitted.repeated += more.repeated;
    }
    Ok((injected, submitted, ticking))
}

/// Ends all DENs and the DCI and looks for what is left.
async fn end(world: &World) -> anyhow::Result<Vec<Verdict>> {
    let mut not_in_order = Vec::new();
    for daemon in world.dens.iter().chain([&world.web]) {
        if let Err(error) = daemon.lock().await.end().await {
            not_in_order.push(format!("{error:#}"));
        }
    }
    let left = watch::until_nothing_is_left(world).await;
    Ok(vec![
        Verdict { name: "daemons end in order", violations: not_in_order },
        Verdict { name: "no process is left", violations: left },
        Verdict { name: "no private folder is left", violations: checks::left_folders(world)? },
        Verdict { name: "no live output is left", violations: checks::left_live(world).await? },
        Verdict { name: "no lock is left", violations: checks::left_locks(world).await? },
    ])
}
