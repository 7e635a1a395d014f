//! The rules of the versions of a definition: schemas, subresources, columns, selectable fields.

use super::*;

/// The part of a version that upstream keeps once for all versions where they agree: errors name that place then.
pub(super) fn shared<'a>(all: &'a [Value], field: &str) -> Option<&'a Value> {
    let first = all.first()?.get(field).filter(|v| !v.is_null())?;
    all.iter().all(|v| v.get(field) == Some(first)).then_some(first)
}

/// Whether a schema, or one in it, has a default.
pub(super) fn has_default(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.get("default").is_some_and(|value| !value.is_null())
                || members.iter().any(|(name, member)| match (name.as_str(), member) {
                    ("default" | "enum" | "example", _) => false,
                    ("properties", Value::Object(properties)) => properties.values().any(has_default),
                    _ => has_default(member),
                })
        }
        Value::Array(members) => members.iter().any(has_default),
        _ => false,
    }
}

pub(super) fn all_versions(definition: &Value, path: &Path, errors: &mut ErrorList) {
    let all = versions(definition);
    let at = path.child("versions");
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (i, version) in all.iter().enumerate() {
        let name = text(version, "name");
        unique &= seen.insert(name);
        let faults = names::dns1035_faults(name, false);
        check(errors, &at.index(i).child("name"), name, &faults);
        if i == 0 {
            // upstream keeps the first version's name beside the versions, where it has one
            let faults = if name.is_empty() { &[][..] } else { &faults };
            check(errors, &path.child("version"), name, faults);
        }
        if let Some(warning) = version["deprecationWarning"].as_str() {
            let at = at.index(i).child("deprecationWarning");
            for fault in deprecation_faults(version["deprecated"] == true, warning) {
                errors.push(Error::invalid(&at, warning, fault));
            }
        }
    }
    let value = definition["spec"].get("versions").cloned().unwrap_or_default();
    if !unique {
        errors.push(Error::invalid(&at, value.clone(), "must contain unique version names"));
    }
    if all.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(Error::invalid(&at, value, "must have exactly one version marked as storage version"));
    }
    let places = |field: &str, hoisted: Path| -> Vec<(Path, Value)> {
        match shared(all, field) {
            Some(value) => vec![(hoisted, value.clone())],
            None => all
                .iter()
                .enumerate()
                .filter_map(|(i, v)| Some((at.index(i).child(field), v.get(field)?.clone())))
                .collect(),
        }
    };
    for (i, version) in all.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(Error::required(&at.index(i).child("schema").child("openAPIV3Schema"), ""));
        }
    }
    for (place, schema) in places("schema", path.child("validation")) {
        if let Some(schema) = schema.get("openAPIV3Schema").filter(|s| s.is_object()) {
            errors.extend(structural::check(schema, &place.child("openAPIV3Schema")));
            // the default of the whole is an object of its own
            let whole = schema.get("default").filter(|value| value.is_object());
            for field in ["apiVersion", "kind"] {
                if whole.is_some_and(|value| text(value, field).is_empty()) {
                    let path = place.child("openAPIV3Schema").child("default").child(field);
                    errors.push(Error::required(&path, ""));
                }
            }
        }
    }
    for (place, subresources) in places("subresources", path.child("subresources")) {
        scale(&subresources["scale"], &place.child("scale"), errors);
    }
    for (place, columns) in places("additionalPrinterColumns", path.child("additionalPrinterColumns")) {
        printer_columns(&columns, &place, errors);
    }
    let hoisted = shared(all, "selectableFields").is_some();
    if hoisted && shared(all, "schema").is_none() {
        let why = "may only be set when validations.schema is included";
        errors.push(Error::invalid(&path.child("selectableFields"), "", why));
        return;
    }
    if !hoisted && shared(all, "schema").is_some() {
        // what all versions have in common is none's own
        for (i, _) in
            all.iter().enumerate().filter(|(_, v)| v["selectableFields"].as_array().is_some_and(|f| !f.is_empty()))
        {
            let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push(Error::invalid(&at.index(i).child("selectableFields"), "", why));
        }
        return;
    }
    for (i, version) in all.iter().enumerate() {
        let place = if hoisted { path.child("selectableFields") } else { at.index(i).child("selectableFields") };
        let fields = version["selectableFields"].as_array().is_some_and(|fields| !fields.is_empty());
        if !hoisted && fields && version["schema"]["openAPIV3Schema"].is_null() {
            let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push(Error::invalid(&place, "", why));
        } else if !hoisted || i == 0 {
            selectable(&version["selectableFields"], &version["schema"]["openAPIV3Schema"], &place, errors);
        }
    }
}

/// What is wrong with the warning that users of an old version get.
pub(super) fn deprecation_faults(deprecated: bool, warning: &str) -> Vec<String> {
    const MAX_BYTES: usize = 256;
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut faults = Vec::new();
    if warning.len() > MAX_BYTES {
        faults.push(format!("must be <= {MAX_BYTES} characters long"));
    }
    if warning.is_empty() {
        faults.push("must not be an empty string".to_owned());
    }
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        faults
            .push(format!("must only contain printable UTF-8 characters; non-printable character found at index {i}"));
    }
    faults
}

