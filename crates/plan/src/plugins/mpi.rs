//! MPI: SSH keys and a hostfile for `mpirun` in the launcher, which reaches into the pods of `node`.
//! Source: upstream's `pkg/runtime/framework/plugins/mpi`.

use super::{Build, BuildError, Findings, Plugin, Settings, Validation, apply, keys};
use crate::info::{Container, Info, PodSet};
use crate::job::Job;
use crate::mpi;
use crate::names::env::{OMPI_DEFAULT_SLOTS, OMPI_HOSTFILE, OMPI_KEEP_FQDN, OMPI_RSH_ARGS};
use crate::names::{LAUNCHER, NODE, SUFFIX_MPI_HOSTFILE, SUFFIX_MPI_SSH_AUTH};
use crate::runtime::Framework;
use crate::upsert;
use api::field::{Error, Path};
use api::mpi::Implementation;
use api::mpi::names::{CONFIG_PATH as HOSTFILE_DIR, HOSTFILE, PRIVATE_KEY, PUBLIC_KEY, env::SSH_ARGS};
use api::object::{Gvk, Target};
use api::trainer::{MpiImplementation, MpiPolicy};
use reconcile::Op;
use serde_json::{Value, json};

/// Sorted: faults name offenders in this order.
const RESERVED: [&str; 4] = [OMPI_HOSTFILE, OMPI_KEEP_FQDN, OMPI_DEFAULT_SLOTS, OMPI_RSH_ARGS];

/// Names of variables, separated by semicolons, that Open MPI passes on to all ranks.
const OMPI_ENV_LIST: &str = "OMPI_MCA_mca_base_env_list";

const SSH_VOLUME: &str = "mpi-ssh-auth";
const HOSTFILE_VOLUME: &str = "mpi-hostfile";

/// Active where `mlPolicy.mpi` is set.
pub struct Mpi;

impl Plugin for Mpi {
    fn name(&self) -> &'static str {
        "MPI"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        let (Framework::Mpi(policy), Some(trainer)) = (&cx.info.framework, &cx.new.trainer) else { return };
        let section = Path::new("spec").child("trainer");
        let nodes = trainer.num_nodes.unwrap_or(1);
        let has_both = [LAUNCHER, NODE].iter().all(|name| cx.info.by_name(name).is_some());
        if nodes >= 2 && policy.run_launcher_as_node() && !has_both {
            let detail = "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either \
                          launcher and node";
            findings.errors.push(Error::invalid(&section.child("numNodes"), nodes, detail));
        }
        let used: Vec<&str> =
            RESERVED.into_iter().filter(|name| trainer.env.iter().any(|e| e["name"] == **name)).collect();
        if !used.is_empty() {
            let detail = format!("must not have reserved envs, invalid envs configured: [{}]", used.join(" "));
            findings.errors.push(Error::invalid(&section.child("env"), trainer.env.clone(), detail));
        }
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        let Framework::Mpi(policy) = info.framework.clone() else { return Ok(()) };
        // Q-25 (kept): the runtime's own numNodes counts the trainer step, which is the launcher in the built-in runtimes.
        if let (Some(nodes), Some(set)) = (job.num_nodes(), info.by_name_mut(NODE)) {
            set.count = if policy.run_launcher_as_node() { (nodes - 1).max(1) } else { nodes };
        }
        let slots = slots(info, job, &policy);
        let passes_on = job.trainer.as_ref().is_some_and(|t| !t.env.is_empty()) && passes_variables_on(job, info);
        for set in &mut info.pod_sets {
            let launcher = set.name == LAUNCHER;
            if !launcher && set.name != NODE {
                continue;
            }
            upsert::volume(&mut set.volumes, ssh_volume(job));
            if launcher {
                upsert::volume(&mut set.volumes, hostfile_volume(job));
            }
            let Some(node) = set.container_mut(NODE) else { continue };
            let path = policy.ssh_auth_mount_path();
            upsert::mount(&mut node.volume_mounts, json!({"name": SSH_VOLUME, "mountPath": path}));
            let variables = job.trainer.as_ref().map(|trainer| trainer.env.as_slice()).unwrap_or_default();
            if launcher {
                upsert::mount(&mut node.volume_mounts, json!({"name": HOSTFILE_VOLUME, "mountPath": HOSTFILE_DIR}));
                tell_mpirun(node, policy.implementation(), slots)?;
                if passes_on {
                    let names: Vec<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
                    upsert::env_value(&mut node.env, OMPI_ENV_LIST, names.join(";"));
                }
            } else {
                // Fixed (trainer#4076): where ssh starts programs with the environment of the pod, as on this machine, this is enough.
                upsert::env_all(&mut node.env, variables);
            }
        }
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let Framework::Mpi(policy) = &cx.info.framework else { return Ok(Vec::new()) };
        let secret = keys::generate(cx, SUFFIX_MPI_SSH_AUTH, mpi::KEYS, |secret| {
            mpi::hold_keys(secret);
            secret["immutable"] = json!(true);
        });
        let mut children: Vec<Op> = secret.into_iter().collect();
        let mut hostfile = cx.job.child("v1", "ConfigMap", &hostfile_name(cx.job));
        hostfile["data"] = json!({HOSTFILE: hosts(cx.info, cx.job, policy)});
        children.push(apply(hostfile));
        Ok(children)
    }

    fn reads(&self, job: &Job, _settings: &Settings) -> Vec<Target> {
        vec![keys::secret(job, SUFFIX_MPI_SSH_AUTH)]
    }

    fn watches(&self) -> Vec<Gvk> {
        keys::watches()
    }
}

