//! `sky jobs queue`, and the section about managed jobs in `sky status`.

use super::super::{Done, End, misused, say};
use super::rows::{is_at, rows};
use super::{Job, all, files, some};
use crate::sky::clusters::{self, Sky, user};
use crate::sky::submit::value_error;
use ::sky::commands::Call;
use ::sky::console::{JobColumns, JobRow, Submitted, going_on, jobs_table};
use ::sky::infra::Infra;
use api::foreign::visible_json;
use api::sky::JobFile;
use client::ClientError;
use client::tally::{JobTally, LATEST_MAX, TallyQuery, tally};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use managed::resources::of_cluster;
use std::collections::BTreeMap;

/// Jobs in progress that `sky status` shows.
const STATUS_MAX: usize = 5;
/// The value of `-s` without a status.
const SKIP_FINISHED: &str = "__skip_finished__";

pub(in super::super) async fn queue(call: &Call) -> Done {
    let now = Timestamp::now();
    let wanted = Wanted::read(call, now)?;
    let sky = clusters::connect().await?;
    let Counted { jobs, files, all: of_all, going_on } = counted(&sky, &wanted, now).await?;
    let is_json = call.value("output_format") == Some("json");
    let clusters = if is_json || call.is_set("verbose") { clusters_shown(&sky).await? } else { Clusters::new() };
    let rows: Vec<JobRow> = jobs
        .iter()
        .map(|job| rows(job, files.get(&job.job.spec.submission), &clusters, now))
        .flat_map(|rows| wanted.shown(rows))
        .collect();
    if is_json {
        clusters::say(&visible_json(&serde_json::to_string_pretty(&rows).unwrap_or_default()));
        return Ok(0);
    }
    say("Fetching managed job statuses...");
    say(if wanted.skip_finished { "Managed jobs (showing in-progress jobs only)" } else { "Managed jobs" });
    let columns = JobColumns { all: call.is_set("verbose"), users: call.is_set("all_users"), max_jobs: wanted.limit };
    say(jobs_table(&rows, &going_on, columns, now.as_second()));
    if jobs.len() < of_all {
        say(format!(
            "Only showing the latest {} managed jobs (use --limit to show more managed jobs or --all to show all \
             managed jobs)",
            jobs.len()
        ));
    }
    Ok(0)
}

/// The jobs that a table shows, and what it says of all that it could.
#[derive(Default)]
struct Counted {
    /// The newest first.
    jobs: Vec<Job>,
    files: Files,
    all: usize,
    going_on: BTreeMap<String, usize>,
}

/// The latest of the wanted jobs, and the count of all of them: the server's, or our own where the server counts none.
async fn counted(sky: &Sky, wanted: &Wanted, now: Timestamp) -> Result<Counted, ClientError> {
    let tally = match wanted.tally() {
        Some(query) => tally(&sky.client, &sky.namespace, &query).await?,
        None => None,
    };
    let Some(JobTally { jobs: all, tasks: going_on, latest }) = tally else { return listed(sky, wanted, now).await };
    let jobs = some(sky, &latest).await?;
    let files = files(sky, &jobs).await?;
    Ok(Counted { jobs, files, all, going_on })
}

/// Counts a list of all jobs.
async fn listed(sky: &Sky, wanted: &Wanted, now: Timestamp) -> Result<Counted, ClientError> {
    let mut jobs = all(sky).await?;
    jobs.retain(|job| wanted.is_meant(job));
    let of_job = |job: &Job| wanted.shown(rows(job, None, &Clusters::new(), now));
    jobs.retain(|job| !of_job(job).is_empty());
    let shown: Vec<JobRow> = jobs.iter().flat_map(of_job).collect();
    let (all, going_on) = (jobs.len(), going_on(&shown));
    jobs.truncate(wanted.limit.unwrap_or(usize::MAX));
    let files = files(sky, &jobs).await?;
    Ok(Counted { jobs, files, all, going_on })
}

/// What submissions say, by their names.
type Files = BTreeMap<String, JobFile>;
/// What clusters are, by what users call them.
type Clusters = BTreeMap<String, String>;

async fn clusters_shown(sky: &Sky) -> Result<Clusters, ClientError> {
    let all = sky.all().await?;
    Ok(all.iter().map(|found| (found.shown().to_owned(), of_cluster(&found.cluster))).collect())
}

