//! `jobs launch`: a job that the control plane owns.

use super::super::fleet;
use super::super::launch::{check_secrets, check_workdir, place, places};
use super::super::{Around, Done, End, confirm, misused, refused, say};
use super::group;
use crate::sky::clusters::{self, Sky};
use crate::sky::submit::{self, Trouble, value_error};
use crate::sky::words::without_values;
use ::clusters::SubmitError;
use ::sky::commands::Call;
use ::sky::console::{Circumstances, PreparedJob, Source, check_name, prepared_job};
use ::sky::file::Kind;
use ::sky::task::Task;
use ::sky::value::Value as Field;
use api::sky::{Candidate, JobFile, JobTask, ManagedJobSpec, ReplicaState};
use jiff::Timestamp;
use managed::fleet::FleetKind;
use managed::fleet::submitted::name_of;
use managed::job::submitted;
use serde_json::Value;

/// Jobs that one command submits at most.
const JOBS_MAX: u32 = 100_000;

impl From<SubmitError> for Trouble {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Client(error) => Self::Client(error),
            other => Self::Said(format!("RuntimeError: {other}")),
        }
    }
}

pub(in crate::sky::verbs) async fn launch(call: &Call, world: &Circumstances<'_>, around: Around) -> Done {
    let count = count(call)?;
    let PreparedJob { name, kind, mut tasks, told, source } = prepared_job(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    check_name(&name).map_err(|error| End::Trouble(Trouble::Said(error.to_string())))?;
    let group = match kind {
        Kind::Serial => None,
        Kind::Parallel(group) => Some(group),
    };
    if group.is_some() {
        group::check(&name, &tasks, call.value("pool"), count)?;
    }
    for task in &tasks {
        refused::task(task)?;
        submitted::check(task)?;
        check_secrets(task)?;
        check_workdir(task, world)?;
    }
    let settings = around.given.map(|given| Field::Map(given).to_json()).unwrap_or_default();
    let catalog = around.catalog.unwrap_or_default();
    // of the tasks as they were written: each attempt looks for machines anew
    let mut asked = tasks.clone();
    let sky = clusters::connect().await?;
    let what = match count {
        _ if group.is_some() => "job group",
        1 => "managed job",
        _ => "managed jobs",
    };
    // jobs in a pool make no machines
    let mut all_places = Vec::new();
    let pool = match call.value("pool") {
        Some(pool) => {
            check_for_pool(&asked)?;
            show_pool(&sky, pool, count).await?;
            name_of(pool)
        }
        None => {
            if count > 1 {
                say(format!("Submitting {count} managed jobs. Each job will be launched on its own cluster."));
            }
            let search = Search { sky: &sky, source: source.as_ref(), world, around: (&settings, &catalog) };
            all_places = match &group {
                None => show_places(&search, &name, &mut tasks).await?,
                Some(group) => group::place_together(&search, &name, group, &mut asked).await?,
            };
            String::new()
        }
    };
    confirm(call, &format!("Launching {} {what} '{name}'. Proceed?", if count > 1 { "the" } else { "a" }))?;
    let mut tasks = priced(sent(&sky, &name, &asked, world).await?, &all_places);
    for task in &mut tasks {
        task.auxiliary = group.as_ref().and_then(|group| group.auxiliary(&task.name));
    }
    let file = JobFile {
        submitted: Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S-%6f").to_string(),
        tasks,
        settings,
        catalog,
        count,
    };
    let spec = ManagedJobSpec {
        name,
        priority: submitted::priority(&asked),
        pool,
        group: group.is_some(),
        user: submit::user(),
        command: without_values(std::env::args()),
        ..ManagedJobSpec::default()
    };
    let ids = sky.submit(&file, &spec, count).await.map_err(Trouble::from)?;
    print(call, &ids);
    Ok(0)
}

/// What is needed to look for machines for a task.
pub(super) struct Search<'a> {
    pub sky: &'a Sky,
    pub source: Option<&'a Source>,
    pub world: &'a Circumstances<'a>,
    /// Settings that go before those of the control plane, and its price lists.
    pub around: (&'a Value, &'a str),
}

