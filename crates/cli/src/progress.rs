//! A job's progress as its status tells it, and the line that shows it.

use crate::view::{Phase, short_duration};
use serde_json::Value;

/// Width of the bar in characters.
const BAR: i64 = 24;

/// What the training loop has reported, 0 to 100.
pub(crate) fn percentage(job: &Value) -> Option<i64> {
    job["status"]["trainerStatus"]["progressPercentage"].as_i64()
}

/// One line on where the job stands: `running 2/2 pods [#####     ] 42% 1m10s left loss=0.31`.
pub(crate) fn line(job: &Value, pods_running: usize, pods: usize) -> String {
    let mut parts = vec![Phase::of(job).as_str().to_lowercase()];
    if pods > 0 {
        parts.push(format!("{pods_running}/{pods} pods"));
    }
    if let Some(percent) = percentage(job) {
        let done = (percent.clamp(0, 100) * BAR / 100) as usize;
        parts.push(format!("[{}{}] {percent}%", "#".repeat(done), " ".repeat(BAR as usize - done)));
    }
    let status = &job["status"]["trainerStatus"];
    if let Some(secs) = status["estimatedRemainingSeconds"].as_i64() {
        parts.push(format!("{} left", short_duration(secs)));
    }
    for metric in status["metrics"].as_array().into_iter().flatten().take(3) {
        if let (Some(name), Some(value)) = (metric["name"].as_str(), metric["value"].as_str()) {
            parts.push(format!("{name}={value}"));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reporting_job_has_a_bar() {
        let job = json!({"status": {"jobsStatus": [{"ready": 1}], "trainerStatus": {
            "progressPercentage": 50, "estimatedRemainingSeconds": 70, "metrics": [{"name": "loss", "value": "0.3"}]}}});
        assert_eq!(
            line(&job, 2, 2),
            format!("running 2/2 pods [{}{}] 50% 70s left loss=0.3", "#".repeat(12), " ".repeat(12))
        );
        assert_eq!(line(&json!({}), 0, 0), "pending");
    }
}
