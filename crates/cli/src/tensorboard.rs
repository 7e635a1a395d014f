//! `metrics --tensorboard DIR`: the history of what jobs reported, as a file of events that TensorBoard reads.
//!
//! A file is a sequence of records: length (u64), its checksum, the event, its checksum; little-endian, CRC-32C, masked. An event is a
//! protocol buffer `Event` of a time, a step, and either the file's version or a `Summary` of one value.
//! Source: TensorFlow's `core/util/event.proto`, `core/framework/summary.proto` and `core/lib/io/record_writer.h`.

use client::ClientError;
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use jiff::Timestamp;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Added to a rotated checksum, so that one of data that has checksums in it is another.
const MASK: u32 = 0xa282_ead8;
/// Metrics that count steps, where a script reports one.
const STEPS: [&str; 3] = ["global_step", "step", "train/global_step"];
/// What the name of a file ends with: the next export takes its place.
const OURS: &str = ".trainyard";

/// Writes what a job reported to the folder of its name, which TensorBoard shows as a run, in place of an earlier export of it. What is
/// no number is left out. The step is the job's own, or the number of the report, from 0.
///
/// Errors: the folder or the file cannot be written.
pub(crate) fn export(folder: &Path, job: &str, reports: &[Value]) -> Result<PathBuf, ClientError> {
    let run = folder.join(job);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ClientError::Io { doing: "write", path, source }
    };
    std::fs::create_dir_all(&run).map_err(failed(&run))?;
    let began = reports.first().map_or(0, |report| seconds(report) as i64);
    let name = format!("events.out.tfevents.{began:010}{OURS}");
    for entry in std::fs::read_dir(&run).map_err(failed(&run))?.filter_map(Result::ok) {
        let old = entry.file_name().into_string().unwrap_or_default();
        if old.starts_with("events.out.tfevents.") && old.ends_with(OURS) && old != name {
            std::fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
        }
    }
    let (file, part) = (run.join(&name), run.join(".writing"));
    std::fs::write(&part, events(reports)).map_err(failed(&part))?;
    std::fs::rename(&part, &file).map_err(failed(&file))?;
    Ok(file)
}

fn events(reports: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut version = Vec::new();
    double(&mut version, 1, reports.first().map_or(0.0, seconds));
    bytes(&mut version, 3, b"brain.Event:2");
    record(&mut out, &version);
    for (number, report) in reports.iter().enumerate() {
        let step = STEPS.iter().find_map(|name| metric(report, name)).filter(|step| *step >= 0.0);
        let step = step.map_or(number as u64, |step| step as u64);
        let metrics = report["metrics"].as_array().into_iter().flatten();
        let values = metrics.filter_map(|metric| Some((metric["name"].as_str()?, number_of(metric)?)));
        let progress = report["progressPercentage"].as_f64().map(|percent| ("progress", percent));
        for (tag, value) in values.chain(progress) {
            let (mut one, mut summary, mut event) = (Vec::new(), Vec::new(), Vec::new());
            bytes(&mut one, 1, tag.as_bytes());
            key(&mut one, 2, 5);
            one.extend((value as f32).to_le_bytes());
            bytes(&mut summary, 1, &one);
            double(&mut event, 1, seconds(report));
            key(&mut event, 2, 0);
            varint(&mut event, step);
            bytes(&mut event, 5, &summary);
            record(&mut out, &event);
        }
    }
    out
}

fn metric(report: &Value, name: &str) -> Option<f64> {
    number_of(report["metrics"].as_array()?.iter().find(|metric| metric["name"] == *name)?)
}

fn number_of(metric: &Value) -> Option<f64> {
    metric["value"].as_str()?.trim().parse().ok()
}

/// Seconds since 1970.
fn seconds(report: &Value) -> f64 {
    let time = report["lastUpdatedTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or(0.0, |time| time.as_millisecond() as f64 / 1e3)
}

fn record(out: &mut Vec<u8>, event: &[u8]) {
    let length = (event.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(checksum(&length).to_le_bytes());
    out.extend(event);
    out.extend(checksum(event).to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let plain = crc_fast::checksum(Crc32Iscsi, bytes) as u32;
    plain.rotate_right(15).wrapping_add(MASK)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number and wire type of a field.
fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, 1);
    out.extend(value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_are_as_tensorflow_writes_them() {
        // CRC-32C of nine digits, as all tables give it
        assert_eq!(crc_fast::checksum(Crc32Iscsi, b"123456789"), 0xe306_9283);
        let mut out = Vec::new();
        record(&mut out, b"abc");
        assert_eq!((out.len(), &out[..8], &out[12..15]), (8 + 4 + 3 + 4, &[3, 0, 0, 0, 0, 0, 0, 0][..], &b"abc"[..]));
        let mut number = Vec::new();
        varint(&mut number, 300);
        assert_eq!(number, [0xac, 0x02]);
    }

    #[test]
    fn an_export_takes_the_place_of_the_one_before() {
        let folder = std::env::temp_dir().join(format!("trainyard-tensorboard-{}", std::process::id()));
        let report = |second: u32, loss: &str| {
            json!({"lastUpdatedTime": format!("2026-01-01T00:00:0{second}Z"),
            "progressPercentage": 10, "metrics": [{"name": "loss", "value": loss}, {"name": "note", "value": "fine"}]})
        };
        let first = export(&folder, "a", &[report(1, "0.5")]).unwrap();
        std::fs::write(folder.join("a/events.out.tfevents.1.host"), "of somebody else").unwrap();
        let second = export(&folder, "a", &[report(2, "0.5"), report(3, "nan")]).unwrap();
        let mut left: Vec<String> = std::fs::read_dir(folder.join("a"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec!["events.out.tfevents.1.host".to_owned(), name(&second)];
        expected.sort();
        assert_eq!(left, expected);
        assert_ne!(first, second);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
