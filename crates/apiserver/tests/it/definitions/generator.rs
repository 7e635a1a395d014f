//! Definitions made up at random, and values of their schemas: deep, wide, with numbers at their limits, patterns, defaults and rules
//! that are dear, names that clash.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const NUMBERS: [f64; 12] = [
    0.0,
    1.0,
    -1.0,
    0.5,
    1e-300,
    1e300,
    -1e300,
    2_147_483_648.0,
    9_007_199_254_740_993.0,
    9_223_372_036_854_775_807.0,
    -9_223_372_036_854_775_808.0,
    18_446_744_073_709_551_616.0,
];

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(&NUMBERS[..]).prop_map(Value::from),
        select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 7, 1 << 31, 1 << 53, i64::MAX]).prop_map(Value::from),
        Just(json!(u64::MAX)),
    ]
}

fn small() -> impl Strategy<Value = Value> {
    select(vec![0_i64, 1, 2, 10, 1000, 100_000, i64::MAX]).prop_map(Value::from)
}

const PATTERNS: [&str; 20] = [
    "",
    "^a+$",
    "(a+)+$",
    "(a*)*b",
    "^(a|aa)+$",
    "(.*)(.*)(.*)(.*)(.*)x",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(x{1,30}){1,30}",
    "(?:a?){1000}a{1000}",
    ".{1000}.{1000}",
    "\\pL{900}",
    "[\\p{Han}\\p{Lu}é-𝔸]{500}$",
    "(\\w{50}|\\W{50}){20}",
    "^[^\u{0}]{0,63}$",
    "(?i)ſ{100}",
    "(?=a)",
    "\\1",
    "(",
    "a{1001}",
    "((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})",
];

const FORMATS: [&str; 16] = [
    "date-time",
    "date",
    "duration",
    "uuid",
    "ipv4",
    "ipv6",
    "cidr",
    "uri",
    "email",
    "hostname",
    "byte",
    "int32",
    "int64",
    "float",
    "password",
    "what",
];

const KEYS: [&str; 18] = [
    "a",
    "b",
    "c",
    "name",
    "spec",
    "status",
    "metadata",
    "apiVersion",
    "kind",
    "replicas",
    "selector",
    "",
    "a.b",
    "__x__",
    "$patch",
    "é/~1",
    "self",
    "items",
];

const RULES: [&str; 22] = [
    "true",
    "false",
    "self == self",
    "has(self.a)",
    "has(self.spec)",
    "!has(self.a) || self.a != self.b",
    "self == oldSelf",
    "!has(oldSelf.a) || self.a == oldSelf.a",
    "size(self) > 0",
    "self.all(x, x == x)",
    "self.all(x, self.all(y, self.all(z, x == y || y == z)))",
    "self.map(x, x).size() < 10",
    "self.matches('(a+)+$')",
    "self.matches(self)",
    "self.replace('a', self) != ''",
    "self + self + self != self",
    "self / 0 == 1",
    "self % -1 == 0",
    "-self < 0",
    "duration(self) > duration('1h')",
    "[1,2,3].exists_one(x, x == 2) && string(self).split('').join(',') != ''",
    "optional.of(self).orValue(self) == self",
];

const PATHS: [&str; 24] = [
    ".spec.replicas",
    ".status.replicas",
    ".spec",
    ".status",
    ".spec.a.b.c",
    ".spec.metadata.name",
    ".status.selector",
    ".metadata.name",
    ".metadata.labels",
    ".metadata.managedFields",
    ".",
    "..",
    "..*..*..*..*",
    ".*.*.*",
    "..a..a..a..a..a",
    "..['a']..[0]",
    ".spec[*][*]",
    ".spec.items[-9223372036854775808]",
    ".spec.items[9223372036854775807:-9223372036854775808]",
    ".spec[?(@.a=='b')]",
    ".spec[?(@..a==@..b)]",
    ".spec.é['~1']",
    ".spec.a\\.b",
    "spec",
];

