//! The commands of `sky` that make, use and end clusters, with SkyPilot's words and exit codes.

use super::clusters::{Found, Sky};
use super::logs;
use super::submit::{self, Trouble, value_error};
use crate::error::CliError;
use ::sky::commands::Call;
use ::sky::console::{Prepared, Printed, World, check_name, plain, prepared};
use ::sky::resources::Autostop;
use api::object;
use api::sky::{ClusterPhase, Interval, Power, keys};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams};
use managed::jobs::{Job, RESOURCES, Status, marked, stages};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};

/// A job, or a cluster, that is not there.
const NOT_FOUND: u8 = 102;

/// A command that needs clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Launch,
    Exec,
    Status,
    Queue,
    Logs,
    Cancel,
    Stop,
    Start,
    Down,
    Autostop,
    CostReport,
}

impl Verb {
    pub fn of(call: &Call) -> Option<Self> {
        Some(match call.path.as_str() {
            "sky launch" if !call.is_set("dryrun") => Self::Launch,
            "sky exec" => Self::Exec,
            "sky status" => Self::Status,
            "sky queue" => Self::Queue,
            "sky logs" => Self::Logs,
            "sky cancel" => Self::Cancel,
            "sky stop" => Self::Stop,
            "sky start" => Self::Start,
            "sky down" => Self::Down,
            "sky autostop" => Self::Autostop,
            "sky cost-report" => Self::CostReport,
            _ => return None,
        })
    }
}

/// How a command ends early.
enum End {
    Trouble(Trouble),
    Printed(Printed),
}

impl<T: Into<Trouble>> From<T> for End {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

type Done = Result<u8, End>;

fn misused(call: &Call, message: impl Into<String>) -> End {
    End::Printed(Printed::default().misused(&call.path, message))
}

/// Carries out a command, and returns the exit code.
pub(super) fn carry_out(verb: Verb, call: &Call, world: &World<'_>) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return 1;
        }
    };
    let done = runtime.block_on(async {
        match verb {
            Verb::Launch => launch(call, world).await,
            Verb::Exec => exec(call, world).await,
            Verb::Status => status(call, world).await,
            Verb::Queue => queue(call).await,
            Verb::Logs => show_logs(call).await,
            Verb::Cancel => cancel(call).await,
            Verb::Stop | Verb::Start | Verb::Down | Verb::Autostop => several(verb, call).await,
            Verb::CostReport => cost_report(call).await,
        }
    });
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(End::Printed(printed)) => {
            say(printed.out.trim_end());
            eprint!("{}", printed.err);
            printed.code
        }
        Err(End::Trouble(Trouble::Said(message))) => {
            eprintln!("{message}");
            1
        }
        Err(End::Trouble(Trouble::Cli(error))) => {
            eprintln!("{}", error.render());
            1
        }
    }
}

/// A line on the standard output, unless it is empty.
fn say(line: impl AsRef<str>) {
    if !line.as_ref().is_empty() {
        logs::say(line.as_ref());
    }
}

fn missing(shown: &str) -> Trouble {
    Trouble::Said(format!("sky.exceptions.ClusterDoesNotExist: Cluster '{shown}' does not exist."))
}

/// Asks, unless told not to. Who cannot answer says no.
fn confirm(call: &Call, question: &str) -> Result<(), End> {
    if call.is_set("yes") {
        return Ok(());
    }
    print!("{question} [Y/n]: ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let yes = matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes");
    if matches!(read, Ok(1..)) && yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        println!();
    }
    Err(End::Printed(Printed::default().fail(1, "Aborted!")))
}

/// What a cluster waits for before it stops by itself, from SkyPilot's word for it.
fn wait_for(word: Option<&str>) -> &'static str {
    match word {
        Some("jobs") => "Jobs",
        Some("none") => "None",
        _ => "JobsAndSsh",
    }
}

/// When the command line or the task say that a cluster stops by itself.
fn autostop(call: &Call, task: Option<&::sky::Task>) -> Option<Value> {
    let minutes = call.value("idle_minutes_to_autostop").and_then(|text| text.parse::<i64>().ok());
    let down = call.is_set("down");
    if minutes.is_some() || down {
        // a negative number takes it back
        return Some(match minutes {
            Some(..=-1) => Value::Null,
            minutes => {
                json!({"idleMinutes": minutes.unwrap_or(0), "down": down, "waitFor": wait_for(call.value("wait_for"))})
            }
        });
    }
    match task?.resources.list.first()?.autostop.as_ref()? {
        Autostop::Off => Some(Value::Null),
        #[expect(clippy::cast_possible_truncation, reason = "minutes")]
        Autostop::After { minutes, down, wait_for } => Some(json!({
            "idleMinutes": minutes.as_number().unwrap_or(0.0) as i64, "down": down.is_truthy(), "waitFor": self::wait_for(wait_for.as_deref()),
        })),
    }
}

