//! The TrainJob of a submission.

use crate::code::stem;
use crate::launcher::Launcher;
use crate::preflight::Ready;
use crate::results;
use crate::runtime::PLAIN;
use crate::ship::MOUNT;
use api::object;
use api::trainer::API_VERSION;
use api::trainer::annotations::{FAILURE_POLICY, METRICS, RETRIES, RETRY_BACKOFF};
use api::trainer::names::{LABEL_JOBSET_NAME, NODE, RANK_FIELD_PATH, TRAINER_PORT};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Name of the pods' volume with the code that was sent.
pub(crate) const VOLUME: &str = "trainyard-code";
/// The manager of the runtime patch that mounts that volume.
const PATCH_MANAGER: &str = "trainyard.dev/run";

/// A program that all pods of this machine find: it starts a command warm if it can, and normally otherwise.
const WARM: &str = "trainyard-warm";

/// Wait before the first retry of `--retries`; doubled before each further one.
const FIRST_RETRY_AFTER: &str = "1s";

/// Where the pods find the code.
#[derive(Debug)]
pub(crate) enum Pods {
    /// The pods are processes of this machine.
    Here,
    /// The code is sent to the pods.
    Elsewhere {
        /// The script's path in the pods.
        script: PathBuf,
        /// The pods' volume with the files.
        volume: Value,
        /// The runtime's replicated jobs that receive it.
        steps: Vec<String>,
    },
    /// Nothing is sent: the image contains the code.
    Image,
}

/// The variables that a framework's plugin would set, for processes without a framework: their rank, their number, and the address of the
/// first.
fn ranks(ready: &Ready) -> Vec<Value> {
    let Ready { spec, runtime, .. } = ready;
    let nodes = spec.nodes.map(i64::from).or_else(|| runtime.nodes()).unwrap_or(1);
    let step = runtime.steps().pop().unwrap_or_else(|| NODE.to_owned());
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    vec![
        json!({"name": "TRAINYARD_JOB", "valueFrom": field(&format!("metadata.labels['{LABEL_JOBSET_NAME}']"))}),
        json!({"name": "RANK", "valueFrom": field(RANK_FIELD_PATH)}),
        json!({"name": "WORLD_SIZE", "value": nodes.to_string()}),
        json!({"name": "MASTER_ADDR", "value": format!("$(TRAINYARD_JOB)-{step}-0-0.$(TRAINYARD_JOB)")}),
        json!({"name": "MASTER_PORT", "value": TRAINER_PORT.to_string()}),
    ]
}

