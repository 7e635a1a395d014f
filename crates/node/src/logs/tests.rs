//! Logs as they are asked for: tails, rotated files, and following.

use super::*;
use crate::poddir::JournalWriter;
use crate::shim::log_writer::{LogWriter, Stream as From};
use crate::wire::Exit;
use futures::StreamExt;

fn pod(lines: &[&str], bytes_max: u64) -> (tempfile::TempDir, PodDir, LogWriter) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = PodDir::new(tmp.path().join("uid"));
    dir.create().unwrap();
    fs::create_dir_all(dir.container("node")).unwrap();
    let mut journal = JournalWriter::open(&dir).unwrap();
    let running = Event::Running { container: "node".into(), attempt: 0, pid: 1 };
    journal.append(&Record::now(running)).unwrap();
    let mut log = LogWriter::open(&dir.log("node", 0), bytes_max, 5).unwrap();
    for (n, line) in lines.iter().enumerate() {
        let at = Timestamp::from_second(1_000_000 + n as i64).unwrap();
        log.write(From::Stdout, line.as_bytes(), at).unwrap();
    }
    (tmp, dir, log)
}

async fn text(dir: &PodDir, options: LogOptions) -> String {
    let stream = read(dir, "p", "node", options).unwrap();
    let chunks: Vec<_> = stream.collect().await;
    String::from_utf8(chunks.into_iter().flat_map(|c| c.unwrap().to_vec()).collect()).unwrap()
}

#[tokio::test]
async fn options() {
    let (_tmp, dir, _log) = pod(&["a\n", "b\n", "c\n", "d"], 1 << 20);
    let mut log = _log;
    log.finish(Timestamp::from_second(1_000_004).unwrap()).unwrap();
    let default = LogOptions::default;
    let cases = [
        (default(), "a\nb\nc\nd\n"),
        (LogOptions { tail_lines: Some(2), ..default() }, "c\nd\n"),
        (LogOptions { tail_lines: Some(9), ..default() }, "a\nb\nc\nd\n"),
        (LogOptions { tail_lines: Some(0), ..default() }, ""),
        (LogOptions { since: Some(Timestamp::from_second(1_000_002).unwrap()), ..default() }, "c\nd\n"),
        (LogOptions { limit_bytes: Some(3), ..default() }, "a\nb"),
        (LogOptions { tail_lines: Some(1), timestamps: true, ..default() }, "1970-01-12T13:46:44.000000000Z d\n"),
    ];
    for (options, expected) in cases {
        assert_eq!(text(&dir, options.clone()).await, expected, "{options:?}");
    }
    let refused = read(&dir, "p", "node", LogOptions { previous: true, ..default() }).err().unwrap();
    assert_eq!(refused.to_string(), "previous terminated container \"node\" in pod \"p\" not found");
    let refused = read(&dir, "p", "other", default()).err().unwrap();
    assert_eq!(refused.to_string(), "container \"other\" in pod \"p\" is waiting to start: ContainerCreating");
}

#[tokio::test]
async fn tail_spans_rotated_files_and_parts() {
    let lines: Vec<String> = (0..30).map(|n| format!("line {n}\n")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_tmp, dir, mut log) = pod(&lines, 200);
    let long = "x".repeat(40_000);
    log.write(From::Stdout, format!("{long}\nend\n").as_bytes(), clock::now()).unwrap();
    let options = LogOptions { tail_lines: Some(4), ..LogOptions::default() };
    assert_eq!(text(&dir, options).await, format!("line 28\nline 29\n{long}\nend\n"));
}

#[tokio::test]
async fn follow_ends_with_the_container_and_misses_nothing() {
    let (_tmp, dir, mut log) = pod(&["first\n"], 300);
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut stream = Box::pin(read(&dir, "p", "node", options).unwrap());
    let mut got = stream.next().await.unwrap().unwrap().to_vec();
    let mut expected = b"first\n".to_vec();
    for n in 0..40 {
        let line = format!("line {n}\n");
        log.write(From::Stdout, line.as_bytes(), clock::now()).unwrap();
        expected.extend_from_slice(line.as_bytes());
        if n % 5 == 0 {
            got.extend_from_slice(&stream.next().await.unwrap().unwrap());
        }
    }
    log.write(From::Stdout, b"torn", clock::now()).unwrap();
    log.finish(clock::now()).unwrap();
    expected.extend_from_slice(b"torn\n");
    let exit = Exit {
        code: 0,
        signal: None,
        reason: "Completed".into(),
        message: String::new(),
        started_at: clock::now(),
        finished_at: clock::now(),
        peak_memory_bytes: None,
    };
    let event = Event::Exited { container: "node".into(), attempt: 0, exit };
    JournalWriter::open(&dir).unwrap().append(&Record::now(event)).unwrap();
    while let Some(chunk) = stream.next().await {
        got.extend_from_slice(&chunk.unwrap());
    }
    assert_eq!(String::from_utf8(got).unwrap(), String::from_utf8(expected).unwrap());
}
