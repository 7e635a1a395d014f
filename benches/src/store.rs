//! The store alone against etcd, both syncing every write before they acknowledge it: puts of 1 KB by many writers.

use crate::{Figure, Setting, etcd, peer};
use ::store::{Codec, Expect, Key, Op, Store, Txn};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

const WRITERS: usize = 64;
const WRITES: usize = 50_000;

struct Plain;

impl Codec for Plain {
    fn stamp(&self, value: &mut Value, revision: u64) {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
    }

    fn encode(&self, _bucket: &str, value: &Value) -> Vec<u8> {
        value.to_string().into_bytes()
    }
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let writes = WRITES / setting.shrink;
    let ours = ours(writes).await?;
    let peer = match program(setting) {
        Some(program) => Some(etcds(&program, writes / 5).await?),
        None => {
            eprintln!("no etcd: its figure is left out (apt-get install etcd-server)");
            None
        }
    };
    Ok(vec![Figure {
        name: "durable writes to the store",
        unit: "puts/s",
        ours,
        peer,
        against: "etcd",
        more_is_better: true,
    }])
}

/// The control plane's etcd where it can be built, else Debian's.
fn program(setting: &Setting) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let built = setting.kubernetes.then(|| peer::programs().ok()).flatten();
    let mut candidates: Vec<PathBuf> = built.into_iter().map(|folder| folder.join("etcd")).collect();
    candidates.extend(std::env::split_paths(&path).map(|dir| dir.join("etcd")));
    candidates.into_iter().find(|candidate| candidate.exists())
}

async fn ours(writes: usize) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(Store::open(&folder.path().join("store.db"), Plain).map_err(|e| anyhow!("{e}"))?);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        let (store, next) = (store.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= writes {
                    return Ok::<(), anyhow::Error>(());
                }
                let name = format!("key-{n:08}");
                let value = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(1024)}});
                let op = Op::Put {
                    bucket: "configmaps".into(),
                    key: Key::new("default", &name),
                    value,
                    expect: Expect::Absent,
                };
                store.submit(Txn::one(op)).await.map_err(|e| anyhow!("{e}"))?;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}

async fn etcds(program: &std::path::Path, writes: usize) -> Result<f64> {
    let server = etcd::Etcd::start(program, 17_420)?;
    let sender = server.connect().await.context("etcd does not answer")?;
    let next = Arc::new(AtomicUsize::new(0));
    let value = Arc::new("x".repeat(1024 + 80));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        let (mut sender, next, value) = (sender.clone(), next.clone(), value.clone());
        tasks.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= writes {
                    return Ok::<(), anyhow::Error>(());
                }
                etcd::put(&mut sender, format!("/registry/configmaps/default/key-{n:08}").as_bytes(), value.as_bytes())
                    .await?;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}
