//! Flux: an HPC scheduler of its own inside the pods, installed into any image by an init container.
//! Source: upstream's `pkg/runtime/framework/plugins/flux`.

use super::{Build, BuildError, Findings, Plugin, Settings, Validation, apply, keys};
use crate::info::{Container, Info};
use crate::job::{Job, list};
use crate::names::{Ancestor, NODE, SUFFIX_FLUX_CURVE, SUFFIX_FLUX_ENTRYPOINT};
use crate::runtime::Framework;
use crate::upsert;
use api::field::{Error, Path};
use api::object::{self, Gvk, Target};
use api::trainer::FluxPolicy;
use reconcile::{Generator, Op};
use serde_json::{Value, json};

const INSTALLER: &str = "flux-installer";
const INSTALL_VOLUME: &str = "flux-install";
const INSTALL_DIR: &str = "/mnt/flux";
const SOFTWARE_VOLUME: &str = "spack-install";
const SOFTWARE_DIR: &str = "/opt/software";
const SCRIPTS_DIR: &str = "/etc/flux-config";
const CURVE_VOLUME: &str = "flux-curve";
const CURVE_DIR: &str = "/curve";
const MEMORY_VOLUME: &str = "shared-memory";
const MEMORY_DIR: &str = "/dev/shm";

/// What is wrong with less than one process on a node.
pub const TOO_FEW_PROCESSES: &str = "must be greater than or equal to 1";

const INIT: &str = include_str!("flux/init.sh");
const ENTRYPOINT: &str = include_str!("flux/entrypoint.sh");

/// Active where `mlPolicy.flux` is set. Node count and the user's variables come from PlainML.
pub struct Flux;

impl Plugin for Flux {
    fn name(&self) -> &'static str {
        "Flux"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        let Framework::Flux(policy) = &cx.info.framework else { return };
        // the schema says so, too, where the cluster has ours; a broker without tasks would never start
        let spec = Path::new("spec");
        match (cx.new.num_proc_per_node(), policy.num_proc_per_node) {
            (Some(processes), _) if processes < 1 => {
                let field = spec.child("trainer").child("numProcPerNode");
                findings.errors.push(Error::invalid(&field, processes, TOO_FEW_PROCESSES));
            }
            (None, Some(processes)) if processes < 1 => {
                let detail = format!("mlPolicy.flux.numProcPerNode of the runtime {TOO_FEW_PROCESSES}");
                findings.errors.push(Error::invalid(&spec.child("runtimeRef"), cx.spec["runtimeRef"].clone(), detail));
            }
            _ => {}
        }
        for set in cx.info.pod_sets.iter().filter(|set| set.name == NODE) {
            if set.init_containers.iter().any(|c| c.name == INSTALLER) {
                let field = Path::new("spec").child("trainer").child("initContainers");
                let detail = format!("InitContainer '{INSTALLER}' is reserved");
                findings.errors.push(Error::invalid(&field, INSTALLER, detail));
            }
        }
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        let Framework::Flux(_) = &info.framework else { return Ok(()) };
        wrap_command(info);
        let installer = installer(job, BrokerSettings::of(info).view_image);
        let scripts = scripts_name(job);
        for set in info.pod_sets.iter_mut().filter(|set| set.name == NODE) {
            for volume in volumes(job) {
                upsert::volume(&mut set.volumes, volume);
            }
            set.init_containers.push(installer.clone());
            let Some(node) = set.container_mut(NODE) else { continue };
            for mount in [
                json!({"name": INSTALL_VOLUME, "mountPath": INSTALL_DIR}),
                json!({"name": SOFTWARE_VOLUME, "mountPath": SOFTWARE_DIR}),
                json!({"name": scripts, "mountPath": SCRIPTS_DIR, "readOnly": true}),
                json!({"name": CURVE_VOLUME, "mountPath": CURVE_DIR, "readOnly": true}),
                json!({"name": MEMORY_VOLUME, "mountPath": MEMORY_DIR, "readOnly": true}),
            ] {
                upsert::mount(&mut node.volume_mounts, mount);
            }
        }
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let Framework::Flux(policy) = &cx.info.framework else { return Ok(Vec::new()) };
        let mut scripts = cx.job.child("v1", "ConfigMap", &scripts_name(cx.job));
        scripts["data"] = json!({
            "init.sh": init_script(cx.info, cx.job),
            "entrypoint.sh": entrypoint_script(cx.info, cx.job, policy),
        });
        let mut children = vec![apply(scripts)];
        // Q-28 (fixed): upstream derives the key from the TrainJob's uid, which is no secret.
        children.extend(keys::generate(cx, SUFFIX_FLUX_CURVE, Generator::CurveKeyPair, |secret| {
            secret["stringData"] = json!({"curve.cert": certificate(&cx.job.name)});
        }));
        Ok(children)
    }

    fn reads(&self, job: &Job, _settings: &Settings) -> Vec<Target> {
        vec![keys::secret(job, SUFFIX_FLUX_CURVE)]
    }

    fn watches(&self) -> Vec<Gvk> {
        keys::watches()
    }
}

