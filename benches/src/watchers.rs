//! Writes at a steady pace into a namespace of many ConfigMaps, with some watches of it and many of other namespaces.
//!
//! Each write has a time at which it is due, whatever became of those before it, and all that is measured counts from then.

use crate::configmaps::{PATH, Stored};
use crate::load::{self, p99_ms};
use crate::peer::rest;
use crate::{Figure, Setting};
use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Watches of the namespace that is written to.
const NEAR: usize = 10;
/// Watches of other namespaces, of one each.
const FAR: usize = 1000;
/// Writes a second.
const RATE: usize = 1000;
const SECONDS: usize = 20;
/// Writes in flight at most: those that are due in 100 ms. One that is due when there are so many starts late, and counts from
/// when it was due.
const WRITERS: usize = 100;
const CLIENTS: usize = 16;
const NAMESPACES: &str = "/api/v1/namespaces";
/// For the last event, from the first write on.
const LIMIT: Duration = Duration::from_secs(300);

/// Which objects are written, and when.
#[derive(Clone, Copy)]
struct Plan {
    begin: Instant,
    writes: usize,
    /// From an object that is written to the next; each is written once.
    step: usize,
}

impl Plan {
    fn due(&self, write: usize) -> Instant {
        api::time::after(self.begin, Duration::from_secs(1).mul_f64(write as f64 / RATE as f64))
    }
}

pub async fn measure(setting: &Setting, stored: &Stored) -> Result<Vec<Figure>> {
    let (client, far) = (&stored.client, FAR / setting.shrink);
    let writes = RATE * SECONDS / setting.shrink;
    eprintln!("watchers: {far} of other namespaces, {NEAR} of one; {writes} writes, {RATE} a second");
    load::create_all(client, NAMESPACES, CLIENTS, far, namespace).await?;
    rest(stored.pid).await?;
    let version = version(client).await?;
    let mut idle = idle_watches(client, far, &version).await?;
    let near = try_join_all((0..NEAR).map(|_| watch(client, PATH, &version))).await?;
    // connections for the writers
    try_join_all((0..WRITERS).map(|_| self::version(client))).await?;

    let begin = api::time::after(Instant::now(), Duration::from_millis(100));
    let plan = Plan { begin, writes, step: stored.objects / writes };
    let mut watchers = JoinSet::new();
    near.into_iter().for_each(|watch| drop(watchers.spawn(deliveries(watch, plan))));
    let (answered, seconds) = write_all(client, plan).await?;
    let delivered = tokio::time::timeout(LIMIT, all_of(watchers)).await.context("an event did not come")??;
    ensure!(idle.try_join_next().is_none(), "a watch of another namespace has ended");

    let figure =
        |name, unit, ours, more_is_better| Figure { name, unit, ours, peer: None, against: "-", more_is_better };
    Ok(vec![
        figure("writes beside watches", "writes/s of 1000", writes as f64 / seconds, true),
        figure("writes beside watches: answered, p99", "ms", p99_ms(answered), false),
        figure("writes beside watches: delivered, p99", "ms", p99_ms(delivered), false),
    ])
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The version that watches begin at.
async fn version(client: &Client) -> Result<String> {
    let list: Value = client.request(Request::get(format!("{PATH}?limit=1")).body(Vec::new())?).await?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("lists have versions")?.to_owned())
}

/// The body of a watch that has begun.
async fn watch(client: &Client, path: &str, version: &str) -> Result<Body> {
    let request = Request::get(format!("{path}?watch=true&resourceVersion={version}"));
    let answer = client.send(request.body(Body::empty())?).await?;
    ensure!(answer.status().is_success(), "the watch of {path} is answered {}", answer.status());
    Ok(answer.into_body())
}

/// Watches of other namespaces; each ends when the server ends it.
async fn idle_watches(client: &Client, count: usize, version: &str) -> Result<JoinSet<()>> {
    let begun = futures::stream::iter(0..count)
        .map(async |n| watch(client, &format!("{NAMESPACES}/o{n}/configmaps"), version).await);
    let begun: Vec<Body> = begun.buffer_unordered(CLIENTS).try_collect().await?;
    let mut watches = JoinSet::new();
    for mut body in begun {
        watches.spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
    }
    Ok(watches)
}

/// Reads events until each write has one: from when a write was due until its event came.
async fn deliveries(mut watch: Body, plan: Plan) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(plan.writes);
    let mut unread = Vec::new();
    while took.len() < plan.writes {
        let frame = watch.frame().await.context("a watch has ended")??;
        let now = Instant::now();
        let Some(data) = frame.data_ref() else { continue };
        unread.extend_from_slice(data);
        let Some(end) = unread.iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in unread[..end].split(|byte| *byte == b'\n') {
            took.push(now.saturating_duration_since(plan.due(object(line)? / plan.step)));
        }
        unread.drain(..=end);
    }
    Ok(took)
}

/// The number in the name of an event's object. The event is not parsed, as that would take the processor from the server.
fn object(event: &[u8]) -> Result<usize> {
    let event = std::str::from_utf8(event)?;
    let number = event.split_once(r#""name":"o"#).and_then(|(_, rest)| rest.split_once('"'));
    match number.and_then(|(number, _)| number.parse().ok()) {
        Some(number) if event.contains(r#""MODIFIED""#) => Ok(number),
        _ => bail!("an event of no write: {event}"),
    }
}

/// Writes at the plan's pace: from when a write was due until its answer came, and the seconds that all took.
async fn write_all(client: &Client, plan: Plan) -> Result<(Vec<Duration>, f64)> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (client, next) = (client.clone(), next.clone());
        writers.spawn(async move {
            let mut took = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= plan.writes {
                    return Ok(took);
                }
                let due = plan.due(n);
                tokio::time::sleep_until(due.into()).await;
                write(&client, n * plan.step).await?;
                took.push(due.elapsed());
            }
        });
    }
    let took = all_of(writers).await?;
    Ok((took, plan.begin.elapsed().as_secs_f64()))
}

/// Replaces the text of a ConfigMap by another of 1 KB.
async fn write(client: &Client, object: usize) -> Result<()> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"o{object}"}},"data":{{"k":"{:y<1024}"}}}}"#,
        ""
    );
    let request = Request::put(format!("{PATH}/o{object}")).header("content-type", "application/json");
    client.request_text(request.body(body.into_bytes())?).await.with_context(|| format!("the write of o{object}"))?;
    Ok(())
}

/// What all tasks have measured.
async fn all_of(mut tasks: JoinSet<Result<Vec<Duration>>>) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    Ok(took)
}
