//! The load that servers are put under: many clients at once, one counter.

use anyhow::Result;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Creates the objects that `body` gives for 0 to `count`, by so many clients at once; returns when all are acknowledged:
/// how long each took, in no order.
pub async fn create_all(
    client: &Client,
    path: &'static str,
    clients: usize,
    count: usize,
    body: impl Fn(&str) -> Value + Copy + Send + 'static,
) -> Result<Vec<Duration>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (client, next) = (client.clone(), next.clone());
        tasks.spawn(async move {
            let mut took = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return anyhow::Ok(took);
                }
                let (body, start) = (body(&format!("o{n}")), Instant::now());
                create(&client, path, body).await?;
                took.push(start.elapsed());
            }
        });
    }
    let mut took = Vec::with_capacity(count);
    while let Some(result) = tasks.join_next().await {
        took.extend(result??);
    }
    Ok(took)
}

/// The 99th percentile, in milliseconds.
pub fn p99_ms(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took.get(took.len() * 99 / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3)
}

/// One POST; an object that is there already is fine.
pub async fn create(client: &Client, path: &str, body: Value) -> Result<()> {
    let request = Request::post(path).header("content-type", "application/json").body(body.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        result => Ok(result.map(|_| ())?),
    }
}
