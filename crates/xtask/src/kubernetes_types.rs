//! `xtask kubernetes-types`: generates the table of Kubernetes' own types, `crates/merge/data/kubernetes-types.json`.
//!
//! Only facts are taken from upstream (names, types, numbers, list types, merge keys), never a sentence. They have two
//! sources: the OpenAPI v3 documents in `k8s.io/kubernetes/api/openapi-spec/v3` (types, required fields, defaults, list
//! and map types) and the struct tags of the Go types (order of fields, protobuf numbers, which are pointers, which are
//! omitted when empty). `merge::builtin` reads the table and describes its form.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the table lies in the repository.
pub const TABLE: &str = "crates/merge/data/kubernetes-types.json";

/// Go packages below the module root, with the prefix of their types' OpenAPI names.
const PACKAGES: &[(&str, &str)] = &[
    ("api/core/v1", "io.k8s.api.core.v1"),
    ("api/apps/v1", "io.k8s.api.apps.v1"),
    ("api/batch/v1", "io.k8s.api.batch.v1"),
    ("api/events/v1", "io.k8s.api.events.v1"),
    ("api/coordination/v1", "io.k8s.api.coordination.v1"),
    ("api/authorization/v1", "io.k8s.api.authorization.v1"),
    ("api/authentication/v1", "io.k8s.api.authentication.v1"),
    ("api/autoscaling/v1", "io.k8s.api.autoscaling.v1"),
    ("api/rbac/v1", "io.k8s.api.rbac.v1"),
    ("api/scheduling/v1", "io.k8s.api.scheduling.v1"),
    ("api/node/v1", "io.k8s.api.node.v1"),
    ("api/policy/v1", "io.k8s.api.policy.v1"),
    ("api/networking/v1", "io.k8s.api.networking.v1"),
    ("api/storage/v1", "io.k8s.api.storage.v1"),
    ("api/discovery/v1", "io.k8s.api.discovery.v1"),
    ("api/certificates/v1", "io.k8s.api.certificates.v1"),
    ("api/admissionregistration/v1", "io.k8s.api.admissionregistration.v1"),
    ("apimachinery/pkg/apis/meta/v1", "io.k8s.apimachinery.pkg.apis.meta.v1"),
    ("apiextensions-apiserver/pkg/apis/apiextensions/v1", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"),
];

/// The kinds of the table; it also holds all types that they reach.
const ROOTS: &[(&str, &[&str])] = &[
    (
        "io.k8s.api.core.v1",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("io.k8s.api.apps.v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("io.k8s.api.batch.v1", &["CronJob", "Job"]),
    ("io.k8s.api.events.v1", &["Event"]),
    ("io.k8s.api.coordination.v1", &["Lease"]),
    (
        "io.k8s.api.authorization.v1",
        &["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"],
    ),
    ("io.k8s.api.authentication.v1", &["SelfSubjectReview", "TokenRequest", "TokenReview"]),
    ("io.k8s.api.autoscaling.v1", &["Scale"]),
    ("io.k8s.api.rbac.v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("io.k8s.api.scheduling.v1", &["PriorityClass"]),
    ("io.k8s.api.node.v1", &["RuntimeClass"]),
    ("io.k8s.api.policy.v1", &["Eviction", "PodDisruptionBudget"]),
    ("io.k8s.api.networking.v1", &["Ingress", "NetworkPolicy"]),
    ("io.k8s.api.storage.v1", &["StorageClass"]),
    ("io.k8s.api.discovery.v1", &["EndpointSlice"]),
    ("io.k8s.api.certificates.v1", &["CertificateSigningRequest"]),
    (
        "io.k8s.api.admissionregistration.v1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("io.k8s.apimachinery.pkg.apis.meta.v1", &["DeleteOptions", "ListMeta", "Status"]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", &["CustomResourceDefinition"]),
];

/// Types that the reader knows by a short word; the last name of their OpenAPI name decides.
const SPECIAL: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "intorstring"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "fields"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "schemaorarray"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "schemaorbool"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "schemaorstrings"),
];

/// Generates the table, or with `check` compares it.
///
/// `openapi` is the folder with the `*_openapi.json` documents; `go` is the module folder `…/pkg/mod/k8s.io`, in which
/// each module's folder is `name@version`, `version` being the given one.
pub fn run(root: &Path, openapi: &Path, go: &Path, version: &str, check: bool) -> Result<()> {
    let schemas = read_openapi(openapi)?;
    let mut structs = BTreeMap::new();
    for (package, prefix) in PACKAGES {
        let (module, rest) = package.split_once('/').unwrap_or((package, ""));
        read_go(&go.join(format!("{module}@{version}")).join(rest), prefix, &mut structs)?;
    }
    let mut generator = Generator { schemas, structs, types: BTreeMap::new() };
    for (prefix, kinds) in ROOTS {
        for kind in *kinds {
            generator.add(&format!("{prefix}.{kind}")).with_context(|| format!("{prefix}.{kind}"))?;
        }
    }
    let mut text = String::from("{\n");
    let last = generator.types.len();
    for (index, (name, fields)) in generator.types.iter().enumerate() {
        let comma = if index + 1 == last { "" } else { "," };
        text += &format!("{}:{}{comma}\n", json!(name), Value::Array(fields.clone()));
    }
    text += "}\n";
    crate::emit(&root.join(TABLE), &text, check)
}

/// All schemas of all documents of stable groups, by name.
fn read_openapi(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let mut schemas = BTreeMap::new();
    let mut found = false;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with("v1_openapi.json") {
            continue;
        }
        found = true;
        let document: Value =
            serde_json::from_str(&fs::read_to_string(&path)?).with_context(|| format!("parsing {}", path.display()))?;
        if let Some(all) = document.pointer("/components/schemas").and_then(Value::as_object) {
            schemas.extend(all.iter().map(|(name, schema)| (name.clone(), schema.clone())));
        }
    }
    if !found {
        bail!("no *v1_openapi.json in {}", folder.display());
    }
    Ok(schemas)
}

/// A field of a Go struct, as its tags tell.
#[derive(Clone, Debug)]
struct GoField {
    /// JSON name; empty where inlined.
    json: String,
    inline: bool,
    pointer: bool,
    omit_empty: bool,
    /// `omitzero`: a struct is left out where it is all zero.
    omit_zero: bool,
    /// Protobuf number; `None` where the field is not on the wire.
    number: Option<u32>,
    /// The Go type's last name, for inlined types.
    go_type: String,
    /// The Go name of a scalar type that is not Go's own (`v1.Protocol`), without pointers, lists and maps around it.
    scalar: Option<String>,
}

/// Reads the structs of all files of a package.
fn read_go(folder: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<GoField>>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.ends_with(".go")
            || name.ends_with("_test.go")
            || name.starts_with("zz_")
            || name.starts_with("generated")
        {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let mut current: Option<(String, Vec<GoField>)> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("type ")
                && let Some(name) = rest.strip_suffix(" struct {")
            {
                current = Some((name.to_owned(), Vec::new()));
            } else if let Some(rest) = line.strip_prefix("type ")
                && let Some(name) = rest.strip_suffix(" struct{}")
            {
                into.insert(format!("{prefix}.{name}"), Vec::new());
            } else if line.starts_with('}') {
                if let Some((name, fields)) = current.take() {
                    into.insert(format!("{prefix}.{name}"), fields);
                }
            } else if let Some((_, fields)) = &mut current
                && let Some(field) = go_field(line)
            {
                fields.push(field);
            }
        }
    }
    Ok(())
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}

