//! Reports on their way, against an API server that notes when each status is written.

use super::super::pacing::{WINDOW, WRITES_PER_SEC};
use super::*;
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

/// An API server that takes statuses, or answers with `code`.
struct Api {
    code: AtomicU16,
    /// Of each job by name: when its status was written, and the last progress that was.
    written: Mutex<BTreeMap<String, (Vec<Instant>, i64)>>,
}

impl Api {
    fn start() -> (Arc<Self>, Client) {
        let api = Arc::new(Self { code: AtomicU16::new(200), written: Mutex::default() });
        let served = api.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let api = served.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let object: Value = serde_json::from_slice(&body).unwrap();
                let code = api.code.load(Ordering::SeqCst);
                let answer = if code == 200 {
                    let name = object::meta(&object, "name").to_owned();
                    let progress = object["status"]["trainerStatus"]["progressPercentage"].as_i64().unwrap();
                    let uid = format!("uid-of-{name}");
                    let mut written = api.written.lock().unwrap();
                    let (times, last) = written.entry(name).or_default();
                    times.push(Instant::now());
                    *last = progress;
                    json!({"metadata": {"uid": uid}})
                } else {
                    json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": "no"})
                };
                let body = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        (api, Client::new(service, "default"))
    }

    fn progress(&self, name: &str) -> Option<i64> {
        self.written.lock().unwrap().get(name).map(|(_, last)| *last)
    }

    fn writes(&self) -> usize {
        self.written.lock().unwrap().values().map(|(times, _)| times.len()).sum()
    }
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn job(name: &str, condition: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-of-{name}")},
        "status": {"conditions": [{"type": condition, "status": "True"}]}})
}

fn report(percent: i32) -> TrainerStatus {
    TrainerStatus {
        progress_percentage: Some(percent),
        last_updated_time: Some(jiff::Timestamp::from_second(i64::from(percent)).unwrap().into()),
        ..TrainerStatus::default()
    }
}

