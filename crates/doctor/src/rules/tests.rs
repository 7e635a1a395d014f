//! Cases as data: a state of a cluster, and the findings about it. Each case begins with a healthy cluster.

use super::judge;
use crate::facts::{Account, Facts, Probe, Right, Seen};
use crate::finding::Severity;
use api::mpi::names::LABEL_JOB_NAME;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOW: &str = "2026-01-01T01:00:00Z";
const LONG_AGO: &str = "2026-01-01T00:50:00Z";
const JUST_NOW: &str = "2026-01-01T00:59:30Z";

fn definition(name: &str, version: &str, fields: &[&str]) -> Value {
    let fields: BTreeMap<&str, Value> = fields.iter().map(|field| (*field, json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({"metadata": {"name": name, "creationTimestamp": LONG_AGO}, "spec": {"versions": [
        {"name": version, "served": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}})
}

fn deployment(namespace: &str, name: &str, image: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "status": {"readyReplicas": 1},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}}})
}

fn lease(namespace: &str, holder: &str, renewed: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "trainer.kubeflow.org"},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}})
}

fn webhooks(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "metadata": {"name": name}, "webhooks": [{"name": format!("w.{name}"), "failurePolicy": "Fail",
        "clientConfig": {"caBundle": "eA==", "service": {"namespace": "kubeflow-system", "name": "manager"}},
        "rules": [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"]}]}]})
}

fn right(verb: &str, resource: &str) -> Right {
    Right { verb: verb.to_owned(), resource: resource.to_owned(), namespace: "team".to_owned(), ..Right::default() }
}

fn trainjob(name: &str) -> Value {
    json!({"metadata": {"namespace": "team", "name": name, "uid": format!("{name}-uid"), "creationTimestamp": LONG_AGO},
        "spec": {"runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch"}}})
}

fn jobset(name: &str) -> Value {
    json!({"metadata": {"namespace": "team", "name": name, "creationTimestamp": LONG_AGO,
        "ownerReferences": [{"controller": true, "uid": format!("{name}-uid")}]}, "spec": {},
        "status": {"replicatedJobsStatus": [{"name": "node", "active": 1}]}})
}

fn of_jobset(name: &str, more: Value) -> Value {
    let mut object = json!({"metadata": {"namespace": "team", "name": format!("{name}-node-0"), "creationTimestamp": LONG_AGO,
        "labels": {"jobset.sigs.k8s.io/jobset-name": name}}});
    for (member, value) in more.as_object().into_iter().flatten() {
        object[member] = value.clone();
    }
    object
}

fn event(kind: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({"metadata": {"namespace": "team"}, "reason": reason, "message": message,
        "involvedObject": {"kind": kind, "name": name}})
}

/// A healthy cluster with one running job.
fn well() -> Facts {
    let names = ["trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io"];
    let expected: Vec<Value> = names.iter().map(|name| definition(name, "v1", &["a", "b"])).collect();
    let installed = names.iter().zip(&expected);
    Facts {
        now: NOW.parse().expect("a time"),
        patience: SignedDuration::from_secs(120),
        namespace: "team".to_owned(),
        user: "ann".to_owned(),
        only: None,
        flags: String::new(),
        server: "https://k".to_owned(),
        version: Seen::Known(json!({"major": "1", "minor": "33+", "gitVersion": "v1.33.1"})),
        health: Seen::Known("[+]ping ok\nreadyz check passed\n".to_owned()),
        installed: installed.map(|(name, kind)| ((*name).to_owned(), Seen::Known(Some(kind.clone())))).collect(),
        expected,
        own: vec![(right("create", "configmaps"), "run", Seen::Known(true))],
        account: Seen::Known(Some(Account {
            namespace: "kubeflow-system".to_owned(),
            name: "manager".to_owned(),
            rights: vec![(right("list", "secrets"), true), (right("watch", "secrets"), true)],
        })),
        webhooks: Seen::Known(vec![
            webhooks("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
            webhooks("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
        ]),
        endpoints: BTreeMap::from([(("kubeflow-system".to_owned(), "manager".to_owned()), Seen::Known(2))]),
        probe: Seen::Known(Probe::Refused),
        deployments: Seen::Known(vec![
            deployment("kubeflow-system", "manager", "r/trainyard:1"),
            deployment("jobset-system", "jobset-controller-manager", "r/jobset/jobset:v0.12"),
        ]),
        leases: Seen::Known(vec![lease("kubeflow-system", "a", JUST_NOW)]),
        cluster_runtimes: Seen::Known(vec![json!({"metadata": {"name": "torch"}})]),
        runtimes: Seen::Known(Vec::new()),
        trainjobs: Seen::Known(vec![trainjob("train")]),
        mpijobs: Seen::Known(Vec::new()),
        mpi_pods: Seen::Known(Vec::new()),
        searches: Seen::Known(Vec::new()),
        jobsets: Seen::Known(vec![jobset("train")]),
        jobs: Seen::Known(vec![of_jobset("train", json!({"status": {"active": 1}}))]),
        pods: Seen::Known(vec![of_jobset("train", json!({"status": {"phase": "Running"}}))]),
        nodes: Seen::Known(Vec::new()),
        events: Seen::Known(Vec::new()),
    }
}

#[test]
fn a_machine_says_whether_limits_hold() {
    let node = |said: &str| json!({"metadata": {"name": "here", "annotations": {"trainyard.dev/limits": said}}});
    let found = |version: &str, said: &str| {
        let version = Seen::Known(json!({"major": "1", "minor": "36", "gitVersion": version}));
        let facts = Facts { version, nodes: Seen::Known(vec![node(said)]), ..well() };
        let of_nodes = judge(&facts).into_iter().filter(|finding| finding.check == "nodes");
        of_nodes
            .map(|finding| format!("{} {}: {}", finding.severity.as_str(), finding.object, finding.message))
            .collect::<Vec<_>>()
    };
    let ours = "v1.36.3+trainyard-0.1.0";
    assert_eq!(found(ours, "enforced"), ["ok Node/here: limits of memory and processors are enforced"]);
    let cases = [
        (
            "memory watched, cpu not enforced: no cgroup",
            "limits of memory are enforced by looking once a second, those of processors are not enforced: no cgroup",
        ),
        ("cpu not enforced: no cpu", "limits of memory are enforced, those of processors are not enforced: no cpu"),
        (
            "not enforced: no cgroup",
            "limits of memory are not enforced, those of processors are not enforced: no cgroup",
        ),
    ];
    for (said, told) in cases {
        assert_eq!(found(ours, said), [format!("warning Node/here: {told}")]);
    }
    assert!(found("v1.36.3", "enforced").is_empty());
}

#[test]
fn mpijobs_and_searches_that_stand_still_are_told() {
    let made = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let mut facts = well();
    facts.now = "2026-01-01T01:00:00Z".parse().unwrap();
    facts.mpijobs = Seen::Known(vec![made("MPIJob", "pi"), made("MPIJob", "waits"), made("MPIJob", "held")]);
    facts.searches = Seen::Known(vec![made("OptimizationJob", "search")]);
    let mut pod = made("Pod", "waits-worker-0");
    pod["metadata"]["labels"] = json!({LABEL_JOB_NAME: "waits"});
    pod["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no GPUs"}]});
    facts.mpi_pods = Seen::Known(vec![pod]);
    if let Seen::Known(jobs) = &mut facts.mpijobs {
        jobs[2]["spec"]["runPolicy"]["suspend"] = true.into();
    }
    let told: Vec<String> = told(&facts).into_iter().filter(|line| line.contains("/ns/")).collect();
    let begins = [
        "error jobs MPIJob/ns/pi: no pods were created for it in 60m, and no event says why",
        "warning jobs MPIJob/ns/waits: its pods wait: ",
        "error jobs OptimizationJob/ns/search: no trial was started in 60m",
    ];
    assert_eq!(told.len(), begins.len(), "{told:#?}");
    for (line, begin) in told.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    assert!(told[0].contains("trainyard explain mpijob/pi") && told[2].contains("explain optimizationjob/search"));
    // a search with a trial makes progress
    let mut trial = made("TrainJob", "search-trial-0");
    trial["metadata"]["labels"] = json!({view::trials::PARENT: "search"});
    trial["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    push(&mut facts.trainjobs, trial);
    assert!(self::told(&facts).iter().all(|line| !line.contains("OptimizationJob")));
}

fn push(seen: &mut Seen<Vec<Value>>, object: Value) {
    match seen {
        Seen::Known(items) => items.push(object),
        Seen::Unknown(why) => panic!("{why}"),
    }
}

fn first(seen: &mut Seen<Vec<Value>>) -> &mut Value {
    match seen {
        Seen::Known(items) => &mut items[0],
        Seen::Unknown(why) => panic!("{why}"),
    }
}

/// All findings that report a problem, one per line.
fn told(facts: &Facts) -> Vec<String> {
    let ill = judge(facts).into_iter().filter(|finding| finding.severity != Severity::Ok);
    ill.map(|f| format!("{} {} {}: {} | {}", f.severity.as_str(), f.check, f.object, f.message, f.remedy)).collect()
}

#[test]
fn all_is_well() {
    assert_eq!(told(&well()), [""; 0]);
    assert!(judge(&well()).iter().all(|finding| finding.remedy.is_none()));
}

/// A change to the cluster, and how one finding must begin and what it must contain.
type Case = (fn(&mut Facts), &'static str, &'static str);

#[test]
fn each_fault_is_found() {
    let cases: &[Case] = &[
        // versions
        (
            |f| f.version = Seen::Known(json!({"major": "1", "minor": "30", "gitVersion": "v1.30.2"})),
            "error versions Server/https://k: Kubernetes v1.30.2 is older than 1.31",
            "upgrade",
        ),
        (
            |f| f.version = Seen::Unknown("needs get /version".into()),
            "unknown versions Server/https://k: unknown: needs",
            "",
        ),
        // kinds
        (
            |f| {
                f.installed.insert("trainjobs.trainer.kubeflow.org".into(), Seen::Known(None));
            },
            "error kinds CustomResourceDefinition/trainjobs.trainer.kubeflow.org: not installed",
            "kubectl apply --server-side --force-conflicts -k manifests/overlays/manager",
        ),
        (
            |f| {
                let old = definition("trainjobs.trainer.kubeflow.org", "v1", &["a"]);
                f.installed.insert("trainjobs.trainer.kubeflow.org".into(), Seen::Known(Some(old)));
            },
            "warning kinds CustomResourceDefinition/trainjobs.trainer.kubeflow.org: v1, installed 2026-01-01, is older than this command's: it \
             lacks spec.b",
            "-k manifests/crds",
        ),
        (
            |f| {
                let new = definition("jobsets.jobset.x-k8s.io", "v1", &["a", "b", "c"]);
                f.installed.insert("jobsets.jobset.x-k8s.io".into(), Seen::Known(Some(new)));
            },
            "warning kinds CustomResourceDefinition/jobsets.jobset.x-k8s.io: v1, installed 2026-01-01, is newer than this command's: it also has \
             spec.c",
            "newer trainyard",
        ),
        (
            |f| {
                let other = definition("jobsets.jobset.x-k8s.io", "v2", &["a", "b"]);
                f.installed.insert("jobsets.jobset.x-k8s.io".into(), Seen::Known(Some(other)));
            },
            "error kinds CustomResourceDefinition/jobsets.jobset.x-k8s.io: version v1 is not served; it has v2",
            "install JobSet",
        ),
        // rights
        (
            |f| f.own[0].2 = Seen::Known(false),
            "warning rights Namespace/team: you may not create configmaps (needed for: run)",
            "as an administrator: kubectl create role trainyard-user-1 -n team --verb=create --resource=configmaps && kubectl create \
             rolebinding trainyard-user-1 -n team --role=trainyard-user-1 --user=ann",
        ),
        (
            |f| {
                if let Seen::Known(Some(account)) = &mut f.account {
                    account.rights[0].1 = false;
                }
            },
            "error rights ServiceAccount/kubeflow-system/manager: it may not list secrets in namespace team",
            "kubectl apply --server-side --force-conflicts -k manifests/base/rbac",
        ),
        (
            |f| {
                if let Seen::Known(Some(account)) = &mut f.account {
                    account.rights.iter_mut().for_each(|(_, allowed)| *allowed = false);
                }
                let operator = first(&mut f.deployments);
                operator["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "yard"});
            },
            "error rights ServiceAccount/kubeflow-system/manager: it has none of the rights that it needs, so its role or binding is missing",
            "helm upgrade yard charts/trainyard --namespace kubeflow-system --reuse-values",
        ),
        (
            |f| f.account = Seen::Unknown("needs create on subjectaccessreviews.authorization.k8s.io".into()),
            "unknown rights ServiceAccount of the operator: unknown: needs create on subjectaccessreviews",
            "",
        ),
        // webhooks
        (
            |f| {
                f.webhooks =
                    Seen::Known(vec![webhooks("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org")])
            },
            "error webhooks ValidatingWebhookConfiguration/validator.trainer.kubeflow.org: not installed",
            "kubectl apply",
        ),
        (
            |f| push(&mut f.webhooks, webhooks("ValidatingWebhookConfiguration", "mine")),
            "warning webhooks ValidatingWebhookConfiguration/mine: it has webhooks for the same kinds, at Service \
             kubeflow-system/manager",
            "kubectl delete validatingwebhookconfiguration mine",
        ),
        (
            |f| first(&mut f.webhooks)["webhooks"][0]["clientConfig"]["caBundle"] = json!(""),
            "error webhooks MutatingWebhookConfiguration/defaulter.trainer.kubeflow.org: w.defaulter.trainer.kubeflow.org has no \
             caBundle",
            "the operator fills it in",
        ),
        (
            |f| {
                first(&mut f.webhooks)["webhooks"][0]["clientConfig"] =
                    json!({"caBundle": "eA==", "url": "https://127.0.0.1:9443/x"})
            },
            "error webhooks MutatingWebhookConfiguration/defaulter.trainer.kubeflow.org: an operator outside the cluster registered \
             it by URL, at https://127.0.0.1:9443; kubectl apply of the manifests is refused",
            "delete it, then apply the manifests again: kubectl delete mutatingwebhookconfiguration defaulter.trainer.kubeflow.org",
        ),
        (
            |f| f.endpoints.values_mut().for_each(|ready| *ready = Seen::Known(0)),
            "error webhooks ValidatingWebhookConfiguration/validator.trainer.kubeflow.org: nothing is ready behind its Service \
             kubeflow-system/manager",
            "kubectl -n kubeflow-system describe service manager",
        ),
        (
            |f| f.probe = Seen::Known(Probe::Taken),
            "error webhooks TrainJob/team (dry run): a TrainJob without a runtime is accepted",
            "",
        ),
        (
            |f| f.probe = Seen::Known(Probe::NoAnswer("failed calling webhook \"x\": refused".into())),
            "error webhooks TrainJob/team (dry run): TrainJobs cannot be created, because a webhook does not answer: failed calling",
            "is the operator running: kubectl -n kubeflow-system get deployments,pods",
        ),
        (
            |f| {
                f.probe = Seen::Known(Probe::Taken);
                let mut ours = webhooks("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org");
                ours["webhooks"][0]["namespaceSelector"] =
                    json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
                f.webhooks = Seen::Known(vec![ours]);
            },
            "warning webhooks TrainJob/team (dry run): TrainJobs of this namespace are not checked: the webhooks are for \
             namespaces with kubernetes.io/metadata.name=other",
            "-n",
        ),
        // controllers
        (
            |f| {
                first(&mut f.deployments)["spec"]["replicas"] = json!(0);
                f.leases = Seen::Known(vec![lease("kubeflow-system", "", LONG_AGO)]);
            },
            "error controllers Deployment/kubeflow-system/manager: it is scaled to 0 replicas: TrainJobs are not processed",
            "kubectl -n kubeflow-system scale deploy/manager --replicas=2",
        ),
        (
            |f| {
                first(&mut f.deployments)["spec"]["template"]["spec"]["containers"][0]["args"] =
                    json!(["--watch-namespace=ml"]);
                first(&mut f.deployments)["metadata"]["namespace"] = json!("ml");
                f.installed.insert("trainjobs.trainer.kubeflow.org".into(), Seen::Known(None));
            },
            "error kinds CustomResourceDefinition/trainjobs.trainer.kubeflow.org: not installed",
            "with `namespace: ml` in it: kubectl apply --server-side --force-conflicts -k manifests/overlays/namespaced",
        ),
        (
            |f| {
                let Seen::Known(deployments) = &mut f.deployments else { unreachable!("all is known") };
                deployments[1]["spec"]["replicas"] = json!(0);
                f.jobsets = Seen::Known(Vec::new());
            },
            "error controllers Deployment/jobset-system/jobset-controller-manager: it is scaled to 0 replicas: TrainJobs get a JobSet \
             and no pods",
            "kubectl -n jobset-system scale deploy/jobset-controller-manager --replicas=2",
        ),
        (
            |f| first(&mut f.deployments)["status"] = json!({}),
            "error controllers Deployment/kubeflow-system/manager: none of 1 replicas of r/trainyard:1 is ready",
            "kubectl -n kubeflow-system logs deploy/manager",
        ),
        (
            |f| {
                push(
                    &mut f.deployments,
                    deployment("kubeflow-system", "old", "ghcr.io/kubeflow/trainer/trainer-controller-manager"),
                )
            },
            "warning controllers Deployment/kubeflow-system/old: beside Deployment/kubeflow-system/manager it works on the same \
             kinds; both take part in one election",
            "scale deploy/old --replicas=0",
        ),
        (
            |f| {
                push(
                    &mut f.deployments,
                    deployment("kubeflow", "old", "ghcr.io/kubeflow/trainer/trainer-controller-manager"),
                )
            },
            "error controllers Deployment/kubeflow/old: beside Deployment/kubeflow-system/manager it works on the same kinds, and \
             both are at work",
            "kubectl -n kubeflow scale deploy/old --replicas=0",
        ),
        (
            |f| push(&mut f.leases, lease("kubeflow", "b", JUST_NOW)),
            "error controllers Lease/kubeflow/trainer.kubeflow.org: b leads, and a in another namespace",
            "keep one",
        ),
        (
            |f| f.leases = Seen::Known(vec![lease("kubeflow-system", "a", LONG_AGO)]),
            "error controllers Lease/kubeflow-system/trainer.kubeflow.org: no replica leads: a has not renewed the lease in time, 9m45s ago",
            "kubectl get deployments",
        ),
        (
            |f| {
                f.deployments = Seen::Known(Vec::new());
                f.leases = Seen::Known(Vec::new());
                f.probe = Seen::Known(Probe::Taken);
            },
            "error controllers controller of TrainJobs: none is there",
            "kubectl apply",
        ),
        (
            |f| {
                f.deployments = Seen::Known(Vec::new());
                f.leases = Seen::Known(Vec::new());
            },
            "warning controllers controller of TrainJobs: no Deployment and no Lease of one is visible, though its webhooks answer",
            "",
        ),
        (
            |f| {
                f.deployments = Seen::Known(Vec::new());
                f.leases = Seen::Known(Vec::new());
                f.probe = Seen::Unknown("needs more".into());
                first(&mut f.trainjobs)["status"] = json!({"jobsStatus": [{"name": "node"}]});
            },
            "warning controllers controller of TrainJobs: no Deployment and no Lease of one is visible, though TrainJobs have been worked on",
            "",
        ),
        (
            |f| {
                f.deployments = Seen::Known(vec![deployment("kubeflow-system", "manager", "trainyard")]);
                f.jobsets = Seen::Known(Vec::new());
            },
            "warning controllers controller of JobSets: no Deployment and no Lease of one is visible",
            "install JobSet",
        ),
        // runtimes
        (
            |f| {
                let mut job = trainjob("lost");
                job["spec"]["runtimeRef"]["name"] = json!("gone");
                job["metadata"]["creationTimestamp"] = json!(JUST_NOW);
                push(&mut f.trainjobs, job);
            },
            "error runtimes TrainJob/team/lost: its runtime does not exist: ClusterTrainingRuntime \"gone\"",
            "trainyard runtimes",
        ),
        (
            |f| first(&mut f.trainjobs)["spec"]["runtimeRef"] = json!({"kind": "TrainingRuntime", "name": "mine"}),
            "warning runtimes TrainJob/team/train: its runtime does not exist: TrainingRuntime \"mine\" (its pods go on)",
            "",
        ),
        (
            |f| {
                f.installed.insert("podgroups.scheduling.volcano.sh".into(), Seen::Known(None));
                first(&mut f.cluster_runtimes)["spec"] = json!({"podGroupPolicy": {"volcano": {}}});
            },
            "error runtimes Runtime/torch: it schedules gangs by volcano, and podgroups.scheduling.volcano.sh is not installed",
            "install volcano's scheduler",
        ),
        // jobs
        (
            |f| push(&mut f.trainjobs, trainjob("new")),
            "error jobs TrainJob/team/new: no JobSet was created for it in 10m, and no event says why: no controller is at work",
            "trainyard describe new -n team",
        ),
        (
            |f| {
                push(&mut f.trainjobs, trainjob("new"));
                push(&mut f.events, event("TrainJob", "new", "TrainJobResourcesCreationFailed", "too large"));
            },
            "error jobs TrainJob/team/new: no JobSet was created for it in 10m: TrainJobResourcesCreationFailed: too large",
            "",
        ),
        (
            |f| {
                let job = first(&mut f.trainjobs);
                job["metadata"]["deletionTimestamp"] = json!(LONG_AGO);
                job["metadata"]["finalizers"] = json!(["a.io/b"]);
            },
            "error jobs TrainJob/team/train: is being deleted for 10m, held by finalizers a.io/b",
            "kubectl -n team patch trainjob train --type=merge -p '{\"metadata\":{\"finalizers\":null}}'",
        ),
        (
            |f| {
                first(&mut f.jobsets)["metadata"]["deletionTimestamp"] = json!(LONG_AGO);
                first(&mut f.jobsets)["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
            },
            "error jobs JobSet/team/train: is being deleted for 10m, held by finalizers foregroundDeletion: what it owns is not gone",
            "grep train",
        ),
        (
            |f| first(&mut f.jobsets)["spec"]["suspend"] = json!(true),
            "error jobs JobSet/team/train: is suspended, though its TrainJob is not",
            "",
        ),
        (
            |f| {
                first(&mut f.jobsets)["spec"]["suspend"] = json!(true);
                first(&mut f.jobsets)["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team-a"});
            },
            "warning jobs JobSet/team/train: waits for Kueue to admit it from queue team-a",
            "get workloads.kueue.x-k8s.io",
        ),
        (
            |f| {
                first(&mut f.jobsets)["status"] = json!({});
                f.pods = Seen::Known(Vec::new());
            },
            "error jobs JobSet/team/train: it has no status 10m after it was made: JobSet's controller is not at work",
            "",
        ),
        (
            |f| {
                f.jobs = Seen::Known(Vec::new());
                f.pods = Seen::Known(Vec::new());
                push(&mut f.events, event("JobSet", "train", "JobCreationFailed", "no"));
            },
            "error jobs JobSet/team/train: no Jobs were created for it in 10m: JobCreationFailed: no",
            "describe jobset train",
        ),
        (
            |f| {
                first(&mut f.jobs)["status"] = json!({});
                f.pods = Seen::Known(Vec::new());
                push(&mut f.events, event("Job", "train-node-0", "FailedCreate", "exceeded quota: q"));
            },
            "error jobs JobSet/team/train: pods are refused: FailedCreate: exceeded quota: q",
            "get resourcequota",
        ),
        (
            |f| {
                first(&mut f.pods)["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
                    "status": "False", "message": "0/3 nodes are available"}]});
            },
            "warning jobs JobSet/team/train: 1 of 1 pods wait: the scheduler finds no node: 0/3 nodes are available (Unschedulable)",
            "see the nodes: kubectl -n team describe nodes",
        ),
        (
            |f| first(&mut f.pods)["status"] = json!({"phase": "Pending"}),
            "warning jobs JobSet/team/train: 1 of 1 pods wait: on no node, and no event says why: check that a scheduler is running",
            "",
        ),
        (|f| f.pods = Seen::Unknown("needs list on pods".into()), "unknown jobs Pods: unknown: needs list on pods", ""),
    ];
    let mut commands = BTreeSet::new();
    for (harm, message, remedy) in cases {
        let mut facts = well();
        harm(&mut facts);
        commands.extend(judge(&facts).into_iter().map(|finding| finding.remedy.command));
        let told = told(&facts);
        assert!(told.iter().any(|line| line.starts_with(message) && line.contains(remedy)), "{message}\n{told:#?}");
    }
    commands.remove("");
    for command in &commands {
        let first = command.split(' ').next().unwrap_or_default();
        assert!(["kubectl", "helm", "trainyard"].contains(&first), "{command}");
        assert!(!command.contains("trainyard doctor"), "it leads back to where one is: {command}");
    }
    // each is tried on a real cluster (e2e/operator/test_doctor.py)
    let lines = commands.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules/remedies.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &lines).expect("the golden file can be written");
    }
    let held = std::fs::read_to_string(path).expect("the golden file is there");
    assert_eq!(held, lines, "write it anew: UPDATE=1 cargo test -p doctor");
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let cases: &[fn(&mut Facts)] = &[
        // young
        |f| {
            let mut job = trainjob("new");
            job["metadata"]["creationTimestamp"] = json!(JUST_NOW);
            push(&mut f.trainjobs, job);
        },
        // suspended by its user, with its JobSet
        |f| {
            first(&mut f.trainjobs)["spec"]["suspend"] = json!(true);
            first(&mut f.jobsets)["spec"]["suspend"] = json!(true);
        },
        // run elsewhere
        |f| {
            let mut job = trainjob("far");
            job["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
            push(&mut f.trainjobs, job);
        },
        // ended, and its runtime is gone
        |f| {
            let mut job = trainjob("done");
            job["spec"]["runtimeRef"]["name"] = json!("gone");
            job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
            push(&mut f.trainjobs, job);
        },
        // Kueue's webhooks
        |f| push(&mut f.webhooks, webhooks("MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration")),
        // an idle Deployment of upstream's
        |f| {
            let mut old = deployment("kubeflow", "old", "ghcr.io/kubeflow/trainer/trainer-controller-manager");
            old["spec"]["replicas"] = json!(0);
            push(&mut f.deployments, old);
        },
        // the laptop's own server: no webhooks, no Deployments, no Lease
        |f| {
            let version = format!("v1.36.3+trainyard-{}", env!("CARGO_PKG_VERSION"));
            f.version = Seen::Known(json!({"major": "1", "minor": "36", "gitVersion": version}));
            f.webhooks = Seen::Known(Vec::new());
            f.deployments = Seen::Known(Vec::new());
            f.leases = Seen::Known(Vec::new());
            f.account = Seen::Known(None);
        },
    ];
    for (at, change) in cases.iter().enumerate() {
        let mut facts = well();
        change(&mut facts);
        assert_eq!(told(&facts), [""; 0], "case {at}");
    }
}

