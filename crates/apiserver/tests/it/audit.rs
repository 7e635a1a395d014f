//! The audit log of a server that is asked over a socket.

use apiserver::audit::{Bounds, Log};
use apiserver::auth::Authenticator;
use apiserver::{Options, Server};
use resource::User;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

const TOKEN: &str = "the-administrators-token";

fn ask(address: SocketAddr, head: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let (length, agent) = (body.len(), "User-Agent: tester/1");
    let text = format!(
        "{head}\r\nHost: localhost\r\n{agent}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The records, once there are so many.
fn records(path: &Path, count: usize) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        if text.lines().count() >= count || Instant::now() > until {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_did_what_is_told_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let options = Options {
        authenticator: Authenticator::default().with_token(TOKEN, User::admin()),
        audit: Some(Log::open(&path, Bounds::default()).unwrap()),
        ..Options::new(kinds::built_in())
    };
    let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve(listener, None, std::future::pending()));
    let asked = tokio::task::spawn_blocking(move || {
        let admin = format!("HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hunter2-secret"}}).to_string();
        let wrong = json!({"metadata": {"name": "w"}, "stringData": {"!": "hunter2-secret"}}).to_string();
        let generated = json!({"metadata": {"generateName": "g-"}}).to_string();
        let review = json!({"spec": {"token": "hunter2-secret"}}).to_string();
        vec![
            ask(address, &format!("POST {secrets} {admin}"), &secret),
            ask(address, &format!("POST {secrets} {admin}"), &wrong),
            ask(address, &format!("POST {secrets} {admin}"), &generated),
            ask(address, &format!("GET {secrets}/s {admin}\r\nImpersonate-User: mallory"), ""),
            ask(address, "GET /api HTTP/1.1\r\nAuthorization: Bearer hunter2-secret", ""),
            ask(address, &format!("POST /apis/authentication.k8s.io/v1/tokenreviews {admin}"), &review),
            ask(address, &format!("GET /api/v1/pods?watch=1&timeoutSeconds=1 {admin}"), ""),
            ask(address, "GET /readyz HTTP/1.1", ""),
        ]
    });
    let codes = asked.await.unwrap();
    assert_eq!(codes, [201, 422, 201, 403, 401, 201, 200, 200]);
    let told = records(&path, codes.len());
    assert_eq!(told.len(), codes.len());
    for (record, code) in told.iter().zip(&codes) {
        let response = &record["responseStatus"];
        assert_eq!((&response["code"], response["status"] == "Failure"), (&json!(code), *code >= 400), "{record}");
        assert_eq!((&record["kind"], &record["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
        assert_eq!((&record["level"], &record["sourceIPs"]), (&json!("Metadata"), &json!(["127.0.0.1"])));
        assert_eq!(record["userAgent"], "tester/1");
        for time in ["requestReceivedTimestamp", "stageTimestamp"] {
            record[time].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        }
    }
    let object = json!({"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"});
    assert_eq!((&told[0]["verb"], &told[0]["objectRef"]), (&json!("create"), &object));
    assert_eq!(told[0]["user"]["username"], "kubernetes-admin");
    assert_eq!(told[1]["objectRef"]["name"], "w");
    assert!(told[2]["objectRef"]["name"].as_str().unwrap().starts_with("g-"), "{}", told[2]);
    assert_eq!((&told[3]["verb"], &told[3]["impersonatedUser"]["username"]), (&json!("get"), &json!("mallory")));
    assert_eq!((&told[4]["user"], &told[4]["verb"]), (&json!({}), &json!("get")));
    assert_eq!((&told[6]["verb"], &told[6]["stage"]), (&json!("watch"), &json!("ResponseStarted")));
    assert_eq!(told[7]["user"]["username"], "system:anonymous");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hunter2-secret") && !text.contains(TOKEN), "{text}");
}