/// Waits until it is true; the clock is virtual, so that this takes no time.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("trainyard-reports-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_jobs_cost_a_bounded_number_of_writes() {
    const JOBS: usize = 10_000;
    const ROUNDS: i32 = 6;
    let (api, client) = Api::start();
    let reports = Arc::new(Reports::new(client));
    let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    names.iter().for_each(|name| reports.observe(&job(name, "Suspended")));
    let stop = CancellationToken::new();
    let running = tokio::spawn(reports.clone().run(stop.clone()));
    let started = Instant::now();
    for round in 0..ROUNDS {
        for name in &names {
            reports.take(&key(name), &report(round)).await.unwrap();
        }
        if round == 0 {
            assert_eq!(api.writes(), JOBS, "a job's first report is written before it is answered");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let took = started.elapsed();
    let coalesced = api.writes() - JOBS;
    let most = (took.as_secs() as usize + 1) * (WRITES_PER_SEC as usize);
    assert!(coalesced > 0 && coalesced <= most, "{coalesced} of {} in {took:?}", JOBS * ROUNDS as usize);
    for (times, _) in api.written.lock().unwrap().values() {
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min().is_none_or(|least| least >= WINDOW), "{times:?}");
    }
    // at the end all is written, once
    let before = api.writes();
    stop.cancel();
    running.await.unwrap();
    assert!(names.iter().all(|name| api.progress(name) == Some(i64::from(ROUNDS - 1))));
    assert!(api.writes() - before <= JOBS);
    assert_eq!(reports.pacing().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn writes_keep_to_the_pace_that_was_asked_for_until_the_server_stops() {
    const JOBS: usize = 100;
    let (api, client) = Api::start();
    let reports = Arc::new(Reports::new(client).paced(2.0, 10.0));
    let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    names.iter().for_each(|name| reports.observe(&job(name, "Suspended")));
    let stop = CancellationToken::new();
    let running = tokio::spawn(reports.clone().run(stop.clone()));
    let started = Instant::now();
    for round in 0..20 {
        let takes = names.iter().map(async |name| reports.take(&key(name), &report(round)).await);
        futures::future::join_all(takes).await.into_iter().for_each(|taken| taken.unwrap());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let most = 10 + 2 * started.elapsed().as_secs() as usize + 1;
    assert!((most / 2..=most).contains(&api.writes()), "{} writes, {most} at most", api.writes());
    stop.cancel();
    running.await.unwrap();
    assert!(names.iter().all(|name| api.progress(name) == Some(19)), "none is lost at the end");
}

#[tokio::test(start_paused = true)]
async fn the_last_report_is_written_when_the_job_or_a_pod_of_it_ends() {
    let (api, client) = Api::start();
    let reports = Arc::new(Reports::new(client));
    let stop = CancellationToken::new();
    let running = tokio::spawn(reports.clone().run(stop.clone()));
    for name in ["by-job", "by-pod", "neither"] {
        reports.observe(&job(name, "Suspended"));
        reports.take(&key(name), &report(1)).await.unwrap();
        reports.take(&key(name), &report(2)).await.unwrap();
        assert_eq!(api.progress(name), Some(1));
    }
    let before = Instant::now();
    reports.observe(&job("by-job", "Complete"));
    reports.hurry(&key("by-pod"));
    until("both are written", || ["by-job", "by-pod"].iter().all(|name| api.progress(name) == Some(2))).await;
    assert!(before.elapsed() < WINDOW);
    assert_eq!(api.progress("neither"), Some(1));
    until("the window ends", || api.progress("neither") == Some(2)).await;
    reports.take(&key("by-job"), &report(3)).await.unwrap();
    assert_eq!(api.progress("by-job"), Some(3), "nothing is held back of a job that has ended");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_delays_and_loses_nothing() {
    let (api, client) = Api::start();
    let reports = Arc::new(Reports::new(client));
    let stop = CancellationToken::new();
    let running = tokio::spawn(reports.clone().run(stop.clone()));
    reports.observe(&job("a", "Suspended"));
    reports.take(&key("a"), &report(1)).await.unwrap();
    api.code.store(503, Ordering::SeqCst);
    reports.take(&key("a"), &report(2)).await.unwrap();
    tokio::time::sleep(WINDOW * 3).await;
    assert_eq!(api.progress("a"), Some(1));
    api.code.store(200, Ordering::SeqCst);
    until("it is back", || api.progress("a") == Some(2)).await;
    // what is answered at once is answered as it is
    api.code.store(503, Ordering::SeqCst);
    assert_eq!(reports.take(&key("unknown"), &report(1)).await, Err(Fault::Internal));
    api.code.store(404, Ordering::SeqCst);
    assert_eq!(reports.take(&key("unknown"), &report(1)).await, Err(Fault::NotFound));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reports_of_a_job_that_nobody_knows_of_yet_stay_in_order() {
    let (api, client) = Api::start();
    let reports = Arc::new(Reports::new(client));
    let (first, second) = (report(1), report(2));
    let (a, b) = (key("a"), key("a"));
    let (one, two) = tokio::join!(reports.take(&a, &first), reports.take(&b, &second));
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!((api.progress("a"), api.writes()), (Some(2), 2));
}

#[tokio::test]
async fn what_a_killed_process_held_back_is_written_by_the_next() {
    let folder = Folder::new("recover");
    let (api, client) = Api::start();
    let history = || Some(Series::new(folder.0.clone()));
    let killed = Reports { series: history(), ..Reports::new(client.clone()) };
    for name in ["behind", "gone", "edited"] {
        killed.observe(&job(name, "Suspended"));
        killed.take(&key(name), &report(1)).await.unwrap();
        killed.take(&key(name), &report(2)).await.unwrap();
        assert_eq!(killed.series.as_ref().unwrap().read(&key(name)).unwrap().len(), 2);
    }
    drop(killed);

    let reports = Arc::new(Reports { series: history(), ..Reports::new(client) });
    let stop = CancellationToken::new();
    let running = tokio::spawn(reports.clone().run(stop.clone()));
    let files = reports.recorded().await;
    assert_eq!(files.len(), 3);
    let listed: BTreeMap<Key, String> =
        ["behind", "edited"].map(|name| (key(name), format!("uid-of-{name}"))).into_iter().collect();
    for name in ["behind", "edited"] {
        reports.observe(&job(name, "Suspended"));
    }
    reports.retain(&listed, files).await;
    assert_eq!(reports.recorded().await.len(), 2, "the history of the job that is gone is gone");
    let statuses = listed.iter().map(|(key, uid)| {
        let written = if key.name == "edited" { report(9) } else { report(1) };
        (key.clone(), uid.clone(), serde_json::to_value(written).unwrap())
    });
    reports.recover(statuses.collect()).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!((api.progress("behind"), api.progress("edited")), (Some(2), Some(1)), "a newer status is let be");
    reports.forget(&key("behind"), "uid-of-behind").await;
    assert_eq!(reports.recorded().await, [(key("edited"), "uid-of-edited".to_owned())]);
}