/// Sets when a cluster stops by itself; idleness counts from now on.
async fn set_autostop(sky: &Sky, name: &str, autostop: Value) -> Result<(), CliError> {
    let mut autostop = autostop;
    if autostop.is_object() {
        autostop["since"] = Timestamp::now().to_string().into();
    }
    sky.patch(name, json!({"spec": {"autostop": autostop}})).await
}

/// Options of `launch` that nothing here acts on yet: better refused than passed over.
const NOT_YET: [(&str, &str); 5] = [
    ("resize", "--resize"),
    ("clone_disk_from", "--clone-disk-from"),
    ("priority", "--priority"),
    ("git_url", "--git-url"),
    ("git_ref", "--git-ref"),
];

async fn launch(call: &Call, world: &World<'_>) -> Done {
    let given = |name: &str| call.value(name).is_some_and(|value| value != "false");
    if let Some((_, option)) = NOT_YET.iter().find(|(name, _)| given(name)) {
        return Err(Trouble::Said(format!("`sky launch {option}` does nothing yet: leave it out.")).into());
    }
    let Prepared { task, told } = prepared(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    let shown = call.value("cluster").unwrap_or(world.cluster).to_owned();
    say(format!("Running on cluster: {shown}"));
    check_name(&shown).map_err(|message| End::Trouble(Trouble::Said(message)))?;
    check_workdir(&task, world)?;
    let sky = Sky::connect().await?;
    let name = managed::names::object_name(&shown);
    let mut existing = sky.find(&shown).await?;
    if let Some(ending) = existing.as_ref().filter(|found| found.is_ending()) {
        say(format!("Cluster '{}' is being terminated; waiting for it to be gone.", ending.shown()));
        sky.until(sky.clusters(), &name, |object| {
            let ending = object.and_then(Found::of).is_some_and(|found| found.is_ending());
            (!ending).then_some(())
        })
        .await?;
        existing = sky.find(&shown).await?;
    }
    if existing.is_none() {
        let candidates = submit::candidates(&task)?;
        considered(&task, &candidates);
        confirm(call, &format!("Launching a new cluster '{shown}'. Proceed?"))?;
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let mut object = submit::cluster(&shown, &task, candidates, &command);
        if call.is_set("retry_until_up") {
            object["spec"]["retryUntilUp"] = true.into();
        }
        match sky.clusters().create(&PostParams::default(), &submit::dynamic(object)?).await {
            Ok(_) => say("⚙︎ Launching on Local."),
            // somebody else launches it: theirs is as good
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        existing = sky.find(&shown).await?;
    }
    let Some(found) = existing else { return Err(missing(&shown).into()) };
    let was_up = found.cluster.status.phase == ClusterPhase::Up && found.cluster.spec.power == Power::Running;
    submit::fits(&found, &task)?;
    if found.cluster.spec.power == Power::Stopped {
        confirm(call, &format!("Restarting the stopped cluster '{shown}'. Proceed?"))?;
        sky.patch(&name, json!({"spec": {"power": "Running"}})).await?;
    }
    mend(&sky, &found).await?;
    let generation = sky.find(&shown).await?.and_then(|found| found.cluster.metadata.generation).unwrap_or(0);
    let found = submit::up(&sky, &shown, generation).await?;
    say(format!("✓ Cluster launched: {shown}."));
    submit::send(&found, &task)?;
    let leave_out = call.is_set("no_setup") || (call.is_set("fast") && was_up);
    let with_setup = !leave_out;
    let autostop = autostop(call, Some(&task));
    if task.run.is_none() && (task.setup.is_none() || !with_setup) {
        if let Some(autostop) = autostop {
            set_autostop(&sky, &name, autostop).await?;
        }
        say("Run commands not specified or empty.");
        useful(&shown, None);
        return Ok(0);
    }
    let id = submit::submit(&sky, &found, &task, with_setup, Timestamp::now()).await?;
    if let Some(autostop) = autostop {
        set_autostop(&sky, &name, autostop).await?;
    }
    submitted(&sky, call, &found, id).await
}

/// What the machine may be: the one row there is to choose from.
fn considered(task: &::sky::Task, candidates: &[api::sky::Candidate]) {
    let plural = if task.num_nodes == 1 { "" } else { "s" };
    say(format!("Considered resources ({} node{plural}):", task.num_nodes));
    let number = |amount: f64| if amount > 0.0 { amount.to_string() } else { "-".to_owned() };
    let row = |(at, one): (usize, &api::sky::Candidate)| {
        let place =
            if one.region.is_empty() { one.provider.clone() } else { format!("{}/{}", one.provider, one.region) };
        let gpus = one.accelerators.as_ref().map_or("-".to_owned(), |gpus| format!("{}:{}", gpus.name, gpus.count));
        let chosen = if at == 0 { "   ✔" } else { "" };
        vec![
            place,
            "-".into(),
            number(one.cpus),
            number(one.memory),
            gpus,
            format!("{:.2}", one.hourly_price),
            chosen.into(),
        ]
    };
    let rows: Vec<Vec<String>> = candidates.iter().enumerate().map(row).collect();
    say(::sky::console::ruled(&["INFRA", "INSTANCE", "vCPUs", "Mem(GB)", "GPUS", "COST ($)", "CHOSEN"], &rows));
}

fn check_workdir(task: &::sky::Task, world: &World<'_>) -> Result<(), End> {
    use ::sky::check::PathKind;
    if let Some(path) = task.workdir.as_ref().and_then(|path| path.as_str())
        && (world.path)(path) != PathKind::Folder
    {
        let message = format!("Workdir must be a valid directory (or a symlink to a directory). {path} not found.");
        return Err(value_error(message).into());
    }
    for (_, from) in &task.mounts.files {
        if !::sky::mounts::is_cloud_url(from) && (world.path)(from) == PathKind::Missing {
            let message = format!(
                "File mount source '{from}' does not exist locally. To fix: check if it exists, and correct the path."
            );
            return Err(value_error(message).into());
        }
    }
    Ok(())
}

/// Lets machines that are lost be made anew.
async fn mend(sky: &Sky, found: &Found) -> Result<(), CliError> {
    let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, found.name()));
    for machine in sky.machines().list(&wanted).await? {
        if machine.data["status"]["phase"] == "Lost" {
            sky.machines()
                .delete(machine.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default())
                .await?;
        }
    }
    Ok(())
}

