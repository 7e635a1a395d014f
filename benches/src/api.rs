//! Durable writes through the API: ConfigMaps of 1 KB, created by one client and by many at once.

use crate::load::{self, p99_ms};
use crate::peer::{Peer, until};
use crate::{Figure, Setting};
use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// One load.
struct Level {
    /// Requests in flight, each on a connection of its own.
    clients: usize,
    /// Creates of ours, and of the peer: some seconds of each.
    writes: [usize; 2],
    /// What its figures are called: the rate, and the latency.
    names: [&'static str; 2],
}

const LEVELS: [Level; 3] = [
    Level {
        clients: 1,
        writes: [1_500, 1_000],
        names: ["durable creates by API, 1 connection", "durable creates by API, 1 connection, p99"],
    },
    Level {
        clients: 16,
        writes: [15_000, 4_000],
        names: ["durable creates by API, 16 connections", "durable creates by API, 16 connections, p99"],
    },
    Level {
        clients: 64,
        writes: [20_000, 5_000],
        names: ["durable creates by API, 64 connections", "durable creates by API, 64 connections, p99"],
    },
];

/// What a server did under one load.
struct Done {
    /// Creates a second.
    rate: f64,
    /// Milliseconds of one create.
    p99: f64,
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let ours = {
        let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
        levels(&peer.client().await?, setting, |[ours, _]| ours).await?
    };
    let theirs = match setting.kubernetes {
        true => {
            let peer = Peer::kubernetes(&[])?;
            levels(&peer.client().await?, setting, |[_, peer]| peer).await?.map(Some)
        }
        false => [const { None }; LEVELS.len()],
    };
    let figure = |name, unit, ours, peer, more_is_better| Figure {
        name,
        unit,
        ours,
        peer,
        against: "kube-apiserver + etcd",
        more_is_better,
    };
    let mut figures = Vec::new();
    for ((level, ours), theirs) in LEVELS.iter().zip(ours).zip(theirs) {
        let [rate, p99] = level.names;
        figures.push(figure(rate, "creates/s", ours.rate, theirs.as_ref().map(|done| done.rate), true));
        figures.push(figure(p99, "ms", ours.p99, theirs.as_ref().map(|done| done.p99), false));
    }
    Ok(figures)
}

/// All loads, one after the other; `side` picks the creates of the server.
async fn levels(client: &Client, setting: &Setting, side: fn([usize; 2]) -> usize) -> Result<[Done; LEVELS.len()]> {
    until(Duration::from_secs(30), || load::create(client, PATH, config_map("first"))).await?;
    let level = |level: &Level| create_at(client, level.clients, side(level.writes) / setting.shrink);
    let [one, few, many] = &LEVELS;
    Ok([level(one).await?, level(few).await?, level(many).await?])
}

async fn create_at(client: &Client, clients: usize, writes: usize) -> Result<Done> {
    // connections are made before, not in the figure
    let warm_up = move |name: &str| config_map(&format!("warm-up-{clients}-{name}"));
    load::create_all(client, PATH, clients, clients * 4, warm_up).await?;
    let start = Instant::now();
    let took = load::create_all(client, PATH, clients, writes, move |name| config_map(&format!("{name}-{clients}")));
    let took = took.await?;
    Ok(Done { rate: writes as f64 / start.elapsed().as_secs_f64(), p99: p99_ms(took) })
}

/// One of 1 KB.
pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x".repeat(1024)}})
}
