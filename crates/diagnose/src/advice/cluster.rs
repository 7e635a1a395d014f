//! Advice about states of a job, and about what a cluster or this machine's node does with its pods.

use super::{Advice, advice as say};
use crate::reason::Reason;

const PODS: (&str, &str) = ("see the pods", "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide");
const EVENTS: (&str, &str) = ("see all events", "{kubectl} get events --sort-by=.lastTimestamp");

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    states(reason)
        .or_else(|| unmade(reason))
        .or_else(|| unplaced(reason))
        .or_else(|| unstarted(reason))
        .or_else(|| ended(reason))
}

fn states(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::Complete => say(&["the job is complete"], &[]),
        Reason::Running => say(&["the job is running"], &[]),
        Reason::Starting => say(&["its pods are starting", "its pods are starting"], &[]),
        Reason::InitializerRunning => say(
            &["{step} is at work; the nodes start when it is complete", "an initializer is at work"],
            &[("follow it", "trainyard logs -f {job} --step {step}{flags}")],
        ),
        Reason::Suspended => say(
            &["it was suspended by {by} {ago} ago", "it was suspended by {by}", "it is suspended"],
            &[("start it again", "trainyard resume {job}{flags}")],
        ),
        Reason::QueuedByKueue => say(
            &[
                "Kueue holds it back in queue {queue}: {message}",
                "it waits until Kueue admits it from queue {queue}",
                "it waits until Kueue admits it",
            ],
            &[
                ("see what the queue has and holds", "{kubectl} describe localqueue {queue}"),
                ("see its workload", "{kubectl} get workloads.kueue.x-k8s.io"),
            ],
        ),
        Reason::ManagedElsewhere => say(
            &["it is run elsewhere, by {manager}: nothing is made here", "it is run elsewhere"],
            &[("see who is to run it", "{kubectl} get trainjob {job} -o yaml")],
        ),
        Reason::RetryWaiting => say(
            &[
                "attempt {before} of {most} has failed; attempt {attempt} starts in {left}",
                "an attempt has failed; the next one starts after a pause",
            ],
            &[("start it at once", "{kubectl} annotate trainjob {job} trainyard.dev/retry-at-")],
        ),
        Reason::Stuck => say(
            &[
                "no rank has written a line or reported progress for {silent}",
                "no rank has written a line or reported progress for ten minutes",
            ],
            &[
                ("@local see where rank {rank} stands (uv tool install py-spy)", "py-spy dump --pid {pid}"),
                ("@local see where a rank stands: py-spy dump --pid {no_pid} (uv tool install py-spy)", ""),
                ("@cluster see where a rank stands: py-spy dump --pid PID, in its pod (uv tool install py-spy)", ""),
                ("compare the last lines of the ranks", "trainyard logs {job} --tail 5{flags}"),
                ("stop it; its settings are kept", "trainyard suspend {job}{flags}"),
            ],
        ),
        Reason::Slow => say(
            &["a report takes {now} now and took {before} before", "the job gets on more slowly than before"],
            &[
                ("see how it went", "trainyard metrics {job}{flags}"),
                ("@local see what else is running", "top -b -n 1"),
                ("@cluster see how busy the nodes are", "{kubectl} top nodes"),
            ],
        ),
        _ => None,
    }
}