/// What is said of a job that was submitted; its output, where it is waited for.
async fn submitted(sky: &Sky, call: &Call, found: &Found, id: u32) -> Done {
    let shown = found.shown();
    say(format!("✓ Job submitted, ID: {id}"));
    if call.is_set("detach_run") || call.is_set("async_call") {
        useful(shown, Some(id));
        return Ok(0);
    }
    let code = match logs::follow(sky, found, id, None).await? {
        Some(status) => {
            finished(shown, id, status);
            status.exit_code()
        }
        None => {
            eprintln!("Job {id} has gone with cluster '{shown}'.");
            NOT_FOUND
        }
    };
    useful(shown, Some(id));
    Ok(code)
}

fn finished(shown: &str, id: u32, status: Status) {
    let mark = if status == Status::Succeeded { "✓" } else { "✗" };
    say(format!("{mark} Job finished (status: {}).", status.as_str()));
    if status == Status::FailedSetup {
        eprintln!("Job {id}'s setup failed with return code: see `sky logs {shown} {id}`.");
    }
}

fn useful(shown: &str, id: Option<u32>) {
    if let Some(id) = id {
        say(format!(
            "\n📋 Useful Commands\nJob ID: {id}\n├── To cancel the job:\t\tsky cancel {shown} {id}\n├── To stream job logs:\t\tsky logs {shown} {id}\n└── To view job queue:\t\tsky queue {shown}"
        ));
    }
    say(format!(
        "\nCluster name: {shown}\n├── To submit a job:\t\tsky exec {shown} yaml_file\n├── To stop the cluster:\tsky stop {shown}\n└── To teardown the cluster:\tsky down {shown}"
    ));
}

async fn exec(call: &Call, world: &World<'_>) -> Done {
    let Some(shown) = call.value("cluster_option").or(call.value("cluster")).map(str::to_owned) else {
        return Err(misused(call, "Missing argument '[CLUSTER]'."));
    };
    if call.values("entrypoint").is_empty() {
        return Err(misused(call, "Missing argument '[ENTRYPOINT]...'"));
    }
    let Prepared { task, told } = prepared(call, world).map_err(End::Printed)?;
    say(told.trim_end());
    say(format!("Submitting job to cluster: {shown}"));
    check_workdir(&task, world)?;
    let sky = Sky::connect().await?;
    let found = sky.find(&shown).await?.filter(|found| !found.is_ending()).ok_or_else(|| missing(&shown))?;
    if found.cluster.status.phase != ClusterPhase::Up {
        let phase = found.cluster.status.phase.as_str();
        let message = format!(
            "sky.exceptions.ClusterNotUpError: Executing command on cluster '{shown}': skipped (status: {phase}). `sky start {shown}` starts it."
        );
        return Err(Trouble::Said(message).into());
    }
    submit::fits(&found, &task)?;
    submit::send(&found, &task)?;
    if task.run.is_none() {
        say("Run commands not specified or empty.");
        return Ok(0);
    }
    let id = submit::submit(&sky, &found, &task, false, Timestamp::now()).await?;
    submitted(&sky, call, &found, id).await
}

