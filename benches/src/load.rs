//! The load that servers are put under: many clients at once, one counter.

use anyhow::Result;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

/// Creates the objects that `body` gives for 0 to `count`, by so many clients at once; returns when all are acknowledged.
pub async fn create_all(
    client: &Client,
    path: &'static str,
    clients: usize,
    count: usize,
    body: fn(&str) -> Value,
) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (client, next) = (client.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<(), anyhow::Error>(());
                }
                create(&client, path, body(&format!("o{n}"))).await?;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// One POST; an object that is there already is fine.
pub async fn create(client: &Client, path: &str, body: Value) -> Result<()> {
    let request = Request::post(path).header("content-type", "application/json").body(body.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        result => Ok(result.map(|_| ())?),
    }
}
