//! What a job does, as the JobSets that a cluster runs.

use super::{CONFIGURATION, HAS_SETUP, LOGS, NAME, RESOURCES, USER};
use api::jobset;
use api::object;
use api::sky::{LaunchManaged, keys};
use serde_json::{Value, json};

/// What a job does, and with what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// The Cluster's name, uid and namespace.
    pub cluster: String,
    pub cluster_uid: String,
    pub namespace: String,
    /// What the user calls the cluster.
    pub cluster_shown: String,
    /// Number of the job on its cluster, from 1.
    pub id: u32,
    /// Name of the task; empty where it has none.
    pub name: String,
    pub user: String,
    /// How many machines it is for.
    pub nodes: u32,
    /// GPUs for each machine, as asked for.
    pub gpus: f64,
    /// What it asked for, as tables show it.
    pub resources: String,
    /// `sky-2026-01-01-00-00-00-000000`.
    pub run_timestamp: String,
    /// The user's script.
    pub script: String,
    pub is_setup: bool,
    pub has_setup: bool,
    /// What tells what is set up from another configuration.
    pub configuration: String,
    /// The Secret with the task's variables; empty for none.
    pub secret: String,
    /// `cluster_name`, `cloud`, `region`, `zone`.
    pub cluster_info: Value,
    /// The uid of the Launch that submits it; empty for none.
    pub launch: String,
    /// The managed job whose attempt it is.
    pub managed: Option<LaunchManaged>,
}

/// What runs around a user's script: makes the folders, keeps the output in a file and puts a prefix before its lines, hands on
/// SIGTERM, and ends as the script does. Its own stderr goes nowhere: bash would say there that a signal ended the script. Arguments:
/// the script, the file of the log, the prefix and its end. A script that is longer than one argument may be comes in several
/// arguments, whose rest follows these; it is put together in a file beside the log.
const AROUND: &str = r#"log=$HOME/$2
mkdir -p ~/sky_workdir "${log%/*}" && cd ~/sky_workdir || exit 1
exec > >(trap '' TERM INT; tee -a -- "$log" | sed -u "s/^/($3pid=$$$4) /") 2>/dev/null
out=$!
run=(-c "$1")
if (($# > 4)); then
  run=("${log%.log}.sh")
  (umask 077; printf %s "$1" "${@:5}" >"$run") || exit 1
fi
bash "${run[@]}" 2>&1 &
task=$!
trap 'kill -TERM "$task" 2>/dev/null' TERM INT
wait "$task"; code=$?
while kill -0 "$task" 2>/dev/null; do wait "$task"; code=$?; done
exec >&- 2>&-
for ((i = 0; i < 100; i++)); do kill -0 "$out" 2>/dev/null || break; sleep 0.02; done
exit "$code""#;

/// Bytes of a script in one argument. Linux takes 128 KiB (`MAX_ARG_STRLEN`), with its end.
const PIECE_MAX: usize = 96 * 1024;

/// A script in pieces that are short enough for arguments; at least one.
fn pieces(script: &str) -> Vec<&str> {
    let (mut rest, mut found) = (script, Vec::new());
    while rest.len() > PIECE_MAX {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_MAX));
        found.push(piece);
        rest = after;
    }
    if found.is_empty() || !rest.is_empty() {
        found.push(rest);
    }
    found
}

impl Submission {
    /// A job of a Cluster, under its number, for so many machines.
    pub fn on(cluster: &Value, id: u32, nodes: u32) -> Self {
        Self {
            cluster: object::meta(cluster, "name").to_owned(),
            cluster_uid: object::uid(cluster).to_owned(),
            namespace: object::meta(cluster, "namespace").to_owned(),
            id,
            nodes,
            ..Self::default()
        }
    }

