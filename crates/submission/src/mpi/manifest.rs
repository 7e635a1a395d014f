//! Makes the MPIJob that values describe.
//!
//! The Python SDK (`sdk/python`) makes the same object from the same input; the cases in `sdk/golden` test both.

use super::words::words;
use api::mpi::annotations::{REACHABLE, WAIT_FOR_WORKERS};
use api::mpi::names::{ROLE_LAUNCHER, ROLE_WORKER, ROOT_SSH_PATH, env, hostfile_fault, worker};
use api::mpi::{API_VERSION, KIND};
use api::names::dns1035_faults;
use api::quantity::Quantity;
use client::ClientError;
use client::codes::ErrorCode;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Programs that start the ranks themselves: a command that begins with one is used unchanged.
const LAUNCHERS: [&str; 3] = ["mpirun", "mpiexec", "horovodrun"];
/// Where Open MPI 5 looks for hosts. It ignores the variables that operators set, and would run all ranks in the launcher.
const HOSTFILE: (&str, &str) = (env::OPEN_MPI_5_HOSTFILE, "/etc/mpi/hostfile");
/// Lets Open MPI's mpirun run as root.
const AS_ROOT: [(&str, &str); 2] = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
/// The longest name of a pod.
const NAME_MAX: usize = 63;

/// Whose `mpirun` a job is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    #[default]
    OpenMpi,
    Intel,
    Mpich,
}

/// The requested properties of an MPIJob.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub name: String,
    /// Pods in which ranks run.
    pub workers: i32,
    pub image: String,
    /// What each rank runs, split as a shell does.
    pub command: String,
    /// GPUs of each worker.
    pub gpu: Option<i32>,
    pub cpu: Option<String>,
    pub memory: Option<String>,
    /// Ranks of each worker; `None`: its GPUs, or 1.
    pub slots_per_worker: Option<i32>,
    pub implementation: Implementation,
    /// Variables, each `NAME=VALUE`.
    pub env: Vec<String>,
    /// Kueue's LocalQueue.
    pub queue: Option<String>,
    pub retries: i32,
    pub workdir: Option<String>,
    pub run_as_root: bool,
}

impl Implementation {
    pub(super) const ALL: [Self; 3] = [Self::OpenMpi, Self::Intel, Self::Mpich];

    /// Its value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenMpi => "OpenMPI",
            Self::Intel => "Intel",
            Self::Mpich => "MPICH",
        }
    }
}

/// Variables that the pods of a laptop inherit from the user who creates the job, because they are processes there.
#[derive(Clone, Debug, Default)]
pub struct Here {
    pub directory: String,
    pub variables: Vec<(String, String)>,
}

