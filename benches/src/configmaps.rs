//! What many ConfigMaps of 1 KB take of memory. `watchers` goes on with the same server.

use crate::api::config_map;
use crate::peer::{Peer, resting_mb, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::Value;
use std::time::Duration;

const OBJECTS: usize = 100_000;
const CLIENTS: usize = 64;
pub const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// A server that has many ConfigMaps, and rests.
pub struct Stored {
    pub client: Client,
    pub pid: u32,
    /// How many: `o0` and so on.
    pub objects: usize,
    /// Anonymous memory that came with them, in MB.
    memory: f64,
    /// Keeps it running.
    _peer: Peer,
}

/// Starts a server and fills it.
pub async fn fill(setting: &Setting) -> Result<Stored> {
    let objects = OBJECTS / setting.shrink;
    let peer = Peer::trainyard(&setting.trainyard, &["--no-node"])?;
    let pid = *peer.pids.first().context("it has a process")?;
    let client = peer.client().await?;
    until(Duration::from_secs(30), || load::create(&client, PATH, config_map("warm-up"))).await?;
    let before = resting_mb(pid).await?;
    eprintln!("configmaps: {objects} of them");
    load::create_all(&client, PATH, CLIENTS, objects, config_map).await?;
    let memory = resting_mb(pid).await? - before;
    Ok(Stored { client, pid, objects, memory, _peer: peer })
}

impl Stored {
    pub async fn figures(&self) -> Result<Vec<Figure>> {
        let each = self.memory * 1024.0 / self.objects as f64;
        let encoded = encoded_kb(&self.client).await?;
        let figure = |name, unit, ours| Figure { name, unit, ours, peer: None, against: "-", more_is_better: false };
        Ok(vec![
            figure("memory of a ConfigMap of 1 KB", "KB", each),
            figure("the same by its encoded size", "times", each / encoded),
        ])
    }
}

/// KB of one as the server lists it: the mean of a page.
async fn encoded_kb(client: &Client) -> Result<f64> {
    let list: Value = client.request(Request::get(format!("{PATH}?limit=500")).body(Vec::new())?).await?;
    let items = list["items"].as_array().context("lists have items")?;
    ensure!(!items.is_empty(), "the list is empty");
    let bytes: usize = items.iter().map(|item| item.to_string().len()).sum();
    Ok(bytes as f64 / items.len() as f64 / 1024.0)
}
