//! What holds for every TrainJob, made up at random.

use crate::lint;
use api::object::{self, Target};
use merge::apply::{Ignored, Writer, apply};
use merge::builtin;
use merge::schema::Schema;
use plan::admission::{default_trainjob, validate_trainjob};
use plan::controller::TrainJobController;
use plan::plugins::View;
use proptest::prelude::*;
use reconcile::testing::Model;
use reconcile::{Decision, Op, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Schemas of the kinds that are applied: the CRDs that are shipped, and Kubernetes' own.
static SCHEMAS: LazyLock<BTreeMap<String, Schema>> = LazyLock::new(|| {
    let crds = [
        include_str!("../../../../manifests/crds/jobset.x-k8s.io_jobsets.yaml"),
        include_str!("../../../../manifests/crds/scheduling.x-k8s.io_podgroups.yaml"),
        include_str!("../../../../manifests/crds/scheduling.volcano.sh_podgroups.yaml"),
    ];
    let mut schemas = BTreeMap::new();
    for text in crds {
        let crd: Value = serde_saphyr::from_str(text).expect("the CRD is YAML");
        let (group, version) = (object::text(&crd["spec"], "group"), &crd["spec"]["versions"][0]);
        let key = format!("{group}/{}", object::text(version, "name"));
        schemas.insert(key, Schema::from_openapi(&version["schema"]["openAPIV3Schema"]).expect("the schema is sound"));
    }
    schemas.insert("v1".into(), (*builtin::schema("io.k8s.api.core.v1.ConfigMap")).clone());
    schemas
});

/// A server that applies as a real one does; all else is the model's.
struct Server {
    model: Model,
    controller: TrainJobController,
    target: Target,
}

impl Server {
    fn new(job: &Value, others: &[Value]) -> Self {
        let mut model = Model::of(others.to_vec());
        model.put(job.clone());
        Self { model, controller: TrainJobController::default(), target: Target::of(job) }
    }

    fn decide(&self) -> Decision {
        self.model.decide(&self.controller, &self.target).expect("the TrainJob is there")
    }

    /// Carries out a decision.
    fn execute(&mut self, decision: &Decision) {
        for write in &decision.writes {
            let Op::Apply { object, manager } = &write.op else {
                let alone = Decision { writes: vec![write.clone()], ..Decision::nothing() };
                assert!(self.model.execute(&self.target, &alone), "the model refuses nothing");
                continue;
            };
            let target = Target::of(object);
            let api_version = target.gvk.api_version();
            let schema = &SCHEMAS[&api_version];
            let live = self.model.get(&target.gvk, &target.key);
            let writer = Writer {
                manager,
                api_version: &api_version,
                kind: &target.gvk.kind,
                subresource: "",
                ignored: &Ignored::Nothing,
            };
            let mut result =
                apply(live.as_deref(), object, &writer, true, schema, self.model.now).expect("it is forced");
            schema.default(&mut result);
            if object::uid(&result).is_empty() {
                result["metadata"]["uid"] = json!(format!("uid-of-{}", target.key.name));
            }
            self.model.put(result);
        }
        let rest = Decision { writes: Vec::new(), ..decision.clone() };
        self.model.execute(&self.target, &rest);
    }
}

fn env() -> impl Strategy<Value = Vec<Value>> {
    let names = proptest::sample::subsequence(vec!["A", "B", "C", "FLUX_QUEUE_POLICY"], 0..4).prop_shuffle();
    names.prop_map(|names| names.into_iter().map(|name| json!({"name": name, "value": "v"})).collect())
}

fn resources() -> impl Strategy<Value = Value> {
    let cpu = prop_oneof![Just(json!("500m")), Just(json!("2")), Just(json!(4)), Just(json!("2000m"))];
    (cpu, prop_oneof![Just(None), Just(Some(1)), Just(Some(4))]).prop_map(|(cpu, gpu)| match gpu {
        Some(gpu) => json!({"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": gpu}}),
        None => json!({"limits": {"cpu": cpu, "memory": "1024Mi"}}),
    })
}