/// `3 mins ago`, `-` where it is not known.
fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    let Some(at) = at else { return "-".to_owned() };
    let seconds = now.duration_since(at).as_secs().max(0);
    let unit = |count: i64, name: &str| format!("{count} {name}{} ago", if count == 1 { "" } else { "s" });
    match seconds {
        0..60 => unit(seconds, "sec"),
        60..3600 => unit(seconds / 60, "min"),
        3600..86_400 => unit(seconds / 3600, "hr"),
        _ => unit(seconds / 86_400, "day"),
    }
}

/// `1h 2m 3s`.
fn lasting(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m {rest}s"),
        (_, _) => format!("{hours}h {minutes}m {rest}s"),
    }
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// `5m`, `5m (down)`, `-`.
fn autostop_shown(found: &Found) -> String {
    match &found.cluster.spec.autostop {
        None => "-".to_owned(),
        Some(autostop) => {
            let down = if autostop.down { " (down)" } else { "" };
            format!("{}m{down}", autostop.idle_minutes)
        }
    }
}

fn infra(found: &Found) -> String {
    let index = usize::try_from(found.cluster.status.candidate).unwrap_or(0);
    let Some(one) = found.cluster.spec.candidates.get(index) else { return "-".to_owned() };
    if one.region.is_empty() { one.provider.clone() } else { format!("{} ({})", one.provider, one.region) }
}

/// Names with `*` and `?` in them, as a shell would read them.
fn is_like(name: &str, pattern: &str) -> bool {
    let text: String = pattern
        .chars()
        .map(|c| match c {
            '*' => ".*".to_owned(),
            '?' => ".".to_owned(),
            c => regex::escape(&c.to_string()),
        })
        .collect();
    regex::Regex::new(&format!("^{text}$")).is_ok_and(|pattern| pattern.is_match(name))
}

/// Those of the clusters that are named, and the names that none has.
fn named(all: Vec<Found>, names: &[String]) -> (Vec<Found>, Vec<String>) {
    let unknown = names.iter().filter(|name| !all.iter().any(|found| is_like(found.shown(), name))).cloned().collect();
    let known = all.into_iter().filter(|found| names.iter().any(|name| is_like(found.shown(), name))).collect();
    (known, unknown)
}

async fn status(call: &Call, world: &World<'_>) -> Done {
    let names = call.values("clusters").to_vec();
    if call.is_set("endpoints") && call.value("endpoint").is_some() {
        return Err(value_error("Cannot specify both --endpoint and --endpoints at the same time.").into());
    }
    let sky = Sky::connect().await?;
    let all = sky.all().await?;
    let (shown, unknown) = if names.is_empty() { (all, Vec::new()) } else { named(all, &names) };
    if call.is_set("ip") {
        if !unknown.is_empty() {
            say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
        }
        return match shown.as_slice() {
            [one] => match one.cluster.status.nodes.first() {
                Some(head) if one.cluster.status.phase == ClusterPhase::Up => {
                    say(&head.address);
                    Ok(0)
                }
                _ => Err(value_error(format!("Cluster {} is not UP: it has no address.", one.shown())).into()),
            },
            found => {
                let what = match (names.as_slice(), found) {
                    ([name], []) => format!("'{name}' cluster not found."),
                    (_, _) => format!("{} clusters are meant.", found.len()),
                };
                let usage =
                    "Please specify a single cluster to show its IP address.\nUsage: `sky status --ip <cluster>`";
                Err(value_error(format!("{what} {usage}")).into())
            }
        };
    }
    let now = Timestamp::now();
    if call.value("output_format") == Some("json") {
        let list: Vec<Value> = shown.iter().map(record).collect();
        say(serde_json::to_string_pretty(&list).unwrap_or_default());
        return Ok(0);
    }
    if !unknown.is_empty() {
        say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
    }
    let clouds: Vec<&str> = world.enabled.iter().map(|cloud| cloud.display()).collect();
    say(format!("Enabled Infra: {}", clouds.join(", ")).trim_end());
    println!();
    say("Clusters");
    if shown.is_empty() {
        match unknown.as_slice() {
            [] => say("No existing clusters."),
            [name] => say(format!("Cluster '{name}' not found.")),
            names => say(format!("Clusters {} not found.", names.join(", "))),
        }
    } else {
        let mut head = vec!["NAME", "INFRA", "RESOURCES", "STATUS", "AUTOSTOP", "LAUNCHED"];
        if call.is_set("all_users") {
            head.insert(1, "USER");
        }
        if call.is_set("verbose") {
            head.extend(["HEAD_IP", "COMMAND", "LAST_EVENT"]);
        }
        let row = |found: &Found| {
            let status = &found.cluster.status;
            let launched = time(&status.launched_at).or_else(|| time(object::meta(&found.object, "creationTimestamp")));
            let mut row = vec![
                found.shown().to_owned(),
                infra(found),
                object::annotation(&found.object, RESOURCES).unwrap_or("-").to_owned(),
                status.phase.as_str().to_owned(),
                autostop_shown(found),
                ago(launched, now),
            ];
            if call.is_set("all_users") {
                row.insert(1, found.cluster.spec.user.clone());
            }
            if call.is_set("verbose") {
                let ip = status.nodes.first().map_or("-".to_owned(), |head| head.address.clone());
                let event = if status.message.is_empty() { "-".to_owned() } else { status.message.clone() };
                row.extend([ip, found.cluster.spec.command.clone(), event]);
            }
            row
        };
        let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        say(plain(&head, &rows));
    }
    if names.is_empty() {
        if call.is_set("show_managed_jobs") {
            say("\nManaged jobs\nNo in-progress managed jobs. (See: sky jobs -h)");
        }
        if call.is_set("show_services") {
            say("\nServices\nNo live services.");
        }
    }
    Ok(0)
}