/// Any small value, for defaults and members of enumerations.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        select(vec!["", "a", "aaaa", "1h", "2026-01-01T00:00:00Z", "é🦀\u{202e}", "100Mi"]).prop_map(Value::from),
        (1_usize..5).prop_map(|n| "a".repeat(10_usize.pow(n as u32)).into()),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(select(&KEYS[..]), inner.clone(), 0..4).prop_map(object),
            (inner.clone(), select(vec![2_usize, 50, 2000])).prop_map(|(value, n)| vec![value; n].into()),
            (inner, 1_usize..60).prop_map(|(value, n)| (0..n).fold(value, |value, _| json!({"a": value}))),
        ]
    })
}

fn object(members: BTreeMap<&'static str, Value>) -> Value {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Something of a schema beside its type.
fn facet() -> impl Strategy<Value = (&'static str, Value)> {
    let limit = |name: &'static str| small().prop_map(move |value| (name, value));
    let bound = |name: &'static str| number().prop_map(move |value| (name, value));
    let yes = |name: &'static str| Just((name, json!(true)));
    prop_oneof![
        2 => prop_oneof![limit("maxLength"), limit("minLength"), limit("maxItems"), limit("minItems"), limit("maxProperties"), limit("minProperties")],
        2 => prop_oneof![bound("minimum"), bound("maximum"), bound("multipleOf")],
        1 => prop_oneof![yes("exclusiveMinimum"), yes("exclusiveMaximum"), yes("nullable"), yes("uniqueItems")],
        2 => prop_oneof![yes("x-kubernetes-preserve-unknown-fields"), yes("x-kubernetes-embedded-resource"), yes("x-kubernetes-int-or-string")],
        2 => select(&PATTERNS[..]).prop_map(|p| ("pattern", p.into())),
        1 => (select(&PATTERNS[..]), select(vec![2_usize, 40, 1500])).prop_map(|(p, n)| ("pattern", format!("({p}){{0,{n}}}").into())),
        2 => select(&FORMATS[..]).prop_map(|f| ("format", f.into())),
        3 => any_value().prop_map(|v| ("default", v)),
        1 => prop::collection::vec(any_value(), 0..4).prop_map(|v| ("enum", v.into())),
        1 => select(vec![10_usize, 1000, 30_000]).prop_map(|n| ("enum", (0..n).map(|i| format!("a{i}")).collect())),
        1 => prop::collection::vec(select(&KEYS[..]), 0..4).prop_map(|v| ("required", json!(v))),
        1 => (any::<bool>(), select(vec![100_usize, 20_000])).prop_map(|(same, n)| {
            ("required", (0..n).map(|i| if same { "a".to_owned() } else { format!("r{i}") }).collect())
        }),
        2 => prop::collection::vec(rule(), 1..3).prop_map(|v| ("x-kubernetes-validations", v.into())),
        1 => (rule(), select(vec![30_usize, 1000])).prop_map(|(rule, n)| ("x-kubernetes-validations", vec![rule; n].into())),
        1 => select(vec!["atomic", "granular", "what"]).prop_map(|t| ("x-kubernetes-map-type", t.into())),
        2 => select(vec!["atomic", "set", "map"]).prop_map(|t| ("x-kubernetes-list-type", t.into())),
        1 => prop::collection::vec(select(&KEYS[..]), 0..3).prop_map(|v| ("x-kubernetes-list-map-keys", json!(v))),
        1 => (0_usize..4, any_value()).prop_map(|(n, v)| ("description", format!("{}{v}", "d".repeat(10_usize.pow(n as u32))).into())),
    ]
}

fn rule() -> impl Strategy<Value = Value> {
    let expression = prop_oneof![
        8 => select(&RULES[..]).prop_map(str::to_owned),
        1 => (select(&RULES[..]), select(vec![10_usize, 300])).prop_map(|(r, n)| vec![format!("({r})"); n].join(" || ")),
        1 => (select(&RULES[..]), select(vec![10_usize, 120])).prop_map(|(r, n)| format!("{}{r}{}", "(".repeat(n), ")".repeat(n))),
        1 => select(vec![10_usize, 120]).prop_map(|n| format!("{}self{} == self", "[".repeat(n), "][0]".repeat(n))),
    ];
    let messages = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({"message": "no"})),
        1 => select(vec!["'a' + string(self)", "self", "self.replace('', 'aaaa')", "string(self.size())"]).prop_map(|m| json!({"messageExpression": m})),
    ];
    let more = prop_oneof![
        4 => Just(json!({})),
        1 => select(&PATHS[..]).prop_map(|p| json!({"fieldPath": p})),
        1 => select(vec!["FieldValueInvalid", "FieldValueForbidden", "What"]).prop_map(|r| json!({"reason": r})),
        1 => Just(json!({"optionalOldSelf": true})),
    ];
    (expression, messages, more).prop_map(|(rule, message, more)| {
        let mut out = json!({"rule": rule});
        for part in [message, more] {
            let Value::Object(part) = part else { unreachable!() };
            out.as_object_mut().unwrap().extend(part);
        }
        out
    })
}