/// Makes the MPIJob. `namespace`: written into it if given.
///
/// Errors: a flag's value is invalid; the error names both.
pub fn manifest(spec: &Spec, namespace: Option<&str>, here: Option<&Here>) -> Result<Value, ClientError> {
    let name = spec.name.as_str();
    let workers = spec.workers;
    if workers < 2 {
        return Err(wrong(format!(
            "--workers {workers}: must be 2 or more: one worker needs no MPI (the API takes 1, in a manifest)"
        )));
    }
    check_name(name, workers)?;
    check_hosts(name, namespace.unwrap_or_default(), workers)?;
    let image = spec.image.as_str();
    if image.is_empty() {
        return Err(wrong("--image: is empty".to_owned()));
    }
    if image.contains(char::is_whitespace) {
        return Err(wrong(format!("--image {image:?}: has a blank in it, and no image's name does")));
    }
    let slots = match spec.slots_per_worker {
        Some(slots) => slots,
        None => spec.gpu.unwrap_or(0).max(1),
    };
    if slots < 1 {
        return Err(wrong(format!("--slots-per-worker {slots}: must be 1 or more")));
    }
    let given = variables(&spec.env)?;
    let command = command(spec, i64::from(workers).saturating_mul(slots.into()), &given)?;

    let is_given = |name: &str| given.iter().any(|(given, _)| given == name);
    let inherited = here.into_iter().flat_map(|here| &here.variables).filter(|(name, _)| !is_given(name));
    let shared: Vec<Value> = inherited.chain(&given).map(|(name, value)| variable(name, value)).collect();
    let mut of_launcher = shared.clone();
    if spec.implementation == Implementation::OpenMpi {
        let as_root: &[(&str, &str)] = if spec.run_as_root { &AS_ROOT } else { &[] };
        let ours = std::iter::once(&HOSTFILE).chain(as_root).filter(|(name, _)| !is_given(name));
        of_launcher.extend(ours.map(|(name, value)| variable(name, value)));
    }
    let launcher = json!({"name": ROLE_LAUNCHER, "image": image, "command": command, "env": of_launcher});
    let mut worker = json!({"name": ROLE_WORKER, "image": image, "env": shared});
    let resources = resources(spec)?;
    if !resources.is_empty() {
        worker["resources"] = json!({"requests": resources, "limits": resources});
    }

    // a laptop's pods see folders from the caller's directory
    let directory = match here {
        Some(here) => {
            let folder = Path::new(&here.directory).join(spec.workdir.as_deref().unwrap_or_default());
            Some(folder.components().collect::<PathBuf>().to_string_lossy().into_owned())
        }
        None => spec.workdir.clone(),
    };
    let directory = directory.as_deref();
    let replicas = |replicas: i32, container: Value| json!({"replicas": replicas, "restartPolicy": "Never", "template": pod(spec, directory, container)});
    let mut metadata = json!({"name": name, "annotations": {WAIT_FOR_WORKERS: REACHABLE}});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    if let Some(queue) = &spec.queue {
        metadata["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
    }
    Ok(json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata,
        "spec": {
            "mpiImplementation": spec.implementation.as_str(),
            "slotsPerWorker": slots,
            "sshAuthMountPath": if spec.run_as_root { ROOT_SSH_PATH } else { "/home/mpiuser/.ssh" },
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": spec.retries},
            "mpiReplicaSpecs": {"Launcher": replicas(1, launcher), "Worker": replicas(workers, worker)},
        },
    }))
}

/// Refuses a name that would make the names of the job's pods invalid.
pub fn check_name(name: &str, workers: i32) -> Result<(), ClientError> {
    let last = worker(name, workers.saturating_sub(1));
    if last.len() > NAME_MAX {
        return Err(wrong(format!(
            "name {name:?} is too long: its last worker would be {last}, of {} characters, and {NAME_MAX} is the most",
            last.len()
        )));
    }
    if !dns1035_faults(name, false).is_empty() {
        return Err(wrong(format!(
            "name {name:?} must be lower case letters, digits and \"-\", begin with a letter and not end with \"-\""
        )));
    }
    Ok(())
}

/// Refuses more workers than fit into the job's ConfigMap.
pub fn check_hosts(name: &str, namespace: &str, workers: i32) -> Result<(), ClientError> {
    match hostfile_fault(workers, namespace, name, None) {
        Some(fault) => Err(wrong(format!("--workers {workers}: {fault}"))),
        None => Ok(()),
    }
}

/// The command of the launcher.
fn command(spec: &Spec, ranks: i64, given: &[(String, String)]) -> Result<Vec<String>, ClientError> {
    let text = spec.command.as_str();
    let own = words(text).map_err(|fault| wrong(format!("--command {text:?}: {fault}")))?;
    let Some(program) = own.first().filter(|word| !word.is_empty()) else {
        return Err(wrong("--command: is empty".to_owned()));
    };
    if LAUNCHERS.contains(&program.rsplit('/').next().unwrap_or_default()) {
        return Ok(own);
    }
    let mut words = vec!["mpirun".to_owned(), "-n".to_owned(), ranks.to_string()];
    if spec.implementation == Implementation::OpenMpi {
        // its ranks get only those of the launcher's variables that are named
        words.extend(given.iter().flat_map(|(name, _)| ["-x".to_owned(), name.clone()]));
    }
    words.extend(own);
    Ok(words)
}

