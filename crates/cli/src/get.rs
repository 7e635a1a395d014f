//! `get`: a table of jobs of all kinds, or one job.

use crate::top::draw;
use crate::{exit, output};
use api::job_kind::JobKind;
use api::object::{self, Key};
use api::trainer::names::LABEL_JOBSET_NAME;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use diagnose::Signs;
use facts::{Subject, ThisMachine};
use grammar::{Format, GetArgs, SortBy};
use jiff::Timestamp;
use kube::api::ListParams;
use objects::take::{self, Take};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;
use view::job::job_of;
use view::mpijob::{message, workers};
use view::row::{self, RowState};
use view::state::{Attempts, RestartCounts, age, container_restarts};

/// Between two looks of `--watch`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The states that `--state` accepts.
const STATES: [&str; 7] = ["pending", "running", "suspended", "complete", "failed", "restarting", "crashloop"];

/// Lists jobs, or shows one.
pub(crate) async fn get(cluster: &Cluster, args: &GetArgs) -> Result<u8, ClientError> {
    if let Some(state) = args.state.as_deref().map(str::to_ascii_lowercase)
        && !STATES.contains(&&*state)
    {
        let near = api::near::did_you_mean(&state, STATES);
        return Err(ClientError::Usage(
            ErrorCode::FlagRefused,
            format!("--state {state:?} is none of {}{near}", STATES.join(", ")),
        ));
    }
    match args.output.output {
        Format::Table | Format::Wide if args.watch => watch(cluster, args).await,
        Format::Table | Format::Wide => {
            let lines = table(cluster, args).await?;
            match lines.is_empty() {
                true => eprintln!("{}", nothing(cluster, args)),
                false => lines.iter().for_each(|line| println!("{line}")),
            }
            if let Some(name) = args.job.as_deref().filter(|name| !is_all(Some(name)))
                && let Ok(job) = cluster.job(name).await
                && let Some(why) = facts::why(cluster, &job, &ThisMachine).await
            {
                eprintln!("{}", api::foreign::visible(&why));
            }
            Ok(exit::OK)
        }
        _ if args.watch => Err(ClientError::Usage(
            ErrorCode::FlagRefused,
            "--watch prints a table; for JSON use: kubectl get trainjobs -w -o json".to_owned(),
        )),
        format => objects(cluster, args, format).await,
    }
}

/// The objects themselves, or their names.
async fn objects(cluster: &Cluster, args: &GetArgs, format: Format) -> Result<u8, ClientError> {
    if let Some(name) = args.job.as_deref().filter(|name| !is_all(Some(name))) {
        let job = Subject::find(cluster, name).await?;
        match format {
            Format::Name => println!("{}", job.full_name()),
            format => output::print(&job.object, format),
        }
        return Ok(exit::OK);
    }
    let now = Timestamp::now();
    let beside = Beside::read(cluster, None, args.all_namespaces, false, now).await;
    let mut jobs: Vec<(JobKind, Value)> = Vec::new();
    for kind in kinds(args).iter().copied() {
        let api = if args.all_namespaces { cluster.api_all(kind.into()) } else { cluster.api(kind.into()) };
        let parameters = ListParams::default().labels(args.selector.as_deref().unwrap_or_default());
        match api.list(&parameters).await.map_err(ClientError::from) {
            Err(ClientError::NotServed | ClientError::Forbidden { .. }) if kind != JobKind::Train => {}
            listed => jobs.extend(listed?.items.iter().map(|object| (kind, value(object)))),
        }
    }
    jobs.retain(|(kind, job)| is_meant(args, &beside.state(*kind, job, now)));
    match args.sort {
        SortBy::Age => jobs.sort_by_key(|(_, job)| Reverse(object::meta(job, "creationTimestamp").to_owned())),
        SortBy::Name => jobs.sort_by_key(|(_, job)| object::meta(job, "name").to_owned()),
        SortBy::State => jobs.sort_by_key(|(kind, job)| beside.state(*kind, job, now)),
    }
    match format {
        Format::Name => {
            jobs.iter().for_each(|(kind, job)| println!("{}", kind.full_name(object::meta(job, "name"))));
        }
        format => {
            let items: Vec<Value> = jobs.into_iter().map(|(_, job)| job).collect();
            output::print(&json!({"apiVersion": "v1", "kind": "List", "items": items}), format);
        }
    }
    Ok(exit::OK)
}