    fn stage(&self) -> &'static str {
        if self.is_setup { "setup" } else { "run" }
    }

    /// `dev-3`, `dev-3-setup`.
    pub fn object_name(&self) -> String {
        let end = if self.is_setup { "-setup" } else { "" };
        format!("{}-{}{end}", self.cluster, self.id)
    }

    /// `sky-TIMESTAMP_CLUSTER_JOBID`; of a managed job, the same in all attempts.
    pub fn task_id(&self) -> String {
        if let Some(managed) = &self.managed {
            return managed.task_id.clone();
        }
        format!("{}_{}_{}", self.run_timestamp, self.cluster_shown, self.id)
    }

    /// The file of a rank's output, in the home directory of its machine.
    pub fn log_file(&self, rank: u32) -> String {
        log_file(&self.run_timestamp, self.is_setup, self.nodes, rank)
    }

    /// The JobSet, suspended.
    pub fn jobset(&self) -> Value {
        let mut annotations = json!({
            NAME: self.name, USER: self.user, RESOURCES: self.resources, LOGS: self.run_timestamp,
            keys::GPUS: self.gpus.to_string(),
        });
        if self.has_setup && !self.is_setup {
            annotations[HAS_SETUP] = "true".into();
        }
        if self.is_setup {
            annotations[CONFIGURATION] = self.configuration.as_str().into();
        }
        if self.is_held() && !self.is_setup {
            annotations[keys::HELD] = "true".into();
        }
        let ranks: Vec<Value> = (0..self.nodes).map(|rank| self.rank(rank)).collect();
        let mut labels = self.labels();
        if !self.launch.is_empty() {
            labels[keys::LAUNCH] = self.launch.as_str().into();
        }
        json!({
            "apiVersion": jobset::API_VERSION, "kind": jobset::KIND,
            "metadata": {
                "name": self.object_name(), "namespace": self.namespace,
                "labels": labels, "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": api::sky::API_VERSION, "kind": "Cluster", "name": self.cluster, "uid": self.cluster_uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"suspend": true, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": ranks},
        })
    }

    /// Whether its `run` waits for its managed job to release it.
    fn is_held(&self) -> bool {
        self.managed.as_ref().is_some_and(|managed| managed.held)
    }

    /// Labels of its JobSet and its pods.
    fn labels(&self) -> Value {
        let mut labels =
            json!({keys::CLUSTER: self.cluster, keys::JOB: self.id.to_string(), keys::STAGE: self.stage()});
        if let Some(managed) = &self.managed {
            labels[keys::MANAGED_JOB] = managed.job.as_str().into();
            labels[keys::TASK] = managed.task.to_string().into();
            labels[keys::ATTEMPT] = managed.attempt.to_string().into();
        }
        labels
    }

    fn rank(&self, rank: u32) -> Value {
        let name = name_of_rank(rank);
        let shown = if self.name.is_empty() { "task" } else { &self.name };
        let (before, after) = match (self.is_setup, self.nodes) {
            (true, 0..=1) => ("setup ".to_owned(), String::new()),
            (true, _) => ("setup ".to_owned(), ", ip=$(TRAINYARD_NODE_IP)".to_owned()),
            (false, 0..=1) => (format!("{}, ", plain(shown)), String::new()),
            (false, _) if rank == 0 => (format!("{name}, rank=0, "), String::new()),
            (false, _) => (format!("{name}, rank={rank}, "), ", ip=$(TRAINYARD_NODE_IP)".to_owned()),
        };
        let log = self.log_file(rank);
        let literal = |text: &str| text.replace('$', "$$");
        let mut script = pieces(&self.script).into_iter();
        let first = script.next().unwrap_or_default();
        let args: Vec<String> = [log, before, after].into_iter().chain(script.map(literal)).collect();
        let mut container = json!({
            "name": "task", "image": "sky",
            "command": ["/bin/bash", "-c", literal(AROUND), "sky", literal(first)],
            "args": args,
            "env": self.environment(rank),
        });
        if !self.secret.is_empty() {
            container["envFrom"] = json!([{"secretRef": {"name": self.secret}}]);
        }
        let mut annotations = json!({keys::NODE_IPS: "", NODE_IP: ""});
        if self.is_held() {
            annotations[keys::HOSTS] = "".into();
        }
        let gpus = whole(self.gpus);
        if gpus > 0 && !self.is_setup {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus.to_string()}});
        }
        json!({"name": name, "replicas": 1, "template": {"spec": {
            "backoffLimit": 0, "completions": 1, "parallelism": 1,
            "template": {
                "metadata": {"labels": self.labels(), "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {keys::CLUSTER: self.cluster},
                    "tolerations": [{"key": keys::CLUSTER, "operator": "Equal", "value": self.cluster, "effect": "NoSchedule"}],
                    "containers": [container],
                },
            },
        }}})
    }

    fn environment(&self, rank: u32) -> Vec<Value> {
        let stage = if self.is_setup { "SKYPILOT_SETUP_" } else { "SKYPILOT_" };
        let text = |name: &str, value: String| json!({"name": name, "value": value.replace('$', "$$")});
        let field = |name: String, key: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.annotations['{key}']")}}});
        let gpus = whole(self.gpus).to_string();
        let mut env = vec![
            text("PYTHONUNBUFFERED", "1".into()),
            text("SKYPILOT_TASK_ID", self.task_id()),
            text("SKYPILOT_CLUSTER_INFO", self.cluster_info.to_string()),
            text("SKYPILOT_USER", self.user.clone()),
            text("SKYPILOT_USER_ID", self.user.clone()),
            text(&format!("{stage}NODE_RANK"), rank.to_string()),
            field(format!("{stage}NODE_IPS"), keys::NODE_IPS),
            field("TRAINYARD_NODE_IP".into(), NODE_IP),
            text(&format!("{stage}NUM_GPUS_PER_NODE"), gpus),
        ];
        if !self.is_setup {
            env.push(text("SKYPILOT_NUM_NODES", self.nodes.to_string()));
            env.push(text("SKYPILOT_INTERNAL_JOB_ID", self.id.to_string()));
        }
        let further = self.managed.iter().flat_map(|managed| &managed.env);
        env.extend(further.map(|(name, value)| text(name, value.clone())));
        env
    }
}

/// Annotation of a pod: the address of its machine.
pub(super) const NODE_IP: &str = "sky.trainyard.dev/node-ip";

/// Without what `sed` and `$(…)` would read.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._- ".contains(*c)).collect()
}

/// `head`, `worker1`, …
pub fn name_of_rank(rank: u32) -> String {
    if rank == 0 { "head".to_owned() } else { format!("worker{rank}") }
}

/// `sky_logs/TIMESTAMP/run.log`, in the home directory of the machine.
pub fn log_file(run_timestamp: &str, is_setup: bool, nodes: u32, rank: u32) -> String {
    let file = match (is_setup, nodes) {
        (true, _) => format!("setup-{}.log", name_of_rank(rank)),
        (false, 0..=1) => "run.log".to_owned(),
        (false, _) => format!("{rank}-{}.log", name_of_rank(rank)),
    };
    format!("sky_logs/{run_timestamp}/{file}")
}

/// GPUs that a process sees: those asked for, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn whole(gpus: f64) -> u32 {
    gpus.ceil().clamp(0.0, 1e6) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_scripts_go_in_pieces() {
        for script in [String::new(), "x".repeat(PIECE_MAX), "é".repeat(PIECE_MAX), "x€".repeat(PIECE_MAX)] {
            let pieces = pieces(&script);
            assert_eq!(pieces.concat(), script);
            assert!(!pieces.is_empty() && pieces.iter().all(|piece| piece.len() <= PIECE_MAX));
        }
    }
}
