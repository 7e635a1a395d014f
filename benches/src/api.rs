//! Durable writes per second through the API: ConfigMaps of 1 KB, created by many clients at once.

use crate::peer::{Peer, until};
use crate::{Figure, Setting, load};
use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Requests in flight.
const CLIENTS: usize = 64;
const WRITES: usize = 20_000;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let writes = WRITES / setting.shrink;
    let ours = {
        let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
        writes_per_second(&peer.client().await?, writes).await?
    };
    let theirs = match setting.kubernetes {
        true => {
            let peer = Peer::kubernetes(&[])?;
            Some(writes_per_second(&peer.client().await?, writes / 4).await?)
        }
        false => None,
    };
    Ok(vec![Figure {
        name: "durable writes through the API",
        unit: "creates/s",
        ours,
        peer: theirs,
        against: "kube-apiserver + etcd",
        more_is_better: true,
    }])
}

async fn writes_per_second(client: &Client, writes: usize) -> Result<f64> {
    until(Duration::from_secs(30), || load::create(client, PATH, config_map("warm-up"))).await?;
    let start = Instant::now();
    load::create_all(client, PATH, CLIENTS, writes, config_map).await?;
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x".repeat(1024)}})
}