/// Whether a job in this state is asked for.
fn is_meant(args: &GetArgs, state: &str) -> bool {
    let asked = args.state.as_deref().map(str::to_ascii_lowercase);
    asked.is_none_or(|asked| {
        let state = state.to_ascii_lowercase();
        state.starts_with(&asked) || (asked == "complete" && state.starts_with("succeeded"))
    })
}

/// Whether all jobs are asked for, or all of a kind.
fn is_all(job: Option<&str>) -> bool {
    job.is_none_or(crate::resolved::is_kind)
}

/// The kinds that are listed. Searches have a list of their own, `trials`, and are shown by their trials.
fn kinds(args: &GetArgs) -> &'static [JobKind] {
    match args.job.as_deref() {
        Some("trainjob" | "trainjobs") => &[JobKind::Train],
        _ => &[JobKind::Train, JobKind::Mpi],
    }
}

/// What is said where no job is listed.
fn nothing(cluster: &Cluster, args: &GetArgs) -> String {
    let place = match args.all_namespaces {
        true => "in any namespace".to_owned(),
        false => format!("in namespace {}", cluster.namespace),
    };
    match args.state.is_some() || args.selector.is_some() {
        true => format!("no job {place} matches the flags; list all jobs: trainyard get{}", cluster.flags),
        false => format!("no jobs {place}; start one with: trainyard run SCRIPT"),
    }
}

/// Prints the table again whenever it changes: over itself in a terminal, else the rows that changed.
async fn watch(cluster: &Cluster, args: &GetArgs) -> Result<u8, ClientError> {
    let is_terminal = std::io::stdout().is_terminal();
    let (mut drawn, mut before) = (0, Vec::new());
    loop {
        let lines = table(cluster, args).await?;
        match is_terminal {
            true if lines.is_empty() => draw(&[nothing(cluster, args)], &mut drawn),
            true => draw(&lines, &mut drawn),
            false => lines.iter().filter(|line| !before.contains(*line)).for_each(|line| println!("{line}")),
        }
        before = lines;
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(exit::OK),
        }
    }
}

/// A job's row, and what rows are sorted by.
struct Row {
    created: String,
    name: String,
    state: String,
    cells: Vec<String>,
}

/// The lines of the table; none where there is no job.
async fn table(cluster: &Cluster, args: &GetArgs) -> Result<Vec<String>, ClientError> {
    let now = Timestamp::now();
    let (everywhere, is_wide) = (args.all_namespaces, args.output.output == Format::Wide);
    let one = args.job.as_deref().filter(|name| !is_all(Some(name)));
    let beside = Beside::read(cluster, one, everywhere, is_wide, now).await;
    let mut rows: Vec<Row> = Vec::new();
    match one {
        Some(name) => rows.push(beside.train(cluster, &cluster.job(name).await?, args, now)),
        None => {
            let selected = || ListParams::default().labels(args.selector.as_deref().unwrap_or_default());
            let add = |job: Value| rows.push(beside.train(cluster, &job, args, now));
            cluster.each(Kind::TrainJob, everywhere, selected(), take::lean, add).await?;
            if kinds(args).contains(&JobKind::Mpi) {
                let add = |job: Value| rows.push(beside.mpi(&job, args, now));
                match cluster.each(Kind::MpiJob, everywhere, selected(), take::lean, add).await {
                    // a cluster need not have them, nor the user a right to them
                    Err(ClientError::NotServed | ClientError::Forbidden { .. }) => {}
                    done => done?,
                }
            }
        }
    }
    rows.retain(|row| is_meant(args, &row.state));
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    match args.sort {
        SortBy::Age => rows.sort_by(|a, b| (&b.created, &a.name).cmp(&(&a.created, &b.name))),
        SortBy::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        SortBy::State => rows.sort_by(|a, b| (&a.state, &a.name).cmp(&(&b.state, &b.name))),
    }
    let mut header = vec!["NAME", "STATE", "NODES", "PROGRESS", "RESTARTS", "AGE", "RUNTIME"];
    if everywhere {
        header.insert(0, "NAMESPACE");
    }
    if is_wide {
        header.extend(["ATTEMPT", "MESSAGE"]);
    }
    Ok(output::table_lines(&header, rows.into_iter().map(|row| row.cells).collect()))
}