pub(crate) fn manifest(ready: &Ready, pods: &Pods) -> Value {
    let Ready { spec, code, setting, runtime, warm } = ready;
    let framework = runtime.framework();
    let mut env: Vec<Value> = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !setting.given.iter().any(|(given, _)| given == name) {
            env.push(json!({"name": name, "value": value}));
        }
    };
    let here = matches!(pods, Pods::Here);
    if here {
        setting.inherited.iter().for_each(|(name, value)| add(name, value));
    }
    // print each line at once, not when a buffer is full
    add("PYTHONUNBUFFERED", "1");
    if framework.starts_with("torch") && spec.nproc_per_node.is_some_and(|n| n > 1) {
        // torchrun marks each line with its local rank, from which the rank is shown
        add("PET_TEE", "3");
    }
    if framework.starts_with("torch") && here {
        // how often torchrun checks whether its processes have ended
        add("PET_MONITOR_INTERVAL", "0.05");
    }
    if framework == PLAIN {
        env.extend(
            ranks(ready)
                .into_iter()
                .filter(|variable| !setting.given.iter().any(|(given, _)| variable["name"] == given.as_str())),
        );
    }
    let output = results::folder(spec).filter(|_| here);
    if let Some(folder) = &output {
        let known = |name: &Value| env.iter().any(|variable| variable["name"] == *name);
        let more: Vec<Value> = results::variables(folder).into_iter().filter(|v| !known(&v["name"])).collect();
        env.extend(more);
    }
    env.extend(setting.given.iter().map(|(name, value)| json!({"name": name, "value": value})));

    // the script starts in the caller's directory, as it would without us; elsewhere in the one that was sent, or in the image's own
    let (script, directory) = match pods {
        Pods::Here => (code.script.as_path(), Some(setting.folder.clone())),
        Pods::Elsewhere { script, .. } => (script.as_path(), code.folder.as_ref().map(|_| PathBuf::from(MOUNT))),
        Pods::Image => (code.script.as_path(), None),
    };
    let names = env.iter().map(|variable| object::text(variable, "name"));
    let python = setting.python.as_deref().filter(|_| here);
    let mut words = Launcher::of(framework).words(&code.start, &script.to_string_lossy(), python, names);
    if let Some(module) = &code.module {
        // the script is the last word so far
        words.pop();
        words.extend(["-m".to_owned(), module.clone()]);
    }
    words.extend(spec.arguments.iter().cloned());
    if *warm {
        words.insert(0, WARM.to_owned());
    }
    let command = match &directory {
        Some(directory) => {
            words.insert(0, directory.to_string_lossy().into_owned());
            let make = if output.is_some() { results::MAKE } else { "" };
            json!(["sh", "-c", format!("{make}cd \"$0\" && exec \"$@\"")])
        }
        None => json!([words.remove(0)]),
    };

    let mut trainer = json!({"command": command, "args": words, "env": env});
    if let Some(image) = &spec.image {
        trainer["image"] = image.as_str().into();
    }
    if let Some(nodes) = spec.nodes {
        trainer["numNodes"] = nodes.into();
    }
    if let Some(processes) = spec.nproc_per_node {
        trainer["numProcPerNode"] = processes.into();
    }
    let mut resources = Map::new();
    let gpus = spec.gpus.map(|gpus| gpus.to_string());
    for (name, quantity) in [("cpu", &spec.cpus), ("memory", &spec.memory), ("nvidia.com/gpu", &gpus)] {
        if let Some(quantity) = quantity {
            resources.insert(name.to_owned(), quantity.clone().into());
        }
    }
    if !resources.is_empty() {
        trainer["resourcesPerNode"] = json!({"requests": resources, "limits": resources});
    }
    let metadata = match &spec.name {
        Some(name) => json!({"name": name}),
        None => json!({"generateName": format!("{}-", stem(&code.named))}),
    };
    let mut job = json!({
        "apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata,
        "spec": {"runtimeRef": {"name": runtime.name(), "kind": runtime.kind}, "trainer": trainer},
    });
    let mut annotations = Map::new();
    // A script that fails will fail again, so nothing is restarted unless the user asks for it.
    annotations.insert(FAILURE_POLICY.to_owned(), "fail-fast".into());
    if let Some(retries) = spec.retries.filter(|retries| *retries > 0) {
        annotations.insert(RETRIES.to_owned(), retries.to_string().into());
        annotations.insert(RETRY_BACKOFF.to_owned(), FIRST_RETRY_AFTER.into());
    }
    if !spec.metrics.is_empty() {
        annotations.insert(METRICS.to_owned(), spec.metrics.join("\n").into());
    }
    if let Some(timeout) = spec.timeout {
        // The deadline counts from the creation time, which is cut to full seconds.
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        job["spec"]["activeDeadlineSeconds"] = seconds.saturating_add(1).min(i64::MAX as u64).into();
    }
    if let (Pods::Here, Some(directory)) = (pods, &directory) {
        annotations.insert("trainyard.dev/directory".to_owned(), directory.to_string_lossy().into());
    }
    if !here {
        // the submitted values, so that the same can be proposed again
        annotations.insert("trainyard.dev/script".to_owned(), code.script.to_string_lossy().into());
        if let Some(folder) = &code.folder {
            annotations.insert("trainyard.dev/workdir".to_owned(), folder.to_string_lossy().into());
        }
    }
    if let Some(folder) = &output {
        annotations.insert(results::ANNOTATION.to_owned(), folder.to_string_lossy().into());
    }
    job["metadata"]["annotations"] = annotations.into();
    match pods {
        Pods::Here => {}
        Pods::Image => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Code, Start};
    use crate::runtime::Runtime;
    use crate::setting::Setting;
    use crate::spec::Spec;
    use api::trainer::names::{LABEL_ANCESTOR, LABEL_FRAMEWORK};
    use std::path::Path;

    fn code(script: &str, folder: Option<&str>) -> Code {
        Code {
            script: script.into(),
            named: script.into(),
            folder: folder.map(PathBuf::from),
            start: Start::Python,
            module: None,
        }
    }

    fn steps_of(runtime: &Value) -> Vec<String> {
        Runtime { object: runtime.clone(), kind: "TrainingRuntime" }.steps()
    }

    fn job(spec: &Spec, code: &Code, pods: &Pods, runtime: &Value, kind: &'static str) -> Value {
        let given = spec.env.iter().filter_map(|flag| flag.split_once('='));
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let setting = Setting::of(spec, code, given).unwrap();
        let runtime = Runtime { object: runtime.clone(), kind };
        manifest(&Ready { spec: spec.clone(), code: code.clone(), setting, runtime, warm: false }, pods)
    }

    #[test]
    fn flags_become_the_job() {
        let spec = Spec::of_words(&[
            "--nodes",
            "2",
            "--nproc-per-node",
            "2",
            "--gpus",
            "1",
            "-e",
            "A=b=c",
            "t.py",
            "--lr",
            "1",
        ]);
        let runtime = json!({"metadata": {"labels": {"trainer.kubeflow.org/framework": "torch"}}});
        let job = job(&spec, &code("/w/t.py", None), &Pods::Here, &runtime, "ClusterTrainingRuntime");
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
        let spec = Spec::of_words(&["-e", "A=b", "-e", "OMPI_MCA_btl=self", "t.py"]);
        let runtime = json!({"metadata": {"labels": {"trainer.kubeflow.org/framework": "mlx"}}});
        let job = job(&spec, &code("/w/t.py", None), &Pods::Here, &runtime, "ClusterTrainingRuntime");
        let words = job["spec"]["trainer"]["args"].as_array().unwrap();
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        assert_eq!(words[1..5], ["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"]);
        assert_eq!(words[words.len() - 2..], ["python3", "/w/t.py"]);
        let given: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "-x").map(|pair| pair[1]).collect();
        assert!(given.contains(&"A") && given.contains(&"PYTHONUNBUFFERED"), "{given:?}");
        assert!(!given.contains(&"OMPI_MCA_btl"), "{given:?}");
    }

    #[test]
    fn without_a_framework_processes_are_told_their_ranks() {
        let spec = Spec::of_words(&["--nodes", "3", "--runtime", "plain", "-e", "MASTER_PORT=1234", "t.py"]);
        let steps =
            json!([{"name": "work", "template": {"spec": {"template": {"spec": {"containers": [{"name": NODE}]}}}}}]);
        let runtime = json!({"metadata": {"name": "plain", "labels": {LABEL_FRAMEWORK: "plain"}},
            "spec": {"template": {"spec": {"replicatedJobs": steps}}}});
        let job = job(&spec, &code("/w/t.py", None), &Pods::Here, &runtime, "ClusterTrainingRuntime");
        let env = job["spec"]["trainer"]["env"].as_array().unwrap();
        let of = |name: &str| env.iter().filter(|variable| variable["name"] == name).collect::<Vec<_>>();
        assert_eq!(of("RANK")[0]["valueFrom"]["fieldRef"]["fieldPath"], RANK_FIELD_PATH);
        assert_eq!(of("WORLD_SIZE")[0]["value"], "3");
        assert_eq!(of("MASTER_ADDR")[0]["value"], "$(TRAINYARD_JOB)-work-0-0.$(TRAINYARD_JOB)");
        assert_eq!(of("MASTER_PORT"), [&json!({"name": "MASTER_PORT", "value": "1234"})], "--env wins");
        let words = job["spec"]["trainer"]["args"].as_array().unwrap();
        assert_eq!(words[1..], [json!("python3"), json!("/w/t.py")]);
    }

    #[test]
    fn on_a_cluster_the_code_is_mounted_where_the_users_code_runs() {
        let step = |name: &str, ancestor: &str| {
            json!({"name": name, "template": {"metadata": {"labels": {LABEL_ANCESTOR: ancestor}},
                "spec": {"template": {"spec": {"containers": [{"name": NODE}]}}}}})
        };
        let jobs = [step("dataset-initializer", "dataset-initializer"), step("node", ""), step("launcher", "trainer")];
        let runtime = json!({"metadata": {"labels": {LABEL_FRAMEWORK: "torch"}},
            "spec": {"template": {"spec": {"replicatedJobs": jobs}}}});
        assert_eq!(steps_of(&runtime), ["node", "launcher"]);
        let pods = |script: &str| Pods::Elsewhere {
            script: script.into(),
            volume: json!({"name": VOLUME}),
            steps: steps_of(&runtime),
        };
        let spec = Spec::of_words(&["--image", "mine:1", "-e", "A=b", "train.py", "--lr", "1"]);
        let of = |code: &Code, pods: &Pods| job(&spec, code, pods, &runtime, "TrainingRuntime");
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

        assert_eq!(alone["metadata"]["annotations"]["trainyard.dev/script"], "/w/train.py");
        let folder = of(&code("/w/src/train.py", Some("/w")), &pods("/mnt/trainyard/src/train.py"));
        assert_eq!(folder["metadata"]["annotations"]["trainyard.dev/workdir"], "/w");
        let words = folder["spec"]["trainer"]["args"].as_array().unwrap();
        assert_eq!(words[..3], [json!(MOUNT), json!("torchrun"), json!("/mnt/trainyard/src/train.py")]);
        assert!(
            code("/w/src/train.py", Some("/w"))
                .inside(Path::new("/w"))
                .is_ok_and(|path| path == Path::new("src/train.py"))
        );
        assert!(code("/x/train.py", Some("/w")).inside(Path::new("/w")).is_err());
    }
}