/// `NAME=VALUE`, each name once: the last value counts.
fn variables(flags: &[String]) -> Result<Vec<(String, String)>, ClientError> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for flag in flags {
        let (name, value) = flag.split_once('=').ok_or_else(|| wrong(format!("--env {flag:?}: must be NAME=VALUE")))?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        // mpirun would read a name that begins with a dash as a flag
        let is_begun = name.starts_with(|c: char| c.is_ascii_alphabetic() || "._".contains(c));
        if !is_begun || !name.chars().all(is_word) {
            return Err(wrong(format!("--env {flag:?}: {name:?} is no name of a variable")));
        }
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => variables.push((name.to_owned(), value.to_owned())),
        }
    }
    Ok(variables)
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn resources(spec: &Spec) -> Result<Map<String, Value>, ClientError> {
    let mut amounts = Map::new();
    for (name, flag) in [("cpu", &spec.cpu), ("memory", &spec.memory)] {
        let Some(text) = flag else { continue };
        if !Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative()) {
            return Err(wrong(format!("--{name} {text}: is no quantity; try 4, 500m or 8Gi")));
        }
        amounts.insert(name.to_owned(), text.as_str().into());
    }
    if let Some(gpu) = spec.gpu.filter(|gpu| *gpu > 0) {
        amounts.insert("nvidia.com/gpu".to_owned(), gpu.to_string().into());
    }
    Ok(amounts)
}

/// A pod that meets the restricted Pod Security standard, without a mesh's proxy and without a token for the API.
fn pod(asked: &Spec, directory: Option<&str>, mut container: Value) -> Value {
    if container["env"].as_array().is_some_and(Vec::is_empty)
        && let Some(container) = container.as_object_mut()
    {
        container.remove("env");
    }
    if let Some(directory) = directory {
        container["workingDir"] = directory.into();
    }
    let mut spec = json!({"automountServiceAccountToken": false});
    if !asked.run_as_root {
        spec["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        container["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    }
    spec["containers"] = json!([container]);
    // a proxy never ends, and would intercept the connections between ranks
    json!({"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}}, "spec": spec})
}

/// Wrong use.
pub(super) fn wrong(text: String) -> ClientError {
    ClientError::Usage(ErrorCode::FlagRefused, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_laptop_s_pods_find_what_the_caller_finds() {
        let spec = Spec {
            name: "a".to_owned(),
            workers: 2,
            image: "i".to_owned(),
            command: "python train.py".to_owned(),
            env: vec!["PATH=/mine".to_owned(), "A=1".to_owned(), "A=2".to_owned()],
            ..Spec::default()
        };
        let variables = [("PATH", "/usr/bin"), ("VIRTUAL_ENV", "/v")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let here = Here { directory: "/w".to_owned(), variables };
        let job = manifest(&spec, None, Some(&here)).expect("it is right");
        let container = |role: &str| job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0].clone();
        assert_eq!(container("Worker")["workingDir"], "/w");
        for (given, folder) in [("sub", "/w/sub"), ("/data", "/data"), ("sub/../x/", "/w/sub/../x")] {
            let spec = Spec { workdir: Some(given.to_owned()), ..spec.clone() };
            let job = manifest(&spec, None, Some(&here)).expect("it is right");
            let pod = &job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["workingDir"], folder);
            let elsewhere = manifest(&spec, None, None).expect("it is right");
            let pod = &elsewhere["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["workingDir"], given);
        }
        let env = |name: &str, value: &str| json!({"name": name, "value": value});
        let shared = json!([env("VIRTUAL_ENV", "/v"), env("PATH", "/mine"), env("A", "2")]);
        assert_eq!(container("Worker")["env"], shared);
        assert_eq!(
            container("Launcher")["command"],
            json!(["mpirun", "-n", "2", "-x", "PATH", "-x", "A", "python", "train.py"])
        );
    }
}
