//! Logs of all ranks in one stream, live, until the job ends.

use crate::ending::{Ending, refused};
use crate::reader::Reader;
use crate::{Reasons, ThisMachine, history, usage};
use api::jobset::keys::{JOBSET_UID, RESTART_ATTEMPT};
use api::object;
use client::{ClientError, Cluster, Kind, pods_of, value};
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use view::lines::{Line, Show};
use view::runs::{Runs, statuses};
use view::state::{Phase, short_duration};

/// Lines in flight between the readers and the audience; a slow audience slows the readers, nothing else.
const LINES_MAX: usize = 1024;
/// How long after the job's end the last log lines may take to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(15);

/// After how long without a line from any rank a note says so: if no rank uses a processor or a GPU, and if that is not known.
const QUIET_IDLE: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_secs(600);

/// Between two looks at the processes that still end.
const TICK: Duration = Duration::from_millis(500);
/// Processes that end within this time are not worth a line.
const SHORT: Duration = Duration::from_millis(700);
/// How long the pods of a job that is over are waited for at least: they may have been asked to end at any moment of this wait.
const ENDING_MIN: Duration = Duration::from_secs(5);

/// How a followed job ended.
pub struct Ended {
    /// `None`: it was deleted meanwhile.
    pub job: Option<Value>,
    pub pods: Vec<Value>,
    /// It was suspended, as was asked for meanwhile, and its processes have ended, or take longer than they may.
    pub is_stopped: bool,
    /// Processes that had not ended when this returned.
    pub left: Ending,
}

/// Says to a [`follow`] in progress that its job is being suspended: it then returns once the job's processes have ended.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Receives the events of a followed job. One task makes all calls, in the order of the events.
pub trait Audience {
    /// A line of a rank.
    fn line(&mut self, line: Line);

    /// The pods as they were seen last, whenever one changes.
    fn pods<'p>(&mut self, pods: impl Iterator<Item = &'p Value>);

    /// How the job stands, whenever anything changes and until it is asked to stop.
    fn status<'p>(&mut self, job: &Value, pods: impl Iterator<Item = &'p Value>);

    /// A sentence about the job: why it waits, or that its ranks are silent.
    fn note(&mut self, note: &str);

    /// How many processes still end, while the job's end is waited for.
    fn ending(&mut self, text: Option<String>);

    /// There is nothing more to come.
    fn finish(&mut self);
}

/// Shows the job's log lines as they come, until the job and its processes have ended and all lines are shown. `trouble` is called with
/// each message about a log that cannot be read.
///
/// Expected flow: watches the job and its pods; each container that starts gets a reader, which reads on where it left
/// off if the control plane goes away meanwhile.
///
/// Errors: only the first requests' (no permission, no server); later ones are retried, as the control plane may be
/// restarting while the job goes on.
pub async fn follow(
    cluster: &Cluster,
    job: &str,
    show: &Show,
    stop: &Stop,
    audience: &mut impl Audience,
    trouble: fn(&str),
) -> Result<Ended, ClientError> {
    follow_until(cluster, job, show, (Runs::default(), false), stop, audience, trouble).await
}

/// The same for a job that has had `runs`, and may be finished: the last of each step is shown, and what follows.
pub async fn follow_from(
    cluster: &Cluster,
    job: &str,
    show: &Show,
    runs: Runs,
    is_finished: bool,
    audience: &mut impl Audience,
    trouble: fn(&str),
) -> Result<Ended, ClientError> {
    follow_until(cluster, job, show, (runs, is_finished), &Stop::default(), audience, trouble).await
}

