//! `metrics`: the history of what a job reported, as a table with sparklines, as rows, or as data.

use crate::exit;
use crate::output;
use crate::tensorboard;
use api::foreign::visible_line;
use api::history;
use api::object;
use api::trainer::annotations::METRICS;
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use grammar::{Format, MetricsArgs, MetricsFormat};
use jiff::Timestamp;
use serde_json::Value;
use std::path::Path;
use view::progress;
use view::state::{Phase, short_duration};

/// Width of a sparkline in characters.
const SPARK: usize = 32;
/// What sparklines are drawn with, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A job and what it reported.
struct Course {
    name: String,
    job: Value,
    reports: Vec<Value>,
}

/// `trainyard metrics`.
pub(crate) async fn metrics(cluster: &Cluster, args: &MetricsArgs) -> Result<u8, ClientError> {
    let mut courses = Vec::with_capacity(args.jobs.len());
    for asked in &args.jobs {
        let job = cluster.job(asked).await?;
        let name = object::meta(&job, "name").to_owned();
        let reports = facts::reports::all(cluster, &job, &name, |note| eprintln!("{note}")).await?;
        courses.push(Course { name, job, reports });
    }
    let names = names(courses.iter().flat_map(|course| &course.reports));
    if let Some(wrong) = args.metric.iter().find(|wanted| !names.contains(wanted)) {
        let there = match (names.is_empty(), courses.len()) {
            (true, 1) => "it has reported none".to_owned(),
            (true, _) => "they have reported none".to_owned(),
            (false, _) => names.join(", "),
        };
        let (jobs, whose) = match courses.as_slice() {
            [one] => (format!("TrainJob \"{}\" has no metric", one.name), "its metrics"),
            _ => ("none of these jobs has a metric".to_owned(), "their metrics"),
        };
        return Err(ClientError::Usage(ErrorCode::MetricMissing, format!("{jobs} {wrong:?}; {whose}: {there}")));
    }
    let names = if args.metric.is_empty() { names } else { args.metric.clone() };
    for report in courses.iter_mut().flat_map(|course| &mut course.reports) {
        if let Some(metrics) = report["metrics"].as_array_mut() {
            metrics.retain(|metric| names.iter().any(|name| metric["name"] == **name));
        }
    }
    match &args.tensorboard {
        Some(folder) => courses.iter().try_for_each(|course| exported(folder, course))?,
        None => show(courses, &names, args.output),
    }
    Ok(exit::OK)
}

/// Writes the file of a job for TensorBoard, and says where it is.
fn exported(folder: &Path, course: &Course) -> Result<(), ClientError> {
    if course.reports.is_empty() {
        silent(course);
        return Ok(());
    }
    let file = tensorboard::export(folder, &course.name, &course.reports)?;
    let count = course.reports.len();
    eprintln!("{count} {} of job {}:", if count == 1 { "report" } else { "reports" }, course.name);
    println!("{}", file.display());
    Ok(())
}

/// Prints them: of several jobs the tables have a column that says whose a line is, and data are a list.
fn show(mut courses: Vec<Course>, names: &[String], format: MetricsFormat) {
    let one = courses.len() == 1;
    match format {
        MetricsFormat::Json | MetricsFormat::Yaml => {
            let format = if format == MetricsFormat::Json { Format::Json } else { Format::Yaml };
            let whole =
                |course: Course| history::object(object::meta(&course.job, "namespace"), &course.name, course.reports);
            let mut items: Vec<Value> = courses.into_iter().map(whole).collect();
            let told = match items.len() {
                1 => items.remove(0),
                _ => serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}),
            };
            output::print(&told, format);
        }
        MetricsFormat::Csv if one => print!("{}", csv(names, &courses[0].reports)),
        MetricsFormat::Csv => print!("{}", csv_of_all(names, &courses)),
        MetricsFormat::Table | MetricsFormat::Wide if courses.iter().all(|course| course.reports.is_empty()) => {
            courses.iter().for_each(silent);
        }
        MetricsFormat::Wide => {
            let mut header: Vec<String> = header(names).iter().map(|name| name.to_uppercase()).collect();
            if !one {
                header.insert(0, "JOB".to_owned());
            }
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            let dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
            let rows = courses.iter().flat_map(|course| {
                let whose = (!one).then(|| course.name.clone());
                let cells = move |report| whose.clone().into_iter().chain(row(report, names).into_iter().map(dash));
                course.reports.iter().map(move |report| cells(report).collect())
            });
            output::table(&header, rows.collect());
        }
        MetricsFormat::Table if one => {
            let Course { job, reports, .. } = courses.remove(0);
            summary(&job, names, &reports);
        }
        MetricsFormat::Table => {
            courses.iter().filter(|course| course.reports.is_empty()).for_each(silent);
            comparison(names, &courses);
        }
    }
}