/// Which jobs and tasks the options of `sky jobs queue` name.
struct Wanted {
    all_users: bool,
    skip_finished: bool,
    statuses: Vec<String>,
    submitted: Submitted,
    infra: Option<Infra>,
    limit: Option<usize>,
}

impl Wanted {
    /// Those that go on.
    fn going_on(all_users: bool) -> Self {
        let (statuses, submitted) = (Vec::new(), Submitted::default());
        Self { all_users, skip_finished: true, statuses, submitted, infra: None, limit: Some(STATUS_MAX) }
    }

    fn read(call: &Call, now: Timestamp) -> Result<Self, End> {
        let (bare, statuses): (Vec<String>, Vec<String>) =
            call.values("statuses").iter().cloned().partition(|status| status == SKIP_FINISHED);
        if !bare.is_empty() {
            eprintln!(
                "Warning: SkyPilot will drop `-s` without a status. Use --skip-finished, or name one: -s RUNNING."
            );
        }
        let limit = call.value("limit").unwrap_or_default();
        let limit =
            limit.parse().map_err(|_| misused(call, format!("Invalid value for --limit: {limit} is below 0.")))?;
        let infra = call.value("infra").map(Infra::read).transpose().map_err(|error| value_error(error.message))?;
        let submitted = Submitted::read(call, now.as_second(), &TimeZone::system());
        Ok(Self {
            all_users: call.is_set("all_users"),
            skip_finished: call.is_set("skip_finished") || !bare.is_empty(),
            statuses,
            submitted: submitted.map_err(|error| misused(call, error.to_string()))?,
            infra,
            limit: (!call.is_set("all")).then_some(limit),
        })
    }

    /// The query for the server's count. `None` if the server cannot count by these options.
    fn tally(&self) -> Option<TallyQuery> {
        let limit = self.limit.filter(|_| self.infra.is_none())?;
        (limit <= LATEST_MAX).then(|| TallyQuery {
            user: (!self.all_users).then(user),
            unfinished: self.skip_finished,
            states: self.statuses.clone(),
            after: self.submitted.after,
            before: self.submitted.before,
            limit,
        })
    }

    fn is_meant(&self, job: &Job) -> bool {
        (self.all_users || job.is_mine())
            && !(self.skip_finished && job.has_ended())
            && job.submitted.is_none_or(|time| self.submitted.contains(time.as_second()))
    }

    /// Those of a job's rows that are shown.
    fn shown(&self, mut rows: Vec<JobRow>) -> Vec<JobRow> {
        if let Some(infra) = &self.infra
            && !rows.iter().any(|row| is_at(row, infra))
        {
            return Vec::new();
        }
        rows.retain(|row| self.statuses.is_empty() || self.statuses.contains(&row.status));
        rows
    }
}

/// Managed jobs in `sky status`.
pub(in super::super) struct InProgress {
    /// The section about them.
    pub section: String,
    /// The hint at the end; empty where none is in progress.
    pub hint: String,
}

/// What `sky status` says of managed jobs that are in progress. A control plane that has no managed jobs has none in progress.
pub(in super::super) async fn progress(call: &Call, sky: &Sky, now: Timestamp) -> Result<InProgress, ClientError> {
    let all_users = call.is_set("all_users");
    let Counted { jobs, files, all, going_on } = match counted(sky, &Wanted::going_on(all_users), now).await {
        Err(ClientError::NotServed) => Counted::default(),
        counted => counted?,
    };
    if all == 0 {
        let section = "No in-progress managed jobs. (See: sky jobs -h)".to_owned();
        return Ok(InProgress { section, hint: String::new() });
    }
    let of = |job: &Job| rows(job, files.get(&job.job.spec.submission), &Clusters::new(), now);
    let rows: Vec<JobRow> = jobs.iter().flat_map(of).collect();
    let columns = JobColumns { all: false, users: all_users, max_jobs: Some(STATUS_MAX) };
    let count = match all {
        1 => "1 managed job is in progress.".to_owned(),
        count if count > STATUS_MAX => {
            format!("{count} managed jobs are in progress ({STATUS_MAX} latest ones shown).")
        }
        count => format!("{count} managed jobs are in progress."),
    };
    let hint = format!("* {count} To see all managed jobs: sky jobs queue");
    Ok(InProgress { section: jobs_table(&rows, &going_on, columns, now.as_second()), hint })
}