/// A cluster, as `status -o json` has it.
fn record(found: &Found) -> Value {
    let (spec, status) = (&found.cluster.spec, &found.cluster.status);
    let autostop = spec.autostop.as_ref();
    json!({
        "name": found.shown(), "status": status.phase.as_str(), "num_nodes": spec.nodes, "infra": infra(found),
        "resources_str": object::annotation(&found.object, RESOURCES), "user_name": spec.user,
        "launched_at": time(&status.launched_at).map(Timestamp::as_second),
        "autostop": autostop.map_or(-1, |autostop| autostop.idle_minutes),
        "to_down": autostop.is_some_and(|autostop| autostop.down),
        "head_ip": status.nodes.first().map(|head| &head.address),
        "node_ips": status.nodes.iter().map(|node| &node.address).collect::<Vec<_>>(),
        "hourly_cost": status.hourly_price, "last_event": status.message, "last_use": spec.command,
    })
}

fn job_row(job: &Job, now: Timestamp) -> Vec<String> {
    let until = job.ended.unwrap_or(now);
    let lasted = job.started.map(|started| lasting(until.duration_since(started).as_secs().max(0)));
    let name = if job.name.is_empty() { "-" } else { &job.name };
    vec![
        job.id.to_string(),
        name.to_owned(),
        job.user.clone(),
        ago(job.submitted, now),
        ago(job.started, now),
        lasted.unwrap_or_else(|| "-".to_owned()),
        job.resources.clone(),
        job.status.as_str().to_owned(),
        format!("~/sky_logs/{}", job.run_timestamp),
        "-".to_owned(),
    ]
}

async fn queue(call: &Call) -> Done {
    let names = call.values("clusters").to_vec();
    let json = call.value("output_format") == Some("json");
    let sky = Sky::connect().await?;
    let all = sky.all().await?;
    let (shown, unknown) = if names.is_empty() { (all, Vec::new()) } else { named(all, &names) };
    let now = Timestamp::now();
    let mut records = serde_json::Map::new();
    if !json {
        let told: Vec<&str> = if names.is_empty() {
            shown.iter().map(Found::shown).collect()
        } else {
            names.iter().map(String::as_str).collect()
        };
        say("Fetching and parsing job queue...");
        say(format!("Fetching job queue for: {}", told.join(", ")).trim_end());
    }
    for found in &shown {
        let mut jobs = sky.jobs(found.name()).await?;
        if call.is_set("skip_finished") {
            jobs.retain(|job| !job.status.has_ended());
        }
        jobs.reverse();
        if json {
            let record = |job: &Job| {
                json!({
                    "job_id": job.id, "job_name": job.name, "username": job.user, "status": job.status.as_str(),
                    "submitted_at": job.submitted.map(Timestamp::as_second), "start_at": job.started.map(Timestamp::as_second),
                    "end_at": job.ended.map(Timestamp::as_second), "resources": job.resources,
                    "log_path": format!("~/sky_logs/{}", job.run_timestamp),
                })
            };
            records.insert(found.shown().to_owned(), jobs.iter().map(record).collect());
            continue;
        }
        say(format!("\nJob queue of current user on cluster {}", found.shown()));
        let rows: Vec<Vec<String>> = jobs.iter().map(|job| job_row(job, now)).collect();
        let head =
            ["ID", "NAME", "USER", "SUBMITTED", "STARTED", "DURATION", "RESOURCES", "STATUS", "LOG", "GIT COMMIT"];
        say(plain(&head, &rows));
    }
    if json {
        say(serde_json::to_string_pretty(&records).unwrap_or_default());
    }
    for name in unknown {
        say(format!(
            "Failed to get the job queue for cluster '{name}'.\n  sky.exceptions.ClusterDoesNotExist: Cluster '{name}' does not exist."
        ));
    }
    Ok(0)
}

