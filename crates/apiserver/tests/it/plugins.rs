//! What plugins of admission are shown.

use crate::hostile::Hostile;
use apiserver::{Options, Server};
use resource::admission::{Admission, Operation, Request};
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Notes what each of its halves is shown: the name, and whether the object comes with the request.
#[derive(Default)]
struct Noting(Mutex<Vec<(String, bool)>>);

impl Noting {
    fn note(&self, request: &Request<'_>) {
        self.0.lock().unwrap().push((request.name.to_owned(), request.object.is_some()));
    }
}

impl Admission for Noting {
    fn handles(&self, _: Operation, _: &str, resource: &str, _: &str) -> bool {
        resource == "configmaps"
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.note(request);
        object["data"]["noted"] = "yes".into();
        Ok(())
    }

    fn validate(&self, request: &Request<'_>) -> Result<Vec<String>, Status> {
        self.note(request);
        Ok(Vec::new())
    }
}

/// A copy of each object for each plugin that changes objects would be dear.
#[tokio::test(flavor = "multi_thread")]
async fn who_changes_an_object_gets_no_copy_of_it() {
    let noting = Arc::new(Noting::default());
    let options = Options { plugins: vec![noting.clone()], ..Options::new(kinds::built_in()) };
    let hostile = Hostile { server: Server::new(options).unwrap() };
    let namespace = json!({"metadata": {"name": "default"}});
    hostile.ask("POST", "/api/v1/namespaces", "application/json", namespace.to_string()).await;
    let map = json!({"metadata": {"name": "a"}, "data": {}});
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, answer) = hostile.ask("POST", path, "application/json", map.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    assert!(answer.to_string().contains("noted"), "{answer}");
    assert_eq!(*noting.0.lock().unwrap(), [("a".to_owned(), false), ("a".to_owned(), true)]);
}