#[test]
fn what_the_server_says_of_itself_is_judged() {
    let mut facts = well();
    let told = "[+]ping ok\n[-]etcd failed: the disk is full\n[+]stored-objects ok (1 damaged and set aside: /configmaps/a/b)\n";
    facts.health = Seen::Known(told.to_owned());
    let findings = judge(&facts);
    let of_health: Vec<_> = findings.iter().filter(|finding| finding.check == "health").collect();
    let said: Vec<_> = of_health.iter().map(|finding| (finding.severity, finding.message.as_str())).collect();
    let damage = "1 damaged and set aside: /configmaps/a/b";
    assert_eq!(said, [(Severity::Error, "etcd failed: the disk is full"), (Severity::Warning, damage)]);
    assert!(of_health.iter().all(|finding| !finding.remedy.is_none()));
}

#[test]
fn without_any_rights_nothing_is_claimed() {
    let mut facts = well();
    let no = || "needs more".to_owned();
    facts.version = Seen::Unknown(no());
    facts.health = Seen::Unknown(no());
    facts.installed.values_mut().for_each(|kind| *kind = Seen::Unknown(no()));
    facts.own[0].2 = Seen::Unknown(no());
    facts.account = Seen::Unknown(no());
    facts.probe = Seen::Unknown(no());
    for seen in [
        &mut facts.webhooks,
        &mut facts.deployments,
        &mut facts.leases,
        &mut facts.cluster_runtimes,
        &mut facts.runtimes,
        &mut facts.trainjobs,
        &mut facts.jobsets,
        &mut facts.jobs,
        &mut facts.pods,
        &mut facts.events,
    ] {
        *seen = Seen::Unknown(no());
    }
    let findings = judge(&facts);
    assert!(findings.len() > 10);
    for finding in findings {
        assert_eq!(
            (finding.severity, finding.message.as_str()),
            (Severity::Unknown, "unknown: needs more"),
            "{finding:?}"
        );
    }
}
