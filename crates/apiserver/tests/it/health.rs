//! Health, metrics and backups of a running server.

use crate::hostile::Hostile;
use resource::User;
use serde_json::json;

fn admin() -> User {
    User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

fn text((code, body): (u16, bytes::Bytes)) -> (u16, String) {
    (code, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn health_is_told_check_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(Some(&dir.path().join("s.sqlite"))).await;
    let get = async |user: User, path: &'static str| text(hostile.bytes_as(user, "GET", path, "", String::new()).await);
    assert_eq!(get(User::anonymous(), "/readyz").await, (200, "ok".to_owned()));
    assert_eq!(get(User::anonymous(), "/readyz/etcd").await.0, 403);
    let (code, text) = get(admin(), "/readyz?verbose").await;
    assert_eq!(
        (code, text.as_str()),
        (200, "[+]ping ok\n[+]etcd ok\n[+]stored-objects ok\n[+]shutdown ok\nreadyz check passed\n")
    );
    assert_eq!(get(admin(), "/livez?verbose").await, (200, "[+]ping ok\nlivez check passed\n".to_owned()));
    assert_eq!(get(admin(), "/readyz/etcd").await, (200, "ok".to_owned()));
    assert_eq!(get(admin(), "/readyz/dns").await.0, 404);
}

#[tokio::test]
async fn metrics_count_requests_watches_and_commits() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(Some(&dir.path().join("s.sqlite"))).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "a"}}).to_string();
    for code in [201, 409] {
        assert_eq!(hostile.ask_as(admin(), "POST", maps, "application/json", body.clone()).await.0, code);
    }
    assert_eq!(hostile.ask_as(admin(), "GET", "/apis/made.up/v1/things", "", String::new()).await.0, 404);
    let (code, text) = text(hostile.bytes_as(admin(), "GET", "/metrics", "", String::new()).await);
    assert_eq!(code, 200);
    let value = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start} is not in\n{text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    for code in [201, 409] {
        let labels =
            "verb=\"POST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",scope=\"namespace\"";
        let series = format!("apiserver_request_total{{{labels},component=\"apiserver\",code=\"{code}\"}}");
        assert!((value(&series) - 1.0).abs() < 0.1);
    }
    assert!(!text.contains("made.up"), "{text}");
    assert!(value("trainyard_store_commit_duration_seconds_count") >= 2.0);
    assert!(value("apiserver_storage_objects{resource=\"configmaps\"}") >= 1.0);
    assert!(value("apiserver_storage_size_bytes{") > 1000.0);
    assert!((value("apiserver_current_inflight_requests{request_kind=\"readOnly\"}") - 1.0).abs() < 0.1);
    assert!(text.contains("# TYPE apiserver_request_total counter\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}

#[tokio::test]
async fn a_backup_is_for_those_who_may_read_everything() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = Hostile::start(Some(&dir.path().join("s.sqlite"))).await;
    let user = User { name: "ann".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() };
    assert_eq!(hostile.ask_as(user.clone(), "GET", "/trainyard/backup", "", String::new()).await.0, 403);
    for verb in ["GET", "DELETE"] {
        assert_eq!(hostile.ask_as(user.clone(), verb, "/trainyard/damaged", "", String::new()).await.0, 403);
    }
    for body in ["", "[]", "{}", "{\"items\": [{\"name\": \"a\"}]}"] {
        assert_eq!(hostile.ask_as(admin(), "DELETE", "/trainyard/damaged", "", body.to_owned()).await.0, 400, "{body}");
    }
    let (code, text) = text(hostile.bytes_as(admin(), "GET", "/trainyard/backup", "", String::new()).await);
    assert!(code == 200 && text.starts_with("SQLite format 3"), "{code}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // the store's own files, and nothing of the backup
    let own = ["s.sqlite", "s.sqlite-wal", "s.sqlite-history"];
    assert!(left.iter().all(|name| own.iter().any(|own| name == own)), "{left:?}");
}
