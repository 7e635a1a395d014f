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

/// The faults of each version, then those of all together.
pub(super) fn all_versions(definition: &Value, path: &Path, errors: &mut ErrorList) {
    let all = versions(definition);
    let at = path.child("versions");
    for (i, version) in all.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(Error::required(&at.index(i).child("schema").child("openAPIV3Schema"), ""));
        }
    }
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (i, version) in all.iter().enumerate() {
        let (name, at) = (text(version, "name"), at.index(i));
        unique &= seen.insert(name);
        check(errors, &at.child("name"), name, &names::dns1035_faults(name, false));
        if let Some(warning) = version["deprecationWarning"].as_str() {
            let at = at.child("deprecationWarning");
            for fault in deprecation_faults(version["deprecated"] == true, warning) {
                errors.push(Error::invalid(&at, warning, fault));
            }
        }
        parts(all, false, version, &at, errors);
    }
    let value = definition["spec"].get("versions").cloned().unwrap_or_default();
    if !unique {
        errors.push(Error::invalid(&at, value.clone(), "must contain unique version names"));
    }
    if all.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(Error::invalid(&at, value, "must have exactly one version marked as storage version"));
    }
    // upstream keeps the first version's name beside the versions, where it has one
    if let Some(name) = all.first().map(|version| text(version, "name")).filter(|name| !name.is_empty()) {
        check(errors, &path.child("version"), name, &names::dns1035_faults(name, false));
    }
}

/// The faults of what all versions have in common.
pub(super) fn of_all(definition: &Value, path: &Path, errors: &mut ErrorList) {
    let all = versions(definition);
    if let Some(version) = all.first() {
        parts(all, true, version, path, errors);
    }
}

/// The faults of the parts that a version does not share with all others, or (`common`) of those that all share.
fn parts(all: &[Value], common: bool, version: &Value, path: &Path, errors: &mut ErrorList) {
    let part = |field: &str| {
        let here = shared(all, field).is_some() == common;
        version.get(field).filter(|value| here && !value.is_null())
    };
    let schema = part("schema").map(|schema| &schema["openAPIV3Schema"]).filter(|schema| schema.is_object());
    if let Some(schema) = schema {
        let place = path.child(if common { "validation" } else { "schema" }).child("openAPIV3Schema");
        errors.extend(structural::check(schema, &place));
        // the default of the whole is an object of its own
        let whole = schema.get("default").filter(|value| value.is_object());
        for field in ["apiVersion", "kind"] {
            if whole.is_some_and(|value| text(value, field).is_empty()) {
                errors.push(Error::required(&place.child("default").child(field), ""));
            }
        }
    }
    if let Some(subresources) = part("subresources") {
        scale(&subresources["scale"], &path.child("subresources").child("scale"), errors);
    }
    if let Some(columns) = part("additionalPrinterColumns") {
        printer_columns(columns, &path.child("additionalPrinterColumns"), errors);
    }
    let fields = part("selectableFields").filter(|fields| fields.as_array().is_some_and(|fields| !fields.is_empty()));
    let Some(fields) = fields else { return };
    let place = path.child("selectableFields");
    match schema {
        Some(schema) => selectable(fields, schema, &place, errors),
        None => {
            let why = match common {
                true => "may only be set when validations.schema is included",
                false => "may only be set when `version.schema.openAPIV3Schema` is not included",
            };
            errors.push(Error::invalid(&place, "", why));
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
            _ => {}
        }
    }
}