/// Says that a job has reported nothing, and how it can.
fn silent(course: &Course) {
    let (name, state) = (&course.name, Phase::of(&course.job).as_str().to_lowercase());
    match object::annotation(&course.job, METRICS) {
        Some(patterns) => eprintln!(
            "TrainJob \"{name}\" is {state} and has no metrics; no line of rank 0 matches: {}",
            visible_line(&patterns.lines().collect::<Vec<_>>().join(", ")),
        ),
        None => eprintln!(
            "TrainJob \"{name}\" is {state} and has reported nothing; to report metrics, see docs/metrics.md; to read printed ones: run --metric"
        ),
    }
}

/// The names of all metrics, in the order of their first report.
fn names<'a>(reports: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for metric in reports.into_iter().flat_map(|report| report["metrics"].as_array().into_iter().flatten()) {
        let name = object::text(metric, "name");
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// A metric's value in a report, as it was given.
fn value<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    report["metrics"].as_array()?.iter().find(|metric| metric["name"] == *name)?["value"].as_str()
}

fn header(names: &[String]) -> Vec<&str> {
    ["time", "progress", "remaining"].into_iter().chain(names.iter().map(String::as_str)).collect()
}

/// The cells of a report; what it does not say is empty.
fn row(report: &Value, names: &[String]) -> Vec<String> {
    let number = |member: &str| report[member].as_i64().map(|n| n.to_string()).unwrap_or_default();
    let mut row = vec![
        object::text(report, "lastUpdatedTime").to_owned(),
        number("progressPercentage"),
        number("estimatedRemainingSeconds"),
    ];
    row.extend(names.iter().map(|name| value(report, name).unwrap_or_default().to_owned()));
    row
}

/// Comma-separated values (RFC 4180, but for line ends): progress in percent, remaining time in seconds.
fn csv(names: &[String], reports: &[Value]) -> String {
    let header = header(names).into_iter().map(str::to_owned).collect();
    std::iter::once(line(header)).chain(reports.iter().map(|report| line(row(report, names)))).collect()
}

/// The same of several jobs, whose names come first.
fn csv_of_all(names: &[String], courses: &[Course]) -> String {
    let with = |name: &str, cells: Vec<String>| line(std::iter::once(name.to_owned()).chain(cells).collect());
    let header = with("job", header(names).into_iter().map(str::to_owned).collect());
    let rows = courses
        .iter()
        .flat_map(|course| course.reports.iter().map(move |report| with(&course.name, row(report, names))));
    std::iter::once(header).chain(rows).collect()
}

fn line(cells: Vec<String>) -> String {
    cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\n"
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// Where the job stands, then a line for each metric.
fn summary(job: &Value, names: &[String], reports: &[Value]) {
    let time = |report: Option<&Value>| object::text(report?, "lastUpdatedTime").parse::<Timestamp>().ok();
    // the status may be a few seconds behind; the metrics come below
    let mut now = job.clone();
    now["status"]["trainerStatus"] = reports.last().cloned().unwrap_or_default();
    now["status"]["trainerStatus"]["metrics"] = Value::Null;
    println!("{}", progress::line(&now, 0, 0));
    let span = match (time(reports.first()), time(reports.last())) {
        (Some(first), Some(last)) if reports.len() > 1 => {
            format!(" in {}", short_duration(last.as_second() - first.as_second()))
        }
        _ => String::new(),
    };
    let count = reports.len();
    println!("{count} {}{span}", if count == 1 { "report" } else { "reports" });
    if names.is_empty() {
        return;
    }
    println!();
    let rows = names.iter().map(|name| {
        let (texts, numbers) = values(reports, name);
        let mut cells = vec![name.clone()];
        cells.extend(figures(&texts, &numbers));
        cells.push(sparkline(&numbers, None));
        cells
    });
    output::table(&["METRIC", "LAST", "MIN", "MAX", "COURSE"], rows.collect());
}

/// A line for each job that has reported it, under each metric; the courses of a metric have one scale.
fn comparison(names: &[String], courses: &[Course]) {
    let rows = names.iter().flat_map(|name| {
        let each = courses.iter().map(|course| (course, values(&course.reports, name)));
        let each: Vec<_> = each.filter(|(_, (texts, _))| !texts.is_empty()).collect();
        let all: Vec<f64> = each.iter().flat_map(|(_, (_, numbers))| numbers.iter().copied()).collect();
        let span = span_of(&all);
        let cells = each.into_iter().map(move |(course, (texts, numbers))| {
            let mut cells = vec![name.clone(), course.name.clone()];
            cells.extend(figures(&texts, &numbers));
            cells.push(sparkline(&numbers, Some(span)));
            cells
        });
        cells.collect::<Vec<_>>()
    });
    output::table(&["METRIC", "JOB", "LAST", "MIN", "MAX", "COURSE"], rows.collect());
}

/// A metric's values as they were given, and those that are numbers.
fn values<'a>(reports: &'a [Value], name: &str) -> (Vec<&'a str>, Vec<f64>) {
    let texts: Vec<&str> = reports.iter().filter_map(|report| value(report, name)).collect();
    let numbers = texts.iter().filter_map(|text| text.parse().ok()).filter(|n: &f64| n.is_finite()).collect();
    (texts, numbers)
}

