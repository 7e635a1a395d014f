//! When a cluster stops by itself, from the command line or the task file.

use crate::sky::clusters::Sky;
use crate::sky::submit::{Trouble, value_error};
use ::sky::commands::Call;
use ::sky::resources::Autostop;
use client::ClientError;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What a cluster waits for before it stops by itself, from SkyPilot's word for it.
pub(super) fn wait_for(word: Option<&str>) -> &'static str {
    match word {
        Some("jobs") => "Jobs",
        Some("none") => "None",
        _ => "JobsAndSsh",
    }
}

/// When the command line or the task say that a cluster stops by itself.
///
/// # Errors
/// For `--wait-for` where nobody says after how many minutes.
pub(super) fn autostop(call: &Call, task: Option<&::sky::Task>) -> Result<Option<Value>, Trouble> {
    let minutes = call.value("idle_minutes_to_autostop").and_then(|text| text.parse::<i64>().ok());
    let (down, word) = (call.is_set("down"), call.value("wait_for"));
    if minutes.is_some() || down {
        // a negative number takes it back
        return Ok(Some(match minutes {
            Some(..=-1) => Value::Null,
            minutes => json!({"idleMinutes": minutes.unwrap_or(0), "down": down, "waitFor": wait_for(word)}),
        }));
    }
    let of_task = task.and_then(|task| task.resources.list.first()?.autostop.as_ref());
    match (of_task, word) {
        (None, None) => Ok(None),
        (Some(Autostop::Off), None) => Ok(Some(Value::Null)),
        (None | Some(Autostop::Off), Some(word)) => Err(value_error(format!(
            "--wait-for {word} needs --idle-minutes-to-autostop or --down: the cluster does not stop by itself."
        ))),
        #[expect(clippy::cast_possible_truncation, reason = "minutes")]
        (Some(Autostop::After { minutes, down, wait_for }), word) => Ok(Some(json!({
            "idleMinutes": minutes.as_number().unwrap_or(0.0) as i64, "down": down.is_truthy(),
            "waitFor": self::wait_for(word.or(wait_for.as_deref())),
        }))),
    }
}

/// Sets when a cluster stops by itself; idleness counts from now on.
pub(super) async fn set_autostop(sky: &Sky, name: &str, autostop: Value) -> Result<(), ClientError> {
    let mut autostop = autostop;
    if autostop.is_object() {
        autostop["since"] = Timestamp::now().to_string().into();
    }
    sky.patch(name, json!({"spec": {"autostop": autostop}})).await
}