/// A default that fits its type, so that most definitions that have one are taken.
fn fitting(kind: &str, n: usize) -> Value {
    match kind {
        "string" => "a".repeat(n).into(),
        "integer" => i64::MAX.into(),
        "number" => 1e300.into(),
        "boolean" => true.into(),
        "array" => vec![json!({}); n].into(),
        _ => json!({}),
    }
}

fn with(kind: &'static str, facets: Vec<(&'static str, Value)>, default: Option<usize>) -> Map<String, Value> {
    let mut node = Map::new();
    node.insert("type".to_owned(), kind.into());
    for (name, value) in facets {
        node.insert(name.to_owned(), value);
    }
    if let Some(n) = default {
        node.insert("default".to_owned(), fitting(kind, n));
    }
    if node.contains_key("x-kubernetes-int-or-string") {
        node.remove("type");
    }
    node
}

fn schema() -> impl Strategy<Value = Value> {
    let facets = || prop_oneof![2 => Just(Vec::new()), 3 => prop::collection::vec(facet(), 0..3)];
    let default = || prop::option::weighted(0.3, select(vec![1_usize, 3, 300]));
    let kinds = select(vec!["string", "integer", "number", "boolean", "object", "array", "what"]);
    let leaf = (kinds, facets(), default()).prop_map(|(kind, facets, default)| {
        let mut node = with(kind, facets, default);
        if kind == "array" {
            node.insert("items".to_owned(), json!({"type": "object"}));
        }
        Value::Object(node)
    });
    leaf.prop_recursive(6, 40, 5, move |inner| {
        let members = prop::collection::btree_map(select(&KEYS[..]), inner.clone(), 0..5);
        let branches = prop::collection::vec(facet(), 0..3).prop_map(|facets| {
            let Value::Object(mut node) = facets.into_iter().map(|(k, v)| (k.to_owned(), v)).collect() else { unreachable!() };
            node.retain(|name, _| !name.starts_with("x-") && !matches!(name.as_str(), "default" | "nullable" | "description"));
            Value::Object(node)
        });
        let of = select(vec!["allOf", "anyOf", "oneOf", "not"]);
        prop_oneof![
            5 => (members, facets(), default()).prop_map(|(members, facets, default)| {
                let mut node = with("object", facets, default);
                node.insert("properties".to_owned(), object(members));
                Value::Object(node)
            }),
            3 => (inner.clone(), facets(), default()).prop_map(|(items, facets, default)| {
                let mut node = with("array", facets, default);
                node.insert("items".to_owned(), items);
                Value::Object(node)
            }),
            2 => (inner.clone(), facets(), default()).prop_map(|(values, facets, default)| {
                let mut node = with("object", facets, default);
                node.insert("additionalProperties".to_owned(), values);
                Value::Object(node)
            }),
            // lists by key, as they should be
            1 => (inner.clone(), select(vec!["map", "set"])).prop_map(|(member, list)| match list {
                "map" => json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items":
                    {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "a": member}}}),
                _ => json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            }),
            // deep
            1 => (inner.clone(), 2_usize..60, 0..3).prop_map(|(inner, n, how)| (0..n).fold(inner, |inner, _| match how {
                0 => json!({"type": "object", "properties": {"a": inner}}),
                1 => json!({"type": "array", "items": inner}),
                _ => json!({"type": "object", "additionalProperties": inner}),
            })),
            // wide
            1 => (inner.clone(), select(vec![20_usize, 400])).prop_map(|(inner, n)| {
                let members: Map<String, Value> = (0..n).map(|i| (format!("p{i}"), inner.clone())).collect();
                json!({"type": "object", "properties": members})
            }),
            // defaults of elements of defaults
            1 => (inner.clone(), 1_usize..8, select(vec![2_usize, 50])).prop_map(|(inner, depth, n)| (0..depth).fold(inner, |inner, _| {
                json!({"type": "array", "default": vec![json!({}); n], "items": {"type": "object", "properties": {"a": inner}}})
            })),
            1 => (inner, of, prop::collection::vec(branches, 1..4), select(vec![1_usize, 1, 100])).prop_map(|(mut inner, of, mut branches, n)| {
                if n > 1 {
                    branches = vec![branches[0].clone(); n];
                }
                let branch = if of == "not" { branches.swap_remove(0) } else { branches.into() };
                if let Some(node) = inner.as_object_mut() {
                    node.insert(of.to_owned(), branch);
                }
                inner
            }),
        ]
    })
}

