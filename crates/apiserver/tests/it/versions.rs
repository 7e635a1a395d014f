//! Resource versions and conditions that are absurd: answered as kube-apiserver 1.36 answers them, which was asked.

use crate::hostile::Hostile;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";

/// Versions that are none, and what Go says of them.
const ABSURD: [(&str, &str); 9] = [
    ("abc", "invalid syntax"),
    ("+5", "invalid syntax"),
    ("-1", "invalid syntax"),
    ("1.5", "invalid syntax"),
    ("1e3", "invalid syntax"),
    (" 5", "invalid syntax"),
    ("0x10", "invalid syntax"),
    ("18446744073709551616", "value out of range"),
    ("99999999999999999999999999", "value out of range"),
];

async fn with_a_map() -> Hostile {
    let hostile = Hostile::start(None).await;
    let (code, answer) = hostile.ask("POST", MAPS, JSON, json!({"metadata": {"name": "a"}}).to_string()).await;
    assert_eq!(code, 201, "{answer}");
    hostile
}

fn told(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn absurd_versions_of_reads_are_told_in_upstreams_words() {
    let hostile = with_a_map().await;
    for (version, why) in ABSURD {
        let fault =
            format!("resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: {why}");
        let version = version.replace(' ', "%20").replace('+', "%2B");
        let (code, answer) = hostile.ask("GET", &format!("{MAPS}?resourceVersion={version}"), JSON, "").await;
        assert_eq!((code, told(&answer)), (400, format!("invalid resource version: {fault}").as_str()));
        for path in [format!("{MAPS}?watch=1&"), format!("{MAPS}/a?")] {
            let (code, answer) = hostile.ask("GET", &format!("{path}resourceVersion={version}"), JSON, "").await;
            assert_eq!((code, told(&answer)), (500, fault.as_str()), "{path}");
        }
    }
    // beyond everything there is: a list and a read wait and give up, a watch waits, one for initial events gets an error in its stream
    let far = u64::MAX;
    let (code, answer) = hostile.ask("GET", &format!("{MAPS}?resourceVersion={far}"), JSON, "").await;
    assert_eq!((code, &answer["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")), "{answer}");
    let (code, answer) = hostile.ask("GET", &format!("{MAPS}/a?resourceVersion={far}"), JSON, "").await;
    assert_eq!(code, 504, "{answer}");
    let quiet = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={far}");
    let (code, body) = hostile.bytes_as(resource::User::admin(), "GET", &quiet, JSON, "").await;
    assert_eq!((code, &body[..]), (200, &b""[..]));
    let initial = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={far}"
    );
    let (code, answer) = hostile.ask("GET", &initial, JSON, "").await;
    assert_eq!((code, &answer["type"], &answer["object"]["code"]), (200, &json!("ERROR"), &json!(504)), "{answer}");
    for version in ["", "0"] {
        let path = format!("{MAPS}?watch=1&continue=abc&resourceVersion={version}");
        let (code, answer) = hostile.ask("GET", &path, JSON, "").await;
        assert_eq!(code, 422, "{answer}");
        assert!(told(&answer).ends_with("resourceVersionMatch is forbidden when continue is provided"), "{answer}");
    }
    for (number, why) in [("x", "invalid syntax"), ("9223372036854775808", "value out of range")] {
        let (code, answer) = hostile.ask("GET", &format!("{MAPS}?limit={number}"), JSON, "").await;
        assert_eq!((code, told(&answer)), (400, format!("strconv.ParseInt: parsing {number:?}: {why}").as_str()));
    }
}

#[tokio::test]
async fn absurd_versions_of_writes_are_told_in_upstreams_words() {
    let hostile = with_a_map().await;
    let path = format!("{MAPS}/a");
    let writes = [
        ("PUT", path.clone(), JSON),
        ("PATCH", path.clone(), "application/merge-patch+json"),
        ("PATCH", path.clone(), "application/strategic-merge-patch+json"),
        ("PATCH", format!("{path}?fieldManager=me"), "application/apply-patch+yaml"),
    ];
    for (method, path, media) in &writes {
        let write = |version: &str| {
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version}});
            hostile.ask(method, path, media, body.to_string())
        };
        for (version, why) in ABSURD {
            let (code, answer) = write(version).await;
            let fault = format!("strconv.ParseUint: parsing {version:?}: {why}");
            assert_eq!((code, told(&answer)), (500, fault.as_str()), "{method} {media}");
        }
        assert_eq!(write("1").await.0, 409, "{method} {media}");
        assert_eq!(write("0").await.0, 200, "{method} {media}: whatever is there");
    }
    let made = json!({"metadata": {"name": "b", "resourceVersion": "5"}}).to_string();
    assert_eq!(hostile.ask("POST", &format!("{MAPS}?dryRun=All"), JSON, made.clone()).await.0, 201);
    assert_eq!(hostile.ask("POST", MAPS, JSON, made).await.0, 500);
}

