//! Logs of all ranks in one stream, live, until the job ends.

use crate::args::{Format, LogsArgs};
use crate::connect::{Cluster, Kind, pods_of, value};
use crate::error::CliError;
use crate::exit;
use crate::mpirun::{self, Pieces};
use crate::output::is_fancy;
use crate::progress;
use crate::view::{self, Phase, node_rank, processes_per_node, step};
use api::object;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Lines in flight between the readers and the printer; a slow terminal slows the readers, nothing else.
const LINES_MAX: usize = 1024;
/// How long after the job's end the last log lines may take to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// Between attempts to read a log that broke off.
const RETRY: Duration = Duration::from_millis(300);

/// What to show, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Show {
    pub rank: Option<i64>,
    pub step: Option<String>,
    pub tail: Option<i64>,
    pub no_prefix: bool,
    /// One JSON object a line.
    pub json: bool,
    /// Keep a status line on stderr.
    pub progress: bool,
}

/// Whose log a line is from.
#[derive(Clone, Debug)]
struct Source {
    pod: String,
    step: String,
    node: Option<i64>,
    processes: i64,
    /// Part of an MPI job, where mpirun prints what all ranks say.
    mpi: bool,
}

struct Line {
    source: Source,
    text: String,
}

impl Source {
    fn of(pod: &Value) -> Self {
        let step = step(pod);
        let mpi = is_mpi(pod);
        let node = if mpi || step.ends_with("-initializer") { None } else { node_rank(pod) };
        Self { pod: object::meta(pod, "name").to_owned(), step, node, processes: processes_per_node(pod).max(1), mpi }
    }

    /// A line of the log, put together where mpirun tore it.
    fn whole(&self, pieces: &mut Pieces, text: &str) -> String {
        if self.mpi { pieces.join(text) } else { text.to_owned() }
    }

    /// The rank that printed a line, and the line without the mark that torchrun's tee puts before it
    /// (`[default1]:`, the local rank), or mpirun (`[1,3]<stdout>:`, rank 3 of its first application).
    fn rank_of<'a>(&self, text: &'a str) -> (Option<i64>, &'a str) {
        if self.mpi {
            return mpirun::marked(text).map_or((None, text), |(rank, line)| (Some(rank), line));
        }
        let Some(node) = self.node else { return (None, text) };
        let marked = text.strip_prefix('[').and_then(|rest| {
            let (mark, line) = rest.split_once("]:")?;
            let digits = mark.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            if digits.len() == mark.len() {
                return None;
            }
            Some((digits.parse::<i64>().ok()?, line))
        });
        match marked {
            Some((local, line)) if local < self.processes => (Some(node * self.processes + local), line),
            Some(_) | None if self.processes == 1 => (Some(node), text),
            Some(_) | None => (None, text),
        }
    }
}

impl Show {
    fn wants_pod(&self, source: &Source) -> bool {
        let step = self.step.as_ref().is_none_or(|step| *step == source.step);
        let rank = self.rank.is_none_or(|rank| source.mpi || source.node == Some(rank / source.processes));
        step && rank
    }

    /// Errors: `Usage` where none of the job's pods has the rank or step that was asked for. Without pods nobody knows.
    fn check(&self, job: &str, pods: &[Value]) -> Result<(), CliError> {
        let sources: Vec<Source> = pods.iter().map(Source::of).collect();
        if sources.is_empty() || sources.iter().any(|source| self.wants_pod(source)) {
            return Ok(());
        }
        if let Some(rank) = self.rank {
            let ends = sources.iter().filter_map(|source| Some((source.node? + 1) * source.processes));
            let last = ends.max().unwrap_or(0) - 1;
            return Err(CliError::Usage(match last {
                ..0 => format!("TrainJob \"{job}\" has no ranks"),
                0 => format!("TrainJob \"{job}\" has no rank {rank}: its only rank is 0"),
                1.. => format!("TrainJob \"{job}\" has no rank {rank}: its ranks are 0 to {last}"),
            }));
        }
        let steps: BTreeSet<&str> = sources.iter().map(|source| source.step.as_str()).collect();
        let steps: Vec<&str> = steps.into_iter().collect();
        let step = self.step.as_deref().unwrap_or_default();
        Err(CliError::Usage(format!("TrainJob \"{job}\" has no step {step:?}; its steps: {}", steps.join(", "))))
    }

