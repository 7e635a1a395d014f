//! `trainyard run`: a script becomes a TrainJob, is followed, and its exit code is returned.

use crate::args::{Format, Global, RunArgs};
use crate::connect::{Cluster, Kind, value};
use crate::error::CliError;
use crate::exit;
use crate::follow::{Show, follow};
use crate::jobs::suspended;
use crate::near::{did_you_mean, near};
use crate::output;
use crate::ship::{Bundle, MOUNT};
use crate::usage;
use crate::view::{Phase, condition, final_message};
use api::object;
use api::trainer::API_VERSION;
use api::trainer::annotations::{FAILURE_POLICY, RETRIES, RETRY_BACKOFF};
use api::trainer::names::{LABEL_ANCESTOR, LABEL_FRAMEWORK, NODE};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What of the caller's environment a job on this machine gets, so that it finds the same Python and packages.
const INHERITED: [&str; 6] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME"];

/// What a folder may be started by, when it is named instead of a script.
const ENTRY_POINTS: [&str; 3] = ["__main__.py", "main.py", "train.py"];

/// Name of the pods' volume with the code that was sent.
const VOLUME: &str = "trainyard-code";
/// Who patches the runtime of a job, to mount that volume.
const PATCH_MANAGER: &str = "trainyard.dev/run";

/// Wait before the first retry of `--retries`; doubled before each further one.
const FIRST_RETRY_AFTER: &str = "1s";

/// How long a generated name's stem may be: the API server adds five characters, and pods' host names must fit in 63.
const STEM_MAX: usize = 30;

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let code = Code::find(args)?;
    if let Some(note) = usage::meant_for_us(args) {
        eprintln!("{note}");
    }
    let variables = variables(&args.env)?;
    let cluster = Cluster::started(global).await?;
    run_on(&cluster, args, &code, variables).await.map_err(|error| error.at(&cluster))
}

async fn run_on(
    cluster: &Cluster,
    args: &RunArgs,
    code: &Code,
    variables: Vec<(String, String)>,
) -> Result<u8, CliError> {
    let (runtime, kind) = runtime(cluster, &args.runtime).await?;
    let created = if cluster.local {
        let job = manifest(args, code, &Pods::Here, &variables, &runtime, kind);
        create(cluster, job).await?
    } else {
        ship(cluster, args, code, &variables, &runtime, kind).await?
    };
    let name = object::meta(&created, "name").to_owned();
    if args.detach {
        match args.output.output {
            Format::Json | Format::Yaml => output::print(&created, args.output.output),
            Format::Table | Format::Wide | Format::Name => println!("{name}"),
        }
        return Ok(exit::OK);
    }
    eprintln!("job {name} created");

    let show = Show {
        progress: args.output.output != Format::Json,
        json: args.output.output == Format::Json,
        ..Show::default()
    };
    let ended = tokio::select! {
        ended = follow(cluster, &name, &show) => ended?,
        _ = tokio::signal::ctrl_c() => return interrupted(cluster, &name).await,
    };
    match &ended.job {
        Some(job) if Phase::of(job) == Phase::Complete => eprintln!("job {name} complete"),
        Some(job) => {
            eprintln!("job {name} failed: {}", final_message(job));
            eprintln!("  see why: trainyard describe {name}{}", cluster.flags);
        }
        None => eprintln!("job {name} was deleted"),
    }
    if args.timeout.is_some() && ended.job.as_ref().is_some_and(is_past_deadline) {
        return Ok(exit::TIMEOUT);
    }
    Ok(ended.exit_code())
}

fn is_past_deadline(job: &Value) -> bool {
    condition(job, "Failed").is_some_and(|failed| failed["reason"] == "DeadlineExceeded")
}

async fn create(cluster: &Cluster, job: Value) -> Result<Value, CliError> {
    let object = serde_json::from_value(job).expect("a TrainJob is an object");
    Ok(value(&cluster.api(Kind::TrainJob).create(&PostParams::default(), &object).await?))
}

