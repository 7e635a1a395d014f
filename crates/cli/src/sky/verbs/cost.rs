//! `cost-report`: what clusters cost, those that are gone included.

use super::tables::{ago, lasting, time};
use super::{Done, misused, say};
use crate::sky::clusters;
use ::sky::commands::Call;
use ::sky::console::plain;
use api::object;
use api::sky::{Interval, keys};
use jiff::Timestamp;
use kube::api::ListParams;
use managed::shown::seconds_used;
use serde_json::json;

pub(super) async fn cost_report(call: &Call) -> Done {
    let now = Timestamp::now();
    let days = call.value("days").and_then(|days| days.parse::<i64>().ok()).unwrap_or(30);
    if days < 0 {
        return Err(misused(call, "--days must not be negative; 0 shows all clusters."));
    }
    let sky = clusters::connect().await?;
    // 0: all of them
    let since = (days > 0).then(|| api::time::earlier_secs(now, days.saturating_mul(86_400)));
    struct Line {
        name: String,
        launched: Option<Timestamp>,
        seconds: i64,
        resources: String,
        status: String,
        hourly: f64,
    }
    let mut lines: Vec<Line> = Vec::new();
    for found in sky.all().await? {
        let status = &found.cluster.status;
        lines.push(Line {
            name: found.shown().to_owned(),
            launched: time(&status.launched_at).or_else(|| time(object::meta(&found.object, "creationTimestamp"))),
            seconds: seconds_used(&status.usage, now),
            resources: managed::resources::of_cluster(&found.cluster),
            status: status.phase.as_str().to_owned(),
            hourly: status.hourly_price,
        });
    }
    let gone = ListParams::default().labels(&format!("{}=true", keys::HISTORY));
    for kept in sky.config_maps().list(&gone).await? {
        let text = |name: &str| kept.data["data"][name].as_str().unwrap_or_default().to_owned();
        if since.is_some_and(|since| time(&text("endedAt")).is_some_and(|ended| ended < since)) {
            continue;
        }
        let usage: Vec<Interval> = serde_json::from_str(&text("usage")).unwrap_or_default();
        lines.push(Line {
            name: text("name"),
            launched: time(&text("launchedAt")),
            seconds: seconds_used(&usage, now),
            resources: text("resources"),
            status: "TERMINATED".to_owned(),
            hourly: text("hourlyPrice").parse().unwrap_or(0.0),
        });
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.launched));
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let cost = |line: &Line| line.hourly * line.seconds as f64 / 3600.0;
    if call.value("output_format") == Some("json") {
        let record = |line: &Line| {
            json!({
                "name": line.name, "launched_at": line.launched.map(Timestamp::as_second), "duration": line.seconds,
                "resources": line.resources, "status": line.status, "hourly_cost": line.hourly, "total_cost": cost(line),
            })
        };
        say(serde_json::to_string_pretty(&lines.iter().map(record).collect::<Vec<_>>()).unwrap_or_default());
        return Ok(0);
    }
    say("Clusters");
    if lines.is_empty() {
        say("No existing clusters.");
        return Ok(0);
    }
    let row = |line: &Line| {
        vec![
            line.name.clone(),
            ago(line.launched, now),
            lasting(line.seconds),
            line.resources.clone(),
            line.status.clone(),
            format!("$ {:.2}", line.hourly),
            format!("$ {:.2}", cost(line)),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    say(plain(&["NAME", "LAUNCHED", "DURATION", "RESOURCES", "STATUS", "COST/hr", "COST (est.)"], &rows));
    Ok(0)
}