fn scripts_name(job: &Job) -> String {
    format!("{}{SUFFIX_FLUX_ENTRYPOINT}", job.name)
}

/// What variables of the trainer's container, the TrainJob's before the runtime's, say about the broker.
struct BrokerSettings {
    /// `FLUX_VIEW_IMAGE`: the image that holds Flux; its operating system should be the training image's.
    view_image: String,
    /// `FLUX_NETWORK_DEVICE`.
    device: String,
    /// `FLUX_QUEUE_POLICY`.
    queue_policy: String,
}

impl BrokerSettings {
    /// Variables with a source count for nothing: their values are not known here.
    fn of(info: &Info) -> Self {
        let node = info.by_ancestor(Ancestor::Trainer).and_then(|set| set.container(NODE));
        let get = |name: &str, default: &str| {
            let found = node.into_iter().flat_map(|n| &n.env).find(|e| object::text(e, "name") == name);
            found.and_then(|e| e.get("value")?.as_str()).unwrap_or(default).to_owned()
        };
        Self {
            view_image: get("FLUX_VIEW_IMAGE", "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"),
            device: get("FLUX_NETWORK_DEVICE", "eth0"),
            queue_policy: get("FLUX_QUEUE_POLICY", "fcfs"),
        }
    }
}

/// Puts the entrypoint before the user's command, which becomes its first argument. The runtime's arguments follow as
/// further arguments unless the TrainJob has its own.
fn wrap_command(info: &mut Info) {
    let node = info.by_ancestor(Ancestor::Trainer).and_then(|set| set.container(NODE));
    let command = info.main.command.clone().or_else(|| node.map(|n| n.command.clone())).unwrap_or_default();
    let args = info.main.args.take();
    // Q-27 (fixed): upstream passes the runtime's arguments on even where the TrainJob replaces them.
    if args.is_some() && runtime_has_args(info) {
        info.main.args = Some(Vec::new());
    }
    let words: Vec<String> = command.into_iter().chain(args.unwrap_or_default()).collect();
    info.main.command = Some(vec!["/bin/bash".to_owned(), format!("{SCRIPTS_DIR}/entrypoint.sh"), shell_words(&words)]);
}

fn runtime_has_args(info: &Info) -> bool {
    let trainers = info.pod_sets.iter().zip(list(&info.template, "replicatedJobs"));
    trainers.filter(|(set, _)| set.ancestor == Some(Ancestor::Trainer)).any(|(_, job)| {
        let containers = job.pointer("/template/spec/template/spec/containers").and_then(Value::as_array);
        containers.into_iter().flatten().any(|c| object::text(c, "name") == NODE && !list(c, "args").is_empty())
    })
}

