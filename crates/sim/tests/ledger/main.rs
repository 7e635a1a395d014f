//! The ledger of machines, with a kill at every write and every call: the real controllers of launches, clusters and machines over a real
//! API server in memory, and a provider that fails.
//!
//! Each scenario runs once, and its writes to the API server and its calls of the provider are counted. Then it runs again twice for each
//! of them: the control plane is killed right before it, or right after it, before it gets the answer. The next control plane starts a
//! second later. In the end the cluster is ended, and nothing may be left. The clock is tokio's own, paused: minutes pass at once.
//!
//! `TRAINYARD_LEDGER_SHARE` is the share of moments to try, in percent (10; `make soak`: 100). `TRAINYARD_LEDGER_STORMS` is the number of
//! seeds with a failing provider, in addition to one run without failures (2; `make soak`: 20).

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod cloud;
mod life;
mod world;

use cloud::Bug;
use life::{Points, Side};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;
use world::{Scene, Wish};

/// The action under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    Launch,
    /// A Launch is created: it makes the cluster and submits one job.
    Launched,
    /// A Launch is created on a cluster that is stopped.
    LaunchedAgain,
    /// `sky down` ends a cluster that is being launched.
    DownDuringLaunched,
    Stop,
    Start,
    Autostop,
    AutostopDown,
    Down,
    DownDuringLaunch,
}

use Scenario::{
    Autostop, AutostopDown, Down, DownDuringLaunch, DownDuringLaunched, Launch, Launched, LaunchedAgain, Start, Stop,
};

const ALL: [Scenario; 10] =
    [Launch, Launched, LaunchedAgain, DownDuringLaunched, Stop, Start, Autostop, AutostopDown, Down, DownDuringLaunch];

impl Scenario {
    /// The preparations, during which nothing fails.
    async fn prepare(self, scene: &mut Scene) -> Result<(), String> {
        if matches!(self, Launch | DownDuringLaunch | Launched | DownDuringLaunched) {
            return Ok(());
        }
        scene.launch(2).await;
        scene.settle(Wish::Up).await?;
        if matches!(self, Start | LaunchedAgain) {
            scene.set(json!({"power": "Stopped"})).await;
            scene.settle(Wish::Stopped).await?;
        }
        Ok(())
    }

    async fn happen(self, scene: &mut Scene) -> Wish {
        match self {
            Launch => {
                scene.launch(2).await;
                Wish::Up
            }
            Launched | LaunchedAgain => {
                scene.sky_launch().await;
                Wish::Launched
            }
            DownDuringLaunched => {
                scene.sky_launch().await;
                sleep(Duration::from_millis(50)).await;
                scene.sky_down().await;
                Wish::Gone
            }
            Stop => {
                scene.set(json!({"power": "Stopped"})).await;
                Wish::Stopped
            }
            Start => {
                scene.set(json!({"power": "Running"})).await;
                scene.exec().await;
                Wish::Up
            }
            Autostop => {
                scene.set(json!({"autostop": {"idleMinutes": 0}})).await;
                Wish::Stopped
            }
            AutostopDown => {
                scene.set(json!({"autostop": {"idleMinutes": 0, "down": true}})).await;
                Wish::Gone
            }
            Down => {
                scene.down().await;
                Wish::Gone
            }
            DownDuringLaunch => {
                scene.launch(2).await;
                sleep(Duration::from_millis(50)).await;
                scene.down().await;
                Wish::Gone
            }
        }
    }
}