fn unmade(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::RuntimeMissing => say(
            &["there is no runtime {runtime}", "the runtime that it names does not exist"],
            &[
                ("see which runtimes there are, then start the job with one of them", "trainyard runtimes{flags}"),
                ("remove this job", "trainyard delete {job}{flags}"),
            ],
        ),
        Reason::NoController => say(
            &[
                "nothing was made of it in {age}: no controller is at work",
                "nothing was made of it: no controller is at work",
            ],
            &[("see what is missing", "trainyard doctor{flags}")],
        ),
        Reason::QuotaExceeded => say(
            &[
                "quota {quota} refuses its pods: {resources}",
                "quota {quota} refuses its pods",
                "a quota refuses its pods",
            ],
            &[
                ("see what the quota allows and what is used", "{kubectl} describe resourcequota"),
                ("let other jobs end, or ask for less", "trainyard get{flags}"),
            ],
        ),
        Reason::AdmissionRefused => say(
            &[
                "{webhook} refuses it: {message}",
                "the API server refuses it: {message}",
                "the API server or a webhook refuses it",
            ],
            &[(
                "change what is refused in the job or its runtime, and make the job again",
                "{kubectl} get trainjob {job} -o yaml",
            )],
        ),
        Reason::PodSecurityRefused => say(
            &[
                "the namespace's Pod Security level {level} refuses its pods: {message}",
                "the namespace's Pod Security level refuses its pods",
            ],
            &[(
                "ask for pods that keep to the level",
                "{kubectl} annotate trainjob {job} trainyard.dev/pod-security=restricted",
            )],
        ),
        Reason::WebhookDown => say(
            &[
                "webhook {webhook} does not answer: {message}",
                "webhook {webhook} does not answer",
                "a webhook that must be asked does not answer",
            ],
            &[
                ("see whether what serves it is up", "trainyard doctor{flags}"),
                (
                    "see which webhooks there are",
                    "{kubectl} get validatingwebhookconfigurations,mutatingwebhookconfigurations",
                ),
            ],
        ),
        Reason::ServiceAccountMissing => say(
            &["its pods' service account {account} does not exist", "its pods' service account does not exist"],
            &[("make it", "{kubectl} create serviceaccount {account}")],
        ),
        Reason::NamespaceEnding => say(
            &["namespace {ns} is being deleted", "its namespace is being deleted"],
            &[("start it in another namespace", "{kubectl} get namespaces")],
        ),
        Reason::StepWaiting => say(
            &["{waiting} waits until {awaited} is {wanted_state}", "a step waits for another one"],
            &[("see what the awaited step does", "trainyard logs {job} --step {awaited}{flags}")],
        ),
        Reason::PodsMissing => say(
            &["no pods were made in {age}", "no pods were made yet"],
            &[EVENTS, ("see whether the controllers are well", "trainyard doctor{flags}")],
        ),
        Reason::MpiJobInvalid => say(
            &["its spec cannot be run: {message}", "its spec cannot be run"],
            &[("correct the spec; the controller looks again at once", "{kubectl} edit mpijob {job}")],
        ),
        Reason::ChildNameTaken => say(
            &[
                "an object called {child} exists already, and is not this job's",
                "an object of a name that it needs exists already, and is not this job's",
            ],
            &[
                (
                    "see whose it is",
                    "{kubectl} get service/{child} configmap/{child} secret/{child} job/{child} pod/{child} --ignore-not-found",
                ),
                ("delete it, or give the job another name", ""),
            ],
        ),
        _ => None,
    }
}