/// Creates the job on a cluster, whose pods do not see this machine's files: they get them by a ConfigMap.
///
/// Expected flow: the ConfigMap first, for the job names it; then the job; then the job becomes the ConfigMap's owner, so that
/// they go together. Where the job is refused, the ConfigMap is deleted again.
async fn ship(
    cluster: &Cluster,
    args: &RunArgs,
    code: &Code,
    variables: &[(String, String)],
    runtime: &Value,
    kind: &str,
) -> Result<Value, CliError> {
    let (bundle, script) = match &code.folder {
        None => (Bundle::script(&code.script)?, PathBuf::from(code.script.file_name().unwrap_or_default())),
        Some(folder) => (Bundle::folder(folder)?, code.inside(folder)?),
    };
    bundle.skipped.iter().for_each(|skipped| eprintln!("not sent: {skipped}"));
    let steps = steps(runtime);
    if steps.is_empty() {
        return Err(CliError::Usage(format!(
            "runtime {:?} has no container \"node\", so the script cannot be put anywhere; choose another: trainyard runtimes",
            args.runtime
        )));
    }
    // whether a job may be called so is told of the job, not of its files
    let stem = stem(args.name.as_deref().map_or(code.named.as_path(), Path::new));
    let files = serde_json::to_value(bundle.config_map(&stem)?).expect("a ConfigMap is JSON");
    let maps = cluster.api(Kind::ConfigMap);
    let files = serde_json::from_value(files).expect("a ConfigMap is an object");
    let files = value(&maps.create(&PostParams::default(), &files).await?);
    let files = object::meta(&files, "name");
    eprintln!("sent {} to {} (context {}) as ConfigMap {files}", bundle.summary(), cluster.server, cluster.context);

    let pods = Pods::Elsewhere { script: Path::new(MOUNT).join(script), volume: bundle.volume(VOLUME, files), steps };
    let created = match create(cluster, manifest(args, code, &pods, variables, runtime, kind)).await {
        Ok(created) => created,
        Err(error) => {
            let _ = maps.delete(files, &DeleteParams::default()).await;
            return Err(error);
        }
    };
    let name = object::meta(&created, "name");
    let owner = json!({"apiVersion": API_VERSION, "kind": "TrainJob", "name": name, "uid": object::uid(&created)});
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    if let Err(error) = maps.patch(files, &PatchParams::default(), &owned).await {
        eprintln!("ConfigMap {files} will outlive job {name}, for it could not be made its own: {error}");
        eprintln!("  remove it once the job has ended: kubectl delete configmap {files} -n {}", cluster.namespace);
    }
    Ok(created)
}

/// The steps of a runtime that run the user's code (trainer.md: in containers called `node`), by the names of its
/// replicated jobs; of MPI's the launcher and the nodes.
fn steps(runtime: &Value) -> Vec<String> {
    let jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array();
    let runs_code = |job: &&Value| {
        let ancestor = job["template"]["metadata"]["labels"][LABEL_ANCESTOR].as_str().unwrap_or_default();
        let containers = job["template"]["spec"]["template"]["spec"]["containers"].as_array();
        !ancestor.ends_with("-initializer") && containers.into_iter().flatten().any(|c| c["name"] == NODE)
    };
    jobs.into_iter().flatten().filter(runs_code).map(|job| object::text(job, "name").to_owned()).collect()
}

/// Stops the job's pods and says how to go on. A second Ctrl-C does not wait.
async fn interrupted(cluster: &Cluster, name: &str) -> Result<u8, CliError> {
    eprintln!("\nstopping job {name} …");
    tokio::select! {
        stopped = suspended(cluster, name, true) => { stopped?; }
        _ = tokio::signal::ctrl_c() => {}
    }
    eprintln!("job {name} is suspended: its processes are stopped, its settings are kept");
    let flags = &cluster.flags;
    eprintln!("  look at it: trainyard describe {name}{flags}");
    eprintln!("  go on:      trainyard resume {name}{flags} && trainyard logs -f {name}{flags}");
    eprintln!("  remove it:  trainyard delete {name}{flags}");
    Ok(exit::INTERRUPTED)
}

/// What to run.
#[derive(Debug)]
struct Code {
    /// Absolute path of the script.
    script: PathBuf,
    /// What the job is called after: the script, or the folder that was named instead.
    named: PathBuf,
    /// Absolute path of the folder that it runs in, and that goes along to a cluster; `None` without `--workdir`.
    folder: Option<PathBuf>,
}

