//! `trainyard run`: a script becomes a TrainJob, is followed, and its exit code is returned.

use crate::args::{Format, Global, RunArgs};
use crate::connect::{Cluster, Kind, value};
use crate::error::CliError;
use crate::exit;
use crate::follow::{Show, follow};
use crate::jobs::suspended;
use crate::output;
use crate::view::{Phase, final_message};
use api::object;
use kube::api::PostParams;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What of the caller's environment a job on this machine gets, so that it finds the same Python and packages.
const INHERITED: [&str; 6] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME"];

/// How long a generated name's stem may be: the API server adds five characters, and pods' host names must fit in 63.
const STEM_MAX: usize = 30;

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let script = script_path(args.script())?;
    let variables = variables(&args.env)?;
    let cluster = Cluster::started(global).await?;
    if !cluster.local {
        return Err(CliError::Usage(
            "run needs the local control plane: a cluster's pods do not see this machine's files. Put the script into an \
             image or a volume and apply a TrainJob with kubectl"
                .to_owned(),
        ));
    }
    let (runtime, kind) = runtime(&cluster, &args.runtime).await?;
    let job = manifest(args, &script, variables, &runtime, kind);
    let object = serde_json::from_value(job).expect("a TrainJob is an object");
    let created = value(&cluster.api(Kind::TrainJob).create(&PostParams::default(), &object).await?);
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
        ended = follow(&cluster, &name, &show) => ended?,
        _ = tokio::signal::ctrl_c() => return interrupted(&cluster, &name).await,
    };
    match &ended.job {
        Some(job) if Phase::of(job) == Phase::Complete => eprintln!("job {name} complete"),
        Some(job) => {
            eprintln!("job {name} failed: {}", final_message(job));
            eprintln!("  see why: trainyard describe {name}");
        }
        None => eprintln!("job {name} was deleted"),
    }
    Ok(ended.exit_code())
}

/// Stops the job's pods and says how to go on. A second Ctrl-C does not wait.
async fn interrupted(cluster: &Cluster, name: &str) -> Result<u8, CliError> {
    eprintln!("\nstopping job {name} …");
    tokio::select! {
        stopped = suspended(cluster, name, true) => { stopped?; }
        _ = tokio::signal::ctrl_c() => {}
    }
    eprintln!("job {name} is suspended: its processes are stopped, its settings are kept");
    eprintln!("  look at it: trainyard describe {name}");
    eprintln!("  go on:      trainyard resume {name} && trainyard logs -f {name}");
    eprintln!("  remove it:  trainyard delete {name}");
    Ok(exit::INTERRUPTED)
}

/// The script's absolute path; it must be a file.
fn script_path(script: &Path) -> Result<PathBuf, CliError> {
    let failed = |source| CliError::Io { doing: "read", path: script.to_owned(), source };
    let metadata = std::fs::metadata(script).map_err(failed)?;
    if !metadata.is_file() {
        return Err(CliError::Usage(format!("{} is not a file; name the script to run", script.display())));
    }
    std::path::absolute(script).map_err(failed)
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
    if let Some(found) = cluster.api_all(Kind::ClusterTrainingRuntime).get_opt(name).await? {
        return Ok((value(&found), "ClusterTrainingRuntime"));
    }
    Err(CliError::Usage(format!("there is no runtime {name:?}; see which there are: trainyard runtimes")))
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
    script: &Path,
    variables: Vec<(String, String)>,
    runtime: &Value,
    runtime_kind: &str,
) -> Value {
    let framework = object::label(runtime, "trainer.kubeflow.org/framework").unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut env: Vec<Value> = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !variables.iter().any(|(given, _)| given == name) {
            env.push(json!({"name": name, "value": value}));
        }
    };
    for name in INHERITED {
        if let Ok(value) = std::env::var(name) {
            add(name, &value);
        }
    }
    // lines as they are printed, not when a buffer is full
    add("PYTHONUNBUFFERED", "1");
    if framework.starts_with("torch") && args.nproc_per_node.is_some_and(|n| n > 1) {
        // torchrun marks each line with its local rank, from which the rank is shown
        add("PET_TEE", "3");
    }
    env.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));

    let mut words: Vec<String> = vec![here.to_string_lossy().into_owned()];
    words.extend(launcher(framework, &env));
    words.push(script.to_string_lossy().into_owned());
    words.extend(args.script_args().iter().cloned());

    // the script sees the caller's directory, as it would without us
    let mut trainer = json!({"command": ["sh", "-c", "cd \"$0\" && exec \"$@\""], "args": words, "env": env});
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
        None => json!({"generateName": format!("{}-", stem(script))}),
    };
    let mut job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata,
        "spec": {"runtimeRef": {"name": args.runtime, "kind": runtime_kind}, "trainer": trainer},
    });
    job["metadata"]["annotations"] = json!({"trainyard.dev/directory": here.to_string_lossy()});
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
        let job = manifest(&args, Path::new("/w/t.py"), variables, &runtime, "ClusterTrainingRuntime");
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
        let job = manifest(&args, Path::new("/w/t.py"), variables, &runtime, "ClusterTrainingRuntime");
        let words = job["spec"]["trainer"]["args"].as_array().unwrap();
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        assert_eq!(words[1..5], ["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"]);
        assert_eq!(words[words.len() - 2..], ["python3", "/w/t.py"]);
        let given: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "-x").map(|pair| pair[1]).collect();
        assert!(given.contains(&"A") && given.contains(&"PYTHONUNBUFFERED"), "{given:?}");
        assert!(!given.contains(&"OMPI_MCA_btl"), "{given:?}");
    }

    #[test]
    fn wrong_variables_are_refused() {
        assert!(variables(&["novalue".to_owned()]).is_err());
        assert!(variables(&["=x".to_owned()]).is_err());
    }
}