/// Whether mpirun can be told to pass the TrainJob's variables on to all ranks: it is called in the command, and is not told which
/// variables to pass on already. Open MPI refuses to start where both are given.
pub(crate) fn passes_variables_on(job: &Job, info: &Info) -> bool {
    let words = words(job, info);
    let is_set = job.trainer.iter().flat_map(|trainer| &trainer.env).any(|variable| variable["name"] == OMPI_ENV_LIST);
    calls_mpirun(&words) && !words.iter().any(|word| chooses(word)) && !is_set
}

/// Whether mpirun is called in the command, is told which variables to pass on, and not of all of the TrainJob's.
pub(crate) fn chooses_variables(job: &Job, info: &Info) -> bool {
    let words = words(job, info);
    let named = |name: &str| {
        words.windows(2).any(|pair| {
            pair.first().is_some_and(|flag| chooses(flag))
                && pair.get(1).is_some_and(|given| given.split('=').next() == Some(name))
        })
    };
    let variables =
        job.trainer.iter().flat_map(|trainer| &trainer.env).filter_map(|variable| variable["name"].as_str());
    calls_mpirun(&words) && words.iter().any(|word| chooses(word)) && !variables.into_iter().all(named)
}

fn calls_mpirun(words: &[&str]) -> bool {
    words.iter().any(|word| ["mpirun", "mpiexec"].iter().any(|program| word.contains(program)))
}

fn chooses(word: &str) -> bool {
    matches!(word, "-x" | "--x") || word.contains("mca_base_env_list")
}

/// The words of the launcher's command: the TrainJob's, else the runtime's.
fn words<'a>(job: &'a Job, info: &'a Info) -> Vec<&'a str> {
    let trainer = job.trainer.as_ref();
    let given = trainer.into_iter().flat_map(|trainer| trainer.command.iter().chain(&trainer.args).flatten());
    let of_runtime = info.by_name(LAUNCHER).and_then(|set| set.container(NODE)).map(|node| node.command.as_slice());
    let has_own = trainer.is_some_and(|trainer| trainer.command.is_some());
    let of_runtime = of_runtime.filter(|_| !has_own).unwrap_or_default();
    given.chain(of_runtime).flat_map(|word| word.split_whitespace()).collect()
}

fn hostfile_name(job: &Job) -> String {
    format!("{}{SUFFIX_MPI_HOSTFILE}", job.name)
}

