//! Pods that are still ending: how many, for how long at most, and the wait for them.

use api::object;
use client::{ClientError, Cluster, Kind, value};
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use view::state::processes_per_node;

/// How long after a job's end a pod may run that nobody has asked to end: its controller is about to.
const UNASKED: i64 = 5;
/// How long after its deadline a pod's object may stay: its node still has to report.
const GRACE: i64 = 10;

/// Processes of a job that have not ended yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub processes: i64,
    /// Of how many in all.
    pub of: i64,
    /// Seconds after which the last of them is killed; `None`: no pod was asked to end yet.
    pub left: Option<i64>,
}

impl Ending {
    /// Counts the processes of pods, each with whether its object still exists.
    pub fn of<'a>(pods: impl IntoIterator<Item = (&'a Value, bool)>, now: Timestamp) -> Self {
        let mut ending = Self::default();
        for (pod, exists) in pods {
            let processes = processes_per_node(pod).max(1);
            let has_started = !object::text(&pod["spec"], "nodeName").is_empty();
            if has_started {
                ending.of += processes;
            }
            if exists && has_started && !object::has_ended(pod) {
                ending.processes += processes;
                let killed = object::meta(pod, "deletionTimestamp").parse::<Timestamp>().ok();
                let left = killed.map(|at| (at.as_second() - now.as_second()).max(0));
                ending.left = ending.left.max(left);
            }
        }
        ending
    }

    /// `2 of 4 processes are still ending, at most 30 s`; `None`: none is.
    pub fn sentence(&self) -> Option<String> {
        let Self { processes, of, left } = *self;
        if processes == 0 {
            return None;
        }
        let are = if processes == 1 { "is" } else { "are" };
        let plural = if of == 1 { "process" } else { "processes" };
        let most = left.filter(|left| *left > 0).map(|left| format!(", at most {left} s")).unwrap_or_default();
        Some(format!("{processes} of {of} {plural} {are} still ending{most}"))
    }

    /// How long the wait for them makes sense: until their deadline, and what a node needs to report.
    pub(crate) fn patience(&self) -> Duration {
        let secs = self.left.map_or(UNASKED, |left| left.saturating_add(GRACE));
        Duration::from_secs(u64::try_from(secs).unwrap_or_default())
    }
}

/// Waits until all pods with these labels have ended, and tells how many have not, each time that their number changes.
/// Returns what is left when they take longer than they may.
///
/// Errors: the pods may not be read.
pub async fn wait_for_pods(cluster: &Cluster, labels: &str, tell: fn(&str)) -> Result<Ending, ClientError> {
    let config = watcher::Config::default().labels(labels);
    let mut changes = watcher(cluster.api(Kind::Pod), config).default_backoff().boxed();
    let mut pods: BTreeMap<String, (Value, bool)> = BTreeMap::new();
    let (mut is_listed, mut said) = (false, 0);
    let mut until = api::time::after(Instant::now(), Duration::from_secs(3600));
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = tokio::time::sleep_until(until) => None,
        };
        use watcher::Event;
        match change {
            Some(Ok(Event::Init)) => {
                pods.values_mut().for_each(|(_, exists)| *exists = false);
                is_listed = false;
            }
            Some(Ok(Event::InitDone)) => is_listed = true,
            Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => {
                let pod = value(&pod);
                pods.insert(object::uid(&pod).to_owned(), (pod, true));
            }
            Some(Ok(Event::Delete(pod))) => {
                let pod = value(&pod);
                pods.insert(object::uid(&pod).to_owned(), (pod, false));
            }
            Some(Err(error)) => match refused(error) {
                Some(error) => return Err(error),
                None => continue,
            },
            None => {}
        }
        if !is_listed {
            continue;
        }
        let ending = Ending::of(pods.values().map(|(pod, exists)| (pod, *exists)), Timestamp::now());
        if ending.processes == 0 || Instant::now() >= until {
            return Ok(ending);
        }
        let is_asked = pods.values().any(|(pod, exists)| *exists && object::is_terminating(pod));
        if is_asked && ending.processes != said {
            said = ending.processes;
            if let Some(text) = ending.sentence() {
                tell(&text);
            }
        }
        if is_asked {
            until = api::time::after(Instant::now(), ending.patience());
        }
    }
}

/// The error of a watch that trying again does not help: its objects may not be read.
pub fn refused(error: watcher::Error) -> Option<ClientError> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
            Some(kube::Error::Api(status).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(processes: &str, phase: &str, killed: Option<&str>) -> Value {
        json!({"metadata": {"deletionTimestamp": killed}, "status": {"phase": phase}, "spec": {"nodeName": "n",
            "containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": processes}]}]}})
    }

    #[test]
    fn processes_that_still_end_are_counted_with_their_deadline() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (at, later) = (Some("2026-01-01T00:00:12Z"), Some("2026-01-01T00:00:30Z"));
        let pods =
            [pod("2", "Running", at), pod("2", "Running", later), pod("2", "Failed", later), pod("2", "Running", at)];
        let ending = Ending::of(pods.iter().zip([true, true, true, false]), now);
        assert_eq!(ending.sentence().as_deref(), Some("4 of 8 processes are still ending, at most 30 s"));
        let one = Ending::of([(&pod("1", "Running", None), true)], now);
        assert_eq!(one.sentence().as_deref(), Some("1 of 1 process is still ending"));
        assert_eq!(Ending::of([(&pod("1", "Running", at), false)], now).sentence(), None);
        let waiting = json!({"metadata": {}, "spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(Ending::of([(&waiting, true)], now), Ending::default(), "it has no process");
    }
}
