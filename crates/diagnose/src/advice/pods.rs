//! Advice about pods that a namespace's rules, the scheduler or the kubelet refuse.

use super::{Advice, advice as say};
use crate::reason::Reason;

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::LimitRange => say(
            &[
                "a LimitRange of the namespace refuses its pods: {message}",
                "a LimitRange of the namespace refuses its pods",
            ],
            &[
                ("see what it allows", "{kubectl} describe limitrange"),
                ("ask for that (resourcesPerNode), and make the job again", "trainyard delete {job}{flags}"),
            ],
        ),
        Reason::PriorityClassMissing => say(
            &["its pods' PriorityClass {class} does not exist", "its pods' PriorityClass does not exist"],
            &[
                ("see which there are", "{kubectl} get priorityclass"),
                ("name one of them in the runtime, or make it", "{kubectl} create priorityclass {class} --value=1000"),
            ],
        ),
        Reason::RuntimeClassMissing => say(
            &["its pods' RuntimeClass {class} does not exist", "its pods' RuntimeClass does not exist"],
            &[
                ("see which there are", "{kubectl} get runtimeclass"),
                ("name one of them in the runtime, or install what brings it (NVIDIA's: the GPU operator)", ""),
            ],
        ),
        Reason::PodsApart => say(
            &[
                "rules on where its pods may be beside each other leave no node: {message}",
                "rules on where its pods may be beside each other leave no node",
            ],
            &[
                (
                    "see on which nodes its pods are",
                    "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide",
                ),
                (
                    "ease topologySpreadConstraints (whenUnsatisfiable: ScheduleAnyway) or podAntiAffinity in the runtime",
                    "",
                ),
                ("see the nodes' zones", "{kubectl} get nodes -L topology.kubernetes.io/zone"),
            ],
        ),
        Reason::VolumeElsewhere => say(
            &[
                "the volume of PersistentVolumeClaim {claim} is of another zone or node than its pods may run on",
                "a volume is of another zone or node than its pods may run on",
            ],
            &[
                (
                    "see where the volumes are",
                    "{kubectl} get pv -o custom-columns=NAME:.metadata.name,CLAIM:.spec.claimRef.name,AFFINITY:.spec.nodeAffinity",
                ),
                ("let pods go there (nodeSelector), or use storage that all nodes reach (ReadWriteMany)", ""),
            ],
        ),
        Reason::ImagePlatform => say(
            &["image {image} is not built for the node's processor", "its image is not built for the node's processor"],
            &[
                ("see the nodes' processors", "{kubectl} get nodes -L kubernetes.io/arch"),
                (
                    "build it for them, and push it",
                    "docker buildx build --platform linux/amd64,linux/arm64 --push -t {image} .",
                ),
            ],
        ),
        Reason::RunsAsRoot => say(
            &[
                "container {container} must not run as root, and image {image} does",
                "a container must not run as root, and its image does",
            ],
            &[
                (
                    "name a user in the runtime's pod template: securityContext.runAsUser (1000), with fsGroup for its volumes",
                    "",
                ),
                ("or build the image with USER, by number", ""),
                ("then make the job again", "trainyard delete {job}{flags}"),
            ],
        ),
        _ => None,
    }
}