/// Processes of one node: what the TrainJob says, else the runtime's number, which as 1 gives way to several GPUs.
fn slots(info: &Info, job: &Job, policy: &MpiPolicy) -> i64 {
    match (job.num_proc_per_node(), policy.num_proc_per_node()) {
        (Some(own), _) => own.into(),
        (None, 1) => info.gpus_per_node(job).max(1),
        (None, runtime) => runtime.into(),
    }
}

/// One line for each pod that runs processes.
fn hosts(info: &Info, job: &Job, policy: &MpiPolicy) -> String {
    let slots = slots(info, job, policy);
    let is_node = |set: &&PodSet| set.name == NODE || (set.name == LAUNCHER && policy.run_launcher_as_node());
    let sets = info.pod_sets.iter().filter(is_node);
    let hosts = sets.flat_map(|set| info.endpoints(&job.name, set));
    mpi::hostfile(Implementation::OpenMpi, hosts, slots)
}

fn tell_mpirun(node: &mut Container, implementation: MpiImplementation, slots: i64) -> Result<(), BuildError> {
    match implementation {
        MpiImplementation::OpenMpi => {
            upsert::env_value(&mut node.env, OMPI_HOSTFILE, format!("{HOSTFILE_DIR}/{HOSTFILE}"));
            upsert::env_value(&mut node.env, OMPI_KEEP_FQDN, "true");
            upsert::env_value(&mut node.env, OMPI_DEFAULT_SLOTS, slots.to_string());
            upsert::env_value(&mut node.env, OMPI_RSH_ARGS, SSH_ARGS);
            Ok(())
        }
        MpiImplementation::Unset => Err(BuildError::new("MPI implementation for \"\" doesn't supported")),
    }
}

fn ssh_volume(job: &Job) -> Value {
    let item = |key, path, mode| json!({"key": key, "path": path, "mode": mode});
    json!({"name": SSH_VOLUME, "secret": {
        "secretName": keys::secret(job, SUFFIX_MPI_SSH_AUTH).key.name,
        "defaultMode": 0o400,
        "items": [
            item(PRIVATE_KEY, "id_rsa", 0o640),
            item(PUBLIC_KEY, "id_rsa.pub", 0o644),
            item(PUBLIC_KEY, "authorized_keys", 0o644),
        ],
    }})
}