impl Code {
    /// `SCRIPT` and `--workdir`; a folder stands for the entry point in it.
    ///
    /// Errors: `Usage` where there is no such script, or the folder has no entry point, or several.
    fn find(args: &RunArgs) -> Result<Self, CliError> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|source| CliError::Io { doing: "read", path: path.to_owned(), source })
        };
        let folder = args.workdir.as_deref().map(absolute).transpose()?;
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(CliError::Usage(format!("--workdir {} is not a folder", folder.display())));
        }
        let named = args.script();
        let mut script = absolute(named)?;
        // `--workdir src train.py` where it is not meant from here
        if let Some(inside) = folder.as_ref().map(|folder| folder.join(named)).filter(|path| path.exists())
            && !script.exists()
        {
            script = inside;
        }
        let called = script.clone();
        if script.is_dir() {
            let entries: Vec<&str> = ENTRY_POINTS.into_iter().filter(|name| script.join(name).is_file()).collect();
            let [entry] = entries[..] else {
                let there = if entries.is_empty() { "none of them".to_owned() } else { entries.join(" and ") };
                return Err(CliError::Usage(format!(
                    "{} is not a file; as a folder it should have one of {}, and it has {there}: name the script to run",
                    named.display(),
                    ENTRY_POINTS.join(", ")
                )));
            };
            let folder = folder.unwrap_or_else(|| script.clone());
            return Ok(Self { named: called, script: script.join(entry), folder: Some(folder) });
        }
        match std::fs::metadata(&script) {
            Ok(metadata) if metadata.is_file() => Ok(Self { named: called, script, folder }),
            Ok(_) => Err(CliError::Usage(format!("{} is not a file; name the script to run", named.display()))),
            Err(source) => match like(&script) {
                Some(name) if source.kind() == std::io::ErrorKind::NotFound => {
                    Err(CliError::Usage(format!("there is no file {}; did you mean {name:?}?", named.display())))
                }
                _ => Err(CliError::Io { doing: "read", path: named.to_owned(), source }),
            },
        }
    }

    /// The script's path from this folder on.
    fn inside(&self, folder: &Path) -> Result<PathBuf, CliError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let inside = self.script.strip_prefix(folder).map(Path::to_owned);
        inside.or_else(|_| real(&self.script).strip_prefix(real(folder)).map(Path::to_owned)).map_err(|_| {
            CliError::Usage(format!(
                "{} is not in --workdir {}, which is all that a cluster's pods are sent",
                self.script.display(),
                folder.display()
            ))
        })
    }
}

/// Which file of the same folder may have been meant.
fn like(file: &Path) -> Option<String> {
    let entries = std::fs::read_dir(file.parent()?).ok()?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    // of two that are as near, the same one each time
    names.sort_unstable();
    near(file.file_name()?.to_str()?, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Where the pods find the code.
enum Pods {
    /// They are processes of this machine.
    Here,
    /// They are sent it.
    Elsewhere {
        /// The script's path in the pods.
        script: PathBuf,
        /// The pods' volume with the files.
        volume: Value,
        /// The runtime's replicated jobs that get it.
        steps: Vec<String>,
    },
}

/// `--env` flags, each NAME=VALUE.
fn variables(flags: &[String]) -> Result<Vec<(String, String)>, CliError> {
    let pairs = flags.iter().map(|flag| match flag.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::Usage(format!("--env {flag:?} is not NAME=VALUE"))),
    });
    pairs.collect()
}

/// The runtime that the flag names, the namespace's before the cluster's, with its kind.
async fn runtime(cluster: &Cluster, name: &str) -> Result<(Value, &'static str), CliError> {
    if let Some(found) = cluster.find(Kind::TrainingRuntime, name).await? {
        return Ok((found, "TrainingRuntime"));
    }
    if let Some(found) = cluster.find_shared(Kind::ClusterTrainingRuntime, name).await? {
        return Ok((found, "ClusterTrainingRuntime"));
    }
    let shared = cluster.api_all(Kind::ClusterTrainingRuntime).list(&ListParams::default()).await?;
    let mut there: Vec<Value> = shared.items.iter().map(value).collect();
    there.extend(cluster.list(Kind::TrainingRuntime, "").await?);
    let meant = did_you_mean(name, there.iter().map(|runtime| object::meta(runtime, "name")));
    let flags = &cluster.flags;
    Err(CliError::Usage(format!(
        "--runtime {name}: there is no such runtime{meant}\n  see which there are: trainyard runtimes{flags}"
    )))
}

