//! When a cluster stops by itself, from the command line or the task file.

use crate::sky::clusters::Sky;
use crate::sky::submit::{Trouble, value_error};
use ::sky::commands::Call;
use ::sky::resources::Autostop;
use client::ClientError;
use jiff::Timestamp;
use managed::launch::step::{RENEWED, held_until};
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
    sky.patch(name, json!({"spec": {"autostop": since(autostop, Timestamp::now())}})).await
}

fn since(mut autostop: Value, since: Timestamp) -> Value {
    if autostop.is_object() {
        autostop["since"] = since.to_string().into();
    }
    autostop
}

/// The setting while a stopped cluster starts: a client that is killed on the way leaves a cluster that stops by itself all the same,
/// and no cluster stops before it is up.
pub(super) fn held(autostop: &Value) -> Value {
    since(autostop.clone(), held_until(Timestamp::now()))
}

/// Does this work, and keeps the setting held meanwhile.
pub(super) async fn holding<T>(sky: &Sky, name: &str, autostop: Option<&Value>, work: impl Future<Output = T>) -> T {
    let Some(autostop) = autostop.filter(|autostop| autostop.is_object()) else { return work.await };
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(RENEWED.unsigned_abs()) => {
                // where it fails, the next one comes early enough
                if let Err(error) = sky.patch(name, json!({"spec": {"autostop": held(autostop)}})).await {
                    tracing::debug!(%error, "cannot renew the time of the autostop setting");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_later_and_what_is_taken_back_never() {
        let now = Timestamp::now();
        let held = held(&json!({"idleMinutes": 0, "down": true}));
        let since: Timestamp = held["since"].as_str().unwrap().parse().unwrap();
        assert!(since >= api::time::later_secs(now, 1700) && held["idleMinutes"] == 0, "{held}");
        assert_eq!(super::held(&Value::Null), Value::Null);
    }
}