fn hostfile_volume(job: &Job) -> Value {
    json!({"name": HOSTFILE_VOLUME, "configMap": {
        "name": hostfile_name(job),
        "items": [{"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444}],
    }})
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{child, children, enforced, env, faults, job, replicated, runtime};
    use super::*;
    use crate::runtime::Runtime;
    use reconcile::Generator;

    fn mpi(policy: Value) -> Runtime {
        let spec = json!({"mlPolicy": {"numNodes": 1, "mpi": policy}});
        runtime(spec, &[replicated("node", ""), replicated("launcher", "trainer")])
    }

    fn hostfile(spec: Value, runtime: &Runtime) -> String {
        let ops = children(&job(spec), runtime, &Settings::default(), &[]).unwrap();
        child(&ops, "ConfigMap").unwrap()["data"]["hostfile"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_hostfile_lists_nodes_in_order() {
        let apart = mpi(json!({"numProcPerNode": 8}));
        let node = mpi(json!({"runLauncherAsNode": true}));
        let gpus = json!({"limits": {"nvidia.com/gpu": 4}});
        let cases = [
            (&apart, json!({}), "train-node-0-0.train slots=8\n"),
            (&apart, json!({"numNodes": 2}), "train-node-0-0.train slots=8\ntrain-node-0-1.train slots=8\n"),
            (&apart, json!({"numNodes": 0}), ""),
            (&apart, json!({"resourcesPerNode": gpus}), "train-node-0-0.train slots=8\n"),
            (&apart, json!({"resourcesPerNode": gpus, "numProcPerNode": 3}), "train-node-0-0.train slots=3\n"),
            (&node, json!({"numNodes": 2}), "train-node-0-0.train slots=1\ntrain-launcher-0-0.train slots=1\n"),
            (
                &node,
                json!({"resourcesPerNode": gpus}),
                "train-node-0-0.train slots=4\ntrain-launcher-0-0.train slots=4\n",
            ),
            (
                &node,
                json!({"numNodes": 3}),
                "train-node-0-0.train slots=1\ntrain-node-0-1.train slots=1\ntrain-launcher-0-0.train slots=1\n",
            ),
        ];
        for (runtime, trainer, expected) in cases {
            assert_eq!(hostfile(json!({"trainer": trainer}), runtime), expected, "{trainer}");
        }
    }

    #[test]
    fn nodes_get_keys_and_the_launcher_the_hostfile_too() {
        let info = enforced(&job(json!({})), &mpi(json!({"sshAuthMountPath": "/keys", "numProcPerNode": 2})));
        let [node, launcher] = info.pod_sets.as_slice() else { panic!("two sets") };
        let names =
            |set: &PodSet| set.volumes.iter().map(|v| v["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(node), ["mpi-ssh-auth"]);
        assert_eq!(names(launcher), ["mpi-ssh-auth", "mpi-hostfile"]);
        assert_eq!(node.containers[0].volume_mounts, [json!({"name": "mpi-ssh-auth", "mountPath": "/keys"})]);
        assert!(node.containers[0].env.is_empty());
        assert_eq!(launcher.containers[0].volume_mounts[1], json!({"name": "mpi-hostfile", "mountPath": "/etc/mpi"}));
        assert_eq!(
            env(&launcher.containers[0].env),
            [
                "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
                "OMPI_MCA_orte_keep_fqdn_hostnames=true",
                "OMPI_MCA_orte_set_default_slots=2",
                "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10",
            ]
        );
    }

    #[test]
    fn keys_are_made_once() {
        let runtime = mpi(json!({}));
        let job = job(json!({}));
        let first = children(&job, &runtime, &Settings::default(), &[]).unwrap();
        let Op::CreateGenerated { object, generator: Generator::SshKeyPair } = &first[0] else { panic!("{first:?}") };
        assert_eq!((&object["type"], &object["immutable"]), (&json!("kubernetes.io/ssh-auth"), &json!(true)));
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
        let again = children(&job, &runtime, &Settings::default(), std::slice::from_ref(object)).unwrap();
        assert!(child(&again, "Secret").is_none());
        assert!(child(&again, "ConfigMap").is_some());
    }

    #[test]
    fn only_open_mpi_can_be_built() {
        let error = children(&job(json!({})), &mpi(json!({"mpiImplementation": ""})), &Settings::default(), &[]);
        assert!(error.unwrap_err().0.starts_with("MPI implementation for"));
    }

    #[test]
    fn finds_fault_in_upstreams_words() {
        let alone =
            runtime(json!({"mlPolicy": {"mpi": {"runLauncherAsNode": true}}}), &[replicated("launcher", "trainer")]);
        assert_eq!(
            faults(&Mpi, &job(json!({"trainer": {"numNodes": 2}})), &alone, &[]),
            ["spec.trainer.numNodes: Invalid value: 2: must have 1 when MPI trainingRuntime with enabled \
              runLauncherAsNode does not have either launcher and node"]
        );
        assert!(faults(&Mpi, &job(json!({"trainer": {"numNodes": 1}})), &alone, &[]).is_empty());
        let spec = json!({"trainer": {"env": [{"name": "OMPI_MCA_plm_rsh_args"}, {"name": "OMPI_MCA_orte_default_hostfile"}]}});
        let found = faults(&Mpi, &job(spec), &mpi(json!({})), &[]);
        assert!(
            found[0].ends_with(
                "must not have reserved envs, invalid envs configured: [OMPI_MCA_orte_default_hostfile \
                                OMPI_MCA_plm_rsh_args]"
            ),
            "{found:?}"
        );
    }
}
