//! Rows as those of `asked.rs` about values: numbers, ports and hints, and what is kept of what was sent.

use crate::asked::{APPLY, BASE, JSON, MERGE, PATCH, Row, all_are_answered, message};
use crate::hostile::Hostile;
use serde_json::{Value, json};

const ONE: &str = "fieldSelector=metadata.name%3Done";

#[tokio::test]
async fn of_numbers_ports_and_hints() {
    let hostile = Hostile::start(None).await;
    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let scale = |replicas: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let applied = format!("{sets}/d/scale?fieldManager=m&force=true");
    let ports = json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}});
    let slice = |hints: Value| json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"], "hints": hints}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?dryRun=All";
    let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "x", "except": ["y"]}}]}]}});
    let spread = |more: Value| {
        let mut constraint =
            json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["v"]});
        constraint.as_object_mut().expect("a constraint").extend(more.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "p", "labels": {"v": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "topologySpreadConstraints": [constraint]}})
    };
    let chosen = json!({"matchExpressions": [{"key": "v", "operator": "Exists"}]});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["v"], "mismatchLabelKeys": ["v", "!"]}]}});
    let mut near = spread(json!({"labelSelector": {}}));
    near["spec"]["affinity"] = affinity;
    let pods = format!("{BASE}/pods?dryRun=All");
    let many: Vec<Value> = (0..9).map(|n| json!({"name": n.to_string()})).collect();
    let rows: Vec<Row> = vec![
        ("POST", sets.into(), JSON, set, 201, vec![]),
        (
            "PATCH",
            applied.clone(),
            APPLY,
            scale(json!(9_223_372_036_854_775_808_u64)),
            200,
            vec![("/body/spec/replicas", Value::Null)],
        ),
        ("PATCH", applied.clone(), APPLY, scale(json!(5.0)), 200, vec![("/body/spec/replicas", json!(5))]),
        ("PATCH", applied, APPLY, scale(json!(1.5)), 500, message("cannot convert float64 to int32")),
        (
            "POST",
            format!("{BASE}/services"),
            JSON,
            json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
            201,
            vec![],
        ),
        ("PATCH", format!("{BASE}/services/s"), MERGE, ports, 500, message("duplicate nodePort: {TCP 3")),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forZones": [{"name": "a"}, {"name": "a"}]})),
            422,
            message("hints.forZones[1].name: Duplicate value: \"a\""),
        ),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forNodes": [{"name": ""}]})),
            422,
            message("hints.forNodes[0].name: Invalid value: \"\""),
        ),
        (
            "POST",
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies".into(),
            JSON,
            policy,
            422,
            vec![("/body/details/causes/0/field", "ipBlock.cidr".into()), ("/body/details/causes/1", Value::Null)],
        ),
        ("POST", format!("{BASE}/serviceaccounts"), JSON, json!({"metadata": {"name": "default"}}), 201, vec![]),
        // keys of labels become expressions
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({"labelSelector": {}})),
            201,
            vec![("/body/spec/topologySpreadConstraints/0/labelSelector/matchExpressions/0/values/0", "1".into())],
        ),
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({})),
            422,
            message("[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"),
        ),
        (
            "POST",
            pods.clone(),
            JSON,
            spread(json!({"labelSelector": chosen})),
            422,
            message("[0][0]: Invalid value: \"v\": exists in both matchLabelKeys and labelSelector"),
        ),
        ("POST", pods.clone(), JSON, near.clone(), 422, message("mismatchLabelKeys[1]: Invalid value: \"!\"")),
        (
            "POST",
            pods,
            JSON,
            near,
            422,
            message("[0].matchLabelKeys[0]: Invalid value: \"v\": exists in both matchLabelKeys and mismatchLabelKeys"),
        ),
        (
            "POST",
            slices.into(),
            JSON,
            slice(json!({"forNodes": many})),
            422,
            message("hints.forNodes: Too many: 9: must have at most 8 items"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_what_is_kept_and_warned_of() {
    let hostile = Hostile::start(None).await;
    let open = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let closed =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    let version = |name: &str, storage: bool, schema: Value| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "things.kept.io"}, "spec": {"group": "kept.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", true, open), version("v2", false, closed)]}});
    let thing =
        json!({"apiVersion": "kept.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x", "b": 1}});
    let things = |version: &str| format!("/apis/kept.io/{version}/namespaces/default/things");
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]);
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let constraints = json!({"resourceRules": rules, "namespaceSelector": here});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, "validations": [{"expression": "false"}]}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Warn"]}});
    let map = json!({"metadata": {"name": "a", "labels": {"a": "b"}}});
    let bad = json!({"metadata": {"labels": {"!": "x"}}});
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let rows: Vec<Row> = vec![
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(), JSON, definition, 201, vec![]),
        ("POST", things("v1"), JSON, thing, 201, vec![]),
        // a version that knows less of an object keeps less of it, even by a write that changes nothing there
        (
            "PATCH",
            format!("{}/a", things("v2")),
            MERGE,
            json!({"spec": {"e": 1}}),
            200,
            vec![("/body/spec", json!({"a": "x"}))],
        ),
        (
            "PATCH",
            format!("{}/a", things("v1")),
            MERGE,
            json!({"spec": {"q": 1}}),
            200,
            vec![("/body/spec", json!({"a": "x", "q": 1}))],
        ),
        ("POST", classes.into(), JSON, json!({"metadata": {"name": "r"}, "handler": "h"}), 201, vec![]),
        (
            "PATCH",
            format!("{classes}/r"),
            MERGE,
            bad,
            422,
            vec![("/body/details/causes/3/field", "metadata.labels".into())],
        ),
        ("POST", format!("{base}/validatingadmissionpolicies"), JSON, policy, 201, vec![]),
        ("POST", format!("{base}/validatingadmissionpolicybindings"), JSON, binding, 201, vec![]),
        ("POST", format!("{BASE}/configmaps"), JSON, map.clone(), 201, vec![]),
        (
            "DELETE",
            format!("{BASE}/configmaps?labelSelector=a%3Db"),
            JSON,
            json!({}),
            200,
            vec![("/warnings/0", "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p'".into())],
        ),
        ("POST", "/api/v1/namespaces".into(), JSON, json!({"metadata": {"name": "gone"}}), 201, vec![]),
        ("POST", "/api/v1/namespaces/gone/configmaps".into(), JSON, map, 201, vec![]),
        ("DELETE", "/api/v1/namespaces/gone".into(), JSON, json!({}), 200, vec![]),
        (
            "PUT",
            "/api/v1/namespaces/gone/finalize".into(),
            JSON,
            json!({"metadata": {"name": "gone"}, "spec": {}}),
            200,
            vec![],
        ),
        // nobody can say whether it is selected
        (
            "DELETE",
            "/api/v1/namespaces/gone/configmaps/a".into(),
            JSON,
            json!({}),
            422,
            message(
                "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespaces \"gone\" not found",
            ),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_changed_and_evicted_pods() {
    let hostile = Hostile::start(None).await;
    let pods = format!("{BASE}/pods");
    let pod =
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let add = |toleration: Value| json!([{"op": "add", "path": "/spec/tolerations/0", "value": toleration}]);
    let twice = |field: &str| {
        vec![("/body/details/causes/0/field", field.into()), ("/body/details/causes/1/field", field.into())]
    };
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "d"},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    let eviction = |preconditions: Value| json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": preconditions, "dryRun": ["All"]}});
    let rows: Vec<Row> = vec![
        ("POST", format!("{BASE}/serviceaccounts"), JSON, json!({"metadata": {"name": "default"}}), 201, vec![]),
        ("POST", pods.clone(), JSON, pod, 201, vec![]),
        // new tolerations are looked at twice: as the spec's, and as those that were added
        ("PATCH", format!("{pods}/p"), PATCH, add(json!({})), 422, twice("spec.tolerations[0].operator")),
        (
            "PATCH",
            format!("{pods}/p"),
            PATCH,
            add(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1})),
            422,
            twice("spec.tolerations[0].effect"),
        ),
        ("POST", budgets.into(), JSON, budget, 201, vec![]),
        (
            "PATCH",
            format!("{pods}/p/status"),
            MERGE,
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}),
            200,
            vec![],
        ),
        // any conflict over a pod that is spared its budget is taken for one about the pod's health
        (
            "POST",
            format!("{pods}/p/eviction"),
            JSON,
            eviction(json!({"uid": "wrong"})),
            429,
            vec![
                ("/body/details/causes/0/message", "The disruption budget d is still being processed".into()),
                ("/body/details/retryAfterSeconds", json!(10)),
            ],
        ),
        (
            "POST",
            format!("{pods}/p/eviction"),
            JSON,
            eviction(json!({"uid": "wrong", "resourceVersion": "1"})),
            409,
            message("the UID in the precondition (wrong) does not match"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}

#[tokio::test]
async fn of_numbers_and_lists_as_they_were_sent() {
    let hostile = Hostile::start(None).await;
    let version = |name: &str, storage: bool, fields: Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": fields}}}}})
    };
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (first, second) = (
        json!({"n": {"type": "integer"}, "open": open}),
        json!({"n": {"type": "integer"}, "open": open, "only": {"type": "string"}}),
    );
    let definition = json!({"metadata": {"name": "things.sent.io"}, "spec": {"group": "sent.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", true, first), version("v2", false, second)]}});
    let things = |version: &str| format!("/apis/sent.io/{version}/namespaces/default/things");
    let thing = |version: &str, spec: Value| json!({"apiVersion": format!("sent.io/{version}"), "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
    let generation =
        |n: u64| vec![("/body/metadata/generation", json!(n)), ("/body/spec", json!({"n": 1, "open": {"x": 1}}))];
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "resources": {"claims": []}}});
    let set =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let services = format!("{BASE}/services");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "a", "image": "a", "ports": [{"containerPort": 80, "hostIP": "1.2.3.4"}]}]}});
    let job = |meta: Value| json!({"metadata": meta, "spec": {"template": template}});
    let mut runs = template.clone();
    runs["spec"]["restartPolicy"] = "Always".into();
    let deployment =
        json!({"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": runs}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments".to_owned();
    let numbered = |wanted: i64| vec![("/body/metadata/generation", json!(wanted))];
    let labels = |wanted: Value| vec![("/body/metadata/labels", wanted)];
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned();
    let slice = |more: Value| {
        let mut endpoint = json!({"addresses": ["10.1.2.3"]});
        endpoint.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": []})
    };
    let service =
        |address: &str| json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}});
    let rows: Vec<Row> = vec![
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(), JSON, definition, 201, vec![]),
        ("POST", things("v1"), JSON, thing("v1", json!({"n": 1, "open": {"x": 1}})), 201, generation(1)),
        // a float is none of the integers that are stored, whatever its schema says
        ("PATCH", things("v1") + "/a", MERGE, json!({"spec": {"n": 1.0}}), 200, generation(2)),
        ("PATCH", things("v1") + "/a", MERGE, json!({"spec": {"open": {"x": 1.0}}}), 200, generation(3)),
        ("PATCH", things("v1") + "/a", MERGE, json!({"spec": {"n": 1}}), 200, generation(3)),
        // a trial tells what would be kept by the version that is stored
        (
            "POST",
            things("v2") + "?dryRun=All",
            JSON,
            json!({"apiVersion": "sent.io/v2", "kind": "Thing", "metadata": {"name": "b"}, "spec": {"n": 1, "only": "o"}}),
            201,
            vec![("/body/spec", json!({"n": 1})), ("/body/apiVersion", "sent.io/v2".into())],
        ),
        (
            "PATCH",
            things("v2") + "/a?dryRun=All",
            MERGE,
            json!({"spec": {"n": 2, "only": "o"}}),
            200,
            vec![("/body/spec", json!({"n": 2, "open": {"x": 1}}))],
        ),
        // a pod has no claims as a whole, not even none of them
        (
            "POST",
            "/apis/apps/v1/namespaces/default/deployments".into(),
            JSON,
            set,
            422,
            message(
                "is invalid: spec.template.spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
            ),
        ),
        // warnings of a Service stand in upstream's order
        (
            "POST",
            services.clone() + "?dryRun=All",
            JSON,
            json!({"metadata": {"name": "w", "annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
                "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"], "externalName": "example.com"}}),
            201,
            vec![
                ("/warnings/0", "annotation service.kubernetes.io/topology-aware-hints is deprecated".into()),
                ("/warnings/1", "spec.externalIPs is deprecated".into()),
                ("/warnings/2", "spec.externalName is ignored".into()),
            ],
        ),
        // families that were inferred of an address that is refused were never there
        ("POST", services.clone(), JSON, service("None"), 201, vec![]),
        (
            "PUT",
            services.clone() + "/s",
            JSON,
            service("10.0.0.1"),
            422,
            message("this cluster is not configured for dual-stack services"),
        ),
        // a Job whose name is generated shows the labels of its template without those that tie its pods to it
        (
            "POST",
            "/apis/batch/v1/namespaces/default/jobs".into(),
            JSON,
            job(json!({"generateName": "a-"})),
            201,
            labels(json!({"a": "b"})),
        ),
        (
            "POST",
            "/apis/batch/v1/namespaces/default/jobs".into(),
            JSON,
            job(json!({"name": "a-bcdef"})),
            201,
            vec![("/body/metadata/labels/job-name", "a-bcdef".into())],
        ),
        (
            "POST",
            "/apis/batch/v1/namespaces/default/jobs".into(),
            JSON,
            job(json!({"generateName": "a-", "name": "a-bcdef"})),
            409,
            vec![
                (
                    "/body/message",
                    "already exists, the server was not able to generate a unique name for the object".into(),
                ),
                ("/body/details/retryAfterSeconds", json!(1)),
            ],
        ),
        // a list that can have one object is of now, whatever its limit and page, unless the version is asked for as it was
        ("POST", format!("{BASE}/configmaps"), JSON, json!({"metadata": {"name": "one"}}), 201, vec![]),
        (
            "GET",
            format!("{BASE}/configmaps?{ONE}&limit=1&resourceVersion=1"),
            JSON,
            Value::Null,
            200,
            vec![("/body/items/0/metadata/name", "one".into())],
        ),
        (
            "GET",
            format!("{BASE}/configmaps?{ONE}&continue=x"),
            JSON,
            Value::Null,
            200,
            vec![("/body/items/0/metadata/name", "one".into())],
        ),
        (
            "GET",
            format!("{BASE}/configmaps?{ONE}&limit=1&resourceVersion=99999999"),
            JSON,
            Value::Null,
            504,
            vec![("/body/details/retryAfterSeconds", Value::Null)],
        ),
        (
            "GET",
            format!("{BASE}/configmaps?{ONE}&resourceVersion=99999999"),
            JSON,
            Value::Null,
            504,
            vec![("/body/details/retryAfterSeconds", json!(1))],
        ),
        // topology is not kept, and counts as a change
        ("POST", slices.clone(), JSON, slice(json!({})), 201, numbered(1)),
        ("PUT", slices.clone() + "/e", JSON, slice(json!({"deprecatedTopology": {"x": "y"}})), 200, numbered(2)),
        // a scale warns of the object that it changes
        ("POST", deployments.clone(), JSON, deployment, 201, vec![]),
        (
            "PATCH",
            deployments + "/w/scale",
            MERGE,
            json!({"spec": {"replicas": 0}}),
            200,
            vec![("/warnings/0", "hostIP set without hostPort".into())],
        ),
        // the addresses of a Service are looked at before anything else of it
        (
            "PATCH",
            services + "/s",
            MERGE,
            json!({"metadata": {"labels": {"a b": ""}}, "spec": {"clusterIP": "10.0.0.1"}}),
            422,
            vec![("/body/details/causes/0/field", "spec.".into()), ("/body/details/causes/2", Value::Null)],
        ),
        // a claim's size is faulty once, a volume's twice
        (
            "POST",
            format!("{BASE}/persistentvolumeclaims"),
            JSON,
            json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "-1"}}}}),
            422,
            message("\"c\" is invalid: spec.resources[storage]: Invalid value: \"-1\": must be greater than zero"),
        ),
        (
            "POST",
            "/api/v1/persistentvolumes".into(),
            JSON,
            json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "-1"},
                "hostPath": {"path": "/x"}}}),
            422,
            message("spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity"),
        ),
    ];
    all_are_answered(&hostile, rows).await;
}