/// The last value, the least and the greatest.
fn figures(texts: &[&str], numbers: &[f64]) -> [String; 3] {
    let shown = |of: fn(f64, f64) -> f64| match numbers.iter().copied().reduce(of) {
        Some(number) => progress::short_number(&number.to_string()),
        None => "-".to_owned(),
    };
    let last = progress::short_number(texts.last().copied().unwrap_or_default());
    [last, shown(f64::min), shown(f64::max)]
}

/// The least and the greatest of what a line of bars shows of these values.
fn span_of(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// A line of bars between the least and the greatest value, or those given; where there are more values than fit, the mean of
/// neighbours.
fn sparkline(values: &[f64], span: Option<(f64, f64)>) -> String {
    let width = values.len().min(SPARK);
    let means: Vec<f64> = (0..width)
        .map(|at| {
            let part = &values[at * values.len() / width..(at + 1) * values.len() / width];
            part.iter().sum::<f64>() / part.len() as f64
        })
        .collect();
    let (least, most) = span.unwrap_or_else(|| span_of(&means));
    let range = most - least;
    let top = (BARS.len() - 1) as f64;
    let bar = |mean: &f64| {
        let height = if range > 0.0 { (mean - least) / range * top } else { 0.0 };
        BARS[(height.round() as usize).min(BARS.len() - 1)]
    };
    means.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(percent: i64, metrics: &[(&str, &str)]) -> Value {
        let metrics: Vec<Value> = metrics.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({"lastUpdatedTime": "2026-01-02T03:04:05.500Z", "progressPercentage": percent, "metrics": metrics})
    }

    #[test]
    fn every_metric_is_a_column_and_odd_values_are_quoted() {
        let reports =
            [report(0, &[("total_steps", "8")]), report(50, &[("loss", "0.5"), ("note", "a, \"b\"")]), json!({})];
        let names = names(&reports);
        assert_eq!(
            csv(&names, &reports),
            "time,progress,remaining,total_steps,loss,note\n\
             2026-01-02T03:04:05.500Z,0,,8,,\n\
             2026-01-02T03:04:05.500Z,50,,,0.5,\"a, \"\"b\"\"\"\n\
             ,,,,,\n"
        );
    }

    #[test]
    fn sparklines_show_the_course() {
        assert_eq!(sparkline(&[], None), "");
        assert_eq!(sparkline(&[3.0, 3.0], None), "▁▁");
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], None), "▁▂▃▄▅▆▇█");
        let falling: Vec<f64> = (0..1000).map(|n| f64::from(1000 - n)).collect();
        let line: Vec<char> = sparkline(&falling, None).chars().collect();
        assert_eq!((line.len(), line[0], line[SPARK - 1]), (SPARK, '█', '▁'));
        assert_eq!(sparkline(&[4.0, 5.0], Some((0.0, 7.0))), "▅▆", "on the scale of all");
        assert_eq!(sparkline(&[1e308, -1e308], None).chars().count(), 2, "a range beyond all numbers");
    }
}
