//! When a cluster stops by itself, from the command line or the task file.

use crate::error::CliError;
use crate::sky::clusters::Sky;
use ::sky::commands::Call;
use ::sky::resources::Autostop;
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
pub(super) fn autostop(call: &Call, task: Option<&::sky::Task>) -> Option<Value> {
    let minutes = call.value("idle_minutes_to_autostop").and_then(|text| text.parse::<i64>().ok());
    let down = call.is_set("down");
    if minutes.is_some() || down {
        // a negative number takes it back
        return Some(match minutes {
            Some(..=-1) => Value::Null,
            minutes => {
                json!({"idleMinutes": minutes.unwrap_or(0), "down": down, "waitFor": wait_for(call.value("wait_for"))})
            }
        });
    }
    match task?.resources.list.first()?.autostop.as_ref()? {
        Autostop::Off => Some(Value::Null),
        #[expect(clippy::cast_possible_truncation, reason = "minutes")]
        Autostop::After { minutes, down, wait_for } => Some(json!({
            "idleMinutes": minutes.as_number().unwrap_or(0.0) as i64, "down": down.is_truthy(), "waitFor": self::wait_for(wait_for.as_deref()),
        })),
    }
}

/// Sets when a cluster stops by itself; idleness counts from now on.
pub(super) async fn set_autostop(sky: &Sky, name: &str, autostop: Value) -> Result<(), CliError> {
    let mut autostop = autostop;
    if autostop.is_object() {
        autostop["since"] = Timestamp::now().to_string().into();
    }
    sky.patch(name, json!({"spec": {"autostop": autostop}})).await
}