/// How a framework's scripts are started. `env` are the variables of the job.
fn launcher(framework: &str, env: &[Value]) -> Vec<String> {
    let words: &[&str] = match framework {
        "torch" | "torchtune" => &["torchrun"],
        // it marks each line with its rank, which is then shown
        "deepspeed" | "mlx" | "mpi" => &["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"],
        _ => &["python3"],
    };
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if words[0] == "mpirun" {
        // Only the launcher's container has the job's variables; mpirun takes its own settings along by itself.
        let names = env.iter().map(|variable| object::text(variable, "name"));
        for name in names.filter(|name| !name.starts_with("OMPI_")) {
            words.extend(["-x".to_owned(), name.to_owned()]);
        }
        words.push("python3".to_owned());
    }
    words
}

fn manifest(
    args: &RunArgs,
    code: &Code,
    pods: &Pods,
    variables: &[(String, String)],
    runtime: &Value,
    runtime_kind: &str,
) -> Value {
    let framework = object::label(runtime, LABEL_FRAMEWORK).unwrap_or_default();
    let mut env: Vec<Value> = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !variables.iter().any(|(given, _)| given == name) {
            env.push(json!({"name": name, "value": value}));
        }
    };
    if matches!(pods, Pods::Here) {
        for name in INHERITED {
            if let Ok(value) = std::env::var(name) {
                add(name, &value);
            }
        }
    }
    // lines as they are printed, not when a buffer is full
    add("PYTHONUNBUFFERED", "1");
    if framework.starts_with("torch") && args.nproc_per_node.is_some_and(|n| n > 1) {
        // torchrun marks each line with its local rank, from which the rank is shown
        add("PET_TEE", "3");
    }
    env.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));

    // the script sees the caller's directory, as it would without us; elsewhere the one that was sent, or the image's own
    let (script, directory) = match pods {
        Pods::Here => {
            let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
            (code.script.as_path(), Some(code.folder.clone().unwrap_or(here)))
        }
        Pods::Elsewhere { script, .. } => (script.as_path(), code.folder.as_ref().map(|_| PathBuf::from(MOUNT))),
    };
    let mut words = launcher(framework, &env);
    words.push(script.to_string_lossy().into_owned());
    words.extend(args.script_args().iter().cloned());
    let command = match &directory {
        Some(directory) => {
            words.insert(0, directory.to_string_lossy().into_owned());
            json!(["sh", "-c", "cd \"$0\" && exec \"$@\""])
        }
        None => json!([words.remove(0)]),
    };

    let mut trainer = json!({"command": command, "args": words, "env": env});
    if let Some(image) = &args.image {
        trainer["image"] = image.as_str().into();
    }
    if let Some(nodes) = args.nodes {
        trainer["numNodes"] = nodes.into();
    }
    if let Some(processes) = args.nproc_per_node {
        trainer["numProcPerNode"] = processes.into();
    }
    let mut resources = Map::new();
    let gpus = args.gpus.map(|gpus| gpus.to_string());
    for (name, quantity) in [("cpu", &args.cpus), ("memory", &args.memory), ("nvidia.com/gpu", &gpus)] {
        if let Some(quantity) = quantity {
            resources.insert(name.to_owned(), quantity.clone().into());
        }
    }
    if !resources.is_empty() {
        trainer["resourcesPerNode"] = json!({"requests": resources, "limits": resources});
    }
    let metadata = match &args.name {
        Some(name) => json!({"name": name}),
        None => json!({"generateName": format!("{}-", stem(&code.named))}),
    };
    let mut job = json!({
        "apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata,
        "spec": {"runtimeRef": {"name": args.runtime, "kind": runtime_kind}, "trainer": trainer},
    });
    let mut annotations = Map::new();
    // A script that fails will fail again: nothing is restarted that was not asked for.
    annotations.insert(FAILURE_POLICY.to_owned(), "fail-fast".into());
    if let Some(retries) = args.retries.filter(|retries| *retries > 0) {
        annotations.insert(RETRIES.to_owned(), retries.to_string().into());
        annotations.insert(RETRY_BACKOFF.to_owned(), FIRST_RETRY_AFTER.into());
    }
    if let Some(timeout) = args.timeout {
        // The deadline counts from the creation, whose time has lost its fraction of a second.
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        job["spec"]["activeDeadlineSeconds"] = seconds.saturating_add(1).min(i64::MAX as u64).into();
    }
    if let (Pods::Here, Some(directory)) = (pods, &directory) {
        annotations.insert("trainyard.dev/directory".to_owned(), directory.to_string_lossy().into());
    }
    job["metadata"]["annotations"] = annotations.into();
    match pods {
        Pods::Here => {}
        Pods::Elsewhere { volume, steps, .. } => {
            let mounts = json!([{"name": VOLUME, "mountPath": MOUNT, "readOnly": true}]);
            let pod = json!({"volumes": [volume], "containers": [{"name": NODE, "volumeMounts": mounts}]});
            let step = |name: &String| json!({"name": name, "template": {"spec": {"template": {"spec": pod}}}});
            let replicated: Vec<Value> = steps.iter().map(step).collect();
            job["spec"]["runtimePatches"] = json!([{
                "manager": PATCH_MANAGER,
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
            }]);
        }
    }
    job
}