async fn show_logs(call: &Call) -> Done {
    let Some(shown) = call.value("cluster").map(str::to_owned) else {
        return Err(misused(call, "Missing argument '[CLUSTER]'."));
    };
    let wanted = call.values("job_ids").to_vec();
    let mut ids: Vec<u32> = Vec::new();
    for id in &wanted {
        let Ok(id) = id.parse() else {
            return Err(misused(call, format!("Invalid job ID {id}. Job ID must be integers.")));
        };
        ids.push(id);
    }
    if ids.len() > 1 && !call.is_set("sync_down") && !call.is_set("status") {
        return Err(misused(
            call,
            format!(
                "Cannot stream logs of multiple jobs (IDs: {}).\nPass -s/--sync-down to download the logs instead.",
                wanted.join(", ")
            ),
        ));
    }
    if call.is_set("sync_down") {
        return Err(Trouble::Said(
            "`sky logs --sync-down` does nothing yet: `sky queue` names the folders of the logs.".into(),
        )
        .into());
    }
    if call.is_set("provision") || call.value("hook_event").is_some() {
        return Err(Trouble::Said(
            "`sky logs --provision` and `--hook` do nothing yet: `sky status -v` shows what the provider said last."
                .into(),
        )
        .into());
    }
    let sky = Sky::connect().await?;
    let found = sky.find(&shown).await?.ok_or_else(|| missing(&shown))?;
    let jobs = sky.jobs(found.name()).await?;
    let chosen: Vec<u32> = if ids.is_empty() { jobs.last().map(|job| job.id).into_iter().collect() } else { ids };
    if chosen.is_empty() {
        eprintln!("No jobs found on cluster '{shown}'.");
        return Ok(NOT_FOUND);
    }
    let worker = call.value("worker").and_then(|worker| worker.parse().ok());
    let mut code = 0;
    for id in chosen {
        let Some(job) = jobs.iter().find(|job| job.id == id) else {
            eprintln!("Job {id} not found on cluster '{shown}': `sky queue {shown}` lists its jobs.");
            code = NOT_FOUND;
            continue;
        };
        if call.is_set("status") {
            say(format!("Job {id}: {}", job.status.as_str()));
            code = job.status.exit_code();
            continue;
        }
        let tail = call.value("tail").and_then(|tail| tail.parse::<usize>().ok()).filter(|tail| *tail > 0);
        if job.status.has_ended() || !call.is_set("follow") {
            logs::print(&sky, &found, job, worker, tail).await?;
            if job.status.has_ended() {
                finished(&shown, id, job.status);
            }
            code = job.status.exit_code();
            continue;
        }
        say(format!("Tailing logs of job {id} on cluster '{shown}'..."));
        code = match logs::follow(&sky, &found, id, worker).await? {
            Some(status) => {
                finished(&shown, id, status);
                status.exit_code()
            }
            None => NOT_FOUND,
        };
    }
    Ok(code)
}