    /// The line as it is printed; `None` where another rank was asked for.
    fn render(&self, line: &Line, colour: bool) -> Option<String> {
        let (rank, text) = line.source.rank_of(&line.text);
        if self.rank.is_some() && rank != self.rank {
            return None;
        }
        if self.json {
            let shown = json!({"step": line.source.step, "rank": rank, "pod": line.source.pod, "line": text});
            return Some(shown.to_string());
        }
        if self.no_prefix {
            return Some(text.to_owned());
        }
        let mark = match rank {
            Some(rank) => format!("[rank {rank}]"),
            None => format!("[{}]", line.source.step),
        };
        match rank {
            Some(rank) if colour => Some(format!("\x1b[3{}m{mark}\x1b[0m {text}", 1 + rank % 6)),
            Some(_) | None => Some(format!("{mark} {text}")),
        }
    }
}

/// Whether the pod has the keys with which MPI's launcher reaches its nodes.
fn is_mpi(pod: &Value) -> bool {
    pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == "mpi-ssh-auth")
}

/// `trainyard logs`.
pub(crate) async fn logs(cluster: &Cluster, args: &LogsArgs) -> Result<u8, CliError> {
    let job = cluster.job(&args.job).await?;
    let show = Show {
        rank: args.rank,
        step: args.step.clone(),
        tail: args.tail,
        no_prefix: args.no_prefix,
        json: matches!(args.output.output, Format::Json),
        progress: args.follow,
    };
    if args.follow {
        let ended = follow(cluster, &args.job, &show).await?;
        return Ok(ended.exit_code());
    }
    let mut pods = cluster.pods(&args.job).await?;
    pods.sort_by_key(|pod| (node_rank(pod).is_some(), node_rank(pod), step(pod)));
    show.check(&args.job, &pods)?;
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let (mut printed, mut failed) = (0, None);
    for pod in &pods {
        let source = Source::of(pod);
        if !show.wants_pod(&source) {
            continue;
        }
        for container in containers_with_logs(pod) {
            let parameters = LogParams { container: Some(container), tail_lines: show.tail, ..LogParams::default() };
            let text = match api.logs(&source.pod, &parameters).await {
                // Its job ended meanwhile and took it along.
                Err(kube::Error::Api(status)) if is_gone(&status, &source.pod) => continue,
                // one node that does not answer should not hide the others' logs
                Err(kube::Error::Api(status)) if status.code != 403 => {
                    let node = object::text(&pod["spec"], "nodeName");
                    eprintln!("no log of pod {} from node {node}: {}", source.pod, status.message.trim());
                    failed = Some(exit::FAILURE);
                    continue;
                }
                answer => answer?,
            };
            let mut pieces = Pieces::default();
            let mut lines: Vec<String> = text.lines().map(|text| source.whole(&mut pieces, text)).collect();
            lines.extend(pieces.rest());
            for text in lines {
                let line = Line { source: source.clone(), text };
                if let Some(line) = show.render(&line, is_fancy(&std::io::stdout())) {
                    printed += 1;
                    println!("{line}");
                }
            }
        }
    }
    if printed == 0 {
        let reasons: BTreeSet<String> = pods.iter().filter_map(why_silent).collect();
        let state = Phase::of(&job).as_str().to_lowercase();
        let pods = match pods.len() {
            0 => "no pods".to_owned(),
            1 => "1 pod".to_owned(),
            n => format!("{n} pods"),
        };
        eprintln!("no log lines: TrainJob \"{}\" is {state}, with {pods}", args.job);
        reasons.iter().for_each(|reason| eprintln!("  {reason}"));
    }
    Ok(failed.unwrap_or(exit::OK))
}