fn unplaced(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::NeverFits => say(
            &[
                "each node of the job needs {needs} {resource}, and no node has more than {most}: it can never start",
                "a pod asks for more {resource} than any node has: it can never start",
                "a pod asks for more than any node has: it can never start",
            ],
            &[
                ("ask for less", "{rerun_fits}"),
                ("remove the job, and make it again with less", "trainyard delete {job}{flags}"),
                ("see what the nodes have", "{kubectl} describe nodes"),
            ],
        ),
        Reason::Busy => say(
            &[
                "{resource} is in use: a pod needs {needs}, and {free} of {of} are free",
                "{resource} is in use by other pods; it starts when enough is free",
                "what it asks for is in use",
            ],
            &[
                ("see who uses it, and wait or stop one", "trainyard get -A{flags}"),
                ("see what is in use on the nodes", "{kubectl} describe nodes"),
                ("or ask for less", "{rerun_fits}"),
            ],
        ),
        Reason::NodeTainted => say(
            &[
                "the nodes have the taint {taint}, which its pods do not tolerate",
                "the nodes have taints that its pods do not tolerate",
            ],
            &[
                ("see the taints", "{kubectl} get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints"),
                ("tolerate it in the runtime's pod template, or take it off a node", ""),
            ],
        ),
        Reason::NodeSelector => say(
            &[
                "no node has the labels that its pods ask for: {selector}",
                "no node has the labels that its pods ask for",
            ],
            &[
                ("see the nodes' labels", "{kubectl} get nodes --show-labels"),
                ("correct nodeSelector or affinity in the runtime or the job", "{kubectl} get trainjob {job} -o yaml"),
            ],
        ),
        Reason::NodesNotReady => say(
            &["no node is ready for new pods"],
            &[
                ("see why", "{kubectl} describe nodes"),
                ("@local see whether this machine's node is at work", "trainyard status{flags}"),
                ("@cluster let a cordoned node take pods again", "{kubectl} uncordon {node}"),
            ],
        ),
        Reason::GangWaiting => say(
            &["its pods start together: {message}", "its pods start together, and not all of them are there"],
            &[PODS, ("or ask for fewer nodes", "{rerun_nodes}")],
        ),
        Reason::EarlierRunEnding => say(
            &[
                "{message}; this run starts after them",
                "pods of the run before it are still ending; this run starts after them",
            ],
            &[("see them end", "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -w")],
        ),
        Reason::SchedulingGated => say(
            &["scheduling gate {gate} holds its pods back", "a scheduling gate holds its pods back"],
            &[("see who set it", "{kubectl} get pod {pod} -o yaml")],
        ),
        Reason::Unschedulable => say(
            &["the scheduler finds no node: {message}", "the scheduler finds no node for its pods"],
            &[("see the nodes", "{kubectl} describe nodes"), PODS],
        ),
        Reason::VolumeMissing => say(
            &["PersistentVolumeClaim {claim} does not exist", "a PersistentVolumeClaim that it uses does not exist"],
            &[("see which there are", "{kubectl} get pvc"), ("make it, or name another in the runtime", "")],
        ),
        Reason::VolumePending => say(
            &[
                "PersistentVolumeClaim {claim} is not bound",
                "a PersistentVolumeClaim that it uses is not bound to a volume",
            ],
            &[
                ("see why", "{kubectl} describe pvc {claim}"),
                ("see why", "{kubectl} get pvc,events"),
                ("see which storage classes there are", "{kubectl} get storageclass"),
            ],
        ),
        _ => None,
    }
}

fn unstarted(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::ImagePull => say(
            &[
                "image {image} cannot be pulled: {cause}",
                "image {image} cannot be pulled",
                "its image cannot be pulled",
            ],
            &[
                ("check name, tag and access from here", "docker manifest inspect {image}"),
                (
                    "a private registry needs imagePullSecrets in the runtime or on the service account",
                    "{kubectl} get serviceaccount default -o yaml",
                ),
                (
                    "remove the job, then start it with an image that is there (--image)",
                    "trainyard delete {job}{flags}",
                ),
            ],
        ),
        Reason::InvalidImage => say(
            &["{image} is no valid name of an image", "the image's name is not valid"],
            &[("remove the job, then start it with a valid image (--image)", "trainyard delete {job}{flags}")],
        ),
        Reason::ConfigMissing => say(
            &[
                "{missing} does not exist, and container {container} uses it",
                "a Secret or ConfigMap that container {container} uses cannot be had: {message}",
                "a Secret, ConfigMap or key that the container uses does not exist",
            ],
            &[
                ("see which there are", "{kubectl} get configmaps,secrets"),
                ("make {missing}; the pod starts by itself then", ""),
            ],
        ),
        Reason::MountFailed => say(
            &[
                "volume {volume} cannot be mounted: {message}",
                "a volume cannot be mounted: {message}",
                "a volume cannot be mounted",
            ],
            &[("see what there is", "{kubectl} get configmaps,secrets,pvc"), EVENTS],
        ),
        Reason::CannotStart => say(
            &[
                "the command {command} cannot be started: {message}",
                "container {container} cannot be started: {message}",
                "a container cannot be started",
            ],
            &[
                ("@local put the command on this machine's PATH; images are ignored here", "which {command}"),
                ("@cluster the image must have it: use another (--image) or another command", ""),
                ("remove the job, and make it again with another command", "trainyard delete {job}{flags}"),
            ],
        ),
        Reason::SandboxFailed => say(
            &["node {node} cannot set up pod {pod}: {message}", "the node cannot set up the pod"],
            &[
                ("see how the node is", "{kubectl} describe node {node}"),
                ("move the pod elsewhere: keep others off this node, then delete it", "{kubectl} cordon {node}"),
                (
                    "repair the network plugin or the container runtime of the pod's node; the pod is tried again by itself",
                    "",
                ),
            ],
        ),
        Reason::PortsTaken => say(
            &["the job needs {ports} free ports in a row, and {message}", "the node has no free ports for the job"],
            &[
                ("see which jobs run", "trainyard get -A{flags}"),
                ("wait until others end theirs, or ask them to; the pod is tried again by itself", ""),
            ],
        ),
        Reason::CrashLoop => say(
            &[
                "container {container} of {step} has failed {restarts} times, the last time with exit code {code}",
                "a container fails again and again",
            ],
            &[
                ("stop it; its settings are kept", "trainyard suspend {job}{flags}"),
                ("run it so that the first failure ends it", "{rerun}"),
            ],
        ),
        Reason::ProbeFailed => say(
            &["a probe of container {container} failed: {message}", "a probe failed, so the container was ended"],
            &[("correct the probe in the runtime, or give the container longer to start", "")],
        ),
        _ => None,
    }
}

