//! Texts for clusters, attempts of managed jobs, services and pools, shared by the command line and the dashboard.

use crate::budget::hours;
use crate::fleet::FleetKind;
use api::sky::{Cluster, Ground, Interval, JobAttempt};
use jiff::Timestamp;
use serde_json::Value;

/// Where a cluster is, or is tried: `kubernetes (gke_prod)`.
pub fn infra(cluster: &Cluster) -> String {
    let Some(one) = cluster.at() else { return "-".to_owned() };
    if one.region.is_empty() { one.provider.clone() } else { format!("{} ({})", one.provider, one.region) }
}

/// After how many idle minutes a cluster stops: `5m`, `5m (down)`; `-` for one that stays.
pub fn autostop(cluster: &Cluster) -> String {
    match &cluster.spec.autostop {
        None => "-".to_owned(),
        Some(autostop) => {
            let down = if autostop.down { " (down)" } else { "" };
            format!("{}m{down}", autostop.idle_minutes)
        }
    }
}

/// Dollars that an attempt has cost until now, or until its end.
pub fn cost(attempt: &JobAttempt, now: Timestamp) -> f64 {
    let time = |text: &str| text.parse().unwrap_or(now);
    attempt.hourly_price * hours(time(&attempt.began_at), time(&attempt.ended_at))
}

/// Seconds for which machines ran, those that still do included.
pub fn seconds_used(usage: &[Interval], now: Timestamp) -> i64 {
    let lasted = |one: &Interval| {
        let until = one.to.parse().unwrap_or(now);
        one.from.parse::<Timestamp>().map_or(0, |from| until.duration_since(from).as_secs().max(0))
    };
    usage.iter().map(lasted).fold(0, i64::saturating_add)
}

/// Why an attempt ended, in a few words; empty for one that goes on.
pub fn ground(ground: Ground) -> &'static str {
    match ground {
        Ground::None => "",
        Ground::MachinesLost => "machines lost",
        Ground::Exited => "exited",
        Ground::Interrupted => "interrupted",
        Ground::NoCapacity => "no capacity",
        Ground::Refused => "refused",
        Ground::Asked => "a user ended it",
        Ground::Group => "its group ended it",
        Ground::Budget => "a budget ended it",
    }
}

/// How many replicas or workers there are, in SkyPilot's words. `section`: the task's `service` section.
pub fn policy(section: &Value, kind: FleetKind) -> String {
    let number = |value: &Value| value.as_f64().map(|number| number.to_string());
    let plural = |count: &str| if count == "1" { "" } else { "s" };
    if kind == FleetKind::Pool {
        let pool = &section["pool"];
        let least = number(&pool["min_workers"]).or(number(&pool["workers"])).unwrap_or_else(|| "1".to_owned());
        return match number(&pool["max_workers"]) {
            Some(most) => format!(
                "Autoscaling from {least} to {most} worker{} (queue threshold: {})",
                plural(&most),
                number(&pool["queue_length_threshold"]).unwrap_or_else(|| "1".to_owned())
            ),
            None => format!("Fixed-size ({least} workers)"),
        };
    }
    let policy = &section["replica_policy"];
    let least = number(&policy["min_replicas"]).unwrap_or_else(|| "1".to_owned());
    match number(&policy["max_replicas"]).filter(|most| *most != least) {
        None => format!("Fixed {least} replica{}", plural(&least)),
        Some(most) => {
            let reserve = number(&policy["num_overprovision"])
                .map(|reserve| format!(" with {reserve} overprovisioned replicas"))
                .unwrap_or_default();
            format!(
                "Autoscaling from {least} to {most} replica{}{reserve} (target QPS per replica: {})",
                plural(&most),
                policy["target_qps_per_replica"]
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_are_told_as_skypilot_tells_them() {
        let service = |policy: Value| super::policy(&json!({"replica_policy": policy}), FleetKind::Service);
        assert_eq!(service(json!({"min_replicas": 1})), "Fixed 1 replica");
        assert_eq!(
            service(
                json!({"min_replicas": 0, "max_replicas": 3, "target_qps_per_replica": 2.5, "num_overprovision": 1})
            ),
            "Autoscaling from 0 to 3 replicas with 1 overprovisioned replicas (target QPS per replica: 2.5)"
        );
        let pool = |pool: Value| super::policy(&json!({"pool": pool}), FleetKind::Pool);
        assert_eq!(pool(json!({"workers": 2})), "Fixed-size (2 workers)");
        assert_eq!(
            pool(json!({"min_workers": 0, "max_workers": 1, "queue_length_threshold": 5})),
            "Autoscaling from 0 to 1 worker (queue threshold: 5)"
        );
    }

    #[test]
    fn an_attempt_costs_what_its_machines_cost_until_it_ended() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let mut attempt =
            JobAttempt { hourly_price: 3.0, began_at: "2026-01-01T00:00:00Z".to_owned(), ..JobAttempt::default() };
        assert_eq!(cost(&attempt, at("2026-01-01T00:20:00Z")), 1.0);
        attempt.ended_at = "2026-01-01T01:00:00Z".to_owned();
        assert_eq!(cost(&attempt, at("2026-01-03T00:00:00Z")), 3.0);
        // it has not begun
        assert_eq!(cost(&JobAttempt { hourly_price: 3.0, ..JobAttempt::default() }, at("2026-01-03T00:00:00Z")), 0.0);
    }

    #[test]
    fn autostop_is_told_with_what_it_does() {
        let of = |autostop: Value| {
            let spec = json!({"nodes": 1, "candidates": [{"provider": "ssh", "region": "lab"}], "autostop": autostop});
            serde_json::from_value::<Cluster>(json!({"spec": spec})).unwrap()
        };
        assert_eq!(autostop(&of(Value::Null)), "-");
        assert_eq!(autostop(&of(json!({"idleMinutes": 5}))), "5m");
        assert_eq!(autostop(&of(json!({"idleMinutes": 5, "down": true}))), "5m (down)");
        assert_eq!(infra(&of(Value::Null)), "ssh (lab)");
    }
}