/// Whether a log is not there because its pod is not. That a pod's node is gone is said in the same words, with its name.
fn is_gone(status: &kube::core::Status, pod: &str) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|about| about.name.is_empty() || about.name == pod)
}

/// Why a pod has no log.
fn why_silent(pod: &Value) -> Option<String> {
    let unbound = || {
        let name = object::meta(pod, "name");
        object::text(&pod["spec"], "nodeName")
            .is_empty()
            .then(|| format!("pod {name} is on no node, and logs are read from nodes"))
    };
    view::why_pending(pod).or_else(unbound)
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
}

/// The containers of a pod that have run, also those that wait to be started again.
fn containers_with_logs(pod: &Value) -> Vec<String> {
    let has_run = |status: &&Value| {
        let ended = |state: &str| status[state].get("terminated").is_some();
        status["state"].get("running").is_some() || ended("state") || ended("lastState")
    };
    statuses(pod).filter(has_run).map(|status| object::text(status, "name").to_owned()).collect()
}

/// The containers of a pod that have run or run now, with how often they were restarted.
fn started_containers(pod: &Value) -> Vec<(String, i64)> {
    statuses(pod)
        .filter(|status| status["state"].get("running").is_some() || status["state"].get("terminated").is_some())
        .map(|status| (object::text(status, "name").to_owned(), status["restartCount"].as_i64().unwrap_or(0)))
        .collect()
}

/// How a followed job ended.
pub(crate) struct Ended {
    /// `None`: it was deleted meanwhile.
    pub job: Option<Value>,
    pub pods: Vec<Value>,
}

impl Ended {
    pub(crate) fn exit_code(&self) -> u8 {
        match self.job.as_ref().map(Phase::of) {
            Some(Phase::Complete) => exit::OK,
            Some(Phase::Failed | Phase::Pending | Phase::Running | Phase::Suspended) => view::exit_code(&self.pods),
            None => exit::FAILURE,
        }
    }
}

/// Prints the job's log lines as they come until it has ended and all of them are printed.
///
/// Expected flow: watches the job and its pods; each container that starts gets a reader, which reads on where it left
/// off if the control plane goes away meanwhile.
///
/// Errors: only the first requests' (no permission, no server); later ones are retried, as the control plane may be
/// restarting while the job goes on.
pub(crate) async fn follow(cluster: &Cluster, job: &str, show: &Show) -> Result<Ended, CliError> {
    let mut screen = Screen::new(show);
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    let mut readers = JoinSet::new();
    let mut followed = BTreeSet::new();
    let mut pods: BTreeMap<String, Value> = BTreeMap::new();
    let mut state = None;

    let by_name = watcher::Config::default().fields(&format!("metadata.name={job}"));
    let mut job_changes =
        watcher(cluster.api(Kind::TrainJob), by_name).default_backoff().applied_objects_or_gone().boxed();
    let by_label = watcher::Config::default().labels(&pods_of(job));
    let mut pod_changes = watcher(cluster.api(Kind::Pod), by_label).default_backoff().touched_objects().boxed();
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);

    let mut gone = false;
    loop {
        tokio::select! {
            biased;
            Some(line) = lines.recv() => screen.print(&line),
            change = pod_changes.next() => {
                let pod = match change {
                    Some(Ok(pod)) => value(&pod),
                    Some(Err(error)) => match refused(error) {
                        Some(error) => return Err(error),
                        None => continue,
                    },
                    None => continue,
                };
                start_readers(&api, &pod, show, &mut followed, &mut readers, &sender);
                pods.insert(object::uid(&pod).to_owned(), pod);
                screen.note_pending(pods.values());
            }
            change = job_changes.next() => match change {
                Some(Ok(Change::Is(object))) => state = Some(*object),
                Some(Ok(Change::Gone)) => gone = true,
                Some(Err(error)) => if let Some(error) = refused(error) {
                    return Err(error);
                },
                None => {}
            },
        }
        if let Some(job) = &state {
            screen.status(job, pods.values());
        }
        if gone || state.as_ref().is_some_and(|job| Phase::of(job).is_finished()) {
            break;
        }
    }

    // what started and ended between two looks still has a log
    for pod in cluster.pods(job).await.unwrap_or_default() {
        start_readers(&api, &pod, show, &mut followed, &mut readers, &sender);
        pods.insert(object::uid(&pod).to_owned(), pod);
    }
    drop(sender);
    let drain = async {
        while let Some(line) = lines.recv().await {
            screen.print(&line);
        }
    };
    if tokio::time::timeout(DRAIN_MAX, drain).await.is_err() {
        eprintln!("some log lines did not arrive; see them with: trainyard logs {job}{}", cluster.flags);
    }
    readers.shutdown().await;
    screen.clear();
    Ok(Ended { job: if gone { None } else { state }, pods: pods.into_values().collect() })
}

