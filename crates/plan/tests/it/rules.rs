//! Every rule that our CRDs state in CEL is broken by a case of `testdata/rules.yaml`, and every message of admission is in
//! the answer of a case of `testdata/admission.yaml`.

use merge::schema::Schema;
use reconcile::testing::merge;
use serde_json::Value;
use std::collections::BTreeSet;

/// A rule: the schema's path (`.spec.trainer`, items of lists as `[]`) and the message.
type Rule = (String, String);

fn yaml(file: &str) -> Value {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// The rules below a schema node.
fn rules(schema: &Value, path: &str, found: &mut BTreeSet<Rule>) {
    for rule in list(&schema["x-kubernetes-validations"]) {
        found.insert((path.to_owned(), text(&rule["message"])));
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        rules(member, &format!("{path}.{name}"), found);
    }
    for (member, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[member].is_object() {
            rules(&schema[member], &format!("{path}{mark}"), found);
        }
    }
}

/// A field's path as the schema's: `spec.a[0].b` is `.spec.a[].b`.
fn schema_path(field: &str) -> String {
    let mut path = String::new();
    for (n, part) in field.split('[').enumerate() {
        match (n, part.split_once(']')) {
            (0, _) | (_, None) => path.push_str(part),
            (_, Some((_, rest))) => path.push_str(&format!("[]{rest}")),
        }
    }
    if path.is_empty() { path } else { format!(".{path}") }
}

fn tripped(schema: &Schema, about: &str, new: &Value, old: Option<&Value>, known: &BTreeSet<Rule>) -> BTreeSet<Rule> {
    let mut found = BTreeSet::new();
    for error in schema.validate(new, old, &api::field::Path::root()) {
        let rule = (schema_path(error.field.as_str()), error.detail.clone());
        assert!(known.contains(&rule), "{about}: a fault that is no rule's: {error}");
        found.insert(rule);
    }
    found
}

#[test]
fn every_rule_of_the_schemas_is_broken_by_a_case() {
    for kind in list(&yaml("testdata/rules.yaml")) {
        let file = text(&kind["crd"]);
        let crd = yaml(&format!("../../manifests/crds/{file}.yaml"));
        let [version] = list(&crd["spec"]["versions"]) else { panic!("{file} has not one version") };
        let openapi = &version["schema"]["openAPIV3Schema"];
        let schema = Schema::from_openapi(openapi).expect("the schema is sound");
        let mut known = BTreeSet::new();
        rules(openapi, "", &mut known);
        let mut unbroken = known.clone();
        let object = |over: &Value| {
            let mut object = kind["valid"].clone();
            merge(&mut object, over);
            schema.default(&mut object);
            object
        };
        let valid = object(&Value::Object(serde_json::Map::new()));
        assert_eq!(tripped(&schema, &file, &valid, None, &known), BTreeSet::new());
        assert_eq!(tripped(&schema, &file, &valid, Some(&valid), &known), BTreeSet::new());
        for case in list(&kind["cases"]) {
            let about = format!("{file}: {}", text(&case["about"]));
            let (new, old) = (object(&case["new"]), case.get("old").map(&object));
            let expected = list(&case["breaks"]).iter().map(|rule| {
                let (path, message) = rule.as_object().and_then(|rule| rule.iter().next()).expect("path: message");
                (path.clone(), text(message))
            });
            let expected: BTreeSet<Rule> = expected.collect();
            assert_eq!(tripped(&schema, &about, &new, old.as_ref(), &known), expected, "{about}");
            unbroken.retain(|rule| !expected.contains(rule));
        }
        for rule in list(&kind["unbreakable"]) {
            let rule = (text(&rule["path"]), text(&rule["message"]));
            assert!(unbroken.remove(&rule), "{file}: {rule:?} is no rule, or broken by a case");
        }
        assert_eq!(unbroken, BTreeSet::new(), "{file}: rules that no case breaks");
    }
}

#[test]
fn every_crd_of_trainjobs_is_looked_at() {
    let looked_at: BTreeSet<String> =
        list(&yaml("testdata/rules.yaml")).iter().map(|kind| text(&kind["crd"])).collect();
    let folder = format!("{}/../../manifests/crds", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).expect("manifests/crds is there") {
        let name = entry.expect("it can be listed").file_name().to_string_lossy().into_owned();
        let name = name.trim_end_matches(".yaml");
        assert!(!name.starts_with("trainer.") || looked_at.contains(name), "testdata/rules.yaml lacks {name}");
    }
}

/// Upstream's texts, `*` for what depends on the object.
#[test]
fn every_message_of_admission_is_an_answer() {
    let answers: Vec<String> = list(&yaml("testdata/admission.yaml"))
        .iter()
        .flat_map(|case| {
            let warnings = list(&case["warnings"]).iter().map(text);
            case.get("denied").map(text).into_iter().chain(warnings).collect::<Vec<_>>()
        })
        .collect();
    let occurs = |message: &str| {
        answers.iter().any(|answer| {
            let mut rest = answer.as_str();
            message.split('*').all(|part| rest.find(part).map(|at| rest = &rest[at + part.len()..]).is_some())
        })
    };
    let messages = yaml("testdata/messages.yaml");
    let missing: Vec<String> = list(&messages).iter().map(text).filter(|message| !occurs(message)).collect();
    assert_eq!(missing, Vec::<String>::new(), "no case of admission.yaml is answered so");
}
