//! A registry of metrics for Prometheus. [`api::metrics`] has the names.

use api::metrics::{Kind, Metric};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Upper bounds of a histogram's buckets, in seconds.
const BUCKETS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// The same for what takes minutes to days.
const LONG_BUCKETS: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259_200.0, 604_800.0];

/// The buckets of a metric's series.
fn buckets(metric: &Metric) -> &'static [f64] {
    match metric.kind {
        Kind::Histogram => &BUCKETS,
        Kind::LongHistogram => &LONG_BUCKETS,
        Kind::Counter | Kind::Gauge => &[],
    }
}

/// Labels of a series, in the order in which they are shown.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// One metric with all its series, by rendered labels. Bounded by what label values there are: controllers, codes, reasons;
/// never names of objects.
struct Family {
    metric: Metric,
    series: BTreeMap<String, Series>,
}

#[derive(Default)]
struct Series {
    /// The value, or a histogram's sum.
    value: f64,
    count: u64,
    buckets: Vec<u64>,
}

type Collector = Box<dyn Fn(&Registry) + Send + Sync>;

/// All series of a process.
#[derive(Default)]
pub struct Registry {
    families: Mutex<BTreeMap<&'static str, Family>>,
    collectors: Mutex<BTreeMap<&'static str, Collector>>,
}

impl Registry {
    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, metric: &Metric, labels: Labels<'_>, change: impl FnOnce(&mut Series)) {
        let told = labels.iter().map(|(name, _)| name);
        debug_assert!(told.eq(metric.labels), "{} has other labels in its table", metric.name);
        let mut families = self.families();
        let family = families.entry(metric.name).or_insert_with(|| Family { metric: *metric, series: BTreeMap::new() });
        change(family.series.entry(rendered(labels)).or_default());
    }

    /// Adds to a counter or a gauge.
    pub fn add(&self, metric: &Metric, labels: Labels<'_>, amount: f64) {
        self.with(metric, labels, |series| series.value += amount);
    }

    /// Sets a gauge.
    pub fn set(&self, metric: &Metric, labels: Labels<'_>, value: f64) {
        self.with(metric, labels, |series| series.value = value);
    }

    /// Forgets all series of a metric: before they are set anew from a world in which some may be gone.
    pub fn clear(&self, metric: &Metric) {
        self.families().remove(metric.name);
    }

    /// Puts a duration into a histogram.
    pub fn observe(&self, metric: &Metric, labels: Labels<'_>, seconds: f64) {
        let bounds = buckets(metric);
        self.with(metric, labels, |series| {
            series.buckets.resize(bounds.len(), 0);
            for (count, bound) in series.buckets.iter_mut().zip(bounds) {
                *count += u64::from(seconds <= *bound);
            }
            series.value += seconds;
            series.count += 1;
        });
    }

    /// Has `collect` set gauges whenever somebody reads; takes the place of an earlier one of that name.
    pub fn on_read(&self, name: &'static str, collect: impl Fn(&Registry) + Send + Sync + 'static) {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Box::new(collect));
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        for collect in self.collectors.lock().unwrap_or_else(PoisonError::into_inner).values() {
            collect(self);
        }
        let mut text = String::new();
        for (name, Family { metric, series }) in self.families().iter() {
            let kind = metric.kind.as_str();
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
            for (labels, series) in series {
                let with = |extra: &str| match (labels.is_empty(), extra.is_empty()) {
                    (true, true) => String::new(),
                    (false, true) => format!("{{{labels}}}"),
                    (true, false) => format!("{{{extra}}}"),
                    (false, false) => format!("{{{labels},{extra}}}"),
                };
                if kind != "histogram" {
                    let _ = writeln!(text, "{name}{} {}", with(""), series.value);
                    continue;
                }
                for (bound, count) in buckets(metric).iter().zip(&series.buckets) {
                    let _ = writeln!(text, "{name}_bucket{} {count}", with(&format!("le=\"{bound}\"")));
                }
                let _ = writeln!(text, "{name}_bucket{} {}", with("le=\"+Inf\""), series.count);
                let _ = writeln!(text, "{name}_sum{} {}", with(""), series.value);
                let _ = writeln!(text, "{name}_count{} {}", with(""), series.count);
            }
        }
        text
    }
}

/// `a="x",b="y"`, escaped as the format wants.
fn rendered(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::metrics::RECONCILES;

    const SIZE: Metric = Metric::gauge("size", &["of"], "How large");
    const WAIT: Metric = Metric::histogram("wait_seconds", &[], "How long");

    #[test]
    fn the_text_is_prometheus() {
        let registry = Registry::default();
        registry.add(&RECONCILES, &[("controller", "a"), ("result", "success")], 1.0);
        registry.add(&RECONCILES, &[("controller", "a"), ("result", "success")], 1.0);
        registry.observe(&WAIT, &[], 0.003);
        registry.observe(&WAIT, &[], 100.0);
        registry.on_read("size", |registry| registry.set(&SIZE, &[("of", "a \"b\"\n")], 2.5));
        let text = registry.render();
        for line in [
            "# TYPE controller_runtime_reconcile_total counter",
            "controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 2",
            "# HELP size How large",
            "size{of=\"a \\\"b\\\"\\n\"} 2.5",
            "wait_seconds_bucket{le=\"0.0025\"} 0",
            "wait_seconds_bucket{le=\"0.005\"} 1",
            "wait_seconds_bucket{le=\"60\"} 1",
            "wait_seconds_bucket{le=\"+Inf\"} 2",
            "wait_seconds_sum 100.003",
            "wait_seconds_count 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        registry.on_read("size", |registry| registry.clear(&SIZE));
        assert!(!registry.render().contains("size{"));
    }
}