/// One run. Returns the actions under test, and whether the control plane was killed.
fn run(
    scenario: Scenario,
    storm: u64,
    bug: Option<Bug>,
    kill: Option<(usize, Side)>,
) -> Result<(Vec<String>, bool), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let points = Points::killing(kill);
        let mut scene = Scene::new(storm, bug, points.clone()).await;
        scenario.prepare(&mut scene).await?;
        points.count(true);
        if storm > 0 {
            scene.cloud.storm();
        }
        let wish = scenario.happen(&mut scene).await;
        scene.settle(wish).await?;
        points.count(false);
        let done = points.done();
        scene.end().await?;
        if scene.cloud.made() == 0 && !matches!(scenario, DownDuringLaunch | DownDuringLaunched) {
            return Err("no machine was made: nothing was tried".into());
        }
        Ok((done, points.killed()))
    })
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The results of kills.
#[derive(Default)]
struct Tried {
    moments: usize,
    killed: usize,
    failed: Vec<String>,
}

/// Kills the control plane at a share of the moments of a scenario.
fn kills(scenario: Scenario, storm: u64, bug: Option<Bug>, share: u64, tried: &mut Tried) {
    let name = format!("{scenario:?}, storm {storm}");
    let done = match run(scenario, storm, bug, None) {
        Ok((done, _)) => done,
        Err(why) => return tried.failed.push(format!("{name}, no kill: {why}")),
    };
    let sides = [Side::Before, Side::After];
    let moments = (0..done.len()).flat_map(|point| sides.map(|side| (point, side)));
    for (at, (point, side)) in moments.enumerate() {
        // spread over all moments, and different ones for each scenario
        if (at as u64 * share + storm * 37 + scenario as u64 * 13) % 100 >= share {
            continue;
        }
        tried.moments += 1;
        if bug.is_some() && !tried.failed.is_empty() {
            return;
        }
        match run(scenario, storm, bug, Some((point, side))) {
            Ok((_, killed)) => tried.killed += usize::from(killed),
            Err(why) => tried.failed.push(format!("{name}, killed {side:?} {} ({point}): {why}", done[point])),
        }
    }
}

#[test]
fn a_kill_before_and_after_any_write_or_call_leaves_no_machine() {
    let (share, storms) = (number("TRAINYARD_LEDGER_SHARE", 10).clamp(1, 100), number("TRAINYARD_LEDGER_STORMS", 2));
    let mut tried = Tried::default();
    for storm in 0..=storms {
        for scenario in ALL {
            kills(scenario, storm, None, share, &mut tried);
        }
    }
    println!("{} moments, {} kills, {} failed", tried.moments, tried.killed, tried.failed.len());
    assert!(tried.failed.is_empty(), "{}", tried.failed.join("\n"));
    assert!(tried.killed * 10 >= tried.moments * 9, "{} of {} kills happened", tried.killed, tried.moments);
    assert!(tried.moments as u64 >= share, "{} moments: the scenarios do nothing", tried.moments);
}

#[test]
fn planted_bugs_are_found() {
    // each bug with the scenario that finds it, and whether that needs a failing provider
    let bugs = [
        (Bug::MachineBeforeObject, Launch, false),
        (Bug::ReleasedUnheard, Down, false),
        (Bug::TokensOfTheProcess, Launch, false),
        (Bug::ObjectBeforeMachine, Down, false),
        (Bug::NoSweep, DownDuringLaunch, true),
        (Bug::TwinsLive, Launch, true),
        (Bug::AbsenceIsLoss, Launch, true),
        (Bug::JobUnseen, Launched, false),
    ];
    for (bug, scenario, wants_storm) in bugs {
        let storms = if wants_storm { 1..40_u64 } else { 0..1 };
        let found = storms.into_iter().find_map(|storm| {
            let mut tried = Tried::default();
            kills(scenario, storm, Some(bug), 100, &mut tried);
            tried.failed.into_iter().next()
        });
        println!("{bug:?}: {}", found.as_deref().unwrap_or("NOT FOUND"));
        assert!(found.is_some(), "{bug:?} harms nobody");
    }
}

#[test]
fn a_run_replays() {
    let told = || run(Launch, 3, None, None).map(|(done, _)| done);
    let first = told().expect("it comes to rest");
    let distinct: std::collections::BTreeSet<&String> = first.iter().collect();
    assert!(distinct.len() > 8, "{distinct:?}");
    assert_eq!(Ok(first), told());
}