/// The error of a watch that trying again does not help: its objects may not be read.
pub(crate) fn refused(error: watcher::Error) -> Option<CliError> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
            Some(kube::Error::Api(status).into())
        }
        _ => None,
    }
}

fn start_readers(
    api: &Api<Pod>,
    pod: &Value,
    show: &Show,
    followed: &mut BTreeSet<(String, String, i64)>,
    readers: &mut JoinSet<()>,
    sender: &mpsc::Sender<Line>,
) {
    let source = Source::of(pod);
    if !show.wants_pod(&source) {
        return;
    }
    for (container, restarts) in started_containers(pod) {
        if followed.insert((object::uid(pod).to_owned(), container.clone(), restarts)) {
            readers.spawn(read(api.clone(), source.clone(), container, show.tail, sender.clone()));
        }
    }
}

/// Reads one container's log to its end. A log that breaks off is read on from the last line's time; lines may share a
/// time, so it is also counted how many of that time were seen.
async fn read(api: Api<Pod>, source: Source, container: String, tail: Option<i64>, sender: mpsc::Sender<Line>) {
    let mut seen = Seen::default();
    let mut pieces = Pieces::default();
    let mut told = false;
    loop {
        let parameters = LogParams {
            container: Some(container.clone()),
            follow: true,
            timestamps: true,
            tail_lines: if seen.stamp.is_empty() { tail } else { None },
            since_time: seen.stamp.parse().ok(),
            ..LogParams::default()
        };
        match api.log_stream(&source.pod, &parameters).await {
            Ok(stream) => {
                let mut lines = stream.lines();
                let mut resumed = seen.resume();
                loop {
                    match lines.try_next().await {
                        Ok(Some(line)) => {
                            let (stamp, text) = line.split_once(' ').unwrap_or((&line, ""));
                            if resumed.was_seen(stamp) {
                                continue;
                            }
                            seen.note(stamp);
                            let text = source.whole(&mut pieces, text);
                            if sender.send(Line { source: source.clone(), text }).await.is_err() {
                                return;
                            }
                        }
                        Ok(None) => {
                            for text in pieces.rest() {
                                _ = sender.send(Line { source: source.clone(), text }).await;
                            }
                            return;
                        }
                        Err(_) => break,
                    }
                }
            }
            // the pod is gone, and its log with it
            Err(kube::Error::Api(status)) if is_gone(&status, &source.pod) => return,
            // what the server says of the node, or of our rights, is worth knowing; that it restarts is not
            Err(kube::Error::Api(status)) => {
                if !std::mem::replace(&mut told, true) {
                    eprintln!("no log of pod {} yet: {}", source.pod, status.message.trim());
                }
                if status.code == 403 {
                    return;
                }
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The time of the last line that was read, as text (finer than what `sinceTime` can say), and how many lines had it.
#[derive(Clone, Debug, Default)]
struct Seen {
    stamp: String,
    lines: usize,
}

impl Seen {
    fn note(&mut self, stamp: &str) {
        if self.stamp == stamp {
            self.lines += 1;
        } else {
            *self = Self { stamp: stamp.to_owned(), lines: 1 };
        }
    }

    /// What the next stream will bring once more.
    fn resume(&self) -> Self {
        self.clone()
    }

    /// Whether a line of a resumed stream is one that was read before.
    fn was_seen(&mut self, stamp: &str) -> bool {
        if stamp < self.stamp.as_str() {
            return true;
        }
        let again = stamp == self.stamp && self.lines > 0;
        if again {
            self.lines -= 1;
        }
        again
    }
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

/// Log lines on stdout, where the job stands on stderr.
struct Screen<'a> {
    show: &'a Show,
    colour: bool,
    /// Redraw the status in place; otherwise it is printed when it changes.
    live: bool,
    last_status: String,
    shown_reasons: BTreeSet<String>,
}

impl<'a> Screen<'a> {
    fn new(show: &'a Show) -> Self {
        Self {
            show,
            colour: is_fancy(&std::io::stdout()),
            live: is_fancy(&std::io::stderr()) && is_fancy(&std::io::stdout()),
            last_status: String::new(),
            shown_reasons: BTreeSet::new(),
        }
    }

    fn print(&mut self, line: &Line) {
        let Some(text) = self.show.render(line, self.colour) else { return };
        self.clear();
        // a closed pipe (`| head`) ends us: nobody reads on
        if writeln!(std::io::stdout().lock(), "{text}").is_err() {
            std::process::exit(i32::from(exit::OK));
        }
        self.redraw();
    }

    fn status<'p>(&mut self, job: &Value, pods: impl Iterator<Item = &'p Value>) {
        if !self.show.progress {
            return;
        }
        let (mut running, mut all) = (0, 0);
        for pod in pods.filter(|pod| !object::is_terminating(pod)) {
            all += 1;
            running += usize::from(pod["status"]["phase"] == "Running");
        }
        let status = progress::line(job, running, all);
        if status != self.last_status {
            self.clear();
            if !self.live && !Phase::of(job).is_finished() {
                eprintln!("{}: {status}", object::meta(job, "name"));
            }
            self.last_status = status;
            self.redraw();
        }
    }

    /// Says once why a pod cannot start, and each time that a container is tried again.
    fn note_pending<'p>(&mut self, pods: impl Iterator<Item = &'p Value>) {
        for pod in pods.filter(|pod| !object::is_terminating(pod)) {
            let waits = view::why_pending(pod).map(|reason| format!("waiting: {reason}"));
            let again = view::restarts(pod).into_iter().map(|text| format!("{}: {text}", step(pod)));
            for note in waits.into_iter().chain(again) {
                if self.shown_reasons.insert(note.clone()) {
                    self.clear();
                    eprintln!("{note}");
                    self.redraw();
                }
            }
        }
    }

    fn clear(&self) {
        if self.live && !self.last_status.is_empty() {
            eprint!("\r\x1b[K");
        }
    }

    fn redraw(&self) {
        if self.live && self.show.progress && !self.last_status.is_empty() {
            eprint!("\x1b[2m{}\x1b[0m", self.last_status);
            let _ = std::io::stderr().flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(processes: i64) -> Source {
        Source { pod: "p".to_owned(), step: "node-1".to_owned(), node: Some(1), processes, mpi: false }
    }

    #[test]
    fn ranks_come_from_torchruns_marks() {
        assert_eq!(source(2).rank_of("[default1]:hello"), (Some(3), "hello"));
        assert_eq!(source(2).rank_of("hello"), (None, "hello"));
        assert_eq!(source(1).rank_of("hello"), (Some(1), "hello"));
        assert_eq!(source(2).rank_of("[1]: a list"), (None, "[1]: a list"), "only torchrun's own form counts");
        assert_eq!(source(2).rank_of("[default7]:x"), (None, "[default7]:x"), "no such local rank");
    }

    #[test]
    fn a_lost_node_is_told_from_a_pod_that_is_gone() {
        let answer = |code: u16, details: Value| {
            let status = json!({"code": code, "message": "m", "reason": "NotFound", "details": details});
            is_gone(&serde_json::from_value(status).expect("a Status"), "p")
        };
        assert!(answer(404, json!({"name": "p", "kind": "pods"})));
        assert!(answer(404, json!({})));
        assert!(!answer(404, json!({"name": "node-1", "kind": "pods"})));
        assert!(!answer(500, json!({})));
    }

    #[test]
    fn a_container_that_waits_for_its_restart_has_a_log() {
        let status = |state: Value, last: Value| json!({"name": "node", "state": state, "lastState": last});
        let cases = [
            (status(json!({"running": {}}), json!({})), true),
            (status(json!({"waiting": {}}), json!({"terminated": {}})), true),
            (status(json!({"waiting": {}}), json!({})), false),
        ];
        for (status, expected) in cases {
            let pod = json!({"status": {"containerStatuses": [status]}});
            assert_eq!(!containers_with_logs(&pod).is_empty(), expected, "{pod}");
        }
    }

    #[test]
    fn ranks_of_mpi_come_from_mpiruns_marks() {
        let pod = json!({"metadata": {"name": "p", "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "launcher",
            "batch.kubernetes.io/job-completion-index": "0"}}, "spec": {"volumes": [{"name": "mpi-ssh-auth"}]}});
        let launcher = Source::of(&pod);
        assert_eq!(launcher.rank_of("[1,3]<stdout>:hello"), (Some(3), "hello"));
        assert_eq!(launcher.rank_of("mpirun: no"), (None, "mpirun: no"), "the launcher is no rank");
        assert!(Show { rank: Some(3), ..Show::default() }.wants_pod(&launcher));
    }

    #[test]
    fn a_resumed_log_repeats_and_loses_nothing() {
        let log = ["1 a", "2 b", "2 c", "2 d", "3 e"];
        for broken_at in 0..=log.len() {
            let mut seen = Seen::default();
            let mut read: Vec<&str> = Vec::new();
            for stream in [&log[..broken_at], &log[..]] {
                let mut resumed = seen.resume();
                for line in stream {
                    let stamp = line.split(' ').next().unwrap();
                    if !resumed.was_seen(stamp) {
                        seen.note(stamp);
                        read.push(line);
                    }
                }
            }
            assert_eq!(read, log, "broken off after {broken_at} lines");
        }
    }

    #[test]
    fn a_rank_or_step_that_is_not_there_is_named() {
        let pod = |index: &str| {
            json!({"metadata": {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": index}},
                "spec": {"containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]}})
        };
        let pods = [pod("0"), pod("1")];
        let told = |show: Show| show.check("j", &pods).map_err(|error| error.to_string());
        assert_eq!(told(Show { rank: Some(3), ..Show::default() }), Ok(()));
        let error = told(Show { rank: Some(4), ..Show::default() });
        assert_eq!(error, Err("TrainJob \"j\" has no rank 4: its ranks are 0 to 3".to_owned()));
        let error = told(Show { step: Some("node-2".to_owned()), ..Show::default() });
        assert_eq!(error, Err("TrainJob \"j\" has no step \"node-2\"; its steps: node-0, node-1".to_owned()));
        assert!(Show { rank: Some(4), ..Show::default() }.check("j", &[]).is_ok(), "pods may come yet");
    }

    #[test]
    fn a_rank_shows_its_own_lines_only() {
        let show = Show { rank: Some(3), ..Show::default() };
        let line = |text: &str| Line { source: source(2), text: text.to_owned() };
        assert_eq!(show.render(&line("[default1]:a"), false).as_deref(), Some("[rank 3] a"));
        assert_eq!(show.render(&line("[default0]:a"), false), None);
        assert!(show.wants_pod(&source(2)));
        assert!(!Show { rank: Some(1), ..Show::default() }.wants_pod(&source(2)));
    }
}
