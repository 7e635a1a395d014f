//! Volumes and mounts of a runtime that plugins would have replaced: the user's stay, and the owner is told.

use crate::info::Info;
use api::object;
use serde_json::Value;
use std::collections::BTreeSet;

/// The volumes, and the mounts of each container, of a pod set before any plugin.
pub struct Before {
    volumes: Vec<Value>,
    mounts: Vec<Vec<Value>>,
}

/// Something of ours that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The replicated job.
    pub step: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A volume of this name.
    Volume(String),
    /// A mount at this path, of our volume of this name.
    Mount { path: String, ours: String },
}

impl Kept {
    /// What its owner reads.
    pub fn sentence(&self) -> String {
        let step = &self.step;
        match &self.what {
            What::Volume(name) => {
                let lacks = lacks(name);
                format!(
                    "volume {name:?} of the runtime's step {step} stays in place of the one that the controller adds: {lacks}"
                )
            }
            What::Mount { path, ours } => {
                let lacks = lacks(ours);
                format!(
                    "the runtime's mount at {path} in step {step} stays in place of volume {ours:?} of the controller: {lacks}"
                )
            }
        }
    }
}

/// What a job lacks without a volume of ours.
fn lacks(volume: &str) -> &'static str {
    match volume {
        "kubeflow-trainer-token" => "the job cannot report its progress and metrics",
        "mpi-ssh-auth" => "mpirun uses the runtime's own SSH keys",
        "mpi-hostfile" => "mpirun uses the runtime's own hostfile",
        _ => "what it holds is missing",
    }
}

/// What the runtime mounts.
pub fn before(info: &Info) -> Vec<Before> {
    let of = |set: &crate::info::PodSet| Before {
        volumes: set.volumes.clone(),
        mounts: set.containers.iter().map(|container| container.volume_mounts.clone()).collect(),
    };
    info.pod_sets.iter().map(of).collect()
}

/// Puts back what plugins have replaced, and takes away mounts of ours whose volume is not ours then.
pub fn restore(before: Vec<Before>, info: &mut Info) -> Vec<Kept> {
    let mut kept = Vec::new();
    for (set, before) in info.pod_sets.iter_mut().zip(before) {
        let mut theirs: BTreeSet<String> = BTreeSet::new();
        for volume in before.volumes {
            let name = object::text(&volume, "name").to_owned();
            if let Some(now) = set.volumes.iter_mut().find(|now| object::text(now, "name") == name)
                && *now != volume
            {
                *now = volume;
                theirs.insert(name);
            }
        }
        let mut paths = Vec::new();
        for (container, mounts) in set.containers.iter_mut().zip(before.mounts) {
            for mount in &mounts {
                let path = object::text(mount, "mountPath");
                if let Some(now) = container.volume_mounts.iter_mut().find(|now| object::text(now, "mountPath") == path)
                    && now != mount
                {
                    let ours = object::text(now, "name").to_owned();
                    if !theirs.contains(&ours) && ours != object::text(mount, "name") {
                        paths.push(What::Mount { path: path.to_owned(), ours });
                    }
                    *now = mount.clone();
                }
            }
            container.volume_mounts.retain(|now| mounts.contains(now) || !theirs.contains(object::text(now, "name")));
        }
        let step = &set.name;
        let found = theirs.into_iter().map(What::Volume).chain(paths);
        for what in found {
            let item = Kept { step: step.clone(), what };
            if !kept.contains(&item) {
                kept.push(item);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::enforced_with;
    use crate::plugins::fixture::{job, replicated, runtime};
    use crate::plugins::{CaSource, Settings, StatusServer};
    use serde_json::json;

    fn reporting() -> Settings {
        let ca = CaSource::Inline("PEM".to_owned());
        Settings { status_server: Some(StatusServer { base_url: "https://s".to_owned(), ca }) }
    }

    #[test]
    fn the_users_volumes_and_mounts_stay_and_ours_go() {
        let dir = "/var/run/secrets/kubeflow/trainer";
        for (volume, path, part) in [
            ("kubeflow-trainer-token", dir, "volume \"kubeflow-trainer-token\""),
            ("kubeflow-trainer-token", "/elsewhere", "volume \"kubeflow-trainer-token\""),
            ("mine", dir, "mount at /var/run/secrets/kubeflow/trainer"),
        ] {
            let mut node = replicated("node", "trainer");
            let pod = &mut node["template"]["spec"]["template"]["spec"];
            let theirs = json!({"name": volume, "secret": {"secretName": "mine"}});
            let mount = json!({"name": volume, "mountPath": path});
            pod["volumes"] = json!([theirs]);
            pod["containers"][0]["volumeMounts"] = json!([mount]);
            let (info, kept) =
                enforced_with(&job(json!({"trainer": {}})), &runtime(json!({}), &[node]), &reporting()).unwrap();
            assert!(info.pod_sets[0].volumes.contains(&theirs));
            assert_eq!(info.pod_sets[0].containers[0].volume_mounts, [mount], "{volume} at {path}");
            let said: Vec<String> = kept.iter().map(Kept::sentence).collect();
            assert!(said.len() == 1 && said[0].contains(part) && said[0].contains("cannot report"), "{said:?}");
        }
        let (_, kept) = enforced_with(
            &job(json!({"trainer": {}})),
            &runtime(json!({}), &[replicated("node", "trainer")]),
            &reporting(),
        )
        .unwrap();
        assert_eq!(kept, []);
    }
}
