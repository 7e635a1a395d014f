//! Output of the hooks of a cluster, from their pods.

use crate::output::{ended, read_pod};
use crate::{Found, Show, Sky};
use api::sky::{HookEvent, keys};
use client::ClientError;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, LogParams};
use managed::jobs::name_of_rank;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Lines in flight between the readers and the printer.
const LINES_MAX: usize = 256;

/// The event that the pods of a cluster's hooks are for.
fn event(pod: &DynamicObject) -> Option<HookEvent> {
    pod.labels().get(keys::HOOK).and_then(|name| HookEvent::parse(name))
}

/// Shows the output of the hooks that ran last, of one event or of any, and returns the event; `None` if there is no output. `follow`: to
/// its end.
pub async fn print_hooks(
    sky: &Sky,
    found: &Found,
    wanted: Option<HookEvent>,
    (follow, tail): (bool, Option<usize>),
    show: Show<'_>,
) -> Result<Option<HookEvent>, ClientError> {
    let select = format!("{}={},{}", keys::CLUSTER, found.name(), keys::HOOK);
    let mut pods = sky.untyped_pods().list(&ListParams::default().labels(&select)).await?.items;
    pods.retain(|pod| wanted.is_none() || event(pod) == wanted);
    let Some(event) = pods.first().and_then(event) else { return Ok(None) };
    if wanted.is_none() {
        (show.note)(&format!("=== {} ===", event.as_str()));
    }
    let rank = |pod: &DynamicObject| pod.name_any().rsplit('-').next().and_then(|rank| rank.parse::<u32>().ok());
    pods.sort_by_key(rank);
    let are_several = pods.len() > 1;
    let prefix = |pod: &DynamicObject| match rank(pod).filter(|_| are_several) {
        Some(rank) => format!("({}) ", name_of_rank(rank)),
        None => String::new(),
    };
    let mut skips = vec![0; pods.len()];
    if !follow || tail.is_some() {
        let mut all = Vec::new();
        for (pod, skip) in pods.iter().zip(&mut skips) {
            let text = facts::whole(&sky.pods(), &pod.name_any(), &LogParams::default()).await.unwrap_or_default();
            // an unfinished line is shown later, with its rest
            let text = if follow { ended(&text) } else { &text };
            let before = all.len();
            all.extend(facts::lines(text).iter().map(|line| format!("{}{line}", prefix(pod))));
            *skip = all.len() - before;
        }
        let surplus = tail.map_or(0, |tail| all.len().saturating_sub(tail));
        all.iter().skip(surplus).for_each(|line| (show.line)(line));
    }
    if !follow {
        return Ok(Some(event));
    }
    let (lines, mut printed) = mpsc::channel::<String>(LINES_MAX);
    let mut readers = JoinSet::new();
    for (pod, skip) in pods.iter().zip(skips) {
        let (name, prefix, lines, api) = (pod.name_any(), prefix(pod), lines.clone(), sky.pods());
        readers.spawn(async move {
            let (own, mut read) = mpsc::channel::<String>(LINES_MAX);
            let pass_on = async move {
                while let Some(line) = read.recv().await {
                    if lines.send(format!("{prefix}{line}")).await.is_err() {
                        return;
                    }
                }
            };
            tokio::join!(read_pod(api, name, own, skip), pass_on);
        });
    }
    drop(lines);
    while let Some(line) = printed.recv().await {
        (show.line)(&line);
    }
    Ok(Some(event))
}