/// One line of a struct: `Name Type tags`, or `Type tags` where inlined.
fn go_field(line: &str) -> Option<GoField> {
    let line = line.trim();
    let (declaration, tags) = line.split_once('`')?;
    if !declaration.starts_with(|c: char| c.is_ascii_uppercase() || c == 'm') || declaration.starts_with("//") {
        return None;
    }
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let json = tag(tags, "json")?;
    let mut parts = json.split(',');
    let json_name = parts.next().unwrap_or_default();
    let options: BTreeSet<&str> = parts.collect();
    if json_name == "-" {
        return None;
    }
    let go_type = *words.last()?;
    let base = go_type.trim_start_matches(['*', '[', ']']);
    let base = base.strip_prefix("map[string]").unwrap_or(base).trim_start_matches(['*', '[', ']']);
    let scalar = match base {
        "string" | "bool" | "int" | "int32" | "int64" | "float64" | "byte" => None,
        _ => match base.split_once('.') {
            Some((package, name)) if package.ends_with("v1") => Some(format!("v1.{name}")),
            Some(_) => Some(base.to_owned()),
            None => Some(format!("v1.{base}")),
        },
    };
    Some(GoField {
        scalar,
        json: json_name.to_owned(),
        inline: options.contains("inline") || (json_name.is_empty() && words.len() == 1),
        pointer: go_type.starts_with('*'),
        omit_empty: options.contains("omitempty"),
        omit_zero: options.contains("omitzero"),
        number: tag(tags, "protobuf").and_then(|t| t.split(',').nth(1)?.parse().ok()),
        go_type: go_type.trim_start_matches('*').rsplit('.').next().unwrap_or(go_type).to_owned(),
    })
}

struct Generator {
    schemas: BTreeMap<String, Value>,
    structs: BTreeMap<String, Vec<GoField>>,
    types: BTreeMap<String, Vec<Value>>,
}

