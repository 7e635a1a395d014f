//! What comes back as it went, and what is refused.

use super::*;

/// What kubectl 1.33 sends for `create configmap a --from-literal=k=v --from-literal=m=n`.
#[test]
fn reads_what_kubectl_sends() {
    let body = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEjcKJQoBYRIAGhRhcGktcHJvdG9idWYta3ViZWN0bCIAKgAyADgAQgASBgoBaxIBdhIGCgFtEgFuGgAiAA==";
    let object = decode(&STANDARD.decode(body).unwrap()).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "api-protobuf-kubectl"}, "data": {"k": "v", "m": "n"}});
    assert_eq!(object, expected);
}

#[test]
fn comes_back_as_it_went() {
    let objects = [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"},
            "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5}}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "optional": false}}],
                "terminationGracePeriodSeconds": 0, "hostNetwork": true}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"},
        "spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "additionalProperties": false, "properties": {
                "a": {"type": "array", "items": {"type": "integer", "minimum": 1.5, "default": 3}, "maxItems": 4},
                "b": {"type": "object", "additionalProperties": {"type": "string", "enum": ["x", null, {"y": 1}]}},
                "c": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"not": {"type": "string"}}]},
                "d": {"x-kubernetes-validations": [{"rule": "self > 1", "message": "m"}],
                    "x-kubernetes-preserve-unknown-fields": true, "dependencies": {"e": ["f"], "g": {"type": "null"}}}
            }}}}]}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0}}),
        json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"name": "s"}, "data": {"k": "AP8="}, "type": "Opaque"}]}),
    ];
    for object in objects {
        assert_eq!(decode(&encode(&object).unwrap()).unwrap(), object);
    }
}

#[test]
fn broken_bytes_are_refused() {
    let good = encode(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).unwrap();
    for body in [&b"{}"[..], b"k8s\0\xff\xff\xff", &good[..good.len() - 9]] {
        assert!(decode(body).is_err(), "{body:?}");
    }
    assert_eq!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Custom", "metadata": {}})), None);
}