async fn follow_until(
    cluster: &Cluster,
    job: &str,
    show: &Show,
    (runs, is_finished): (Runs, bool),
    stop: &Stop,
    audience: &mut impl Audience,
    trouble: fn(&str),
) -> Result<Ended, ClientError> {
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    let mut readers = Readers::new(cluster, job, show, sender, (runs, is_finished), trouble);
    let mut state = None;

    let by_name = watcher::Config::default().fields(&format!("metadata.name={job}"));
    let mut job_changes =
        watcher(cluster.api(Kind::TrainJob), by_name).default_backoff().applied_objects_or_gone().boxed();
    let by_label = watcher::Config::default().labels(&pods_of(job));
    let mut pod_changes = watcher(cluster.api(Kind::Pod), by_label).default_backoff().boxed();

    let mut gone = false;
    // since when nothing is waited for but the end of the processes
    let mut ending_since = None;
    let mut heard = Instant::now();
    let (mut looked, mut said_at) = (heard, None);
    let mut reasons = Reasons::default();
    let left = loop {
        tokio::select! {
            biased;
            Some(line) = lines.recv() => {
                heard = Instant::now();
                audience.line(line);
            }
            change = pod_changes.next() => {
                match change {
                    Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => readers.saw(value(&pod)),
                    Some(Ok(Event::Delete(pod))) => readers.gone(value(&pod)),
                    Some(Ok(Event::Init | Event::InitDone)) | None => continue,
                    Some(Err(error)) => match refused(error) {
                        Some(error) => return Err(error),
                        None => continue,
                    },
                }
                audience.pods(readers.pods());
            }
            change = job_changes.next() => match change {
                Some(Ok(Change::Is(object))) => state = Some(*object),
                Some(Ok(Change::Gone)) => gone = true,
                Some(Err(error)) => if let Some(error) = refused(error) {
                    return Err(error);
                },
                None => {}
            },
            () = reasons.due() => {
                if let Some(job) = &state
                    && let Some(note) = reasons.look(cluster, job, readers.live(), &ThisMachine).await
                {
                    audience.note(&note);
                }
            }
            () = tokio::time::sleep(TICK), if ending_since.is_some() => {}
            () = tokio::time::sleep_until(api::time::after(looked.max(heard), QUIET_IDLE)) => {
                looked = Instant::now();
                let silent = heard.elapsed();
                if state.as_ref().is_some_and(|job| Phase::of(job) == Phase::Running)
                    && let Some(note) = silence(job, &cluster.flags, silent, usage::is_idle(cluster, job).await)
                    && said_at != Some(heard)
                {
                    said_at = Some(heard);
                    audience.note(&note);
                }
            }
        }
        if let Some(job) = &state {
            reasons.see(job);
        }
        if let Some(job) = state.as_ref().filter(|_| !stop.is_set()) {
            audience.status(job, readers.pods());
        }
        let is_over = gone || state.as_ref().is_some_and(|job| Phase::of(job).is_finished());
        let is_stopped = stop.is_set() && state.as_ref().is_some_and(is_suspended);
        if !is_over && !is_stopped {
            continue;
        }
        // over means over: what its processes write until they have ended is shown, too
        let left = readers.ending();
        let since = *ending_since.get_or_insert_with(Instant::now);
        if left.processes == 0 || since.elapsed() >= left.patience().max(ENDING_MIN) {
            break left;
        }
        if since.elapsed() >= SHORT {
            let leave = if stop.is_set() { "; Ctrl-C again to leave" } else { "" };
            audience.ending(left.sentence().map(|text| text + leave));
        }
    };
    let is_stopped = stop.is_set() && !gone && state.as_ref().is_some_and(|job| !Phase::of(job).is_finished());

    // what started and ended between two looks still has a log
    if !gone {
        readers.look_again().await;
    }
    let (mut tasks, pods) = readers.close();
    let drain = async {
        while let Some(line) = lines.recv().await {
            audience.line(line);
        }
    };
    if tokio::time::timeout(DRAIN_MAX, drain).await.is_err() {
        let lost = format!("some log lines did not arrive; see them with: trainyard logs {job}{}", cluster.flags);
        trouble(&lost);
    }
    tasks.shutdown().await;
    audience.finish();
    Ok(Ended { job: if gone { None } else { state }, pods, is_stopped, left })
}

/// Whether its controller has seen that it is suspended: before, pods may still be made.
fn is_suspended(job: &Value) -> bool {
    Phase::of(job) == Phase::Suspended
        && view::state::condition(job, "Suspended").is_some_and(|is| is["status"] == "True")
}