impl Generator {
    /// Adds a type and all it reaches.
    fn add(&mut self, name: &str) -> Result<()> {
        if self.types.contains_key(name) {
            return Ok(());
        }
        self.types.insert(name.to_owned(), Vec::new());
        let fields = self.structs.get(name).cloned().with_context(|| format!("no Go struct for {name}"))?;
        let schema = self.schemas.get(name).cloned();
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut rows = Vec::new();
        for field in fields {
            if field.inline {
                if field.go_type == "TypeMeta" {
                    for member in ["kind", "apiVersion"] {
                        rows.push(json!({ "j": member, "t": "string" }));
                    }
                    continue;
                }
                let target = format!("{package}.{}", field.go_type);
                self.inline_schema(&target, schema.as_ref());
                self.add(&target)?;
                rows.push(json!({ "i": 1, "n": field.number, "t": target }));
                continue;
            }
            let property = schema.as_ref().and_then(|s| s.pointer(&format!("/properties/{}", field.json)));
            let Some(property) = property.cloned() else {
                // A field that upstream keeps in Go alone: neither documented nor accepted.
                continue;
            };
            let required = schema
                .as_ref()
                .and_then(|s| s["required"].as_array())
                .is_some_and(|names| names.iter().any(|n| n == field.json.as_str()));
            rows.push(self.row(&field, &property, required)?);
        }
        if schema.is_some_and(|s| s["x-kubernetes-map-type"] == "atomic") {
            rows.push(json!({ "A": 1 }));
        }
        self.types.insert(name.to_owned(), rows);
        Ok(())
    }

    /// An inlined type has no schema of its own where no other type names it: its fields stand in the outer one's.
    fn inline_schema(&mut self, target: &str, outer: Option<&Value>) {
        if !self.schemas.contains_key(target)
            && let Some(outer) = outer
        {
            self.schemas.insert(target.to_owned(), outer.clone());
        }
    }

    fn row(&mut self, field: &GoField, property: &Value, required: bool) -> Result<Value> {
        let mut row = Map::new();
        let shape = self.shape(property)?;
        let base = shape.trim_start_matches(['[', ']', '{', '}']);
        if let Some(scalar) = &field.scalar
            && matches!(base, "string" | "int32" | "int64" | "boolean")
        {
            row.insert("g".to_owned(), json!(scalar));
        }
        row.insert("j".to_owned(), json!(field.json));
        row.insert("t".to_owned(), json!(shape));
        if let Some(number) = field.number {
            row.insert("n".to_owned(), json!(number));
        }
        let mut flag = |key: &str, set: bool| {
            if set {
                row.insert(key.to_owned(), json!(1));
            }
        };
        flag("p", field.pointer);
        flag("e", !field.omit_empty);
        flag("o", field.omit_zero);
        flag("r", required);
        flag("a", property["x-kubernetes-map-type"] == "atomic");
        flag("G", property["x-kubernetes-map-type"] == "granular");
        if let Some(default) = property.get("default") {
            let zero = default == "" || default == 0 || default == false || *default == json!({});
            if !zero {
                row.insert("d".to_owned(), default.clone());
            }
        }
        match property["x-kubernetes-list-type"].as_str() {
            Some("set") => row.insert("l".to_owned(), json!("set")),
            Some("map") => row.insert("l".to_owned(), property["x-kubernetes-list-map-keys"].clone()),
            _ => None,
        };
        if let Some(strategy) = property["x-kubernetes-patch-strategy"].as_str() {
            row.insert("s".to_owned(), json!(strategy));
        }
        if let Some(key) = property["x-kubernetes-patch-merge-key"].as_str() {
            row.insert("k".to_owned(), json!(key));
        }
        Ok(Value::Object(row))
    }

    /// `string`, `[]` + shape for lists, `{}` + shape for maps, or a type's name.
    fn shape(&mut self, schema: &Value) -> Result<String> {
        let reference = schema["$ref"].as_str().or_else(|| schema.pointer("/allOf/0/$ref").and_then(Value::as_str));
        if let Some(reference) = reference {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            if let Some((_, word)) = SPECIAL.iter().find(|(special, _)| name == *special) {
                return Ok((*word).to_owned());
            }
            self.add(name)?;
            return Ok(name.to_owned());
        }
        Ok(match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("array"), _) => format!("[]{}", self.shape(&schema["items"])?),
            (Some("object"), _) => match schema.get("additionalProperties") {
                Some(values) if values.is_object() => format!("{{}}{}", self.shape(values)?),
                _ => "any".to_owned(),
            },
            (Some("string"), Some("byte")) => "byte".to_owned(),
            (Some("string"), _) => "string".to_owned(),
            (Some("boolean"), _) => "boolean".to_owned(),
            (Some("integer"), Some("int64")) => "int64".to_owned(),
            (Some("integer"), _) => "int32".to_owned(),
            (Some("number"), _) => "number".to_owned(),
            (None, _) => "any".to_owned(),
            other => bail!("a schema of unknown shape: {other:?}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_struct_tags() {
        let field = go_field("\tRestarts *int32 `json:\"restarts,omitempty\" protobuf:\"varint,7,opt,name=restarts\"`")
            .unwrap();
        assert_eq!((field.json.as_str(), field.number), ("restarts", Some(7)));
        assert!(field.pointer && field.omit_empty && !field.inline);
        let inline = go_field("\tmetav1.TypeMeta `json:\",inline\"`").unwrap();
        assert!(inline.inline);
        assert_eq!(inline.go_type, "TypeMeta");
        assert!(go_field("\t// Old `json:\"old\"`").is_none());
    }
}
