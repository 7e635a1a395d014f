//! JSON and YAML read as Go reads them, within bounds.

use super::json::in_place;
use super::yaml::plain_json;
use super::*;
use std::sync::Arc;

#[test]
fn faults_of_fields_are_told_where_they_stand() {
    let texts = |body: &str, dropped: &[&str]| {
        let (_, repeated) = json(body.as_bytes()).unwrap();
        let dropped: Vec<String> = dropped.iter().map(|&path| path.to_owned()).collect();
        in_place(body.as_bytes(), &repeated, &dropped)
    };
    // the second of two is the one too many, and what is below an unknown field is not looked at
    let body = r#"{"z":{"y":1,"y":2},"a":1,"b":[{"c":1,"u":{"d":1,"d":2},"c":2}],"a":2,"zz":{"e":1,"e":1}}"#;
    assert_eq!(
        texts(body, &["b[0].u", "z"]),
        [
            r#"unknown field "z""#,
            r#"unknown field "b[0].u""#,
            r#"duplicate field "b[0].c""#,
            r#"duplicate field "a""#,
            r#"duplicate field "zz.e""#,
        ]
    );
    // whose cost grows with the body, and not with its square
    let many: Vec<String> = (0..100_000).map(|n| format!("f{n}")).collect();
    let body = format!("{{{}}}", many.iter().map(|name| format!("{name:?}:1")).collect::<Vec<_>>().join(","));
    let told = in_place(body.as_bytes(), &[], &many);
    assert_eq!((told.len(), told[99_999].as_str()), (100_000, r#"unknown field "f99999""#));
}

#[test]
fn reads_json_as_go_does() {
    let (value, repeated) = json(br#"{"a":{"b":1,"b":2.5,"b":2.0},"c":[{"d":1,"d":1}]}"#).unwrap();
    assert_eq!(value, serde_json::json!({"a": {"b": 2.0}, "c": [{"d": 1}]}));
    assert_eq!(repeated, ["a.b", "c[0].d"]);
    for (text, error) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("this", "invalid character 'h' in literal true (expecting 'r')"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("<", "invalid character '<' looking for beginning of value"),
    ] {
        assert_eq!(json(text.as_bytes()).unwrap_err().to_string(), error, "{text}");
    }
}

#[test]
fn json_is_read_as_the_yaml_it_is() {
    let text =
        " {\"a\": {\"b\": [1, -2, true, null, \"x\\n\\u00e9 é: #\"], \"c\": {}}, \"d\": \"2001-01-01\", \"e\": []}\n";
    let quick = plain_json(text.as_bytes()).unwrap();
    assert_eq!(quick, serde_saphyr::from_str::<Value>(text).unwrap());
    // not JSON, or JSON of which YAML has something to say
    for text in ["a: 1", "{a: 1}", r#"{"a":1,"a":2}"#, r#"{"a":[{"b":1.5}]}"#, "{\"a\":1}\n---\n{}", "[1]", ""] {
        assert_eq!(plain_json(text.as_bytes()), None, "{text}");
    }
    let (value, repeated) = yaml(br#"{"a":1,"a":2}"#).unwrap();
    assert_eq!(value, serde_json::json!({"a": 2}));
    assert_eq!(repeated, ["yaml: unmarshal errors:\n  line 1: key \"a\" already set in map"]);
    let (value, repeated) = yaml(b"a: 1\nb: {c: 1, \"c\": 2}\na: 3\n").unwrap();
    assert_eq!(value, serde_json::json!({"a": 3, "b": {"c": 2}}));
    let lines: Vec<&str> = repeated.iter().filter_map(|text| text.split("line ").nth(1)).collect();
    assert_eq!(lines, ["2: key \"c\" already set in map", "3: key \"a\" already set in map"]);
}

#[test]
fn yaml_is_read_as_go_does() {
    use serde_json::json;
    let cases = [
        ("yes: 1\nn: 2\nTRUE: 3\n'on': 4\n\"y\": 5", json!({"true": 3, "false": 2, "on": 4, "y": 5})),
        ("0x10: a\n7: b\n.5: c\n\"1e3\": d", json!({"16": "a", "7": "b", "0.5": "c", "1e3": "d"})),
        ("a: [yes, 0x10, '0x10', ~, 1.5, x]", json!({"a": [true, 16, "0x10", null, 1.5, "x"]})),
        // what comes after the document is not looked at
        ("{\"a\": 1}}}", json!({"a": 1})),
        ("{\"a\": 1} x", json!({"a": 1})),
        ("{\"a\": 1}\n{\"b\": 2}", json!({"a": 1})),
        ("a: 1\n...\nb: ]", json!({"a": 1})),
        ("", Value::Null),
    ];
    for (text, expected) in cases {
        assert_eq!(yaml(text.as_bytes()).map(|(value, _)| value), Ok(expected), "{text}");
    }
    for text in ["{\"a\": 1} \"x", "a: {b: c}}", "a: b\n]", "? [a]\n: b", "~: b"] {
        assert!(yaml(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn deep_bodies_are_refused_on_a_small_stack() {
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let tried = small.spawn(|| {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |levels: usize| open.repeat(levels) + "1" + &close.repeat(levels);
            assert!(json(nested(127).as_bytes()).is_ok());
            let error = json(nested(10_000).as_bytes()).unwrap_err().to_string();
            assert!(error.ends_with("exceeded max depth") && error.starts_with("invalid character '"), "{error}");
            let flow = nested(10_000).replace('"', "").replace(':', ": ");
            assert!(yaml(flow.as_bytes()).is_err());
        }
        let block: String = (0..5_000).map(|i| " ".repeat(i) + "a:\n").collect();
        assert!(yaml(block.as_bytes()).is_err());
        assert!(yaml("- ".repeat(5_000).as_bytes()).is_err());
    });
    tried.unwrap().join().unwrap();
}

#[test]
fn aliases_do_not_multiply() {
    let laughs = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        format!("{text}a{i}: &a{i} [*a{0}, *a{0}, *a{0}, *a{0}]\n", i - 1)
    });
    assert!(yaml(laughs.as_bytes()).is_err());
    let echo = format!("a: &a \"{}\"\nl: [{}]\n", "x".repeat(1 << 20), ["*a"; 90].join(", "));
    match yaml(echo.as_bytes()) {
        Ok((value, _)) => assert!(merge::bounds::bytes(&value) <= 8 << 20, "{}", merge::bounds::bytes(&value)),
        Err(error) => assert!(error.to_string().starts_with("yaml: "), "{error}"),
    }
    // each of these values costs as much as one that is written
    let repeated =
        |values: usize| format!("a: &a [{}]\nl: [{}]\n", vec!["x"; values].join(", "), ["*a"; 90].join(", "));
    assert!(yaml(repeated(100).as_bytes()).is_ok() && yaml(repeated(1000).as_bytes()).is_err());
    let (value, _) = yaml(b"a: &a {x: 1}\nb: *a\n").unwrap();
    assert_eq!(value, serde_json::json!({"a": {"x": 1}, "b": {"x": 1}}));
}

#[test]
fn short_bodies_that_take_long_are_known() {
    let grows = |media, text: &'static str| Content::from(bytes::Bytes::from(text)).may_grow(media);
    let [json, apply] = ["application/json", "application/apply-patch+yaml"];
    assert!(grows("application/json-patch+json", "[]") && grows("application/yaml", "a: &a [x]\nb: *a"));
    assert!(grows(apply, "{a: &a [x], b: *a}") && !grows(apply, " {\"a\": 1}") && !grows(json, "{\"a\": \"*\"}"));
    let tree = Content::tree(Arc::new(serde_json::json!([{"op": "copy"}])));
    assert!(!tree.may_grow("application/json-patch+json"), "it is of this process");
}