/// What is said of a job whose ranks have not written for long; nothing where they compute.
fn silence(job: &str, flags: &str, silent: Duration, is_idle: Option<bool>) -> Option<String> {
    let since = short_duration(i64::try_from(silent.as_secs()).unwrap_or(i64::MAX));
    let what = match is_idle {
        Some(false) => return None,
        Some(true) => format!("no rank has written a line for {since}, and none uses a processor or a GPU"),
        None if silent < QUIET => return None,
        None => format!("no rank has written a line for {since}"),
    };
    Some(format!("{what}; see what holds it up: trainyard explain {job}{flags}"))
}

/// The readers of all runs, and the pods as they were seen last.
struct Readers<'a> {
    cluster: &'a Cluster,
    job: &'a str,
    show: Arc<Show>,
    sender: mpsc::Sender<Line>,
    trouble: fn(&str),
    tasks: JoinSet<()>,
    /// Uid, container and restarts of the runs that are read, or need not be.
    followed: BTreeSet<(String, String, i64)>,
    runs: Runs,
    pods: BTreeMap<String, Value>,
    /// Uids of those whose objects are gone.
    deleted: BTreeSet<String>,
    /// Tells the readers of a pod what becomes of it.
    watched: BTreeMap<String, watch::Sender<Option<Value>>>,
}

impl<'a> Readers<'a> {
    fn new(
        cluster: &'a Cluster,
        job: &'a str,
        show: &Show,
        sender: mpsc::Sender<Line>,
        (runs, is_finished): (Runs, bool),
        trouble: fn(&str),
    ) -> Self {
        let earlier = runs.earlier(is_finished);
        let followed = earlier.map(|run| (run.pod.clone(), run.container.clone(), run.restarts)).collect();
        Self {
            cluster,
            job,
            show: Arc::new(show.clone()),
            sender,
            trouble,
            tasks: JoinSet::new(),
            followed,
            runs,
            pods: BTreeMap::new(),
            deleted: BTreeSet::new(),
            watched: BTreeMap::new(),
        }
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.values()
    }

    /// Those whose objects are not gone.
    fn live(&self) -> Vec<Value> {
        let live = self.pods.iter().filter(|(uid, _)| !self.deleted.contains(*uid));
        live.map(|(_, pod)| pod.clone()).collect()
    }

    /// A pod as it is now.
    fn saw(&mut self, pod: Value) {
        let uid = object::uid(&pod).to_owned();
        if let Some(watched) = self.watched.get(&uid) {
            watched.send_replace(Some(pod.clone()));
        }
        for (container, restarts) in started_containers(&pod) {
            self.start(&pod, &container, restarts, true);
        }
        self.pods.insert(uid, pod);
    }

    /// A pod as it was when its object went.
    fn gone(&mut self, pod: Value) {
        let uid = object::uid(&pod).to_owned();
        self.deleted.insert(uid.clone());
        self.saw(pod);
        if let Some(watched) = self.watched.get(&uid) {
            watched.send_replace(None);
        }
    }

    fn start(&mut self, pod: &Value, container: &str, restarts: i64, live: bool) {
        let uid = object::uid(pod).to_owned();
        if !self.followed.insert((uid.clone(), container.to_owned(), restarts)) {
            return;
        }
        let source = self.runs.begin(pod, container, restarts);
        if !self.show.wants_pod(&source) {
            return;
        }
        let now = live.then(|| pod.clone());
        let watched = self.watched.entry(uid.clone()).or_insert_with(|| watch::channel(now).0);
        let reader = Reader {
            cluster: self.cluster.clone(),
            job: self.job.to_owned(),
            source,
            pod: uid,
            container: container.to_owned(),
            restarts,
            show: Arc::clone(&self.show),
            seen: watched.subscribe(),
            sender: self.sender.clone(),
            tell: self.trouble,
        };
        self.tasks.spawn(reader.read());
    }

    /// Looks at all pods that the job has, and where more is kept, had.
    async fn look_again(&mut self) {
        if let Ok(Some(past)) = history::of(self.cluster, history::Job::Train(self.job)).await {
            for past in past.pods {
                for container in &past.containers {
                    for run in &container.attempts {
                        self.start(&past.pod, &container.name, run.attempt.into(), past.live);
                    }
                }
                self.pods.insert(object::uid(&past.pod).to_owned(), past.pod);
            }
            return;
        }
        let Ok(pods) = self.cluster.pods(self.job).await else { return };
        let there: BTreeSet<String> = pods.iter().map(|pod| object::uid(pod).to_owned()).collect();
        pods.into_iter().for_each(|pod| self.saw(pod));
        for (uid, watched) in &self.watched {
            if !there.contains(uid) {
                watched.send_replace(None);
            }
        }
    }

