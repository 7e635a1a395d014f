//! The runs of a job's steps: all starts of a step's container, counted from 1 in the order of time, whether the container was started
//! again in its pod, the pod in its Job, or the whole job. Chooses those that flags ask for.

use crate::NoSuch;
use crate::lines::Source;
use crate::state::step;
use api::job_history::JobHistory;
use api::object;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One run whose log can be read.
#[derive(Clone, Debug)]
pub struct Run {
    pub source: Arc<Source>,
    /// Uid of its pod.
    pub pod: String,
    pub container: String,
    /// How often the container was restarted in its pod before.
    pub restarts: i64,
    /// RFC 3339; empty where it is not known.
    pub started: String,
    /// The beginning of its log is gone.
    pub cut: bool,
    /// Its pod's object is there.
    pub live: bool,
    /// The node that its pod is on.
    pub on: String,
    /// The server's history has its log; otherwise only the pod's node does.
    pub kept: bool,
}

/// Which of them to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The last of each step.
    Last,
    /// The one before that.
    Previous,
    /// The nth of each step.
    Nth(i64),
    All,
}

/// A step and one of its containers.
type Key = (String, String);

/// All runs, by what they are runs of, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Runs(BTreeMap<Key, Vec<Run>>);

impl Runs {
    /// The runs of which something is kept, or still there.
    pub fn of_past(past: &JobHistory) -> Self {
        let mut runs = Self::default();
        for pod in &past.pods {
            // the node of a pod without runs may be another machine
            if pod.live && pod.containers.is_empty() {
                runs.add_live(&pod.pod);
            }
            for container in &pod.containers {
                for run in &container.attempts {
                    let started = run.started_at.map(|at| format!("{at:.9}")).unwrap_or_default();
                    let run = Run {
                        cut: run.log_cut,
                        live: pod.live,
                        kept: true,
                        ..run_of(&pod.pod, &container.name, run.attempt.into(), started)
                    };
                    runs.add(run);
                }
            }
        }
        runs.number();
        runs
    }

    /// The runs whose logs a cluster still has: the last one of each container, and the one before.
    pub fn of_pods(pods: &[Value]) -> Self {
        let mut runs = Self::default();
        pods.iter().for_each(|pod| runs.add_live(pod));
        runs.number();
        runs
    }

    /// Adds the runs of a pod whose logs are on its node: the last run of each container, and the one before.
    fn add_live(&mut self, pod: &Value) {
        for status in statuses(pod) {
            let name = object::text(status, "name");
            let restarts = status["restartCount"].as_i64().unwrap_or(0);
            // the time may be left out (core/v1, ContainerStateRunning)
            let started = |state: &str, kind: &str| {
                let state = status[state].get(kind).filter(|state| state.is_object())?;
                Some(object::text(state, "startedAt").to_owned())
            };
            let last = started("lastState", "terminated");
            let is_waiting = status["state"].get("waiting").is_some();
            let now = started("state", "running").or_else(|| started("state", "terminated"));
            match (now, last) {
                (Some(now), last) => {
                    if let Some(last) = last.filter(|_| restarts > 0) {
                        self.add(run_of(pod, name, restarts - 1, last));
                    }
                    self.add(run_of(pod, name, restarts, now));
                }
                (None, Some(last)) if is_waiting => self.add(run_of(pod, name, restarts, last)),
                (None, _) => {}
            }
        }
    }

    fn add(&mut self, run: Run) {
        self.0.entry((run.source.step.clone(), run.container.clone())).or_default().push(run);
    }

    /// Counts the runs of each step. A container that was restarted before anybody looked has had as many runs.
    fn number(&mut self) {
        for runs in self.0.values_mut() {
            runs.sort_by(|a, b| (&a.started, a.restarts).cmp(&(&b.started, b.restarts)));
            let mut last = 0;
            for run in runs {
                last = next(last, run.restarts);
                run.source = Arc::new(Source { attempt: last, ..(*run.source).clone() });
            }
        }
    }