fn policy() -> impl Strategy<Value = Value> {
    let torch = json!({"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}});
    prop_oneof![
        Just(Value::Null),
        Just(json!({"numNodes": 2})),
        Just(json!({"torch": {}})),
        Just(torch),
        Just(json!({"jax": {}, "numNodes": 3})),
        Just(json!({"xgboost": {}})),
        (any::<bool>(), 1..4).prop_map(|(as_node, slots)| json!({"mpi": {
            "runLauncherAsNode": as_node, "numProcPerNode": slots, "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": "/root/.ssh",
        }})),
        Just(json!({"flux": {"numProcPerNode": 2}})),
    ]
}

fn runtime() -> impl Strategy<Value = Value> {
    let container = (env(), proptest::option::of(resources()), any::<bool>());
    let gang = proptest::sample::subsequence(vec!["coscheduling", "volcano"], 0..3);
    (policy(), container, gang, any::<bool>()).prop_map(|(policy, (env, resources, port), gang, claims)| {
        let mut node = json!({"name": "node", "image": "node:1", "command": ["run", "output_dir=/o"], "env": env});
        if let Some(resources) = resources {
            node["resources"] = resources;
        }
        if port {
            node["ports"] = json!([{"containerPort": 8080, "protocol": "TCP"}]);
        }
        let side = json!({"name": "side", "image": "side:1"});
        let job = |name: &str, labelled: bool, containers: Value| {
            let mut template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
            if labelled {
                template["metadata"] = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
            }
            json!({"name": name, "groupName": "default", "replicas": 1, "template": template})
        };
        let mpi = policy.get("mpi").is_some();
        let mut jobs = vec![job("node", !mpi, json!([node.clone(), side]))];
        if mpi {
            jobs.push(job("launcher", true, json!([node])));
        }
        let mut spec = json!({
            "template": {"metadata": {"labels": {"from": "runtime"}}, "spec": {"replicatedJobs": jobs}},
            "podGroupPolicy": gang.into_iter().map(|g| (g.to_owned(), json!({}))).collect::<serde_json::Map<_, _>>(),
        });
        if !policy.is_null() {
            spec["mlPolicy"] = policy;
        }
        if claims {
            let claim = json!({"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
            spec["template"]["spec"]["volumeClaimPolicies"] = json!([{"templates": [claim]}]);
        }
        json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
            "metadata": {"name": "rt", "namespace": "ns", "uid": "runtime-uid"}, "spec": spec,
        })
    })
}

fn trainer() -> impl Strategy<Value = Value> {
    let command = prop_oneof![Just(None), Just(Some(json!(["python", "a.py"]))), Just(Some(json!([])))];
    (proptest::option::of(0..5), proptest::option::of(1..4), env(), command, proptest::option::of(resources()))
        .prop_map(|(nodes, processes, env, command, resources)| {
            let members = [
                ("numNodes", nodes.map(Value::from)),
                ("numProcPerNode", processes.map(Value::from)),
                ("env", Some(Value::from(env))),
                ("command", command),
                ("resourcesPerNode", resources),
            ];
            members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
        })
}

/// A patch of the pods of `node`, by a manager of its own.
fn patch(index: usize) -> impl Strategy<Value = Value> {
    let pod = prop_oneof![
        Just(json!({"nodeSelector": {"zone": "a"}})),
        Just(json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]})),
        Just(json!({"containers": [{"name": "side", "env": [{"name": "S", "value": "1"}]}]})),
        Just(json!({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})),
    ];
    pod.prop_map(move |pod| {
        json!({"manager": format!("m{index}.io/x"), "trainingRuntimeSpec": {"template": {
            "metadata": {"labels": {format!("m{index}"): "1"}},
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]},
        }}})
    })
}

fn trainjob() -> impl Strategy<Value = Value> {
    let patches =
        prop_oneof![Just(vec![]), patch(0).prop_map(|p| vec![p]), (patch(0), patch(1)).prop_map(|(a, b)| vec![a, b])];
    (proptest::option::of(trainer()), patches, any::<bool>(), proptest::option::of(1..100)).prop_map(
        |(trainer, patches, suspend, deadline)| {
            let mut spec = json!({
                "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "rt"},
                "suspend": suspend, "runtimePatches": patches,
            });
            if let Some(trainer) = trainer {
                spec["trainer"] = trainer;
            }
            if let Some(deadline) = deadline {
                spec["activeDeadlineSeconds"] = json!(deadline);
            }
            json!({
                "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
                "metadata": {"name": "train", "namespace": "ns", "uid": "job-uid", "creationTimestamp": reconcile::testing::START},
                "spec": spec,
            })
        },
    )
}

fn is_jobset(op: &Op) -> bool {
    matches!(op, Op::Apply { object, .. } if object["kind"] == "JobSet")
}

/// As admission lets it in; `None` where it does not.
fn admitted(mut job: Value, runtime: &Value) -> Option<Value> {
    let now = reconcile::testing::START.parse().expect("a time");
    default_trainjob(&mut job, None, now).ok()?;
    let view = |target: &Target| (target.key.name == "rt").then(|| std::sync::Arc::new(runtime.clone()));
    validate_trainjob(&job, None, View(&view)).ok()?;
    Some(job)
}

