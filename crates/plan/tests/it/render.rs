//! A decision as YAML, for people to review.

use reconcile::{AfterRefusal, Decision, Event, Next, OnError, Op, PatchBody, StatusWrite, Write};
use serde_json::{Map, Value, json};

/// The whole decision as a value; members that are empty are left out.
pub fn decision(decision: &Decision) -> Value {
    let Decision { writes, status, after_refusal, events, next, report } = decision;
    assert_eq!(*after_refusal, AfterRefusal::Same, "only Jobs have another");
    let mut out = Map::new();
    if !writes.is_empty() {
        out.insert("writes".into(), writes.iter().map(write).collect());
    }
    if let Some(status) = status {
        let (StatusWrite::Replace(body) | StatusWrite::Merge(body)) = status;
        out.insert("status".into(), body.clone());
    }
    if !events.is_empty() {
        out.insert("events".into(), events.iter().map(event).collect());
    }
    match next {
        Next::AwaitChange => {}
        Next::After(wait) => _ = out.insert("next".into(), json!(format!("after {}s", wait.as_secs()))),
        Next::Backoff => _ = out.insert("next".into(), json!("backoff")),
    }
    if !report.0.is_empty() {
        out.insert("report".into(), json!(report.0));
    }
    Value::Object(out)
}

fn write(write: &Write) -> Value {
    let mut out = match &write.op {
        Op::Create { object } => json!({"create": object}),
        Op::CreateGenerated { object, generator } => {
            json!({"createGenerated": object, "generator": format!("{generator:?}")})
        }
        Op::Apply { object, manager } => json!({"apply": object, "manager": manager}),
        Op::Update { object } => json!({"update": object}),
        Op::Patch { target, subresource, body } => {
            let body = match body {
                PatchBody::Merge(body) | PatchBody::Json(body) | PatchBody::Strategic(body) => body,
            };
            json!({"patch": target.to_string(), "subresource": subresource, "body": body})
        }
        Op::Subresource { target, subresource, object } => json!({*subresource: target.to_string(), "object": object}),
        other @ (Op::UpdateGenerated { .. } | Op::DeleteCollection { .. } | Op::Absent { .. }) => {
            json!({"unexpected": format!("{other:?}")})
        }
        Op::Delete { target, propagation, uid, .. } => {
            json!({"delete": target.to_string(), "propagation": format!("{propagation:?}"), "uid": uid})
        }
    };
    let on_error = match &write.on_error {
        OnError::Stop => json!("stop"),
        OnError::Continue => json!("continue"),
        OnError::EventThenStop(e) => json!({"stop": event(e)}),
        OnError::EventThenContinue(e) => json!({"continue": event(e)}),
        OnError::EventThenSkip(e, batch) => json!({"continue": event(e), "batch": batch}),
        OnError::EventThenStatus(e, status) => {
            let (StatusWrite::Replace(body) | StatusWrite::Merge(body)) = status;
            json!({"stop": event(e), "status": body})
        }
    };
    out["onError"] = on_error;
    if let Some(event_done) = &write.on_success {
        out["onSuccess"] = event(event_done);
    }
    out
}

fn event(event: &Event) -> Value {
    json!(format!("{} {} ({}, {}): {}", event.kind.as_str(), event.reason, event.reporter, event.action, event.message))
}