/// A condition of another type once counted as left out: a trial, or a delete of one certain object, deleted whatever there was.
#[tokio::test]
async fn conditions_of_deletes_that_cannot_be_read_delete_nothing() {
    let hostile = with_a_map().await;
    let go = "json: cannot unmarshal";
    for (options, fault) in [
        (json!({"dryRun": "All"}), "string into Go struct field DeleteOptions.dryRun of type []string"),
        (json!({"dryRun": [5]}), "number into Go struct field DeleteOptions.dryRun of type string"),
        (
            json!({"preconditions": {"uid": 5}}),
            "number into Go struct field Preconditions.preconditions.uid of type types.UID",
        ),
        (
            json!({"preconditions": {"resourceVersion": 5}}),
            "number into Go struct field Preconditions.preconditions.resourceVersion of type string",
        ),
        (
            json!({"preconditions": "x"}),
            "string into Go struct field DeleteOptions.preconditions of type v1.Preconditions",
        ),
        (
            json!({"preconditions": []}),
            "array into Go struct field DeleteOptions.preconditions of type v1.Preconditions",
        ),
        (
            json!({"gracePeriodSeconds": 1.5}),
            "number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (json!({"orphanDependents": "no"}), "string into Go struct field DeleteOptions.orphanDependents of type bool"),
        (
            json!({"propagationPolicy": 5}),
            "number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
        ),
        (
            json!({"ignoreStoreReadErrorWithClusterBreakingPotential": 5}),
            "number into Go struct field DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential of type bool",
        ),
    ] {
        for path in [format!("{MAPS}/a"), MAPS.to_owned()] {
            let (code, answer) = hostile.ask("DELETE", &path, JSON, options.to_string()).await;
            assert_eq!((code, told(&answer)), (400, format!("{go} {fault}").as_str()), "{path}");
        }
    }
    for field in ["kind", "apiVersion"] {
        let (code, answer) = hostile.ask("DELETE", MAPS, JSON, json!({field: 5}).to_string()).await;
        let fault = format!(
            "couldn't get version/kind; json parse error: {go} number into Go struct field .{field} of type string"
        );
        assert_eq!((code, told(&answer)), (400, fault.as_str()));
    }
    let (code, answer) = hostile.ask("DELETE", MAPS, JSON, json!({"dryRun": ["All", null]}).to_string()).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(hostile.ask("GET", &format!("{MAPS}/a"), JSON, "").await.0, 200, "it is still there");
}

/// What comes of an `Accept` header.
async fn accepting(hostile: &Hostile, path: &str, accept: &str) -> (u16, String, bytes::Bytes) {
    let request = http::Request::builder().uri(path).header("accept", accept);
    let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    let response = hostile.server.service(resource::User::admin()).call(request).await.unwrap();
    let media = response.headers()["content-type"].to_str().unwrap().to_owned();
    (response.status().as_u16(), media, response.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn forms_of_a_watch_are_had_in_what_upstream_has_them_in() {
    let hostile = with_a_map().await;
    let (protobuf, form) = ("application/vnd.kubernetes.protobuf", "v=v1;g=meta.k8s.io");
    let watch = format!("{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
    for path in [&watch, MAPS] {
        let (code, ..) = accepting(&hostile, path, &format!("{protobuf};as=Table;{form}")).await;
        assert_eq!(code, 406, "{path}");
    }
    for accept in ["application/yaml", "application/yaml, application/json"] {
        assert_eq!(accepting(&hostile, &watch, accept).await.0, 406, "{accept}");
    }
    let metadata = format!("{protobuf};as=PartialObjectMetadata;{form}");
    // `k8s\0`, then the type's version and kind
    let head = [b"k8s\0\x0a\x27\x0a\x0emeta.k8s.io/v1\x12\x15".as_slice(), b"PartialObjectMetadata"].concat();
    let (code, media, one) = accepting(&hostile, &format!("{MAPS}/a"), &metadata).await;
    assert_eq!((code, media.as_str()), (200, protobuf));
    assert!(one.starts_with(&head), "{one:?}");
    let (code, media, events) = accepting(&hostile, &watch, &metadata).await;
    assert_eq!((code, media), (200, format!("{protobuf};stream=watch")));
    // the event's frame: type, then the object as it is read by itself
    assert_eq!(u32::from_be_bytes(events[..4].try_into().unwrap()) as usize, events.len() - 4);
    assert!(events.windows(one.len()).any(|part| part == one), "{events:?}");
    let (code, media, list) =
        accepting(&hostile, MAPS, &format!("{protobuf};as=PartialObjectMetadataList;{form}")).await;
    assert_eq!((code, media.as_str()), (200, protobuf));
    assert!(
        list.starts_with(b"k8s\0") && list.windows(25).any(|part| part == b"PartialObjectMetadataList"),
        "{list:?}"
    );
}

/// Custom objects have no form of their own in protobuf, but their metadata has.
#[tokio::test]
async fn metadata_of_custom_objects_is_had_in_protobuf() {
    let hostile = Hostile::start(None).await;
    hostile.define().await;
    let things = "/apis/test.io/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
    assert_eq!(hostile.ask("POST", things, JSON, thing.to_string()).await.0, 201);
    let (protobuf, form) = ("application/vnd.kubernetes.protobuf", "v=v1;g=meta.k8s.io");
    let metadata = |kind: &str| format!("{protobuf};as={kind};{form}");
    for (path, kind) in
        [(format!("{things}/a"), "PartialObjectMetadata"), (things.to_owned(), "PartialObjectMetadataList")]
    {
        let (code, media, body) = accepting(&hostile, &path, &metadata(kind)).await;
        assert_eq!((code, media.as_str()), (200, protobuf), "{path}");
        assert!(body.starts_with(b"k8s\0") && body.windows(kind.len()).any(|part| part == kind.as_bytes()), "{body:?}");
        assert_eq!(accepting(&hostile, &path, protobuf).await.0, 406, "{path}");
    }
    let watch = format!("{things}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
    let (code, media, events) = accepting(&hostile, &watch, &metadata("PartialObjectMetadata")).await;
    assert_eq!((code, media), (200, format!("{protobuf};stream=watch")));
    assert_eq!(u32::from_be_bytes(events[..4].try_into().unwrap()) as usize, events.len() - 4);
    // an event is no list
    let (code, _, events) = accepting(&hostile, &watch, &metadata("PartialObjectMetadataList")).await;
    assert_eq!((code, events.len()), (200, 0));
}

/// A patch may make a custom object one of another version: that one says what it does not know.
#[tokio::test]
async fn unknown_fields_are_those_of_the_version_that_is_patched_in() {
    let hostile = Hostile::start(None).await;
    let version = |name: &str, storage: bool, field: &str| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
    };
    let definition = json!({"metadata": {"name": "widgets.two.io"}, "spec": {"group": "two.io", "scope": "Cluster",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version("v1", true, "a"), version("v2", false, "b")]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(hostile.ask("POST", path, JSON, definition.to_string()).await.0, 201);
    let widgets = "/apis/two.io/v1/widgets";
    let widget = json!({"apiVersion": "two.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"a": "x"}});
    assert_eq!(hostile.ask("POST", widgets, JSON, widget.to_string()).await.0, 201);
    for (version, refusal) in [
        ("two.io/v2", "strict decoding error: unknown field \"spec.a\""),
        ("two.io/v3", "apiVersion: Invalid value"),
        ("other.io/v2", "apiVersion: Invalid value"),
    ] {
        let patch = json!({"apiVersion": version}).to_string();
        let path = format!("{widgets}/a?fieldValidation=Strict");
        let (code, answer) = hostile.ask("PATCH", &path, "application/merge-patch+json", patch).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains(refusal), "{version}: {code} {answer}");
    }
}