pub(super) fn selectable(fields: &Value, schema: &Value, path: &Path, errors: &mut ErrorList) {
    const MAX: usize = 8;
    let mut seen = BTreeSet::new();
    for (i, field) in fields.as_array().into_iter().flatten().enumerate() {
        let at = path.index(i).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        let (members, found) = match field_of(json_path, schema) {
            Ok(found) => found,
            Err(why) => {
                errors.push(Error::invalid(&at, json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if members.first() == Some(&"metadata") {
            errors.push(Error::invalid(&at, json_path, "must not point to fields in metadata"));
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            errors.push(Error::invalid(
                &at,
                json_path,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ));
        }
        if !seen.insert(members) {
            errors.push(Error::duplicate(&at, json_path));
        }
    }
    if seen.len() > MAX {
        errors.push(Error::too_many(path, seen.len(), MAX));
    }
}

/// The members that a path names, and the schema of the last of them.
fn field_of<'a>(path: &'a str, schema: &'a Value) -> Result<(Vec<&'a str>, &'a Value), String> {
    let nowhere = || "does not refer to a valid field".to_owned();
    let (mut members, mut schema, mut rest) = (Vec::new(), schema, path);
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix('.') else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            return Err(match rest.chars().next() {
                Some('[') => "array notation is not allowed".to_owned(),
                Some(']') => "expected [ or . but got: ]".to_owned(),
                _ => format!("expected [ or . but got: {}", &rest[..end]),
            });
        };
        let end = match after.chars().next() {
            None => return Err("unexpected end of JSON path".to_owned()),
            // a delimiter is a word of its own
            Some('.' | '[' | ']') => 1,
            Some(_) => after.find(['.', '[', ']']).unwrap_or(after.len()),
        };
        let member = &after[..end];
        schema = match (schema.get("properties"), schema.get("additionalProperties")) {
            (Some(properties), _) => properties.get(member).ok_or_else(nowhere)?,
            (None, Some(values)) if values.is_object() || values == &Value::Bool(true) => values,
            _ => return Err(nowhere()),
        };
        members.push(member);
        rest = &after[end..];
    }
    Ok((members, schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_version_by_version_and_what_is_shared_last() {
        let version = |name: &str, bad: &str| {
            let spec = json!({"type": "object", "properties": {"a": {"type": "string"}, bad: {"type": "foo"}}});
            json!({"name": name, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                "selectableFields": [{"jsonPath": format!(".spec.{bad}")}, {"jsonPath": ".spec.none"}],
                "additionalPrinterColumns": [{"name": "", "type": "string", "jsonPath": ".spec.a"}]})
        };
        let definition = json!({"spec": {"versions": [version("V1", "b"), version("V2", "c")]}});
        let (path, mut errors) = (Path::new("spec"), ErrorList::new());
        all_versions(&definition, &path, &mut errors);
        of_all(&definition, &path, &mut errors);
        let places: Vec<String> = errors.iter().map(|error| error.field.to_string()).collect();
        let of_version = |i: usize, bad: &str| {
            let at = format!("spec.versions[{i}]");
            [
                format!("{at}.name"),
                format!("{at}.schema.openAPIV3Schema.properties[spec].properties[{bad}].type"),
                format!("{at}.selectableFields[0].jsonPath"),
                format!("{at}.selectableFields[1].jsonPath"),
            ]
        };
        let of_all = ["spec.versions", "spec.version", "spec.additionalPrinterColumns[0].name"].map(str::to_owned);
        assert_eq!(places, [&of_version(0, "b")[..], &of_version(1, "c"), &of_all].concat());
    }

    #[test]
    fn selectable_fields_are_fields() {
        let text = json!({"type": "string"});
        let spec = json!({"type": "object", "properties": {
            "a": text, "n": {"type": "object", "additionalProperties": true}, "o": {"type": "object"}, "m": {"type": "object", "additionalProperties": text}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let faults = |paths: &[&str]| {
            let fields: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
            let mut errors = ErrorList::new();
            selectable(&fields.into(), &schema, &Path::new("f"), &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let no_field = "does not refer to a valid field";
        for (path, why) in [
            (".spec.z", no_field),
            (".spec.a.b", no_field),
            (".metadata.name", no_field),
            (".spec..a", no_field),
            ("spec.a", "expected [ or . but got: spec"),
            (".spec[a]", "array notation is not allowed"),
            (".spec.a.", "unexpected end of JSON path"),
            (".", "unexpected end of JSON path"),
        ] {
            let fault = format!("f[0].jsonPath: Invalid value: {path:?}: is an invalid path: {why}");
            assert_eq!(faults(&[path]), [fault]);
        }
        assert!(faults(&[".spec.a", ".spec.m.k"]).is_empty());
        let untyped = faults(&[".spec.n.k"]);
        assert!(untyped.len() == 1 && untyped[0].contains("must point to a field of type"), "{untyped:?}");
        let twice = faults(&[".spec.o", ".spec.o"]);
        assert!(twice.len() == 3 && twice[2].starts_with("f[1].jsonPath: Duplicate value"), "{twice:?}");
        let many: Vec<String> = (0..9).map(|i| format!(".spec.m.k{i}")).collect();
        let many = faults(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(many, ["f: Too many: 9: must have at most 8 items"]);
    }
}