    /// Processes that have not ended.
    fn ending(&self) -> Ending {
        let exists = |uid: &String| !self.deleted.contains(uid);
        Ending::of(self.pods.iter().map(|(uid, pod)| (pod, exists(uid))), Timestamp::now())
    }

    /// No further reader is started; those that there are, and the pods of the attempt that decided.
    fn close(self) -> (JoinSet<()>, Vec<Value>) {
        (self.tasks, last_attempt(self.pods.into_values().collect()))
    }
}

/// The containers of a pod that have run or run now, with how often they were restarted.
fn started_containers(pod: &Value) -> Vec<(String, i64)> {
    statuses(pod)
        .filter(|status| status["state"].get("running").is_some() || status["state"].get("terminated").is_some())
        .map(|status| (object::text(status, "name").to_owned(), status["restartCount"].as_i64().unwrap_or(0)))
        .collect()
}

/// The pods of the JobSet that was made last, of its last restart.
fn last_attempt(pods: Vec<Value>) -> Vec<Value> {
    let of = |pod: &Value| {
        let label = |key| object::label(pod, key).unwrap_or_default().to_owned();
        (label(JOBSET_UID), label(RESTART_ATTEMPT))
    };
    let made = |pod: &Value| object::meta(pod, "creationTimestamp").to_owned();
    let last = pods.iter().max_by_key(|pod| made(pod)).map(of);
    pods.into_iter().filter(|pod| Some(of(pod)) == last).collect()
}

/// A watched single object's change.
enum Change {
    Is(Box<Value>),
    Gone,
}

trait AppliedOrGone: futures::Stream + Sized {
    /// Each state of the object, and its absence.
    fn applied_objects_or_gone(self) -> impl futures::Stream<Item = Result<Change, watcher::Error>>;
}

impl<S> AppliedOrGone for S
where
    S: futures::Stream<Item = Result<watcher::Event<kube::api::DynamicObject>, watcher::Error>>,
{
    fn applied_objects_or_gone(self) -> impl futures::Stream<Item = Result<Change, watcher::Error>> {
        let mut listed = false;
        self.filter_map(move |event| {
            use watcher::Event;
            let change = match event {
                Ok(Event::Init) => {
                    listed = false;
                    None
                }
                Ok(Event::InitApply(object)) => {
                    listed = true;
                    Some(Ok(Change::Is(Box::new(value(&object)))))
                }
                Ok(Event::InitDone) => (!listed).then_some(Ok(Change::Gone)),
                Ok(Event::Apply(object)) => Some(Ok(Change::Is(Box::new(value(&object))))),
                Ok(Event::Delete(_)) => Some(Ok(Change::Gone)),
                Err(error) => Some(Err(error)),
            };
            std::future::ready(change)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn silence_is_worth_a_line_unless_the_ranks_compute() {
        assert_eq!(silence("j", "", QUIET, Some(false)), None);
        let told = silence("j", " -n team", QUIET_IDLE, Some(true)).unwrap();
        assert!(told.contains("none uses a processor") && told.ends_with("trainyard explain j -n team"), "{told}");
        assert!(!silence("j", "", QUIET, None).unwrap().contains("processor"), "nobody has measured that");
        assert_eq!(silence("j", "", QUIET_IDLE, None), None);
    }

    #[test]
    fn the_last_attempt_decides() {
        let pod = |name: &str, jobset: &str, restart: &str, made: &str| {
            json!({"metadata": {"name": name, "creationTimestamp": made,
                "labels": {JOBSET_UID: jobset, RESTART_ATTEMPT: restart}}})
        };
        let pods =
            vec![pod("c", "2", "1", "3"), pod("a", "1", "0", "1"), pod("b", "2", "0", "2"), pod("d", "2", "1", "3")];
        let last = last_attempt(pods);
        let names: Vec<&str> = last.iter().map(|pod| object::meta(pod, "name")).collect();
        assert_eq!(names, ["c", "d"]);
    }
}
