//! What expressions make of values, and their errors.

use super::*;
use serde_json::json;

#[test]
fn evaluates() {
    let object = json!({
        "data": {"k": "v", "my_key": "u", "a-b": "c"}, "n": 3, "l": [3, 1, 2], "labels": {"x/y": "z"}, "q": "50%",
        "f": 1.5
    });
    let cases = [
        ("object.data.k == 'v'", json!(true)),
        ("object.data.my_key == 'u'", json!(true)),
        ("'x/y' in object.labels && object.labels['x/y'] == 'z'", json!(true)),
        ("object.data['a-b']", json!("c")),
        ("has(object.none) ? 1 : 2", json!(2)),
        ("object.?none.orValue('d')", json!("d")),
        ("object.l.exists_one(x, x == 3) && object.l.all(x, x > 0)", json!(true)),
        ("object.l.map(x, x * 2).sum() == 12", json!(true)),
        ("type(object.q) == string && type(object.n) == int && type(object.f) == double", json!(true)),
        ("type(object.n) == int ? 'int' : 'other'", json!("int")),
        ("object.?data.?k.orValue('d') + object.?no.?k.orValue('d')", json!("vd")),
        ("object.data[?'k'].hasValue() && !object.?none.hasValue()", json!(true)),
        ("cel.bind(x, object.n + 1, x * x)", json!(16)),
        ("'too many: ' + string(object.l.size())", json!("too many: 3")),
        ("quantity('2Gi').isGreaterThan(quantity('1Gi'))", json!(true)),
        ("duration('30m') <= duration('1h')", json!(true)),
        ("'abc'.matches('^[a-z]+$') && 'ab42'.find('[0-9]+') == '42'", json!(true)),
        ("!format.dns1123Label().validate('ok-1').hasValue()", json!(true)),
        ("format.named('uuid').hasValue() && !format.named('none').hasValue()", json!(true)),
        ("!format.named('uuid').value().validate('550e8400-e29b-41d4-a716-446655440000').hasValue()", json!(true)),
        ("isIP('1.2.3.4') && ip('1.2.3.4').family() == 4", json!(true)),
        ("cidr('10.0.0.0/8').containsIP('10.9.9.9')", json!(true)),
        ("isURL('https://x.example/p') && url('https://x.example/p').getHost() == 'x.example'", json!(true)),
        ("'%s-%d'.format(['a', 5])", json!("a-5")),
        ("1 < 1.5 && 2.0 == 2", json!(true)),
        ("bool('true') && !bool('f') && bool(object.n == 3)", json!(true)),
        ("object.missing == null || true", json!(true)),
        ("true || object.missing.x == 1", json!(true)),
        ("[1, 2].exists(x, x == 1 || object.missing)", json!(true)),
        ("{'a': 1}.map(k, k) == ['a'] && {'a': 1}.all(k, k == 'a')", json!(true)),
        ("object.l.isSorted() || object.l.filter(x, x > 1).size() == 2", json!(true)),
        ("'a,b'.split(',')[1] + 'x'.upperAscii() + 'abc'.substring(1)", json!("bXbc")),
        ("string(1) + string(true) + string(1.5)", json!("1true1.5")),
        ("int('5') + 5 == 10 && double('1.5') > 1.0", json!(true)),
        ("dyn(object.n) == 3", json!(true)),
        ("timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')", json!(true)),
        ("timestamp('2024-01-01T00:00:00Z').getFullYear() == 2024", json!(true)),
        ("sets.contains([1, 2, 3], [1]) && math.greatest(1, 2) == 2", json!(true)),
        ("'x' in ['x', 'y'] && !('k' in object.labels)", json!(true)),
        ("b'abc'.size() == 3 && '\\u00e9'.size() == 1", json!(true)),
        ("semver('1.2.3').isLessThan(semver('1.3.0')) && isSemver('1.0.0')", json!(true)),
        ("[[1], [2]].flatten() == [1, 2] && lists.range(3) == [0, 1, 2]", json!(true)),
        ("object.l.sortBy(x, x) == [1, 2, 3]", json!(true)),
    ];
    let mut wrong = Vec::new();
    for (source, expected) in cases {
        let result = Expression::compile(source).and_then(|e| e.evaluate(&[("object", &object)]));
        if result != Ok(expected) {
            wrong.push(format!("{source}: {result:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fails_in_cel_gos_words() {
    let object = json!({"data": {}, "l": [], "n": "x"});
    let cases = [
        ("object.data['k'].size() > 0", "no such key: k"),
        ("object.l[0] == 1", "index out of bounds: 0"),
        ("1 / 0 == 1", "division by zero"),
        ("duration('x') > duration('1s')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("object.data > 5", "no such overload"),
        ("bool('yes')", "type conversion error from 'string' to 'bool'"),
        ("double(object.n) < 1.5", "type conversion error from 'string' to 'double'"),
        ("double('1e999') < 1.5", "type conversion error from 'string' to 'double'"),
        ("int(object.n) < 1", "type conversion error from 'string' to 'int'"),
        ("int(9223372036854775808.0) < 1", "integer overflow"),
        ("uint('-1') == 1u", "type conversion error from 'string' to 'uint'"),
        ("uint(-1) == 1u", "unsigned integer overflow"),
        ("string(int(object.data.?x['y'].orValue('0')) + int(object.data.k)) == ''", "no such key: k"),
        ("quantity('500m').asInteger() == 5", "cannot convert value to integer"),
        (
            "ip(object.n).isLoopback()",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        (
            "ip.isCanonical(object.n)",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        ("cidr('10.0.0.0/8').containsIP(object.n)", "no such overload"),
        (
            "cidr(object.n).prefixLength() == 8",
            "network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix(\"x\"): no '/'",
        ),
        ("ip(object.none).isLoopback()", "no such key: none"),
        ("'a'.charAt(2) == ''", "index out of range: 2"),
        ("'a'.substring(2) == ''", "index out of range: 2"),
        ("'a'.substring(0, 3) == ''", "index out of range: 3"),
        ("size(object.none) + double(object.none) == 0", "no such key: none"),
    ];
    for (source, expected) in cases {
        let expression = Expression::compile(source).expect(source);
        let error = expression.evaluate(&[("object", &object)]).expect_err(source);
        assert_eq!(error.to_string(), expected, "{source}");
    }
    assert!(Expression::compile("self ==").is_err());
    let half = Expression::compile("self.size() > 0 ? true").expect_err("half a choice").to_string();
    assert!(half.starts_with("ERROR: <input>:1:23: Syntax error: mismatched input '<EOF>' expecting {"), "{half}");
    assert_eq!(half.matches("ERROR").count(), 1, "{half}");
}

#[test]
fn names_are_escaped() {
    let cases = [
        ("plain", Some("plain")),
        ("my_field", Some("my_field")),
        ("a__b", Some("a__underscores__b")),
        ("foo-bar", Some("foo__dash__bar")),
        ("a.b/c", Some("a__dot__b__slash__c")),
        ("namespace", Some("__namespace__")),
        ("1st", None),
        ("$x", None),
    ];
    for (name, expected) in cases {
        assert_eq!(escape_field(name).as_deref(), expected);
    }
}

#[test]
fn knows_what_it_mentions() {
    let mentions = |source: &str, name: &str| Expression::compile(source).expect(source).mentions(name);
    assert!(mentions("self == oldSelf", "oldSelf"));
    assert!(!mentions("self.all(oldSelf, oldSelf > 1)", "oldSelf"));
    assert!(!mentions("self.oldSelf == 1", "oldSelf"));
}

/// As `semver.Parse` of `github.com/blang/semver/v4` 4.0.0 answers.
#[test]
fn faults_of_versions_have_upstream_s_words() {
    let elements = "No Major.Minor.Patch elements found";
    let no_number = "strconv.ParseUint: parsing \"\": invalid syntax";
    let too_large = "strconv.ParseUint: parsing \"99999999999999999999\": value out of range";
    let cases = [
        ("", "Version string empty"),
        ("x", elements),
        ("1.2", elements),
        ("1..3", no_number),
        ("1.2.", no_number),
        ("a.1.2", "Invalid character(s) found in major number \"a\""),
        ("v1.2.3", "Invalid character(s) found in major number \"v1\""),
        ("it's.1.2", "Invalid character(s) found in major number \"it's\""),
        ("01.2.3", "Major number must not contain leading zeroes \"01\""),
        ("1.02.3", "Minor number must not contain leading zeroes \"02\""),
        ("1.2.03", "Patch number must not contain leading zeroes \"03\""),
        ("1.2.x", "Invalid character(s) found in patch number \"x\""),
        ("1.2.3.4", "Invalid character(s) found in patch number \"3.4\""),
        ("99999999999999999999.1.1", too_large),
        ("1.2.99999999999999999999", too_large),
        ("1.2.3-99999999999999999999", too_large),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-a..b", "Prerelease is empty"),
        ("1.2.3-01", "Numeric PreRelease version must not contain leading zeroes \"01\""),
        ("1.2.3-01+a_b", "Numeric PreRelease version must not contain leading zeroes \"01\""),
        ("1.2.3-a_b+c", "Invalid character(s) found in prerelease \"a_b\""),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a..b", "Build meta data is empty"),
        ("1.2.3+a_b", "Invalid character(s) found in build meta data \"a_b\""),
    ];
    for (text, fault) in cases {
        assert_eq!(faults::semver_fault(text), fault, "{text:?}");
    }
}

#[test]
fn null_has_no_members() {
    let cases = [
        ("has(object.metadata.labels)", Err("no such key: metadata")),
        ("object.x == 1", Err("no such key: x")),
        ("has(object.metadata)", Ok(json!(false))),
        ("object == null || object.x == 1", Ok(json!(true))),
        ("other.all(object, object.x == 1)", Ok(json!(true))),
    ];
    let other = json!([{"x": 1}]);
    for (source, expected) in cases {
        let given = Given { values: &[("object", &Value::Null), ("other", &other)], variables: None, rights: None };
        let result = Expression::compile(source).expect(source).evaluate_policy(&given).0;
        assert_eq!(
            result.map(|value| value.json()).map_err(|error| error.0),
            expected.map_err(str::to_owned),
            "{source}"
        );
    }
}