fn version() -> impl Strategy<Value = Value> {
    let root = prop_oneof![
        3 => (schema(), schema(), prop::collection::vec(facet(), 0..2)).prop_map(|(spec, status, facets)| {
            let mut node = with("object", facets, None);
            node.insert("type".to_owned(), "object".into());
            node.insert("properties".to_owned(), json!({"spec": spec, "status": status}));
            Value::Object(node)
        }),
        1 => schema(),
        1 => Just(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
    ];
    let paths = || prop_oneof![2 => select(vec![".spec.replicas", ".status.replicas", ".status.selector"]), 1 => select(&PATHS[..])];
    let scale = (paths(), paths(), prop::option::of(paths())).prop_map(|(spec, status, selector)| {
        json!({"specReplicasPath": spec, "statusReplicasPath": status, "labelSelectorPath": selector})
    });
    let scale = prop_oneof![1 => Just(json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"})), 1 => scale];
    let column = (select(&PATHS[..]), select(vec!["string", "integer", "number", "boolean", "date"]), any::<i32>())
        .prop_map(|(path, kind, priority)| json!({"name": path, "type": kind, "jsonPath": path, "priority": priority}));
    let columns = prop_oneof![
        3 => prop::collection::vec(column.clone(), 0..4),
        1 => (column, select(vec![50_usize, 1000])).prop_map(|(column, n)| vec![column; n]),
    ];
    let fields = prop::collection::vec(
        select(vec![".spec.a", ".spec.replicas", ".spec.a.b", ".metadata.name", ".spec.items[0]", ""]),
        0..3,
    );
    (root, any::<bool>(), prop::option::weighted(0.4, scale), columns, prop::option::weighted(0.2, fields)).prop_map(
        |(root, status, scale, columns, fields)| {
            let mut version =
                json!({"schema": {"openAPIV3Schema": root}, "subresources": {}, "additionalPrinterColumns": columns});
            if status {
                version["subresources"]["status"] = json!({});
            }
            if let Some(scale) = scale {
                version["subresources"]["scale"] = scale;
            }
            if let Some(fields) = fields {
                version["selectableFields"] = fields.into_iter().map(|path| json!({"jsonPath": path})).collect();
            }
            version
        },
    )
}

pub(super) fn definition() -> impl Strategy<Value = Value> {
    let label = "l".repeat(63);
    let group = select(vec!["h.test", "h.test", "i.test", "apps", "x.k8s.io", "a.b.c.d.e.f.g.h.i.j", "long"]).prop_map(
        move |g| match g {
            "long" => [label.as_str(); 3].join("."),
            _ => g.to_owned(),
        },
    );
    let names = prop_oneof![
        4 => Just(json!({"plural": "things", "kind": "Thing"})),
        1 => Just(json!({"plural": "others", "kind": "Thing"})),
        1 => Just(json!({"plural": "others", "kind": "Other", "listKind": "ThingList", "shortNames": ["things"]})),
        1 => Just(json!({"plural": "pods", "kind": "Pod", "shortNames": ["po", "po"], "categories": ["all"]})),
        1 => Just(json!({"plural": "p".repeat(63), "kind": "K".repeat(63), "singular": "s", "listKind": "L".repeat(63)})),
        1 => Just(json!({"plural": "namespaces", "kind": "List", "listKind": "Status"})),
    ];
    let versions = prop::collection::vec(
        (version(), select(vec!["v1", "v2", "v1beta1", "v9223372036854775808", "x"]), prop::bool::weighted(0.9)),
        1..3,
    );
    let conversion = prop_oneof![
        6 => Just(Value::Null),
        1 => Just(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}}})),
        1 => Just(json!({"strategy": "None"})),
    ];
    (group, names, versions, prop::bool::weighted(0.8), conversion).prop_map(|(group, names, versions, namespaced, conversion)| {
        let name = format!("{}.{group}", names["plural"].as_str().unwrap());
        let versions: Vec<Value> = versions
            .into_iter()
            .enumerate()
            .map(|(i, (mut version, name, served))| {
                version["name"] = name.into();
                version["storage"] = (i == 0).into();
                version["served"] = served.into();
                version
            })
            .collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
            "spec": {"group": group, "names": names, "scope": if namespaced { "Namespaced" } else { "Cluster" }, "versions": versions, "conversion": conversion}})
    })
}

