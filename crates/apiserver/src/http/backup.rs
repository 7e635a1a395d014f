//! Serves all objects as a database file, for a backup.

use super::Server;
use super::answer::{Body, response};
use crate::registry::internal;
use bytes::Bytes;
use http::Response;
use resource::status::Status;
use std::sync::Arc;
use tokio_util::io::ReaderStream;

impl Server {
    /// All objects as they are at one moment, as an SQLite file. Writes go on meanwhile.
    pub(super) async fn backup(self: &Arc<Self>) -> Result<Response<Body>, Status> {
        let Some((path, turn)) = &self.backups else {
            return Err(Status::new(
                404,
                "NotFound",
                "there is no database to back up: this server keeps its objects in memory",
            ));
        };
        // the file is made beside the database, one at a time, and has no name any more once it can be read
        let turn = turn.lock().await;
        let (server, path) = (self.clone(), path.clone());
        let made = tokio::task::spawn_blocking(move || {
            let revision = server.core.store.back_up(&path)?;
            let file = std::fs::File::open(&path)?;
            std::fs::remove_file(&path)?;
            Ok::<_, store::OpenError>((revision, file))
        });
        let made = made.await.map_err(|error| internal(error.to_string()))?;
        drop(turn);
        let (revision, file) = made.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            internal(format!("the backup cannot be written beside the database: {error}{cause}"))
        })?;
        let mut answer = response(200, "application/vnd.sqlite3", Bytes::new());
        answer.headers_mut().insert("trainyard-revision", revision.into());
        *answer.body_mut() = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
        Ok(answer)
    }
}
