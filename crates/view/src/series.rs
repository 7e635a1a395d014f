//! What a job reported over time, as curves: the values of each metric, cut to what a chart can show. A pure function of reports.

use api::object;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// Points of a curve that a chart gets.
pub const POINTS_MAX: usize = 1000;
/// Metrics of a job that get a curve.
const CURVES_MAX: usize = 200;
/// The curve of a job's progress, in percent. Reports of metrics may not have this name, which has a blank.
pub const PROGRESS: &str = "progress, percent";

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Seconds since the job was created.
    pub at: f64,
    /// `None`: it is no number, or infinite.
    pub value: Option<f64>,
}

/// A metric over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    pub name: String,
    /// At most [`POINTS_MAX`], in the order of the reports.
    pub points: Vec<CurvePoint>,
    /// How many there were.
    pub reported: usize,
    /// How many of them were no number, or infinite.
    pub not_finite: usize,
    /// The last value, the least and the greatest; `None` where none is a number.
    pub last: Option<f64>,
    pub least: Option<f64>,
    pub greatest: Option<f64>,
}

/// The curves of a job, in the order in which its metrics were first reported; its progress comes last. Of more than 200 metrics the first
/// 200 have one.
pub fn curves(job: &Value, reports: &[Value]) -> Vec<Curve> {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let began = time(object::meta(job, "creationTimestamp"));
    let mut order: Vec<&str> = Vec::new();
    let mut points: BTreeMap<&str, Vec<CurvePoint>> = BTreeMap::new();
    for report in reports {
        let Some(at) = time(object::text(report, "lastUpdatedTime")) else { continue };
        let at = began.map_or(0.0, |began| at.duration_since(began).as_secs_f64());
        for metric in report["metrics"].as_array().into_iter().flatten() {
            let name = object::text(metric, "name");
            if !points.contains_key(name) {
                if order.len() == CURVES_MAX {
                    continue;
                }
                order.push(name);
            }
            let value = object::text(metric, "value").parse::<f64>().ok().filter(|value| value.is_finite());
            points.entry(name).or_default().push(CurvePoint { at, value });
        }
        if let Some(percent) = report["progressPercentage"].as_f64() {
            points.entry(PROGRESS).or_default().push(CurvePoint { at, value: Some(percent) });
        }
    }
    order.push(PROGRESS);
    let curve = |name: &str| {
        let all = points.get(name)?;
        let values = || all.iter().filter_map(|point| point.value);
        Some(Curve {
            name: name.to_owned(),
            points: cut(all, POINTS_MAX),
            reported: all.len(),
            not_finite: all.iter().filter(|point| point.value.is_none()).count(),
            last: values().next_back(),
            least: values().min_by(f64::total_cmp),
            greatest: values().max_by(f64::total_cmp),
        })
    };
    order.into_iter().filter_map(curve).collect()
}

/// At most so many points of a curve: of each stretch the least and the greatest value, so that no peak is lost, and one without a number
/// where there is one. The first and the last point stay.
pub fn cut(points: &[CurvePoint], most: usize) -> Vec<CurvePoint> {
    let ([first, middle @ .., last], true) = (points, points.len() > most) else { return points.to_vec() };
    // three points of a stretch at most, and the two ends
    let stretches = (most.saturating_sub(2) / 3).max(1);
    let length = middle.len().div_ceil(stretches);
    let mut kept = vec![*first];
    for stretch in middle.chunks(length) {
        let numbers = || stretch.iter().enumerate().filter_map(|(at, point)| Some((at, point.value?)));
        let least = numbers().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
        let greatest = numbers().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
        let none = stretch.iter().position(|point| point.value.is_none());
        let mut chosen: Vec<usize> = [least, greatest, none].into_iter().flatten().collect();
        chosen.sort_unstable();
        chosen.dedup();
        kept.extend(chosen.into_iter().filter_map(|at| stretch.get(at)));
    }
    kept.push(*last);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn metrics_become_curves_from_the_beginning_of_the_job() {
        let job = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        let report = |second: u32, metrics: Value, percent: Value| json!({"lastUpdatedTime": format!("2026-01-01T00:00:{second:02}Z"), "metrics": metrics, "progressPercentage": percent});
        let loss = |value: &str| json!({"name": "loss", "value": value});
        let reports = [
            report(10, json!([loss("0.5"), {"name": "acc", "value": "0.1"}]), json!(5)),
            report(20, json!([loss("NaN")]), Value::Null),
            report(30, json!([loss("inf")]), json!(15)),
            json!({"metrics": [loss("9")]}),
        ];
        let told = curves(&job, &reports);
        let names: Vec<&str> = told.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["loss", "acc", PROGRESS]);
        let points: Vec<(f64, Option<f64>)> = told[0].points.iter().map(|point| (point.at, point.value)).collect();
        assert_eq!(points, [(10.0, Some(0.5)), (20.0, None), (30.0, None)]);
        assert_eq!((told[0].reported, told[0].not_finite, told[2].points.len()), (3, 2, 2));
        assert!(curves(&job, &[]).is_empty());
    }

    #[test]
    fn a_million_points_keep_their_peak() {
        let flat = |at: usize| CurvePoint { at: at as f64, value: Some((at % 7) as f64) };
        let mut points: Vec<CurvePoint> = (0..1_000_000).map(flat).collect();
        points[123_456].value = Some(1e9);
        points[654_321].value = Some(-1e9);
        points[777_777].value = None;
        let few = cut(&points, POINTS_MAX);
        assert!(few.len() <= POINTS_MAX, "{}", few.len());
        for kept in [0, 123_456, 654_321, 777_777, 999_999] {
            assert!(few.contains(&points[kept]), "{kept}");
        }
    }

    proptest! {
        #[test]
        fn a_cut_has_points_of_the_curve_in_their_order(
            values in prop::collection::vec(prop::option::of(-1e6..1e6f64), 0..400),
            most in 5usize..60,
        ) {
            let points: Vec<CurvePoint> =
                values.iter().enumerate().map(|(at, value)| CurvePoint { at: at as f64, value: *value }).collect();
            let few = cut(&points, most);
            prop_assert!(few.len() <= most.max(points.len().min(most)));
            prop_assert!(few.windows(2).all(|pair| pair[0].at < pair[1].at));
            prop_assert!(few.iter().all(|point| points.contains(point)));
            prop_assert_eq!((few.first(), few.last()), (points.first(), points.last()));
            let extreme = |points: &[CurvePoint], sign: f64| {
                points.iter().filter_map(|point| point.value).map(|value| value * sign).fold(f64::NEG_INFINITY, f64::max)
            };
            for sign in [1.0, -1.0] {
                prop_assert_eq!(extreme(&few, sign), extreme(&points, sign));
            }
            prop_assert_eq!(few.iter().any(|point| point.value.is_none()), points.iter().any(|point| point.value.is_none()));
        }
    }
}
