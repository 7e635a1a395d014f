//! A job's progress, read from its status, and the line that shows it.

use crate::state::{Phase, short_duration};
use serde_json::Value;

/// Width of the bar in characters.
const BAR: i64 = 24;

/// What the training loop has reported, 0 to 100.
pub fn percentage(job: &Value) -> Option<i64> {
    job["status"]["trainerStatus"]["progressPercentage"].as_i64()
}

/// One line on where the job stands: `running 2/2 pods [#####     ] 42% 1m10s left loss=0.31`.
pub fn line(job: &Value, pods_running: usize, pods: usize) -> String {
    line_in(job, Phase::of(job), pods_running, pods)
}

/// The same of a job in this phase, which its own status may not tell yet.
pub fn line_in(job: &Value, phase: Phase, pods_running: usize, pods: usize) -> String {
    let mut parts = vec![phase.as_str().to_lowercase()];
    if pods > 0 {
        parts.push(format!("{pods_running}/{pods} pods"));
    }
    if let Some(percent) = percentage(job) {
        let done = (percent.clamp(0, 100) * BAR / 100) as usize;
        parts.push(format!("[{}{}] {percent}%", "#".repeat(done), " ".repeat(BAR as usize - done)));
    }
    let status = &job["status"]["trainerStatus"];
    if let Some(secs) = status["estimatedRemainingSeconds"].as_i64().filter(|_| !phase.is_finished()) {
        parts.push(format!("{} left", short_duration(secs)));
    }
    for metric in status["metrics"].as_array().into_iter().flatten().take(3) {
        if let (Some(name), Some(value)) = (metric["name"].as_str(), metric["value"].as_str()) {
            parts.push(format!("{name}={}", short_number(value)));
        }
    }
    parts.join(" ")
}

/// A number with the five digits that matter; what is short, or no number, as it is.
pub fn short_number(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.len() > 7 && number.is_finite() => {
            let scientific = format!("{number:.4e}");
            let rounded: f64 = scientific.parse().unwrap_or(number);
            if rounded == 0.0 || (1e-4..1e9).contains(&rounded.abs()) { rounded.to_string() } else { scientific }
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_as_long_as_they_matter() {
        let cases = [
            ("0.03333333333333333", "0.033333"),
            ("123456.789", "123460"),
            ("12345678", "12346000"),
            ("1234567", "1234567"),
            ("-0.00001234567", "-1.2346e-5"),
            ("0.5", "0.5"),
            ("0.000000000", "0"),
            ("not a number", "not a number"),
            ("infinity", "infinity"),
        ];
        for (text, short) in cases {
            assert_eq!(short_number(text), short);
        }
    }

    #[test]
    fn a_reporting_job_has_a_bar() {
        let job = json!({"status": {"jobsStatus": [{"ready": 1}], "trainerStatus": {
            "progressPercentage": 50, "estimatedRemainingSeconds": 70, "metrics": [{"name": "loss", "value": "0.3"}]}}});
        assert_eq!(
            line(&job, 2, 2),
            format!("running 2/2 pods [{}{}] 50% 70s left loss=0.3", "#".repeat(12), " ".repeat(12))
        );
        assert_eq!(line(&json!({}), 0, 0), "pending");
        let done = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}],
            "trainerStatus": {"estimatedRemainingSeconds": 0, "progressPercentage": 100}}});
        assert_eq!(line(&done, 0, 0), format!("complete [{}] 100%", "#".repeat(24)));
    }
}