    /// The number of a run that has begun.
    pub fn begin(&mut self, pod: &Value, container: &str, restarts: i64) -> Arc<Source> {
        let runs = self.0.entry((step(pod), container.to_owned())).or_default();
        if let Some(run) = runs.iter().find(|run| run.pod == object::uid(pod) && run.restarts == restarts) {
            return Arc::clone(&run.source);
        }
        let attempt = next(runs.last().map_or(0, |run| run.source.attempt), restarts);
        let source = Arc::new(Source::of(pod, attempt));
        runs.push(Run { source: Arc::clone(&source), ..run_of(pod, container, restarts, String::new()) });
        source
    }

    /// The runs that a follower who begins now does not wait for: all but the last of each step, and of a job that goes on those
    /// whose pods are gone.
    pub fn earlier(&self, is_finished: bool) -> impl Iterator<Item = &Run> {
        self.0.values().flat_map(move |runs| {
            let last = runs.len().saturating_sub(1);
            runs.iter()
                .enumerate()
                .filter(move |(at, run)| *at < last || !(is_finished || run.live))
                .map(|(_, run)| run)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn sources(&self) -> Vec<&Source> {
        self.0.values().flatten().map(|run| &*run.source).collect()
    }

    /// How often the steps that are `wanted` ran at most.
    pub fn most(&self, wanted: impl Fn(&Source) -> bool) -> i64 {
        let runs = self.0.values().flatten().filter(|run| wanted(&run.source));
        runs.map(|run| run.source.attempt).max().unwrap_or(0)
    }

    /// The runs to show, by step.
    ///
    /// Errors: no step had such a run.
    pub fn choose(&self, job: &str, which: Which, wanted: impl Fn(&Source) -> bool) -> Result<Vec<&Run>, NoSuch> {
        let most = self.most(&wanted);
        let mut chosen: Vec<&Run> = Vec::new();
        for runs in self.0.values() {
            let runs: Vec<&Run> = runs.iter().filter(|run| wanted(&run.source)).collect();
            match which {
                Which::Last => chosen.extend(runs.last()),
                Which::Previous => chosen.extend(runs.len().checked_sub(2).map(|at| runs[at])),
                Which::Nth(n) => chosen.extend(runs.iter().filter(|run| run.source.attempt == n)),
                Which::All => chosen.extend(runs),
            }
        }
        if chosen.is_empty() && most > 0 {
            no_attempt(&format!("TrainJob \"{job}\""), which, most)?;
        }
        chosen.sort_by_key(|run| {
            let source = &run.source;
            (source.attempt * i64::from(which == Which::All), source.node.is_some(), source.node, source.step.clone())
        });
        Ok(chosen)
    }
}

/// A run of a pod that is there.
fn run_of(pod: &Value, container: &str, restarts: i64, started: String) -> Run {
    Run {
        source: Arc::new(Source::of(pod, restarts + 1)),
        pod: object::uid(pod).to_owned(),
        container: container.to_owned(),
        restarts,
        started,
        cut: false,
        live: true,
        on: object::text(&pod["spec"], "nodeName").to_owned(),
        kept: false,
    }
}

/// That there is no such attempt among `most`.
pub fn no_attempt(whose: &str, which: Which, most: i64) -> Result<(), NoSuch> {
    let had = match most {
        1 => "it ran once".to_owned(),
        n => format!("its attempts are 1 to {n}"),
    };
    let told = match which {
        Which::Previous => format!("{whose} has no attempt before its last: {had}"),
        Which::Nth(n) => format!("{whose} has no log of an attempt {n}: {had}"),
        Which::Last | Which::All => return Ok(()),
    };
    Err(NoSuch::Attempt(told))
}

fn next(last: i64, restarts: i64) -> i64 {
    (last + 1).max(restarts + 1)
}

/// The statuses of a pod's containers.
pub fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::job_history::{PastContainer, PastPod};
    use serde_json::json;

    fn pod(uid: &str, index: &str, status: Value) -> Value {
        json!({"metadata": {"name": uid, "uid": uid, "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": index}}, "status": {"containerStatuses": [status]}})
    }

    fn past(pod: Value, live: bool, starts: &[i64]) -> PastPod {
        let run = |(attempt, at): (usize, &i64)| api::job_history::Run {
            attempt: u32::try_from(attempt).unwrap(),
            started_at: jiff::Timestamp::from_second(*at).ok(),
            ..Default::default()
        };
        let attempts = starts.iter().enumerate().map(run).collect();
        PastPod { pod, live, attempt: 1, containers: vec![PastContainer { name: "node".to_owned(), attempts }] }
    }

    fn told(chosen: Result<Vec<&Run>, NoSuch>) -> String {
        match chosen {
            Ok(runs) => runs
                .iter()
                .map(|run| format!("{}/{}={}", run.pod, run.restarts, run.source.attempt))
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn runs_are_counted_whatever_started_them_again() {
        let pods = vec![
            past(pod("late", "0", json!({})), true, &[30]),
            past(pod("early", "0", json!({})), false, &[10, 20]),
            past(pod("other", "1", json!({})), true, &[11]),
        ];
        let runs = Runs::of_past(&JobHistory { pods, ..JobHistory::default() });
        let choose = |which| told(runs.choose("j", which, |_| true));
        assert_eq!(choose(Which::Last), "late/0=3 other/0=1");
        assert_eq!(choose(Which::Previous), "early/1=2");
        assert_eq!(choose(Which::Nth(1)), "early/0=1 other/0=1");
        assert_eq!(choose(Which::All), "early/0=1 other/0=1 early/1=2 late/0=3");
        assert_eq!(choose(Which::Nth(4)), "TrainJob \"j\" has no log of an attempt 4: its attempts are 1 to 3");
        let second = |which| told(runs.choose("j", which, |source| source.node == Some(1)));
        assert_eq!(second(Which::Previous), "TrainJob \"j\" has no attempt before its last: it ran once");
    }

    #[test]
    fn the_runs_of_a_pod_on_another_machine_are_in_its_status() {
        let running = json!({"name": "node", "restartCount": 0, "state": {"running": {"startedAt": "5"}}});
        let elsewhere = PastPod { containers: Vec::new(), ..past(pod("far", "1", running), true, &[]) };
        let pods = vec![past(pod("near", "0", json!({})), true, &[10]), elsewhere];
        let runs = Runs::of_past(&JobHistory { pods, ..JobHistory::default() });
        assert_eq!(told(runs.choose("j", Which::Last, |_| true)), "near/0=1 far/0=1");
        let kept: Vec<bool> = runs.choose("j", Which::Last, |_| true).unwrap().iter().map(|run| run.kept).collect();
        assert_eq!(kept, [true, false]);
    }

    #[test]
    fn a_cluster_has_the_last_two_runs_of_a_container() {
        let running = json!({"name": "node", "restartCount": 4, "state": {"running": {"startedAt": "5"}},
            "lastState": {"terminated": {"startedAt": "4"}}});
        let waiting = json!({"name": "node", "restartCount": 2, "state": {"waiting": {}},
            "lastState": {"terminated": {"startedAt": "4"}}});
        let fresh = json!({"name": "node", "restartCount": 0, "state": {"waiting": {}}, "lastState": {}});
        let runs = |status: Value| told(Runs::of_pods(&[pod("p", "0", status)]).choose("j", Which::All, |_| true));
        assert_eq!(runs(running), "p/3=4 p/4=5");
        assert_eq!(runs(waiting), "p/2=3");
        assert_eq!(runs(fresh), "");
        let timeless = json!({"name": "node", "restartCount": 0, "state": {"running": {}}});
        assert_eq!(runs(timeless), "p/0=1");
    }

    #[test]
    fn a_run_that_begins_is_the_next() {
        let mut runs = Runs::of_past(&JobHistory {
            pods: vec![past(pod("a", "0", json!({})), false, &[1])],
            ..JobHistory::default()
        });
        let at = |runs: &mut Runs, uid, restarts| runs.begin(&pod(uid, "0", json!({})), "node", restarts).attempt;
        assert_eq!((at(&mut runs, "a", 0), at(&mut runs, "b", 0), at(&mut runs, "b", 1)), (1, 2, 3));
        assert_eq!(at(&mut runs, "b", 0), 2);
        assert_eq!(at(&mut Runs::default(), "b", 5), 6, "it was restarted before anybody looked");
    }
}
