//! Reading and writing condition lists, with the semantics of Kubernetes' `meta.SetStatusCondition`: a condition's time
//! moves only when its status flips.

use crate::names::{ConditionType, Reason};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A condition to set.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub kind: ConditionType,
    pub status: bool,
    pub reason: String,
    pub message: String,
    /// When it became so, if somebody else has said; else it is now.
    pub since: Option<String>,
}

impl Condition {
    /// One of the controller's own, with its reason's message.
    pub fn own(kind: ConditionType, status: bool, reason: Reason) -> Self {
        let message = reason.message().unwrap_or_default().to_owned();
        Self { kind, status, reason: reason.as_str().to_owned(), message, since: None }
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// Whether the condition of that type is True.
pub fn is_true(conditions: &[Value], kind: ConditionType) -> bool {
    find(conditions, kind.as_str()).is_some_and(|c| c.get("status").and_then(Value::as_str) == Some("True"))
}

/// Sets a condition, in place or at the end.
pub fn set(conditions: &mut Vec<Value>, condition: &Condition, now: Timestamp) {
    let Condition { kind, status, reason, message, since } = condition;
    let status = if *status { "True" } else { "False" };
    let since = since.clone().unwrap_or_else(|| time(now));
    let Some(old) = conditions.iter_mut().find(|c| c.get("type").and_then(Value::as_str) == Some(kind.as_str())) else {
        conditions.push(json!({
            "type": kind.as_str(),
            "status": status,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }));
        return;
    };
    if old.get("status").and_then(Value::as_str) != Some(status) {
        old["status"] = json!(status);
        old["lastTransitionTime"] = json!(since);
    }
    old["reason"] = json!(reason);
    old["message"] = json!(message);
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