fn ended(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::DeadlineExceeded => say(
            &[
                "it was active for longer than its limit of {limit}",
                "it was active for longer than it may (activeDeadlineSeconds)",
            ],
            &[
                ("see how far it came", "trainyard metrics {job}{flags}"),
                (
                    "run it again with a longer limit (--timeout, or activeDeadlineSeconds), or from its last checkpoint",
                    "{rerun}",
                ),
            ],
        ),
        Reason::Evicted => say(
            &[
                "{who} was evicted from node {node}: {message}",
                "{who} was evicted: {message}",
                "a pod was evicted because its node ran short of memory or disk",
            ],
            &[
                ("see what the node has left", "{kubectl} describe node {node}"),
                ("ask for what it needs, so that it is placed where there is room", "{rerun_memory}"),
                ("run it again", "{rerun}"),
                ("where it wrote too much: ask for ephemeral-storage (resourcesPerNode), or write to a volume", ""),
                ("give its containers requests of memory and disk (resourcesPerNode), and make the job again", ""),
            ],
        ),
        Reason::Preempted => say(
            &[
                "{who} made room for something of higher priority: {message}",
                "{who} made room for something of higher priority",
                "a pod made room for something of higher priority",
            ],
            &[
                ("give the job a higher priority class", "{kubectl} get priorityclasses"),
                ("retry by itself: trainyard run --retries N", "{rerun}"),
            ],
        ),
        Reason::NodeLost => say(
            &[
                "node {node}, on which {who} ran, did not answer, and its pods were given up at {given_up}",
                "node {node}, on which {who} ran, has not answered since {since}",
                "node {node}, on which {who} ran, is gone or does not answer",
                "a node that it ran on is gone or does not answer",
            ],
            &[("see the nodes", "{kubectl} get nodes -o wide"), ("run it again", "{rerun}")],
        ),
        Reason::NodeShutdown => say(
            &[
                "node {node}, on which {who} ran, was shut down or drained",
                "a node that it ran on was shut down or drained",
            ],
            &[("see the nodes", "{kubectl} get nodes"), ("run it again", "{rerun}")],
        ),
        Reason::PodDeleted => say(
            &["{who} was deleted while it ran", "a pod was deleted while it ran"],
            &[EVENTS, ("run it again", "{rerun}")],
        ),
        Reason::SupervisorLost => say(
            &[
                "the process that kept {who} on this machine was ended",
                "the process that kept the pod on this machine was ended",
            ],
            &[
                (
                    "@local see whether the kernel did it for memory",
                    "dmesg -T | grep -i -E 'out of memory|oom-kill' | tail",
                ),
                ("run it again", "{rerun}"),
            ],
        ),
        _ => None,
    }
}