/// Shows where the machines of each task may be, and returns that.
async fn show_places(search: &Search<'_>, name: &str, tasks: &mut [Task]) -> Result<Vec<Vec<Candidate>>, End> {
    say(format!("Managed job '{name}' will be launched on (estimated):"));
    let (are_several, mut all) = (tasks.len() > 1, Vec::new());
    for task in tasks {
        if let Some(task_name) = task.name.as_ref().filter(|_| are_several) {
            say(format!("\nTask '{task_name}':"));
        }
        of_machines(task);
        let candidates = places(search.sky, task, search.source, search.world, search.around).await?;
        say(format!("First choice: {}", place(candidates.first())));
        all.push(candidates);
    }
    Ok(all)
}

/// Removes what the job acts on, and not its machines.
pub(super) fn of_machines(task: &mut Task) {
    for one in &mut task.resources.list {
        (one.job_recovery, one.priority, one.priority_class) = (None, None, None);
    }
}

/// Shows the pool whose workers the jobs run on.
async fn show_pool(sky: &Sky, pool: &str, count: u32) -> Result<(), End> {
    let fleet = fleet::found(sky, FleetKind::Pool, pool).await?;
    if fleet.is_ending() {
        return Err(value_error(format!("Pool '{pool}' is being terminated; it takes no more jobs.")).into());
    }
    let workers = &fleet.status.replicas;
    let there = workers.iter().filter(|one| !one.state.has_ended()).count();
    let ready = workers.iter().filter(|one| one.state == ReplicaState::Ready).count();
    let plural = if count == 1 { "" } else { "s" };
    say(format!("Submitting to pool '{pool}' with {count} job{plural}. {ready} of its {there} workers are ready."));
    Ok(())
}

/// Refuses tasks without `run`, and warns that `setup` has no effect.
fn check_for_pool(tasks: &[Task]) -> Result<(), Trouble> {
    for task in tasks {
        if task.run.is_none() {
            return Err(value_error(
                "A job in a pool needs `run`. The workers run only the `setup` of the pool's file.",
            ));
        }
        if task.setup.is_some() {
            eprintln!(
                "`setup` has no effect on a job in a pool: workers run the `setup` of the pool's file when they start."
            );
        }
    }
    Ok(())
}

/// The tasks with their files and variables at the control plane, as they are now.
async fn sent(sky: &Sky, name: &str, tasks: &[Task], world: &Circumstances<'_>) -> Result<Vec<JobTask>, Trouble> {
    let mut all = Vec::new();
    for task in tasks {
        let files = submit::send(sky, task).await?;
        let secret = submit::keep_variables(sky, name, task).await?;
        all.push(submitted::task(task, world.catalogue, files, secret));
    }
    Ok(all)
}

/// The tasks with the prices of their places. A task without places has no price.
fn priced(tasks: Vec<JobTask>, places: &[Vec<Candidate>]) -> Vec<JobTask> {
    let places = places.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
    tasks.into_iter().zip(places).map(|(task, places)| submitted::priced(task, places)).collect()
}

/// How many jobs are asked for.
fn count(call: &Call) -> Result<u32, End> {
    let Some(text) = call.value("num_jobs") else { return Ok(1) };
    match text.parse::<u32>() {
        Ok(count) if (1..=JOBS_MAX).contains(&count) => Ok(count),
        _ => {
            Err(misused(call, format!("Invalid value for '--num-jobs': {text} is not in the range 1<=x<={JOBS_MAX}.")))
        }
    }
}

fn print(call: &Call, ids: &[u32]) {
    let Some(first) = ids.first() else { return };
    if call.value("output_format") == Some("json") {
        say(Value::from(ids.to_vec()).to_string());
        return;
    }
    match ids {
        [id] => say(format!("Managed Job ID: {id}")),
        many => say(format!("Managed Job IDs: {}", ranges(many))),
    }
    say(format!(
        "\n📋 Useful Commands\n├── To stream job logs:\t\tsky jobs logs {first}\n├── To see what it waits for:\tsky jobs explain {first}\n├── To cancel the job:\t\tsky jobs cancel {first}\n└── To view all managed jobs:\tsky jobs queue"
    ));
}

/// `1-3, 7`.
fn ranges(ids: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => spans.push((*id, *id)),
        }
    }
    let shown = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    spans.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_in_a_row_are_one_span() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
        assert_eq!(ranges(&[4]), "4");
    }
}
