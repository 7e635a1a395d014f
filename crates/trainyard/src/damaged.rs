//! `trainyard damaged`: lists the stored objects that were damaged and set aside, and drops them; whether the control plane runs or not.

use crate::up::UpError;
use backup::{refuse_unfinished, running};
use cli::damaged::{Row, choose, forgotten, list};
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Home};
use grammar::{DamagedArgs, Global};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use store::SetAside;

/// The server's path for them.
const PATH: &str = "/trainyard/damaged";

/// Who has the objects.
enum Holder {
    /// There is no database.
    Nobody,
    Server(Box<Cluster>),
    /// The database, which this process has locked.
    File(PathBuf),
}

/// Lists; drops what `--forget` or `--all` says.
pub(crate) async fn damaged(args: &DamagedArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global.home.as_deref())?;
    let database = home.root().join("store.db");
    let elsewhere = global.kubeconfig.is_some() || global.context.is_some();
    let lock = if elsewhere || !database.exists() { None } else { home.try_lock()? };
    let holder = match &lock {
        Some(_) => {
            refuse_unfinished(&home)?;
            Holder::File(database)
        }
        None if elsewhere => Holder::Server(Box::new(Cluster::existing(&cli::choice(global)).await?)),
        None if !database.exists() => Holder::Nobody,
        None => Holder::Server(Box::new(running(&home).await?)),
    };
    let rows = holder.rows().await?;
    if args.forget.is_empty() && !args.all {
        list(&rows, args.output.output);
        return Ok(cli::exit::OK);
    }
    let chosen = choose(&rows, args, global.namespace.as_deref())?;
    holder.forget(&chosen).await?;
    forgotten(&chosen, args.output.output);
    drop(lock);
    Ok(cli::exit::OK)
}

impl Holder {
    async fn rows(&self) -> Result<Vec<Row>, UpError> {
        match self {
            Self::Nobody => Ok(Vec::new()),
            Self::Server(cluster) => {
                let request = http::Request::get(PATH).body(Vec::new()).expect("a plain request");
                let answer: Value = cluster.client.request(request).await.map_err(|error| told(&error))?;
                same(&answer["items"])
            }
            Self::File(path) => {
                let path = path.clone();
                let read = move || store::damaged_closed(&path).map_err(|source| opened(path, source));
                same(&tokio::task::spawn_blocking(read).await.expect("reading a database does not panic")?)
            }
        }
    }

    async fn forget(&self, rows: &[Row]) -> Result<(), UpError> {
        match self {
            Self::Nobody => Ok(()),
            Self::Server(cluster) => {
                let body = serde_json::json!({"items": rows}).to_string().into_bytes();
                let request = http::Request::delete(PATH).body(body).expect("a plain request");
                cluster.client.request::<Value>(request).await.map_err(|error| told(&error))?;
                Ok(())
            }
            Self::File(path) => {
                let (path, rows): (_, Vec<SetAside>) = (path.clone(), same(rows)?);
                let drop = move || store::drop_damaged_closed(&path, &rows).map_err(|source| opened(path, source));
                tokio::task::spawn_blocking(drop).await.expect("writing a database does not panic")
            }
        }
    }
}

/// The same rows in the words of another crate.
fn same<T: serde::de::DeserializeOwned>(rows: &(impl Serialize + ?Sized)) -> Result<Vec<T>, UpError> {
    let value = serde_json::to_value(rows).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| failed(format!("the server's answer is not understood: {error}")))
}

fn opened(path: PathBuf, source: store::OpenError) -> UpError {
    UpError::Store { path, source: Box::new(source) }
}

fn told(error: &kube::Error) -> UpError {
    failed(format!("the control plane does not tell of damaged objects, or does not drop them: {error}"))
}

fn failed(why: String) -> UpError {
    ClientError::Api(ErrorCode::DamagedFailed, why).into()
}