/// What tables read beside the jobs, by job: what restarts is not said by a job itself.
struct Beside {
    jobsets: BTreeMap<Key, Value>,
    pods: BTreeMap<Key, Pods>,
}

/// The pods of a job.
#[derive(Default)]
struct Pods {
    signs: Signs,
    /// How often their containers have restarted.
    restarts: i64,
    /// Pods that have failed.
    failed: i64,
    /// The pods themselves, for a wide table alone.
    whole: Vec<Value>,
}

impl Beside {
    /// Of one TrainJob, or of all jobs. `is_wide`: with the pods themselves, and also with those that have no node.
    async fn read(cluster: &Cluster, one: Option<&str>, everywhere: bool, is_wide: bool, now: Timestamp) -> Self {
        let mut jobsets = BTreeMap::new();
        let mut of_jobsets = ListParams::default();
        if let Some(name) = one {
            of_jobsets = of_jobsets.fields(&format!("metadata.name={name}"));
        }
        let add_jobset = |jobset: Value| _ = jobsets.insert(Key::of(&jobset), jobset);
        let of_pods = |label: &str| {
            let labels = one.map_or(label.to_owned(), |name| format!("{label}={name}"));
            let parameters = ListParams::default().labels(&labels);
            // a pod without a node has nothing to tell, but why it has none
            if is_wide { parameters } else { parameters.fields("spec.nodeName!=") }
        };
        let take = if is_wide { take::lean } else { but_spec };
        let read_pods = async |label: &str| {
            let mut pods: BTreeMap<Key, Pods> = BTreeMap::new();
            let add = |pod: Value| {
                let Some(job) = job_of(&pod) else { return };
                let its = pods.entry(Key::new(object::meta(&pod, "namespace"), &job)).or_default();
                its.signs.see(&pod, now);
                its.restarts += container_restarts(&pod);
                its.failed += i64::from(pod["status"]["phase"] == "Failed");
                if is_wide {
                    its.whole.push(pod);
                }
            };
            // users need no right to JobSets and pods to see their jobs
            let _unreadable = cluster.each(Kind::Pod, everywhere, of_pods(label), take, add).await;
            pods
        };
        let (_unreadable, mut pods, of_mpi) = futures::join!(
            cluster.each(Kind::JobSet, everywhere, of_jobsets, jobset_sizes, add_jobset),
            read_pods(LABEL_JOBSET_NAME),
            async {
                match one {
                    Some(_) => BTreeMap::new(),
                    None => read_pods(api::mpi::names::LABEL_JOB_NAME).await,
                }
            }
        );
        pods.extend(of_mpi);
        Self { jobsets, pods }
    }

    fn of(&self, kind: JobKind, job: &Value) -> (&Value, Option<&Pods>) {
        let key = Key::new(object::meta(job, "namespace"), &kind.short_name(object::meta(job, "name")));
        (self.jobsets.get(&key).unwrap_or(&Value::Null), self.pods.get(&key))
    }

    fn state(&self, kind: JobKind, job: &Value, now: Timestamp) -> String {
        let (jobset, pods) = self.of(kind, job);
        let none = Signs::default();
        let signs = pods.map_or(&none, |pods| &pods.signs);
        RowState::of(kind, job).word(row::restarts_of_jobset(jobset), signs, now)
    }