/// All that is there, without what says how often and when it was written.
fn world(server: &Server) -> Vec<Value> {
    let kinds = ["TrainJob", "JobSet", "ConfigMap", "Secret", "PodGroup"];
    let mut objects: Vec<Value> = kinds.iter().flat_map(|kind| server.model.all(kind)).map(|o| (*o).clone()).collect();
    for object in &mut objects {
        let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
        metadata.retain(|name, _| !["uid", "resourceVersion", "managedFields", "generation"].contains(&name.as_str()));
    }
    objects
}

/// Decides and carries out until there is nothing left to do.
fn settle(server: &mut Server) {
    for _ in 0..10 {
        let decision = server.decide();
        if decision.is_silent() {
            return;
        }
        server.execute(&decision);
    }
    panic!("does not come to rest");
}

/// Lists of which the API says that their order means nothing (`x-kubernetes-list-type` map or set), turned around.
fn turned_around(runtime: &Value, job: &Value) -> (Value, Value) {
    let (mut runtime, mut job) = (runtime.clone(), job.clone());
    let turn = |list: Option<&mut Value>| {
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.reverse();
        }
    };
    turn(runtime.pointer_mut("/spec/mlPolicy/torch/envInjection/targets"));
    turn(runtime.pointer_mut("/spec/mlPolicy/torch/envInjection/targets/0/containerNames"));
    for patch in job["spec"]["runtimePatches"].as_array_mut().into_iter().flatten() {
        turn(patch.pointer_mut("/trainingRuntimeSpec/template/spec/replicatedJobs"));
    }
    (runtime, job)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Wherever it is cut off, what is decided next leads to the same end, whichever writes had been done.
    #[test]
    fn any_start_of_the_writes_leads_to_the_same_end(job in trainjob(), runtime in runtime()) {
        let Some(job) = admitted(job, &runtime) else { return Ok(()) };
        let whole = Server::new(&job, std::slice::from_ref(&runtime)).decide();
        let mut undisturbed = Server::new(&job, std::slice::from_ref(&runtime));
        settle(&mut undisturbed);
        for done in 0..=whole.writes.len() {
            let mut server = Server::new(&job, std::slice::from_ref(&runtime));
            let writes = whole.writes[..done].to_vec();
            // the status and the events come after all writes: they did not happen
            server.execute(&Decision { writes, status: None, events: Vec::new(), ..whole.clone() });
            settle(&mut server);
            prop_assert_eq!(world(&server), world(&undisturbed), "after {} of {} writes", done, whole.writes.len());
        }
    }

    /// Where the API says that an order means nothing, it means nothing.
    #[test]
    fn order_means_nothing_where_the_api_says_so(job in trainjob(), runtime in runtime(), aside in any::<bool>()) {
        let mut runtime = runtime;
        let mut job = job;
        if aside {
            let mut other = runtime["spec"]["template"]["spec"]["replicatedJobs"][0].clone();
            other["name"] = json!("aside");
            other["template"]["metadata"] = json!({});
            runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array_mut().expect("a list").push(other);
            if let Some(targets) = runtime.pointer_mut("/spec/mlPolicy/torch/envInjection/targets") {
                *targets = json!([
                    {"jobName": "node", "containerNames": ["side"]},
                    {"jobName": "aside", "containerNames": ["side", "node"]},
                ]);
            }
            for patch in job["spec"]["runtimePatches"].as_array_mut().into_iter().flatten() {
                let jobs = patch.pointer_mut("/trainingRuntimeSpec/template/spec/replicatedJobs");
                let jobs = jobs.and_then(Value::as_array_mut).expect("a list");
                let mut other = jobs[0].clone();
                other["name"] = json!("aside");
                jobs.push(other);
            }
        }
        let Some(job) = admitted(job, &runtime) else { return Ok(()) };
        let (turned_runtime, turned_job) = turned_around(&runtime, &job);
        let built = |job: &Value, runtime: &Value| {
            let decision = Server::new(job, std::slice::from_ref(runtime)).decide();
            // the runtime is frozen as it is written
            let mut ops: Vec<Op> = decision.writes.into_iter().map(|w| w.op).collect();
            ops.retain(|op| !matches!(op, Op::Apply { object, .. } if object::meta(object, "name").ends_with("-runtime-snapshot")));
            ops
        };
        prop_assert_eq!(built(&job, &runtime), built(&turned_job, &turned_runtime));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What admission lets in can be built, by the rules; and what was decided once is not decided again.
    #[test]
    fn admitted_is_built_and_then_left_alone(job in trainjob(), runtime in runtime()) {
        let Some(job) = admitted(job, &runtime) else { return Ok(()) };
        let mut server = Server::new(&job, &[runtime]);
        let first = server.decide();
        // what surprises its owner is told, and nothing else
        prop_assert!(first.events.iter().all(|event| event.reason == "CheckSettings"), "{:?}", first.events);
        prop_assert_eq!(lint::faults(&job, &first), Vec::<String>::new());
        let applied = first.writes.iter().any(|w| is_jobset(&w.op));
        prop_assert!(applied, "no JobSet");
        server.execute(&first);
        let second = server.decide();
        prop_assert!(second.is_silent(), "decides again: {:#?}", crate::render::decision(&second));
        prop_assert_eq!(second.next, first.next);
    }

    /// Suspending and resuming comes to rest after one decision each, whatever the runtime.
    #[test]
    fn suspension_settles(job in trainjob(), runtime in runtime()) {
        let Some(job) = admitted(job, &runtime) else { return Ok(()) };
        let mut server = Server::new(&job, &[runtime]);
        server.execute(&server.decide());
        for suspend in [true, false, true] {
            let target = server.target.clone();
            server.model.change(&target.gvk, &target.key, |job| job["spec"]["suspend"] = json!(suspend));
            server.execute(&server.decide());
            let again = server.decide();
            prop_assert!(again.is_silent(), "suspend {suspend}: {:#?}", crate::render::decision(&again));
            let jobset = server.model.one("JobSet", "train").expect("it was built");
            prop_assert_eq!(&jobset["spec"]["suspend"], &json!(suspend));
        }
    }

    /// Patches of different managers that touch different things may come in any order.
    #[test]
    fn patches_commute(job in trainjob(), runtime in runtime()) {
        let Some(job) = admitted(job, &runtime) else { return Ok(()) };
        let patches = job["spec"]["runtimePatches"].as_array().cloned().unwrap_or_default();
        let disjoint = patches.len() == 2 && {
            let pod = "/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/spec";
            let touched = |patch: &Value| patch.pointer(pod).and_then(Value::as_object).and_then(|p| p.keys().next().cloned());
            touched(&patches[0]) != touched(&patches[1])
        };
        if !disjoint {
            return Ok(());
        }
        let built = |job: &Value| {
            let decision = Server::new(job, std::slice::from_ref(&runtime)).decide();
            decision.writes.into_iter().map(|w| w.op).filter(is_jobset).collect::<Vec<_>>()
        };
        let mut turned = job.clone();
        turned["spec"]["runtimePatches"] = json!([patches[1], patches[0]]);
        prop_assert_eq!(built(&job), built(&turned));
    }

    /// The end is the end: no child is made, and the condition stays, whatever the JobSet says later.
    #[test]
    fn finished_is_absorbing(
        job in trainjob(), runtime in runtime(), complete in any::<bool>(), later in proptest::option::of(any::<bool>()),
        seconds in 0i64..200,
    ) {
        let condition = |kind: &str| json!({
            "type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": reconcile::testing::START,
        });
        let kind = if complete { "Complete" } else { "Failed" };
        let mut job = job;
        job["status"] = json!({"conditions": [condition(kind)]});
        let mut others = vec![runtime];
        if let Some(completed) = later {
            // A JobSet never takes its own end back; it can only say the same again.
            let said = if completed == complete { condition(if complete { "Completed" } else { "Failed" }) } else { condition("Suspended") };
            others.push(json!({
                "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
                "metadata": {"name": "train", "namespace": "ns", "uid": "jobset-uid"},
                "spec": {"suspend": false}, "status": {"conditions": [said]},
            }));
        }
        let mut server = Server::new(&job, &others);
        server.model.pass(seconds);
        for _ in 0..2 {
            let decision = server.decide();
            prop_assert!(decision.writes.is_empty() && decision.events.is_empty());
            server.execute(&decision);
        }
        let job = server.model.one("TrainJob", "train").expect("it is there");
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ended: Vec<&str> = conditions
            .iter()
            .filter(|c| c["status"] == "True" && c["type"] != "Suspended")
            .map(|c| object::text(c, "type"))
            .collect();
        prop_assert_eq!(ended, [kind]);
    }
}

/// The properties above say nothing about TrainJobs that admission refuses: most of those made up must pass.
#[test]
fn most_are_admitted() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let pairs = (trainjob(), runtime());
    let mut draw = || pairs.new_tree(&mut runner).expect("a value").current();
    let admitted = (0..200).filter(|_| admitted_pair(draw())).count();
    assert!(admitted > 150, "{admitted} of 200");
}

fn admitted_pair((job, runtime): (Value, Value)) -> bool {
    admitted(job, &runtime).is_some()
}