async fn cancel(call: &Call) -> Done {
    let shown = call.value("cluster").unwrap_or_default().to_owned();
    let all = call.is_set("all") || call.is_set("all_users");
    let ids: Vec<u32> = call.values("jobs").iter().filter_map(|id| id.parse().ok()).collect();
    if ids.is_empty() && !all {
        say("No job IDs or --all/--all-users provided; cancelling the latest running job.");
    }
    let sky = Sky::connect().await?;
    let Some(found) = sky.find(&shown).await? else {
        return Err(misused(call, format!("Cluster '{shown}' does not exist.")));
    };
    let what = match (all, ids.as_slice()) {
        (true, _) => "all jobs".to_owned(),
        (_, []) => "the latest running job".to_owned(),
        (_, ids) => format!("jobs {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    confirm(call, &format!("Cancelling {what} on cluster '{shown}'. Proceed?"))?;
    let jobs = sky.jobs(found.name()).await?;
    for id in ids.iter().filter(|id| !jobs.iter().any(|job| job.id == **id)) {
        eprintln!("Job {id} not found on cluster '{shown}': `sky queue {shown}` lists its jobs.");
    }
    let open = jobs.iter().filter(|job| !job.status.has_ended());
    let chosen: Vec<u32> = match (all, ids.is_empty()) {
        (true, _) => open.map(|job| job.id).collect(),
        (false, false) => open.map(|job| job.id).filter(|id| ids.contains(id)).collect(),
        (false, true) => open.filter(|job| job.status != Status::Pending).map(|job| job.id).max().into_iter().collect(),
    };
    for id in &chosen {
        end_job(&sky, &found, *id).await?;
    }
    match chosen.as_slice() {
        [] => say("No jobs cancelled."),
        ids => {
            say(format!("Cancelled jobs with IDs: {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")))
        }
    }
    Ok(0)
}

/// Marks a job as cancelled; whoever changes it meanwhile is not undone.
async fn end_job(sky: &Sky, found: &Found, id: u32) -> Result<(), End> {
    loop {
        let Some(job) = logs::job(sky, found, id).await?.filter(|job| !job.status.has_ended()) else { return Ok(()) };
        let mut again = false;
        for stage in stages(&job) {
            let object = submit::dynamic(marked(stage, Status::Cancelled, Timestamp::now()))?;
            let name = object::meta(stage, "name");
            match sky.jobsets().replace(name, &PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => again = true,
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
        }
        if !again {
            return Ok(());
        }
    }
}

async fn several(verb: Verb, call: &Call) -> Done {
    let names = call.values("clusters").to_vec();
    let everything = call.is_set("all") || call.is_set("all_users");
    let word = call.path.trim_start_matches("sky ").to_owned();
    if verb == Verb::Autostop && call.is_set("cancel") && call.value("idle_minutes").is_some() {
        let minutes = call.value("idle_minutes").unwrap_or_default();
        return Err(misused(
            call,
            format!(
                "Only one of --idle-minutes and --cancel should be specified. cancel: True, idle_minutes: {minutes}"
            ),
        ));
    }
    if names.is_empty() && !everything {
        let message = match verb {
            Verb::Start => {
                "`sky start` requires either a cluster name or glob (see `sky status`), or the -a/--all flag."
                    .to_owned()
            }
            _ => format!(
                "`sky {word}` requires either a cluster name or glob (see `sky status`), or the -a/--all flag for all your clusters, or the -u/--all-users flag for all clusters in your team."
            ),
        };
        return Err(misused(call, message));
    }
    let sky = Sky::connect().await?;
    let all = sky.all().await?;
    let (found, unknown) = if everything { (all, Vec::new()) } else { named(all, &names) };
    if !unknown.is_empty() {
        say(format!("Cluster(s) not found: {}.", unknown.join(", ")));
    }
    let found: Vec<Found> = found.into_iter().filter(|one| verb == Verb::Down || !one.is_ending()).collect();
    if found.is_empty() {
        say("Cluster(s) not found (tip: see `sky status`).");
        return Ok(0);
    }
    let doing = match verb {
        Verb::Stop => "Stopping",
        Verb::Start => "Starting",
        Verb::Down => "Terminating",
        _ if call.is_set("cancel") => "Cancelling autostop on",
        _ => "Scheduling autostop on",
    };
    let list: Vec<&str> = found.iter().map(Found::shown).collect();
    let plural = if found.len() == 1 { "" } else { "s" };
    confirm(call, &format!("{doing} {} cluster{plural}: {}. Proceed?", found.len(), list.join(", ")))?;
    let mut code = 0;
    for one in &found {
        if let Err(trouble) = change(verb, call, &sky, one).await {
            match trouble {
                Trouble::Said(message) => eprintln!("{word} of cluster {} failed: {message}", one.shown()),
                Trouble::Cli(error) => eprintln!("{word} of cluster {} failed: {}", one.shown(), error.render()),
            }
            code = 1;
        }
    }
    Ok(code)
}

async fn change(verb: Verb, call: &Call, sky: &Sky, found: &Found) -> Result<(), Trouble> {
    let (shown, name) = (found.shown().to_owned(), found.name().to_owned());
    let detached = call.is_set("async_call");
    let generation = |found: Option<Found>| found.and_then(|found| found.cluster.metadata.generation).unwrap_or(0);
    match verb {
        Verb::Down => {
            if call.is_set("purge") {
                sky.patch(&name, json!({"metadata": {"annotations": {keys::PURGE: "true"}}})).await?;
            }
            let uid = object::uid(&found.object).to_owned();
            match sky.clusters().delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
            if !detached {
                sky.until(sky.clusters(), &name, |object| {
                    let same = object.is_some_and(|object| object.metadata.uid.as_deref() == Some(&*uid));
                    (!same).then_some(())
                })
                .await?;
            }
            say(format!("Terminating cluster {shown}...done."));
        }
        Verb::Stop => {
            sky.patch(&name, json!({"spec": {"power": "Stopped"}})).await?;
            if !detached {
                let generation = generation(sky.find(&shown).await?);
                let stopped = sky.until(sky.clusters(), &name, |object| {
                    let Some(found) = object.and_then(Found::of).filter(|found| !found.is_ending()) else {
                        return Some(false);
                    };
                    let status = &found.cluster.status;
                    let is_stopped = status.phase == ClusterPhase::Stopped && status.observed_generation >= generation;
                    (is_stopped || found.cluster.spec.power == Power::Running).then_some(is_stopped)
                });
                if !stopped.await? {
                    return Err(value_error(format!("cluster {shown} was started or terminated meanwhile")));
                }
            }
            say(format!("Stopping cluster {shown}...done.\n  To restart the cluster, run: sky start {shown}"));
        }
        Verb::Start => {
            if found.cluster.status.phase == ClusterPhase::Up && !call.is_set("force") {
                say(format!("Cluster {shown} already has status UP."));
                return Ok(());
            }
            let mut spec = json!({"power": "Running"});
            if call.is_set("retry_until_up") {
                spec["retryUntilUp"] = true.into();
            }
            sky.patch(&name, json!({"spec": spec})).await?;
            mend(sky, found).await?;
            let generation = generation(sky.find(&shown).await?);
            if !detached {
                submit::up(sky, &shown, generation).await?;
            }
            if let Some(autostop) = autostop(call, None) {
                set_autostop(sky, &name, autostop).await?;
            }
            say(format!("Cluster {shown} started."));
        }
        _ => {
            let minutes = call.value("idle_minutes").and_then(|minutes| minutes.parse::<i64>().ok()).unwrap_or(5);
            if call.is_set("cancel") || minutes < 0 {
                set_autostop(sky, &name, Value::Null).await?;
                say(format!("Cancelling autostop on cluster '{shown}'...done"));
                return Ok(());
            }
            if found.cluster.status.phase == ClusterPhase::Stopped {
                return Err(value_error(format!("cluster {shown} is STOPPED: `sky start {shown}` starts it")));
            }
            let wait = wait_for(call.value("wait_for"));
            let down = call.is_set("down");
            set_autostop(sky, &name, json!({"idleMinutes": minutes, "down": down, "waitFor": wait})).await?;
            let ends = if down { "autodowned" } else { "autostopped" };
            say(format!(
                "Scheduling autostop on cluster '{shown}'...done\n  The cluster will be {ends} after {minutes} minutes of idleness.\n  To cancel the autostop, run: sky autostop {shown} --cancel"
            ));
        }
    }
    Ok(())
}

async fn cost_report(call: &Call) -> Done {
    let sky = Sky::connect().await?;
    let now = Timestamp::now();
    let days = call.value("days").and_then(|days| days.parse::<i64>().ok()).unwrap_or(30);
    let since = api::time::earlier_secs(now, days.saturating_mul(86_400));
    struct Line {
        name: String,
        launched: Option<Timestamp>,
        seconds: i64,
        resources: String,
        status: String,
        hourly: f64,
    }
    let seconds = |usage: &[Interval]| {
        let lasted = |one: &Interval| {
            let until = time(&one.to).unwrap_or(now);
            time(&one.from).map_or(0, |from| until.duration_since(from).as_secs().max(0))
        };
        usage.iter().map(lasted).sum::<i64>()
    };
    let mut lines: Vec<Line> = Vec::new();
    for found in sky.all().await? {
        let status = &found.cluster.status;
        lines.push(Line {
            name: found.shown().to_owned(),
            launched: time(&status.launched_at).or_else(|| time(object::meta(&found.object, "creationTimestamp"))),
            seconds: seconds(&status.usage),
            resources: object::annotation(&found.object, RESOURCES).unwrap_or("-").to_owned(),
            status: status.phase.as_str().to_owned(),
            hourly: status.hourly_price,
        });
    }
    let gone = ListParams::default().labels(&format!("{}=true", keys::HISTORY));
    for kept in sky.config_maps().list(&gone).await? {
        let text = |name: &str| kept.data["data"][name].as_str().unwrap_or_default().to_owned();
        if time(&text("endedAt")).is_some_and(|ended| ended < since) {
            continue;
        }
        let usage: Vec<Interval> = serde_json::from_str(&text("usage")).unwrap_or_default();
        lines.push(Line {
            name: text("name"),
            launched: time(&text("launchedAt")),
            seconds: seconds(&usage),
            resources: text("resources"),
            status: "TERMINATED".to_owned(),
            hourly: text("hourlyPrice").parse().unwrap_or(0.0),
        });
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.launched));
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let cost = |line: &Line| line.hourly * line.seconds as f64 / 3600.0;
    if call.value("output_format") == Some("json") {
        let record = |line: &Line| {
            json!({
                "name": line.name, "launched_at": line.launched.map(Timestamp::as_second), "duration": line.seconds,
                "resources": line.resources, "status": line.status, "hourly_cost": line.hourly, "total_cost": cost(line),
            })
        };
        say(serde_json::to_string_pretty(&lines.iter().map(record).collect::<Vec<_>>()).unwrap_or_default());
        return Ok(0);
    }
    say("Clusters");
    if lines.is_empty() {
        say("No existing clusters.");
        return Ok(0);
    }
    let row = |line: &Line| {
        vec![
            line.name.clone(),
            ago(line.launched, now),
            lasting(line.seconds),
            line.resources.clone(),
            line.status.clone(),
            format!("$ {:.2}", line.hourly),
            format!("$ {:.2}", cost(line)),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    say(plain(&["NAME", "LAUNCHED", "DURATION", "RESOURCES", "STATUS", "COST/hr", "COST (est.)"], &rows));
    Ok(0)
}