/// The words as a shell reads them back. A single word is taken for a command line without quotes, as upstream takes every
/// command.
// Q-27 (fixed): upstream joins words with spaces and lets the shell take them apart anywhere.
fn shell_words(words: &[String]) -> String {
    let quoted: Vec<String> = match words {
        [line] => line.split_whitespace().map(shell_word).collect(),
        words => words.iter().map(|word| shell_word(word)).collect(),
    };
    quoted.join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Nodes of the job. Q-26 (fixed): upstream crashes where the TrainJob does not say.
fn nodes(info: &Info) -> i32 {
    info.by_ancestor(Ancestor::Trainer).or_else(|| info.by_name(NODE)).map_or(1, |set| set.count).max(1)
}

/// `0` for one, `0-3` for four.
fn range(count: i64) -> String {
    if count <= 1 { "0".to_owned() } else { format!("0-{}", count - 1) }
}

fn init_script(info: &Info, job: &Job) -> String {
    let settings = BrokerSettings::of(info);
    INIT.replace("{{hosts}}", &format!("{}-{NODE}-0-[{}]", job.name, range(nodes(info).into())))
        .replace("{{bind}}", &format!("tcp://{}:%p", settings.device))
        .replace("{{connect}}", &format!("tcp://%h.{}.{}.svc.cluster.local:%p", job.name, job.namespace))
        .replace("{{policy}}", &settings.queue_policy)
}

fn entrypoint_script(info: &Info, job: &Job, policy: &FluxPolicy) -> String {
    let nodes = i64::from(nodes(info));
    let tasks = i64::from(job.num_proc_per_node().or(policy.num_proc_per_node).unwrap_or(1));
    let mut resources = format!("--cores={}", range(tasks));
    let mut flags = format!("-N {nodes} -n {}", tasks * nodes);
    let gpus = info.gpus_per_node(job);
    if gpus > 0 {
        // Flux reads -g as GPUs of each task; upstream passes those of a node, and so do its recordings.
        resources.push_str(&format!(" --gpu={}", range(gpus)));
        flags.push_str(&format!(" -g {gpus}"));
    }
    ENTRYPOINT
        .replace("{{resources}}", &resources)
        .replace("{{lead}}", &format!("{}-{NODE}-0-0", job.name))
        .replace("{{flags}}", &flags)
}

/// A CURVE certificate as ZeroMQ's tools write it, before its keys are filled in.
fn certificate(name: &str) -> String {
    format!(
        "#  ZeroMQ CURVE Secret Certificate\n#  Generated by Kubeflow Trainer\n\n\
         metadata\n    name = \"{name}\"\n\
         curve\n    public-key = \"{{public}}\"\n    secret-key = \"{{private}}\"\n"
    )
}

fn volumes(job: &Job) -> [Value; 5] {
    let scripts = scripts_name(job);
    [
        json!({"name": SOFTWARE_VOLUME, "emptyDir": {}}),
        json!({"name": INSTALL_VOLUME, "emptyDir": {}}),
        json!({"name": scripts, "configMap": {"name": scripts, "defaultMode": 0o755}}),
        json!({"name": MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}}),
        json!({"name": CURVE_VOLUME, "secret": {"secretName": keys::secret(job, SUFFIX_FLUX_CURVE).key.name, "defaultMode": 0o400}}),
    ]
}