/// Formats that a schema names and nobody checks.
pub(super) fn unknown_formats(schema: &Value, out: &mut Vec<String>) {
    const KNOWN: [&str; 33] = [
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
        "date-time",
        "int32",
        "int64",
        "float",
        "double",
        "k8s-short-name",
        "k8s-long-name",
        "int-or-string",
        "quantity",
    ];
    match schema {
        Value::Object(members) => {
            if let Some(format) = members.get("format").and_then(Value::as_str)
                && members.get("type").is_some_and(Value::is_string)
                && !KNOWN.contains(&format.replace('_', "-").as_str())
            {
                let text = format!("unrecognized format {format:?}");
                if !out.contains(&text) {
                    out.push(text);
                }
            }
            members
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "default" | "enum" | "example"))
                .for_each(|(_, v)| unknown_formats(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| unknown_formats(v, out)),
        _ => {}
    }
}

/// Whether a path consists of plain members.
pub(super) fn is_simple(path: &str) -> bool {
    path.starts_with('.')
        && path.len() > 1
        && path[1..]
            .split('.')
            .all(|m| !m.is_empty() && m.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'$')))
}

pub(super) fn scale(scale: &Value, path: &Path, errors: &mut ErrorList) {
    if !scale.is_object() {
        return;
    }
    for (field, roots) in [
        ("specReplicasPath", &[".spec"][..]),
        ("statusReplicasPath", &[".status"][..]),
        ("labelSelectorPath", &[".status", ".spec"][..]),
    ] {
        let value = text(scale, field);
        let at = path.child(field);
        if value.is_empty() {
            if field != "labelSelectorPath" {
                errors.push(Error::required(&at, ""));
            }
            continue;
        }
        if !value.starts_with('.') {
            errors.push(Error::invalid(&at, value, "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| value.starts_with(&format!("{root}."))) {
            let why = match field {
                "labelSelectorPath" => "should be a json path under either .spec or .status".to_owned(),
                _ => format!("should be a json path under {}", roots[0]),
            };
            errors.push(Error::invalid(&at, value, why));
        }
    }
}

pub(super) fn printer_columns(columns: &Value, path: &Path, errors: &mut ErrorList) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, column) in columns.as_array().into_iter().flatten().enumerate() {
        let at = path.index(i);
        if text(column, "name").is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        match text(column, "type") {
            "" => errors.push(Error::required(&at.child("type"), format!("must be one of {}", TYPES.join(",")))),
            known if TYPES.contains(&known) => {}
            other => {
                errors.push(Error::invalid(&at.child("type"), other, format!("must be one of {}", TYPES.join(","))))
            }
        }
        let format = text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            let why = format!("must be one of {}", FORMATS.join(","));
            errors.push(Error::invalid(&at.child("format"), format, why));
        }
        match text(column, "jsonPath") {
            "" => errors.push(Error::required(&at.child("JSONPath"), "")),
            json_path if !json_path.starts_with('.') => errors.push(Error::invalid(
                &at.child("JSONPath"),
                json_path,
                "must be a simple json path starting with .",
            )),
            json_path if resource::jsonpath::JsonPath::parse(json_path).is_none() => {
                errors.push(Error::invalid(&at.child("JSONPath"), json_path, "is an invalid path"));
            }
            _ => {}
        }
    }
}

pub(super) fn selectable(fields: &Value, schema: &Value, path: &Path, errors: &mut ErrorList) {
    const MAX: usize = 8;
    let fields = fields.as_array().map_or(&[][..], Vec::as_slice);
    if fields.len() > MAX {
        errors.push(Error::too_many(path, fields.len(), MAX));
    }
    let mut seen = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let at = path.index(i).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        if !seen.insert(json_path) {
            errors.push(Error::duplicate(&at, json_path));
            continue;
        }
        if !is_simple(json_path) {
            let first = json_path.split_inclusive(['.', '[', ']', '\'']).next().unwrap_or_default();
            let why = if !json_path.starts_with(['.', '[']) {
                format!("expected [ or . but got: {}", first.trim_end_matches(['.', '[', ']', '\'']))
            } else if json_path.contains('[') {
                "array notation is not allowed".to_owned()
            } else {
                "does not refer to a valid field".to_owned()
            };
            errors.push(Error::invalid(&at, json_path, format!("is an invalid path: {why}")));
            continue;
        }
        let mut node = Some(schema);
        for member in json_path[1..].split('.') {
            node = node.and_then(|n| n.get("properties")?.get(member));
        }
        match node {
            None => errors.push(Error::invalid(&at, json_path, "is an invalid path: does not refer to a valid field")),
            Some(_) if json_path.starts_with(".metadata.") => {
                errors.push(Error::invalid(&at, json_path, "must not point to fields in metadata"));
            }
            Some(node) if !matches!(text(node, "type"), "string" | "boolean" | "integer") => {
                errors.push(Error::invalid(
                    &at,
                    json_path,
                    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
                ));
            }
            Some(_) => {}
        }
    }
}