/// Draws for values of objects: what a seed leads to is the same every time.
pub(super) struct Draws(pub u64);

impl Draws {
    pub(super) fn below(&mut self, n: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A value of a schema, most often one that fits it; `budget` is about how many bytes it may still take.
    pub(super) fn value(&mut self, schema: &Value, budget: &mut usize) -> Value {
        *budget = budget.saturating_sub(20);
        if let Some(all) = schema["enum"].as_array().filter(|all| !all.is_empty() && self.below(3) > 0) {
            return self.of(all).clone();
        }
        if *budget == 0 || self.below(12) == 0 {
            let odd = [
                json!(null),
                json!(""),
                json!({}),
                json!([]),
                json!(i64::MIN),
                json!(1e300),
                json!("a"),
                json!(true),
                json!({"a": {}}),
            ];
            return self.of(&odd).clone();
        }
        let kind = schema["type"].as_str().unwrap_or_else(|| ["integer", "string", "object"][self.below(3)]);
        let many = *self.of(&[0_usize, 1, 2, 3, 3, 500, 20_000]);
        match kind {
            "string" => {
                let text =
                    ["a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "1h", "2026-01-01T00:00:00Z", "127.0.0.1", "é𝔸ſ", "b"]
                        [self.below(7)];
                let times = many.max(1).min(*budget / text.len() + 1);
                *budget = budget.saturating_sub(times * text.len());
                text.repeat(times).into()
            }
            "integer" => (*self.of(&[i64::MIN, -1, 0, 1, 2, 7, i64::from(i32::MAX) + 1, i64::MAX])).into(),
            "number" => (*self.of(&NUMBERS)).into(),
            "boolean" => (self.below(2) == 0).into(),
            "array" => {
                // one that is like the other, most often: what a hostile list is like
                let one = self.value(&schema["items"], budget);
                let size = one.to_string().len() + 1;
                let times = many.min(*budget / size);
                *budget = budget.saturating_sub(times * size);
                let set = schema["x-kubernetes-list-type"] != "atomic" && self.below(4) > 0;
                (0..times)
                    .map(|i| match &one {
                        Value::String(text) if set => format!("{text}{i}").into(),
                        Value::Object(members) if set && members.contains_key("name") => {
                            let mut members = members.clone();
                            members.insert("name".to_owned(), format!("n{i}").into());
                            members.into()
                        }
                        one => one.clone(),
                    })
                    .collect()
            }
            _ => {
                let mut members = Map::new();
                for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                    let required = schema["required"].as_array().is_some_and(|r| r.iter().any(|r| r == name.as_str()));
                    if required || self.below(3) > 0 {
                        members.insert(name.clone(), self.value(member, budget));
                    }
                }
                if schema["additionalProperties"].is_object() {
                    for i in 0..many.min(*budget / 20) {
                        members.insert(format!("k{i}"), self.value(&schema["additionalProperties"], budget));
                    }
                }
                if self.below(6) == 0 {
                    members.insert((*self.of(&KEYS)).to_owned(), json!({"a": [1, "x"]}));
                }
                members.into()
            }
        }
    }
}