/// A name from the script's file name: lower case, digits and dashes, beginning with a letter.
fn stem(script: &Path) -> String {
    let stem = script.file_stem().map(|s| s.to_string_lossy().to_lowercase()).unwrap_or_default();
    let mut name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    name = name.trim_matches('-').to_owned();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert_str(0, "job-");
    }
    name.truncate(STEM_MAX);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn run_args(words: &[&str]) -> RunArgs {
        match Cli::parse_from([&["trainyard", "run"], words].concat()).command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn code(script: &str, folder: Option<&str>) -> Code {
        Code { script: script.into(), named: script.into(), folder: folder.map(PathBuf::from) }
    }

    #[test]
    fn names_come_from_the_script() {
        let cases = [("train.py", "train"), ("/a/My_Model v2.py", "my-model-v2"), ("0.py", "job-0"), ("é.py", "job")];
        for (script, name) in cases {
            assert_eq!(stem(Path::new(script)), name, "{script}");
        }
        assert!(stem(Path::new(&format!("{}.py", "x".repeat(80)))).len() <= STEM_MAX);
    }

    #[test]
    fn flags_become_the_job() {
        let args =
            run_args(&["--nodes", "2", "--nproc-per-node", "2", "--gpus", "1", "-e", "A=b=c", "t.py", "--lr", "1"]);
        let runtime = json!({"metadata": {"labels": {"trainer.kubeflow.org/framework": "torch"}}});
        let variables = variables(&args.env).unwrap();
        let job = manifest(&args, &code("/w/t.py", None), &Pods::Here, &variables, &runtime, "ClusterTrainingRuntime");
        let trainer = &job["spec"]["trainer"];
        assert_eq!(trainer["numNodes"], 2);
        assert_eq!(trainer["numProcPerNode"], 2);
        assert_eq!(trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"], "1");
        let words = trainer["args"].as_array().unwrap();
        assert_eq!(words[1..], [json!("torchrun"), json!("/w/t.py"), json!("--lr"), json!("1")]);
        let env = trainer["env"].as_array().unwrap();
        assert!(env.contains(&json!({"name": "A", "value": "b=c"})));
        assert!(env.contains(&json!({"name": "PET_TEE", "value": "3"})));
        assert_eq!(job["metadata"]["generateName"], "t-");
    }

    #[test]
    fn every_rank_of_mpi_gets_the_variables() {
        let args = run_args(&["-e", "A=b", "-e", "OMPI_MCA_btl=self", "t.py"]);
        let runtime = json!({"metadata": {"labels": {"trainer.kubeflow.org/framework": "mlx"}}});
        let variables = variables(&args.env).unwrap();
        let job = manifest(&args, &code("/w/t.py", None), &Pods::Here, &variables, &runtime, "ClusterTrainingRuntime");
        let words = job["spec"]["trainer"]["args"].as_array().unwrap();
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        assert_eq!(words[1..5], ["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"]);
        assert_eq!(words[words.len() - 2..], ["python3", "/w/t.py"]);
        let given: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "-x").map(|pair| pair[1]).collect();
        assert!(given.contains(&"A") && given.contains(&"PYTHONUNBUFFERED"), "{given:?}");
        assert!(!given.contains(&"OMPI_MCA_btl"), "{given:?}");
    }

    #[test]
    fn on_a_cluster_the_code_is_mounted_where_the_users_code_runs() {
        let job = |name: &str, ancestor: &str| {
            json!({"name": name, "template": {"metadata": {"labels": {LABEL_ANCESTOR: ancestor}},
                "spec": {"template": {"spec": {"containers": [{"name": NODE}]}}}}})
        };
        let jobs = [job("dataset-initializer", "dataset-initializer"), job("node", ""), job("launcher", "trainer")];
        let runtime = json!({"metadata": {"labels": {LABEL_FRAMEWORK: "torch"}},
            "spec": {"template": {"spec": {"replicatedJobs": jobs}}}});
        assert_eq!(steps(&runtime), ["node", "launcher"]);
        let pods = |script: &str| Pods::Elsewhere {
            script: script.into(),
            volume: json!({"name": VOLUME}),
            steps: steps(&runtime),
        };
        let args = run_args(&["--image", "mine:1", "-e", "A=b", "train.py", "--lr", "1"]);
        let variables = variables(&args.env).unwrap();
        let of = |code: &Code, pods: &Pods| manifest(&args, code, pods, &variables, &runtime, "TrainingRuntime");
        let alone = of(&code("/w/train.py", None), &pods("/mnt/trainyard/train.py"));
        let trainer = &alone["spec"]["trainer"];
        assert_eq!(trainer["command"], json!(["torchrun"]));
        assert_eq!(trainer["args"], json!(["/mnt/trainyard/train.py", "--lr", "1"]));
        assert_eq!(trainer["image"], "mine:1");
        let env = json!([{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "A", "value": "b"}]);
        assert_eq!(trainer["env"], env, "nothing of this machine");
        let patch = &alone["spec"]["runtimePatches"][0];
        let replicated = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].as_array().unwrap();
        assert_eq!(replicated.len(), 2);
        let pod = &replicated[1]["template"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], MOUNT);
        assert!(pod["containers"][0].get("env").is_none(), "Trainer refuses that");

        let folder = of(&code("/w/src/train.py", Some("/w")), &pods("/mnt/trainyard/src/train.py"));
        let words = folder["spec"]["trainer"]["args"].as_array().unwrap();
        assert_eq!(words[..3], [json!(MOUNT), json!("torchrun"), json!("/mnt/trainyard/src/train.py")]);
        assert!(
            code("/w/src/train.py", Some("/w"))
                .inside(Path::new("/w"))
                .is_ok_and(|path| path == Path::new("src/train.py"))
        );
        assert!(code("/x/train.py", Some("/w")).inside(Path::new("/w")).is_err());
    }

    #[test]
    fn a_folder_stands_for_its_entry_point() {
        let root = std::env::temp_dir().join(format!("trainyard-run-{}", std::process::id()));
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/main.py"), "").unwrap();
        let find = |words: &[&str]| Code::find(&run_args(words));
        let src = root.join("src").to_string_lossy().into_owned();
        let of_folder = find(&[&src]).unwrap();
        assert_eq!((of_folder.script, of_folder.folder), (root.join("src/main.py"), Some(root.join("src"))));
        assert_eq!(stem(&of_folder.named), "src");
        let inside = find(&["--workdir", &src, "main.py"]).unwrap();
        assert_eq!(inside.script, root.join("src/main.py"));
        let slip = find(&[&format!("{src}/mian.py")]).unwrap_err();
        assert!(slip.to_string().ends_with("did you mean \"main.py\"?"), "{slip}");
        assert_eq!(slip.exit_code(), exit::USAGE);
        std::fs::write(root.join("src/train.py"), "").unwrap();
        for (words, told) in [
            (&[src.as_str()][..], "has main.py and train.py"),
            (&[root.to_str().unwrap()], "has none of them"),
            (&["--workdir", "/nowhere", "main.py"], "is not a folder"),
        ] {
            let error = find(words).unwrap_err();
            assert!(error.to_string().contains(told), "{words:?}: {error}");
            assert_eq!(error.exit_code(), exit::USAGE);
        }
        let missing = find(&["/nowhere/x.py"]).unwrap_err().render();
        assert_eq!(missing, "error: cannot read /nowhere/x.py: No such file or directory (os error 2)");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn wrong_variables_are_refused() {
        assert!(variables(&["novalue".to_owned()]).is_err());
        assert!(variables(&["=x".to_owned()]).is_err());
    }
}
