//! `podFailurePolicy` and `successPolicy`.

use super::indexes::Indexes;
use super::pods::Pod;
use serde_json::Value;

/// What a Job's pod failure policy makes of one failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts towards the backoff limit: the rule says so, or none matches.
    Count,
    /// It does not count.
    Ignore,
    /// It counts, and its index is not tried again.
    FailIndex,
    /// It counts, and fails the Job with this message.
    FailJob(String),
}

/// Applies the first rule that matches; `policy` may be null.
pub fn judge(policy: &Value, pod: &Pod) -> Verdict {
    for (at, rule) in policy["rules"].as_array().into_iter().flatten().enumerate() {
        let (namespace, name) = (&pod.namespace, &pod.name);
        let action = rule["action"].as_str().unwrap_or_default();
        let message = if let Some(requirement) = rule.get("onExitCodes").filter(|r| !r.is_null()) {
            let Some((container, code)) = exit_code(requirement, pod.status()) else { continue };
            format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code} matching {action} rule at index {at}"
            )
        } else {
            let Some(condition) = condition(&rule["onPodConditions"], pod.status()) else { continue };
            format!("Pod {namespace}/{name} has condition {condition} matching {action} rule at index {at}")
        };
        match action {
            "Ignore" => return Verdict::Ignore,
            "Count" => return Verdict::Count,
            "FailIndex" => return Verdict::FailIndex,
            "FailJob" => return Verdict::FailJob(message),
            _ => {}
        }
    }
    Verdict::Count
}

/// The first ended container, of the main ones and then of the init ones, whose non-zero exit code meets the requirement.
fn exit_code<'a>(requirement: &Value, status: &'a Value) -> Option<(&'a str, i64)> {
    let only = requirement["containerName"].as_str();
    let values: Vec<i64> = requirement["values"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let lists = ["containerStatuses", "initContainerStatuses"].map(|list| status[list].as_array());
    lists.into_iter().flatten().flatten().find_map(|container| {
        let code = container["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0)?;
        let name = container["name"].as_str().unwrap_or_default();
        let meets = match requirement["operator"].as_str() {
            Some("In") => values.contains(&code),
            Some("NotIn") => !values.contains(&code),
            _ => false,
        };
        (meets && only.is_none_or(|only| only == name)).then_some((name, code))
    })
}

/// The type of the first condition of the pod that one of the patterns describes.
fn condition<'a>(patterns: &Value, status: &'a Value) -> Option<&'a str> {
    let patterns = patterns.as_array()?;
    status["conditions"].as_array()?.iter().find_map(|condition| {
        let described = |pattern: &Value| {
            pattern["type"] == condition["type"]
                && pattern["status"].as_str().unwrap_or("True") == condition["status"].as_str().unwrap_or_default()
        };
        patterns.iter().any(described).then(|| condition["type"].as_str().unwrap_or_default())
    })
}

/// The message of the first rule of a success policy (null: none) that these succeeded indexes meet.
pub fn succeeds(policy: &Value, completions: u32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    policy["rules"].as_array()?.iter().enumerate().find_map(|(at, rule)| {
        let count = rule["succeededCount"].as_u64();
        let enough = |has: u32| count.is_some_and(|count| u64::from(has) >= count);
        let met = match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let wanted = Indexes::parse(text, completions);
                let common = wanted.common(succeeded);
                !wanted.is_empty() && (common == wanted.len() || enough(common))
            }
            None => enough(succeeded.len()),
        };
        met.then(|| format!("Matched rules at index {at}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn failed(code: i64, init_code: i64) -> Pod {
        Pod::read(&Arc::new(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}},
                    {"name": "side", "state": {"running": {}}}],
                "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": init_code}}}]}
        })))
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let on_codes = |action: &str, operator: &str, values: Value, container: Value| json!({"action": action, "onExitCodes": {"operator": operator, "values": values, "containerName": container}});
        let disrupted = |action: &str, status: &str| json!({"action": action, "onPodConditions": [{"type": "X"}, {"type": "DisruptionTarget", "status": status}]});
        let fails = |text: &str| Verdict::FailJob(text.to_owned());
        let cases = [
            (vec![], 1, 0, Verdict::Count),
            (vec![on_codes("FailJob", "In", json!([42]), Value::Null)], 1, 0, Verdict::Count),
            (
                vec![
                    on_codes("Count", "In", json!([1]), Value::Null),
                    on_codes("FailJob", "NotIn", json!([0]), Value::Null),
                ],
                42,
                0,
                fails("Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 1"),
            ),
            (vec![on_codes("FailJob", "In", json!([3]), json!("main"))], 0, 3, Verdict::Count),
            (
                vec![on_codes("FailJob", "In", json!([3]), json!("init"))],
                1,
                3,
                fails("Container init for pod ns/p failed with exit code 3 matching FailJob rule at index 0"),
            ),
            (vec![on_codes("FailIndex", "NotIn", json!([7]), Value::Null)], 1, 0, Verdict::FailIndex),
            (vec![disrupted("Ignore", "False")], 1, 0, Verdict::Count),
            (vec![disrupted("Ignore", "True")], 1, 0, Verdict::Ignore),
            (
                vec![disrupted("FailJob", "True")],
                1,
                0,
                fails("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"),
            ),
        ];
        for (rules, code, init_code, want) in cases {
            let policy = json!({"rules": rules});
            assert_eq!(judge(&policy, &failed(code, init_code)), want, "{policy}");
        }
        assert_eq!(judge(&Value::Null, &failed(1, 0)), Verdict::Count);
    }

    #[test]
    fn success_rules() {
        let cases = [
            (json!([{"succeededCount": 2}]), "3", None),
            (json!([{"succeededCount": 2}]), "1,3", Some(0)),
            (json!([{"succeededIndexes": "0"}]), "1", None),
            (json!([{"succeededIndexes": "0"}]), "0,1", Some(0)),
            (json!([{"succeededIndexes": "0-3", "succeededCount": 2}]), "1,3", Some(0)),
            (json!([{"succeededIndexes": "0,2"}, {"succeededCount": 1}]), "2", Some(1)),
            (json!([{"succeededIndexes": "9"}]), "0-3", None),
            (json!([{"succeededCount": 0}]), "", None),
        ];
        for (rules, succeeded, want) in cases {
            let want = want.map(|at: usize| format!("Matched rules at index {at}"));
            assert_eq!(
                succeeds(&json!({"rules": rules}), 5, &Indexes::parse(succeeded, 5)),
                want,
                "{rules} {succeeded}"
            );
        }
        assert_eq!(succeeds(&Value::Null, 5, &Indexes::parse("0-4", 5)), None);
    }
}
