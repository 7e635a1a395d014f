//! The rules of definitions themselves (`k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation`).

mod version;

use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use merge::apply::Ignored;
use merge::structural;
use resource::definitions::{CLEANUP, set_condition};
use resource::status::Status;
use resource::{Context, Deletion, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use version::{all_versions, has_default, of_all, unknown_formats};

/// Defaults, validation and deletion of definitions.
pub struct Definitions;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

/// Adds the storage version to those that objects may be stored in.
fn note_storage_version(definition: &mut Value) {
    let storage = versions(definition).iter().find(|v| v["storage"] == true).map(|v| text(v, "name").to_owned());
    let mut stored = strings(&definition["status"]["storedVersions"]);
    if let Some(storage) = storage
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    if !stored.is_empty() {
        definition["status"]["storedVersions"] = json!(stored);
    }
}

impl Strategy for Definitions {
    fn facts(&self) -> Facts {
        Facts { qualified_finalizers: false, unconditional_update: false, deletion: Deletion::Own, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        if let Some(names) = spec.entry("names").or_insert_with(|| json!({})).as_object_mut() {
            let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            let unset = |v: Option<&Value>| v.and_then(Value::as_str).is_none_or(str::is_empty);
            if unset(names.get("singular")) && !kind.is_empty() {
                names.insert("singular".to_owned(), kind.to_lowercase().into());
            }
            if unset(names.get("listKind")) && !kind.is_empty() {
                names.insert("listKind".to_owned(), format!("{kind}List").into());
            }
        }
        let conversion = spec.entry("conversion").or_insert_with(|| json!({}));
        if text(conversion, "strategy").is_empty() {
            conversion["strategy"] = "None".into();
        }
        if object["status"].is_object() && strings(&object["status"]["storedVersions"]).is_empty() {
            note_storage_version(object);
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] =
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null});
        note_storage_version(new);
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        new["status"] = old["status"].clone();
        note_storage_version(new);
    }

    /// A status is not judged: one that names stored versions that do not exist makes the next update of the definition fail.
    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        let mut result = old.clone();
        result["status"] = new["status"].clone();
        if let Some(managers) = new["metadata"].get("managedFields") {
            result["metadata"]["managedFields"] = managers.clone();
        }
        *new = result;
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = &new["spec"];
        let name = api::object::meta(new, "name");
        let wanted = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
        if !name.is_empty() && name != wanted {
            errors.push(Error::invalid(
                &Path::new("metadata").child("name"),
                name,
                "must be spec.names.plural+\".\"+spec.group",
            ));
        }
        common(new, &mut errors);
        approval(new, &mut errors);
        errors
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let established = old["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Established" && c["status"] == "True");
        let path = Path::new("spec");
        if established {
            let mut fixed = |at: &Path, new: &Value, old: &Value| {
                let (new, old) = (new.as_str().unwrap_or_default(), old.as_str().unwrap_or_default());
                if new != old {
                    errors.push(Error::invalid(at, new, "field is immutable"));
                }
            };
            fixed(&path.child("group"), &new["spec"]["group"], &old["spec"]["group"]);
            fixed(&path.child("scope"), &new["spec"]["scope"], &old["spec"]["scope"]);
            for field in ["kind", "plural"] {
                let (new, old) = (&new["spec"]["names"][field], &old["spec"]["names"][field]);
                fixed(&path.child("names").child(field), new, old);
            }
        }
        common(new, &mut errors);
        errors
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        new["spec"] != old["spec"]
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut out = Vec::new();
        for version in versions(new) {
            unknown_formats(&version["schema"]["openAPIV3Schema"], &mut out);
        }
        out
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::all_but(&["status"]),
            _ => Ignored::paths(&["status"]),
        }
    }

    fn begin_delete(&self, cx: &Context<'_>, object: &Value) -> Result<Option<Value>, Status> {
        if api::object::is_terminating(object) {
            return Ok(None);
        }
        let mut new = object.clone();
        let mut finalizers = strings(&new["metadata"]["finalizers"]);
        if !finalizers.iter().any(|f| f == CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
        }
        new["metadata"]["finalizers"] = json!(finalizers);
        set_condition(
            &mut new,
            &cx.now,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
        Ok(Some(new))
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![api::object::meta(object, "name").into(), api::object::meta(object, "creationTimestamp").into()]
    }
}

/// An error where a name does not follow a rule; several faults are joined as upstream joins them.
fn check(errors: &mut ErrorList, path: &Path, value: &str, faults: &[String]) {
    if !faults.is_empty() {
        errors.push(Error::invalid(path, value, faults.join(",")));
    }
}