fn installer(job: &Job, image: String) -> Container {
    Container {
        name: INSTALLER.to_owned(),
        image: Some(image),
        command: vec!["/bin/bash".to_owned(), format!("{SCRIPTS_DIR}/init.sh")],
        volume_mounts: vec![
            json!({"name": INSTALL_VOLUME, "mountPath": INSTALL_DIR}),
            json!({"name": scripts_name(job), "mountPath": SCRIPTS_DIR, "readOnly": true}),
        ],
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{child, children, enforced, faults, job, replicated, runtime};
    use super::*;
    use crate::runtime::Runtime;

    fn flux(node: Value) -> Runtime {
        runtime(json!({"mlPolicy": {"numNodes": 1, "flux": {"numProcPerNode": 2}}}), &[node])
    }

    fn node_with(member: &str, value: Value) -> Value {
        let mut node = replicated("node", "trainer");
        node["template"]["spec"]["template"]["spec"]["containers"][0][member] = value;
        node
    }

    #[test]
    fn the_command_is_wrapped() {
        let plain = replicated("node", "trainer");
        let own_args = node_with("args", json!(["runtime"]));
        let own_command = node_with("command", json!(["lmp", "-in", "a b"]));
        let cases = [
            (&plain, json!({"command": ["python", "a.py"], "args": ["--x", "1"]}), "python a.py --x 1", None),
            (&plain, json!({"command": ["python a.py"]}), "python a.py", None),
            (&plain, json!({"command": ["bash", "-c", "echo 'hi' $X"]}), r"bash -c 'echo '\''hi'\'' $X'", None),
            (&plain, json!({}), "", None),
            (&own_command, json!({}), "lmp -in 'a b'", None),
            (&own_args, json!({"command": ["c"]}), "c", None),
            (&own_args, json!({"command": ["c"], "args": ["mine"]}), "c mine", Some(vec![])),
        ];
        for (node, trainer, line, args) in cases {
            let info = enforced(&job(json!({"trainer": trainer})), &flux(node.clone()));
            let command = info.main.command.unwrap();
            assert_eq!(command[..2], ["/bin/bash", "/etc/flux-config/entrypoint.sh"]);
            assert_eq!(command[2], line, "{trainer}");
            assert_eq!(info.main.args, args, "{trainer}");
        }
    }

    #[test]
    fn a_node_has_a_process() {
        let node = || replicated("node", "trainer");
        let of_runtime = |processes: i64| {
            runtime(json!({"mlPolicy": {"numNodes": 1, "flux": {"numProcPerNode": processes}}}), &[node()])
        };
        let told = |spec: Value, runtime: &Runtime| faults(&Flux, &job(spec), runtime, &[]);
        let own = |processes: i64| json!({"trainer": {"numProcPerNode": processes}});
        assert_eq!(
            told(own(0), &of_runtime(2)),
            [format!("spec.trainer.numProcPerNode: Invalid value: 0: {TOO_FEW_PROCESSES}")]
        );
        let errors = told(json!({}), &of_runtime(0));
        assert!(errors.len() == 1 && errors[0].starts_with("spec.runtimeRef: Invalid value: "), "{errors:?}");
        for (spec, processes) in [(own(1), 0), (own(1), 2), (json!({}), 1)] {
            assert!(told(spec.clone(), &of_runtime(processes)).is_empty(), "{spec} {processes}");
        }
    }

    #[test]
    fn quoted_words_are_what_a_shell_reads_back() {
        let words: Vec<String> = ["a b", "", "it's", "$HOME", "x=1"].map(str::to_owned).into();
        assert_eq!(shell_words(&words), r"'a b' '' 'it'\''s' '$HOME' x=1");
    }

    #[test]
    fn scripts_hold_the_size_of_the_job() {
        let gpus = json!({"limits": {"nvidia.com/gpu": 2}});
        let cases = [
            (json!({}), "-N 1 -n 2 ", "--cores=0-1 ", "train-node-0-[0]"),
            (json!({"trainer": {"numNodes": 2}}), "-N 2 -n 4 ", "--cores=0-1 ", "train-node-0-[0-1]"),
            (
                json!({"trainer": {"numNodes": 3, "numProcPerNode": 1, "resourcesPerNode": gpus}}),
                "-N 3 -n 3 -g 2 ",
                "--cores=0 --gpu=0-1 ",
                "train-node-0-[0-2]",
            ),
        ];
        for (spec, flags, resources, hosts) in cases {
            let ops = children(&job(spec), &flux(replicated("node", "trainer")), &Settings::default(), &[]).unwrap();
            let data = &child(&ops, "ConfigMap").unwrap()["data"];
            let (init, entrypoint) = (data["init.sh"].as_str().unwrap(), data["entrypoint.sh"].as_str().unwrap());
            assert!(entrypoint.contains(flags) && entrypoint.contains(resources), "{entrypoint}");
            assert!(entrypoint.contains("\"train-node-0-0\""));
            assert!(init.contains(&format!("host = \"{hosts}\"")), "{init}");
            assert!(init.contains("default_connect = \"tcp://%h.train.ns.svc.cluster.local:%p\""));
            assert!(!init.contains("{{") && !entrypoint.contains("{{"), "every mark is filled in");
        }
    }

    #[test]
    fn settings_come_from_variables() {
        let node = node_with(
            "env",
            json!([
            {"name": "FLUX_VIEW_IMAGE", "value": "runtime"}, {"name": "FLUX_QUEUE_POLICY", "value": "easy"}]),
        );
        let job = job(json!({"trainer": {"env": [{"name": "FLUX_VIEW_IMAGE", "value": "mine"}]}}));
        let info = enforced(&job, &flux(node));
        assert_eq!(info.pod_sets[0].init_containers[0].image.as_deref(), Some("mine"));
        assert!(init_script(&info, &job).contains("queue-policy = \"easy\""));
    }

    #[test]
    fn the_certificate_is_made_once() {
        let (job, runtime) = (job(json!({})), flux(replicated("node", "trainer")));
        let ops = children(&job, &runtime, &Settings::default(), &[]).unwrap();
        let Some(Op::CreateGenerated { object, generator: Generator::CurveKeyPair }) = ops.get(1) else {
            panic!("{ops:?}")
        };
        let text = object["stringData"]["curve.cert"].as_str().unwrap();
        assert!(text.contains("public-key = \"{public}\"\n    secret-key = \"{private}\"\n"), "{text}");
        let again = children(&job, &runtime, &Settings::default(), std::slice::from_ref(object)).unwrap();
        assert!(child(&again, "Secret").is_none());
    }

    #[test]
    fn the_installers_name_is_reserved() {
        let mut node = replicated("node", "trainer");
        node["template"]["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "flux-installer"}]);
        assert_eq!(
            faults(&Flux, &job(json!({})), &flux(node), &[]),
            [
                "spec.trainer.initContainers: Invalid value: \"flux-installer\": InitContainer 'flux-installer' is reserved"
            ]
        );
    }
}