    fn train(&self, cluster: &Cluster, job: &Value, args: &GetArgs, now: Timestamp) -> Row {
        let (jobset, pods) = self.of(JobKind::Train, job);
        let none = Pods::default();
        let pods = pods.unwrap_or(&none);
        let state = self.state(JobKind::Train, job, now);
        let asked = job["spec"]["trainer"]["numNodes"].as_i64();
        let nodes = row::pods_of_jobset(jobset).or(asked);
        let counts = RestartCounts::of(jobset, &[]);
        let attempts = Attempts::of(job);
        let restarts = counts.jobset + pods.restarts + (attempts.now - 1);
        let mut cells = vec![
            object::meta(job, "name").to_owned(),
            state.clone(),
            nodes.map_or("-".to_owned(), |n| n.to_string()),
            view::progress::percentage(job).map_or("-".to_owned(), |p| format!("{p}%")),
            restarts.to_string(),
            age(job, now),
            object::text(&job["spec"]["runtimeRef"], "name").to_owned(),
        ];
        if args.output.output == Format::Wide {
            cells.push(format!("{}/{}", attempts.now, attempts.most));
            cells.push(facts::said(cluster, job, jobset, &pods.whole, now));
        }
        Row::new(JobKind::Train, job, state, cells, args)
    }

    fn mpi(&self, job: &Value, args: &GetArgs, now: Timestamp) -> Row {
        let (_, pods) = self.of(JobKind::Mpi, job);
        let state = self.state(JobKind::Mpi, job, now);
        let implementation = job["spec"]["mpiImplementation"].as_str().unwrap_or("OpenMPI");
        let mut cells = vec![
            JobKind::Mpi.short_name(object::meta(job, "name")),
            state.clone(),
            workers(job).1.to_string(),
            "-".to_owned(),
            pods.map_or(0, |pods| pods.restarts + pods.failed).to_string(),
            age(job, now),
            implementation.to_owned(),
        ];
        if args.output.output == Format::Wide {
            cells.extend(["-".to_owned(), message(job).to_owned()]);
        }
        Row::new(JobKind::Mpi, job, state, cells, args)
    }
}

impl Row {
    fn new(kind: JobKind, job: &Value, state: String, mut cells: Vec<String>, args: &GetArgs) -> Self {
        if args.all_namespaces {
            cells.insert(0, object::meta(job, "namespace").to_owned());
        }
        let name = kind.short_name(object::meta(job, "name"));
        Self { created: object::meta(job, "creationTimestamp").to_owned(), name, state, cells }
    }
}

/// Of a JobSet its restarts and the number of its pods.
fn jobset_sizes(member: &str) -> Take {
    fn spec(member: &str) -> Take {
        if member == "replicatedJobs" { Take::Some(replicated) } else { Take::Nothing }
    }
    fn replicated(member: &str) -> Take {
        match member {
            "name" | "replicas" => Take::All,
            "template" => Take::Some(template),
            _ => Take::Nothing,
        }
    }
    fn template(member: &str) -> Take {
        if member == "spec" { Take::Some(job) } else { Take::Nothing }
    }
    fn job(member: &str) -> Take {
        if member == "parallelism" { Take::All } else { Take::Nothing }
    }
    if member == "spec" { Take::Some(spec) } else { take::lean(member) }
}

fn but_spec(member: &str) -> Take {
    if member == "spec" { Take::Nothing } else { take::lean(member) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_a_jobset_is_enough_to_count_its_pods() {
        let job = json!({"name": "node", "replicas": 2, "template": {"spec": {"parallelism": 3}}});
        let jobset = json!({"spec": {"replicatedJobs": [job]}});
        assert_eq!(row::pods_of_jobset(&take::copied(&jobset, jobset_sizes)), Some(6));
    }

    #[test]
    fn a_state_is_chosen_by_its_first_letters_in_any_case() {
        let args = |state: &str| GetArgs { state: Some(state.to_owned()), ..GetArgs::default() };
        assert!(is_meant(&args("Restarting"), "Restarting (3)") && is_meant(&args("complete"), "Succeeded"));
        assert!(!is_meant(&args("running"), "Pending") && is_meant(&GetArgs::default(), "Anything"));
    }
}