/// What must hold of every definition.
fn common(definition: &Value, errors: &mut ErrorList) {
    let spec = &definition["spec"];
    let path = Path::new("spec");
    let group = text(spec, "group");
    if group.is_empty() {
        errors.push(Error::required(&path.child("group"), ""));
    } else {
        let faults = names::subdomain_faults(group, false);
        if !faults.is_empty() {
            check(errors, &path.child("group"), group, &faults);
        } else if !group.contains('.') {
            errors.push(Error::invalid(&path.child("group"), group, "should be a domain with at least one dot"));
        }
    }
    match text(spec, "scope") {
        "" => errors.push(Error::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(Error::not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"]));
        }
    }
    if spec["preserveUnknownFields"] == true {
        errors.push(Error::invalid(
            &path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
        if versions(definition).iter().any(|version| has_default(&version["schema"]["openAPIV3Schema"])) {
            let why = "must be false in order to use defaults in the schema";
            errors.push(Error::invalid(&path.child("preserveUnknownFields"), true, why));
        }
    }
    all_versions(definition, &path, errors);
    accepted_names(&spec["names"], &path.child("names"), errors);
    of_all(definition, &path, errors);
    let strategy = text(&spec["conversion"], "strategy");
    if strategy != "None" && spec["preserveUnknownFields"] == true {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(&path.child("conversion").child("strategy"), strategy, why));
    }
    match strategy {
        "None" | "" => {
            let (path, webhook) = (path.child("conversion"), &spec["conversion"]["webhook"]);
            let alone = "should not be set when strategy is not set to Webhook";
            if webhook["clientConfig"].is_object() {
                errors.push(Error::forbidden(&path.child("webhookClientConfig"), alone));
            }
            if webhook["conversionReviewVersions"].as_array().is_some_and(|all| !all.is_empty()) {
                errors.push(Error::forbidden(&path.child("conversionReviewVersions"), alone));
            }
        }
        "Webhook" => webhook_conversion(&spec["conversion"], &path.child("conversion"), errors),
        other => {
            errors.push(Error::not_supported(&path.child("conversion").child("strategy"), other, &["None", "Webhook"]))
        }
    }
    stored_versions(definition, errors);
}

/// Conversion by webhook is described as upstream wants it, and then refused: this server calls no webhooks.
fn webhook_conversion(conversion: &Value, path: &Path, errors: &mut ErrorList) {
    let before = errors.len();
    let webhook = &conversion["webhook"];
    let client = path.child("webhookClientConfig");
    if webhook["clientConfig"].is_object() {
        crate::admissionregistration::client_faults(&webhook["clientConfig"], &client, errors);
    } else {
        errors.push(Error::required(&client, "required when strategy is set to Webhook"));
    }
    let versions = webhook["conversionReviewVersions"].as_array().map_or(&[][..], Vec::as_slice);
    let path_of_versions = path.child("conversionReviewVersions");
    if versions.is_empty() {
        errors.push(Error::required(&path_of_versions, ""));
    } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        let why = "must include at least one of v1, v1beta1";
        errors.push(Error::invalid(&path_of_versions, versions.to_vec(), why));
    }
    if errors.len() == before {
        errors.push(Error::not_supported(&path.child("strategy"), "Webhook", &["None"]));
    }
}

fn accepted_names(all: &Value, path: &Path, errors: &mut ErrorList) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(all, field);
        let at = path.child(field);
        if value.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        if matches!(field, "plural" | "singular") {
            check(errors, &at, value, &names::dns1035_faults(value, false));
        } else {
            let faults = names::dns1035_faults(&value.to_lowercase(), false);
            if !faults.is_empty() {
                let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
                errors.push(Error::invalid(&at, value, why));
            }
        }
    }
    for list in ["shortNames", "categories"] {
        for (i, name) in all[list].as_array().into_iter().flatten().enumerate() {
            let name = name.as_str().unwrap_or_default();
            check(errors, &path.child(list).index(i), name, &names::dns1035_faults(name, false));
        }
    }
    let (kind, list_kind) = (text(all, "kind"), text(all, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.push(Error::invalid(&path.child("listKind"), list_kind, "kind and listKind may not be the same"));
    }
}

fn stored_versions(definition: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("storedVersions");
    let stored = strings(&definition["status"]["storedVersions"]);
    if stored.is_empty() {
        let value = definition["status"].get("storedVersions").cloned().unwrap_or_default();
        errors.push(Error::invalid(&path, value, "must have at least one stored version"));
        return;
    }
    let mut named: BTreeSet<&str> = stored.iter().map(String::as_str).collect();
    for version in versions(definition) {
        let name = text(version, "name");
        // Each stored version answers for one version only, so that a second one of its name stands out.
        if !named.remove(name) && version["storage"] == true {
            errors.push(Error::invalid(&path, json!(stored), format!("must have the storage version {name}")));
        }
    }
    for (i, version) in stored.iter().enumerate() {
        if !versions(definition).iter().any(|v| text(v, "name") == version) {
            errors.push(Error::invalid(
                &path.index(i),
                version.as_str(),
                format!(
                    "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
                ),
            ));
        }
    }
}

/// Groups of the Kubernetes project are not for everybody.
fn approval(definition: &Value, errors: &mut ErrorList) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = text(&definition["spec"], "group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|p| group == *p || group.ends_with(&format!(".{p}")));
    if !protected {
        return;
    }
    let path = Path::new("metadata").child("annotations").key(ANNOTATION);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match api::object::annotation(definition, ANNOTATION) {
        None | Some("") => errors.push(Error::required(
            &path,
            format!("protected groups must have approval annotation \"{ANNOTATION}\", {see}"),
        )),
        Some(value) if value.starts_with("unapproved") || value.starts_with("http://") || value.starts_with("https://") => {}
        Some(value) => errors.push(Error::invalid(
            &path,
            value,
            format!("protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting with \"unapproved\", {see}"),
        )),
    }
}
